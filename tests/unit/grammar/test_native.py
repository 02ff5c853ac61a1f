"""Facts about native calls: what hosts do to arguments and names, and which commands come of it."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwright_grammar.native import command_from_value, commands_from_call, parse_calls, tool_name
from turnwright_grammar.reply import Command
from turnwright_grammar.tools import DEFAULT_TOOLS

SPAN = (0, 0)


def called(name: str, arguments: str | None) -> tuple[list[tuple[dict[str, str], str]], list[str]]:
    commands, warnings = commands_from_call(name, arguments)
    return [(dict(command.attributes), command.body) for command in commands], [one.kind for one in warnings]


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ('{"path":"a"}', []),
        (' {"path":"a"}\n', []),
        ('[{"path":"a"}]', []),
        ('"{\\"path\\":\\"a\\"}"', []),
        (json.dumps(json.dumps(json.dumps({"path": "a"}))), []),
        ("\"{'path': 'a',}\"", []),
        ('{"path":"a","line":null}', []),
        ('{"path":"a"}{"path":"a"}', ["arguments_repaired"]),
        ('{"path":"a"}\n{"path": "a"}', ["arguments_repaired"]),
        ('{"path":"a"}{"path":"a', ["arguments_repaired"]),
        ('{}{"path":"a"}', ["arguments_repaired"]),
        ('null{"path":"a"}', ["arguments_repaired"]),
        ('""{"path":"a"}', ["arguments_repaired"]),
        ('{"pa{"path":{"path":"a"}', ["arguments_repaired"]),
        ('{{"{"path":"{"path":"a"}{"path":"a"}', ["arguments_repaired"]),
        ('{"path":"a"}<|call|>', ["arguments_repaired"]),
        ('{"path":"a"}</tool_call>', ["arguments_repaired"]),
        ('{"path":"a"}```', ["arguments_repaired"]),
        ('```json\n{"path":"a"}\n```', ["arguments_repaired"]),
        ('<|constrain|>json<|message|>{"path":"a"}', ["arguments_repaired"]),
        ('Sure: {"path":"a"}.', ["arguments_repaired"]),
        ("{'path': 'a',}", ["arguments_repaired"]),
        ("{path: a}", ["arguments_repaired"]),
        ('"path": "a"', ["arguments_repaired"]),
        ('{\\"path\\": \\"a\\"}', ["arguments_repaired"]),
        ('"{\\"path\\": \\"a\\"}', ["arguments_repaired"]),
        ('{"path": "a', ["arguments_cut"]),
        ('{"path": "a"', ["arguments_cut"]),
    ],
)
def test_the_arguments_survive_what_hosts_and_models_do_to_them(arguments, kinds):
    assert called("get", arguments) == ([({"path": "a"}, "")], kinds)


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        (None, []),
        ("", []),
        (" \n", []),
        ("null", []),
        ("{}", []),
        ("[]", []),
        ('""', []),
        ("{}{}", ["arguments_repaired"]),
        ("12", ["arguments_unreadable"]),
        ("true", ["arguments_unreadable"]),
        ("[1, 2]", ["arguments_unreadable"]),
        ('["a", "b"]', ["arguments_unreadable"]),
        ("}", ["arguments_unreadable"]),
        ("path=a", ["arguments_unreadable"]),
        ("no idea", ["arguments_unreadable"]),
    ],
)
def test_a_call_without_arguments_has_none_and_says_so_when_they_were_unreadable(arguments, kinds):
    assert called("get", arguments) == ([({}, "")], kinds)


@pytest.mark.parametrize(
    ("name", "arguments", "attributes", "body"),
    [
        ("get", '{"arguments": {"path": "a"}}', {"path": "a"}, ""),
        ("get", '{"parameters": {"path": "a", "line": 3}}', {"path": "a", "line": "3"}, ""),
        ("get", '{"arguments": "{\\"path\\": \\"a\\"}"}', {"path": "a"}, ""),
        ("get", '{"input": {"args": {"path": "a"}}}', {"path": "a"}, ""),
        ("get", '{"name": "get", "arguments": {"path": "a"}}', {"path": "a"}, ""),
        ("get", '{"type": "function", "name": "functions.get", "parameters": {"path": "a"}}', {"path": "a"}, ""),
        ("get", '{"name": "rm", "arguments": {}}', {"name": "rm", "arguments": "{}"}, ""),
        ("get", '{"input": "a"}', {"path": "a"}, ""),
        ("sh", '{"__arg1": "ls"}', {"command": "ls"}, ""),
        ("sh", '"ls -la"', {"command": "ls -la"}, ""),
        ("sh", '["ls"]', {"command": "ls"}, ""),
        ("sh", '"{ ls; } > x"', {"command": "{ ls; } > x"}, ""),
        ("set", '{"attributes": {"path": "a"}, "body": "x"}', {"path": "a"}, "x"),
        ("set", '{"path": "a", "body": "x\\n"}', {"path": "a"}, "x\n"),
        ("set", '{"path": "a", "content": {"k": [1, null, "é"]}}', {"path": "a"}, '{"k":[1,null,"é"]}'),
        ("set", '{"path": "a", "content": "{\\"k\\": 1}"}', {"path": "a"}, '{"k": 1}'),
        ("set", '{"path": "a", "input": "x"}', {"path": "a", "input": "x"}, ""),
        ("get", '{"path": "a", "n": 1.5, "ok": false, "l": [1], "o": {"x": null}, "z": null}',
         {"path": "a", "n": "1.5", "ok": "false", "l": "[1]", "o": '{"x":null}'}, ""),
        ("get", '{" path ": "a"}', {"path": "a"}, ""),
        ("other", '{"input": {"a": 1}}', {"input": '{"a":1}'}, ""),
        ("other", '{"name": "other", "arguments": {"a": 1}}', {"a": "1"}, ""),
        ("other", '{"name": "x", "arguments": {"a": 1}}', {"name": "x", "arguments": '{"a":1}'}, ""),
    ],
)  # fmt: skip
def test_wrappers_come_off_and_values_become_text(name, arguments, attributes, body):
    assert called(name, arguments) == ([(attributes, body)], [])


@pytest.mark.parametrize(
    "arguments",
    [
        '{"path":"a"}{"path":"b"}',
        '{"path":"a"}\n{"path":"b"}\n{"path":"a"}',
        '[{"path":"a"},{"path":"b"}]',
        '{}[{"path":"a"},{"path":"b"}]',
        "{\"path\":\"a\"}, {'path': 'b'}",
        '{"path":"a"}{"path":"b',
        '"{\\"path\\":\\"a\\"}{\\"path\\":\\"b\\"}"',
    ],
)
@pytest.mark.parametrize("name", ["get", "rm", "other"])
def test_joined_objects_are_one_command_that_is_told_and_not_run(name, arguments):
    # C60: which tools the host merged is unknown, the name is only that of the last
    commands, warnings = commands_from_call(name, arguments)
    assert (len(commands), [one.kind for one in warnings]) == (1, ["arguments_joined"])


@pytest.mark.parametrize(
    ("arguments", "kinds"),
    [
        ('{"command": "echo "}" > f"}', ["arguments_left_over"]),
        ('{"command": "echo "} > f"}', ["arguments_left_over"]),
        ('{"command": "echo "}" > f", "n": 1}', ["arguments_left_over"]),
        ("{'command': 'a', 'b' 'c > d'}", ["arguments_repaired"]),
        ('{"command": "ls"} and then', ["arguments_left_over"]),
        ('{"command": "ls"}}', ["arguments_repaired"]),
        ('{"command": "ls"}</tool_call>', ["arguments_repaired"]),
        ('```json\n{"command": "ls"}\n```', ["arguments_repaired"]),
    ],
)
def test_arguments_of_risky_calls_that_leave_text_over_are_reported(arguments, kinds):
    # C56
    assert called("sh", arguments)[1] == kinds
    assert "arguments_left_over" not in called("get", arguments)[1]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("get", "get"),
        (" GET\n", "get"),
        ("functions.get", "get"),
        ("functions.get:0", "get"),
        ("functions::get", "get"),
        ("default_api.get", "get"),
        ("print(default_api.get", "get"),
        ("tools/get", "get"),
        ("tool.get", "get"),
        ("/get", "get"),
        ("get:12", "get"),
        ("get()", "get"),
        ('"get"', "get"),
        ("get<|channel|>commentary", "get"),
        ("getget", "get"),
        ("getgetget", "get"),
        ("functions.getfunctions.get", "get"),
        ("functions.get:0functions.get:0", "get"),
        ("ask_userask_user", "ask_user"),
        ("getset", "getset"),
        ("otherother", "otherother"),
        ("functions.other:0", "other"),
        ("mcp__files__get", "mcp__files__get"),
        ("files.get", "files.get"),
        ("files/get", "files/get"),
        ("Other", "Other"),
        ("", ""),
    ],
)
def test_a_name_is_found_in_what_hosts_make_of_it(written, name):
    assert tool_name(written, DEFAULT_TOOLS) == name


@pytest.mark.parametrize(
    ("written", "name"), [("functions.", "functions."), (":0", ":0"), (" ", "unknown"), ("", "unknown")]
)
def test_a_call_whose_name_is_nothing_but_its_wrapping_has_a_name(written, name):
    (command,), _ = commands_from_call(written, "{}")
    assert (command.name, command.known) == (name, False)


def test_a_tool_that_repeats_itself_keeps_its_name():
    assert tool_name("bobo", frozenset({"bo", "bobo"})) == "bobo"


def test_a_value_that_is_no_object_is_no_attribute():
    assert command_from_value("get", [1, 2], SPAN, DEFAULT_TOOLS) == Command("get")
    assert command_from_value("get", None, SPAN, DEFAULT_TOOLS) == Command("get")
    assert command_from_value("sh", "ls", SPAN, DEFAULT_TOOLS) == Command("sh", {"command": "ls"})


@pytest.mark.parametrize(
    ("value", "wrapped", "calls"),
    [
        ({"name": "get", "arguments": {"path": "a"}}, False, [("get", {"path": "a"})]),
        ({"name": "get", "arguments": [{"path": "a"}]}, False, [("get", [{"path": "a"}])]),
        ({"function": {"name": "get", "arguments": "{}"}}, False, [("get", "{}")]),
        ({"tool_calls": [{"name": "get", "input": {}}, {"name": "x", "args": {}}]}, False, [("get", {}), ("x", {})]),
        ({"get": {"path": "a"}}, True, [("get", {"path": "a"})]),
        ({"get": {"path": "a"}}, False, None),
        ({"tool": "get", "path": "a"}, True, [("get", {"path": "a"})]),
        ({"name": "get", "parameters": {"type": "object", "properties": {}}}, True, None),
        ({"name": "Ann", "age": 3}, False, None),
        ("get", True, None),
    ],
)
def test_a_call_is_distinguished_from_other_objects_by_its_shape(value, wrapped, calls):
    assert parse_calls(value, wrapped=wrapped) == calls


def test_arguments_nested_too_deep_for_the_json_module_are_read():
    deep = '{"path":"a","x":' + '{"x":' * 400 + "1" + "}" * 400 + "}"
    (command,), warnings = commands_from_call("get", deep)
    assert (command.attributes["path"], warnings) == ("a", ())
    assert json.loads(command.attributes["x"]) == json.loads(deep)["x"]


OBJECTS = st.dictionaries(st.sampled_from(["path", "line", "b c"]), st.integers() | st.text(max_size=8), min_size=1)


@given(OBJECTS, st.data())
def test_pieces_that_repeat_all_before_them_are_one_call(value, data):
    text = json.dumps(value)
    ends = sorted(data.draw(st.lists(st.integers(1, len(text)), max_size=6)))
    cumulative = "".join(text[:end] for end in ends) + text
    assert called("other", cumulative)[0] == called("other", text)[0]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.text(), st.text(alphabet="{}[]\"':, a1\\\n", max_size=60))
def test_any_name_and_any_arguments_make_commands(name, arguments):
    commands, _ = commands_from_call(name, arguments)
    assert len({one.name for one in commands}) == 1
    assert commands == commands_from_call(name, arguments)[0]


@pytest.mark.parametrize("piece", ["{", '{"a":', '{"a":1}', '{"a', "getget", '"', "\\"])
def test_long_hostile_arguments_and_names_end(piece):
    text = piece * (100_000 // len(piece))
    assert commands_from_call("get", text)[0][0].name == "get"
    assert len(commands_from_call(text, "{}")[0]) == 1
