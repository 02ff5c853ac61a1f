"""Facts about canonical attributes, and about native calls."""

import pytest

from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_call, read_reply
from turnwright_grammar.reply import Command
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve


@pytest.mark.parametrize(
    ("name", "attributes", "body", "resolved", "rest"),
    [
        ("get", {}, "a\n", {"path": "a"}, ""),
        ("get", {"path": "a"}, "filter", {"path": "a"}, "filter"),
        ("get", {"path": "a", "line": "3"}, "", {"path": "a", "line": "3"}, ""),
        ("rm", {}, "a", {"path": "a"}, ""),
        ("mv", {"path": "a", "visibility": "archived"}, "b", {"path": "a", "to": "b", "visibility": "archived"}, ""),
        ("cp", {"from": "a", "to": "b"}, "", {"path": "a", "to": "b"}, ""),
        ("sh", {}, "\nls\n", {"command": "ls"}, ""),
        ("env", {"command": "ls"}, "", {"command": "ls"}, ""),
        ("search", {"results": "5 pages"}, "q", {"path": "q", "results": "5"}, ""),
        ("search", {"query": "q", "results": "many"}, "", {"path": "q"}, ""),
        ("update", {}, " done\n", {"status": "102"}, "done"),
        ("update", {"status": "200", "body": "x"}, "y", {"status": "200"}, "x"),
        ("ask_user", {}, "Which?", {"question": "Which?"}, ""),
        ("ask_user", {"question": "Which?"}, "a, b", {"question": "Which?", "options": "a, b"}, ""),
        ("set", {"path": "a", "content": "x\n"}, "", {"path": "a"}, "x\n"),
        ("set", {"path": "a"}, "\n x \n", {"path": "a"}, "\n x \n"),
        ("think", {"thought": "t"}, "", {}, "t"),
        ("skill", {}, " guide ", {"path": "guide"}, ""),
        ("skill", {"url": "https://e.org/a.zip"}, "", {"path": "https://e.org/a.zip"}, ""),
        ("a_plugins", {"x": "1"}, " b ", {"x": "1"}, " b "),
        ("get_plan", {"x": "1"}, " b ", {"x": "1", "plan_id": "b"}, ""),
        ("set_plan", {"id": "p", "content": " b "}, "", {"plan_id": "p"}, "b"),
        ("update_plan", {"note": "n"}, "", {}, "n"),
    ],
)
def test_attributes_win_and_the_body_fills(name, attributes, body, resolved, rest):
    command = resolve(Command(name, attributes, body))
    assert (dict(command.attributes), command.body) == (resolved, rest)


TAGS_IN_BODIES = [
    ("sh", {}, "<command>echo hi</command>", {"command": "echo hi"}, ""),
    ("env", {}, "\n<cmd>ls</cmd>\n", {"command": "ls"}, ""),
    ("sh", {"command": "cat"}, "<command>a</command>", {"command": "cat"}, "<command>a</command>"),
    ("sh", {"cmd": "cat"}, "<script>a</script>", {"command": "cat"}, "<script>a</script>"),
    ("sh", {}, "<command>a</command> b", {"command": "<command>a</command> b"}, ""),
    ("sh", {}, "<html>a</html>", {"command": "<html>a</html>"}, ""),
    ("get", {}, "<path>a</path><line>3</line>", {"path": "a", "line": "3"}, ""),
    ("get", {"path": "a"}, "<path>b</path>", {"path": "a"}, "<path>b</path>"),
    ("rm", {"visibility": "archived"}, "<path>a</path>", {"path": "a", "visibility": "archived"}, ""),
    ("cp", {"path": "a"}, "<to>b</to>", {"path": "a", "to": "b"}, ""),
    ("mv", {"from": "a"}, "<dest>b</dest>", {"path": "a", "to": "b"}, ""),
    ("mv", {}, "<path>a</path><to>b</to>", {"path": "a", "to": "b"}, ""),
    ("mv", {"path": "a", "to": "b"}, "<to>c</to>", {"path": "a", "to": "b"}, "<to>c</to>"),
    ("search", {}, "<query>q</query><results>3</results>", {"path": "q", "results": "3"}, ""),
    ("skill", {}, "<name>x</name>", {"path": "x"}, ""),
    ("set", {}, "<path>a</path><content>x\n</content>", {"path": "a"}, "x\n"),
    ("set", {"path": "a"}, "<path>b</path>", {"path": "a"}, "<path>b</path>"),
    ("set", {"file_path": "a"}, "<path>b</path>", {"path": "a"}, "<path>b</path>"),
    ("ask_user", {}, "<question>W?</question><options>a, b</options>", {"question": "W?", "options": "a, b"}, ""),
    ("set_plan", {}, "<plan_id>p</plan_id><plan>- a</plan>", {"plan_id": "p"}, "- a"),
    ("update_plan", {"plan_id": "p"}, "<note>n</note>", {"plan_id": "p"}, "n"),
    ("get_plan", {}, "<id>p</id>", {"plan_id": "p"}, ""),
    ("think", {}, "<thought>t</thought>", {}, "<thought>t</thought>"),
    ("update", {}, "<text>t</text>", {"status": "102"}, "<text>t</text>"),
    ("a_plugins", {}, "<x>1</x>", {"x": "1"}, ""),
]
KNOWN = DEFAULT_TOOLS | {"a_plugins"}


@pytest.mark.parametrize(("name", "attributes", "body", "resolved", "rest"), TAGS_IN_BODIES)
def test_tags_in_a_body_are_parameters_unless_what_the_body_stands_for_is_given(name, attributes, body, resolved, rest):
    given = "".join(f' {key}="{value}"' for key, value in attributes.items())
    (written,) = read_reply(f"<{name}{given}>{body}</{name}>", known_tools=KNOWN).commands
    called = read_call(Command(name, attributes, body), KNOWN)
    assert (written.name, dict(written.attributes), written.body) == (name, resolved, rest)
    assert (called.name, dict(called.attributes), called.body) == (name, resolved, rest)


@pytest.mark.parametrize(
    ("name", "attributes", "body", "resolved", "rest"),
    [
        ("sh", {}, "<sh>echo hi</sh>", {"command": "echo hi"}, ""),
        ("sh", {}, "\n<sh command='a'/>\n", {"command": "a"}, ""),
        ("sh", {}, "<sh><command>a</command></sh>", {"command": "a"}, ""),
        ("sh", {}, '<tool_call>{"name": "sh", "arguments": {"command": "a"}}</tool_call>', {"command": "a"}, ""),
        ("get", {}, "<get path='a'>x</get>", {"path": "a"}, "x"),
        ("set", {}, "<set path='a'>\n<set path='b'>c</set>\n</set>", {"path": "a"}, "\n<set path='b'>c</set>\n"),
        ("update", {}, "<update status='200'>Done</update>", {"status": "200"}, "Done"),
        ("think", {}, "<think>a</think>", {}, "a"),
        ("a_plugins", {}, "<a_plugins x='1'/>", {"x": "1"}, ""),
        # Not one whole call of this tool: text.
        ("set", {"path": "a"}, "<set path='b'>c</set>", {"path": "a"}, "<set path='b'>c</set>"),
        ("sh", {}, "<sh>a</sh><sh>b</sh>", {"command": "<sh>a</sh><sh>b</sh>"}, ""),
        ("sh", {}, "<sh>a</sh> and more", {"command": "<sh>a</sh> and more"}, ""),
        ("sh", {}, "<get path='a'/>", {"command": "<get path='a'/>"}, ""),
        ("sh", {}, "<in.txt sort", {"command": "<in.txt sort"}, ""),
    ],
)
def test_the_body_of_a_client_may_be_the_call_itself(name, attributes, body, resolved, rest):
    called = read_call(Command(name, attributes, body), KNOWN)
    assert (called.name, dict(called.attributes), called.body) == (name, resolved, rest)


def test_an_unknown_tool_is_left_alone():
    command = Command("update", {}, " x ", known=False)
    assert resolve(command) is command


def test_resolving_twice_changes_nothing():
    once = resolve(Command("get", {}, "a"))
    assert resolve(once) == once


@pytest.mark.parametrize(
    ("arguments", "attributes", "body", "kinds"),
    [
        (None, {}, "", []),
        ("", {}, "", []),
        ("null", {}, "", []),
        ("{}", {}, "", []),
        ('{"path": "a", "content": "x", "n": 1, "none": null}', {"path": "a", "n": "1"}, "x", []),
        ('{"path": "a", "deep": {"b": [1, true]}}', {"path": "a", "deep": '{"b":[1,true]}'}, "", []),
        ("{'path': 'a',}", {"path": "a"}, "", ["arguments_repaired"]),
        ('{"path": "a', {"path": "a"}, "", ["arguments_cut"]),
        ("12", {}, "", ["arguments_unreadable"]),
        ("}", {}, "", ["arguments_unreadable"]),
        ('"{\\"path\\": \\"a\\"}"', {"path": "a"}, "", []),
        ('[{"path": "a"}]', {"path": "a"}, "", []),
    ],
)
def test_native_arguments_become_attributes_and_body(arguments, attributes, body, kinds):
    (command, *_), warnings = commands_from_call("functions.set", arguments)
    assert (command.name, dict(command.attributes), command.body) == ("set", attributes, body)
    assert [warning.kind for warning in warnings] == kinds


def test_a_native_call_of_an_unknown_tool_is_unknown():
    (command, *_), _ = commands_from_call("Linter", '{"query": "x"}')
    assert (command.name, dict(command.attributes), command.known) == ("Linter", {"query": "x"}, False)
