"""A reply that its vendor cut off runs what was complete before the first thing without an end (C54)."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cases import load_cases
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reader.streaming import ReplyReader
from turnwright_grammar.reply import Reply

from .canonical import unplaced
from .mixtures import MIXTURES, WHOLE
from .streams import cut_at

CORPORA = (
    "grammar/native_formats_renamed.jsonl",
    "grammar/roo_xml.jsonl",
    "grammar/sglang_detectors.jsonl",
    "grammar/vllm_tool_parsers.jsonl",
    "rummy/xml_parser.jsonl",
    "rummy/xml_parser_spec.jsonl",
)
EVERYWHERE_CHARS_MAX = 60
"""Up to this length a reply is cut at every place, longer ones at as many places as that."""


def replies(name: str) -> list[str]:
    inputs = [case.get("model_output", case.get("input")) for case in load_cases(name)]
    found = (one["content"] if isinstance(one, dict) else one for one in inputs)
    return [one for one in found if one]


def places(text: str) -> list[int]:
    if len(text) <= EVERYWHERE_CHARS_MAX:
        return list(range(len(text) + 1))
    return random.Random(text).sample(range(len(text) + 1), EVERYWHERE_CHARS_MAX)


def check_cuts(text: str, cuts: list[int]) -> None:
    """Cut anywhere, a reply runs the first commands of the whole one, and says so where it loses one."""
    whole = read_reply(text).commands
    for cut in cuts:
        reply = read_reply(text[:cut], is_cut=True)
        # The calls of one list share its span, which the cut shortens.
        assert unplaced(reply.commands) == unplaced(whole[: len(reply.commands)]), text[:cut]
        begun = any(command.span[0] < cut < command.span[1] for command in whole[len(reply.commands) :])
        # Letters alone are the beginning of anything.
        assert reply.warnings or not begun or text[:cut].isalpha(), text[:cut]


@pytest.mark.parametrize("name", CORPORA)
def test_a_reply_of_the_cases_cut_anywhere_runs_a_beginning_of_its_commands(name):
    for text in replies(name):
        check_cuts(text, places(text))


@pytest.mark.parametrize("text", WHOLE)
def test_a_call_in_any_dialect_runs_whole_or_not_at_all(text):
    check_cuts(text, places(text))
    check_cuts(f"First:\n{text}\n\nThen:\n{text}\n", places(f"First:\n{text}\n\nThen:\n{text}\n"))


@given(MIXTURES, st.data())
def test_any_mixture_cut_anywhere_runs_a_beginning_of_its_commands(text, data):
    # Of a list that turns out to be broken nothing runs, nor before the close of a thought, and where it is cut nobody
    # knows that yet.
    assume(
        not {"unreadable_call", "cut_call", "unopened_thought"}
        & {warning.kind for warning in read_reply(text).warnings}
    )
    check_cuts(text, data.draw(st.lists(st.integers(0, len(text)), min_size=1, max_size=6)))


@given(MIXTURES, st.data())
def test_a_cut_stream_reads_as_the_cut_text(text, data):
    reader = ReplyReader()
    for delta in cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))):
        reader.feed(delta)
    assert reader.finish(is_cut=True) == read_reply(text, is_cut=True)


def cut(text: str) -> tuple[list[str], list[str]]:
    reply = read_reply(text, is_cut=True)
    return [command.name for command in reply.commands], [warning.kind for warning in reply.warnings]


@pytest.mark.parametrize(
    "rest",
    [
        '<set path="docs/x.md"># Use\n\nRun it:\n\n```sh\n<sh>make install</sh>\n',
        '<set path="docs/x.md">\n<sh>rm -rf build</sh>\n',
        "<sh>rm -rf /tmp/x",
        '<rm path="src',
        '<rm path="src"',
        "```xml\n<sh>rm -rf build</sh>\n",
        "Write `<sh>ls</sh>",
        "<!-- <sh>ls</sh>\n<sh>ls</sh>",
        "<thinking>\n<sh>ls</sh>\n",
        """<tool_call>{"name": "sh", "arguments": {"command": "echo '</tool_call>' > a""",
        '<tool_call>{"name": "sh", "arguments": {"command": "grep [TOOL_CALLS] ',
        '[TOOL_CALLS]sh{"command": "echo [TOOL_CALLS] && rm -rf',
        "<function=sh><parameter=command>echo </function> && rm -rf",
        '<invoke name="sh"><parameter name="command">cat <<X </parameter> Y',
        "<tool_call>sh<arg_key>command</arg_key><arg_value>ls </arg_value> x",
        "a.py\n<<<<<<< SEARCH\na\n=======\n<sh>ls</sh>\n",
        "```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n",
        "*** Begin Patch\n*** Delete File: x\n",
    ],
)
def test_nothing_runs_from_the_first_thing_without_an_end(rest):
    assert cut(f'<get path="a"/>\n{rest}') == (["get"], ["cut_reply"])


def test_what_is_left_of_a_cut_sentence_is_narration():
    assert read_reply("It holds if `a < b", is_cut=True).narration == "It holds if `a < b"
    assert read_reply("That is all.", is_cut=True) == Reply(narration="That is all.", narration_spans=((0, 12),))


def test_what_is_left_of_a_cut_command_is_no_narration():
    assert read_reply('I write it.\n<set path="a">half', is_cut=True).narration == "I write it."


def test_a_fence_of_commands_does_not_run_where_more_was_going_to_come():
    fenced = "```xml\n<sh>ls</sh>\n```\nThen I"
    assert [command.name for command in read_reply(fenced).commands] == ["sh"]
    assert cut(fenced) == ([], ["cut_reply"])


LISTS = [
    '<|python_tag|>{"name": "get", "parameters": {"path": "a"}}; {"name": "sh", "parameters": {"command": "ls',
    '<|python_tag|>{"name": "get", "parameters": {"path": "a"}};{"na',
    '<tool_calls>\n{"name": "get", "arguments": {"path": "a"}}\n{"name": "sh", "arguments": {"comm',
    '<tool_call>[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arguments": {"command": "ls',
    '[TOOL_CALLS][{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "argum',
    '[TOOL_CALLS] [{"name": "get", "arguments": {"path": "a"}}, {"na',
    'functools[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh"',
    '<|tool_call|>[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arguments": {"command": "ls"',
    '<TOOLCALL>[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arguments": {"command": "ls"}',
    '<|START_ACTION|>[{"tool_name": "get", "parameters": {"path": "a"}}, {"tool_name": "sh", "para',
    '<|python_tag|>[get(path="a"), sh(command="l',
    '<|tool_call_start|>[get(path="a"), sh(comm',
    '[get(path="a"), sh(command="l',
    '<tool_call>get(path="a")\nsh(command="l',
    '[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "argu',
    '{"tool_calls": [{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "argu',
    """<tool_call>[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arguments": {"command": "echo '</tool_call>' > f""",
    '<tool_call>{"name": "get", "arguments": {"path": "a"}}</tool_call><tool_call>{"name": "sh", "ar',
    '<function_calls><invoke name="get"><parameter name="path">a</parameter></invoke><invoke name="sh"><par',
]


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize("before", ["", "I read it.\n", "<think>I see.\n"])
def test_of_a_list_that_is_cut_in_its_last_call_the_others_run(text, before):
    reply = read_reply(before + text)
    assert [one.name for one in reply.commands if one.name != "think"] == ["get"]
    assert "cut_call" in [warning.kind for warning in reply.warnings]
    if before != "<think>I see.\n":
        assert cut(before + text) == (["get"], ["cut_reply"])


@pytest.mark.parametrize(
    "fence",
    ['json\n[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arg', 'tool_code\nget(path="a")\nsh(comm'],
)
def test_of_a_fenced_list_that_is_cut_in_its_last_call_the_others_run(fence):
    reply = read_reply(f"```{fence}")
    assert ([one.name for one in reply.commands], [one.kind for one in reply.warnings]) == (["get"], ["cut_call"])
    assert cut(f"```{fence}") == ([], ["cut_reply"])


def test_of_a_broken_list_that_is_cut_nothing_is_made_up():
    text = '<tool_call>[{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "b: {"command": "echo "}, {"x'
    assert cut(text) == ([], ["cut_reply"])
    assert read_reply(text).commands == ()


@pytest.mark.parametrize("text", [one for one in WHOLE if [call.name for call in read_reply(one).commands] == ["get"]])
@pytest.mark.parametrize("before", ["if a<b then\n\n", "x <y z, w\n", "for (i=0;i<n;i++)\n", "a < b\n\n"])
def test_a_whole_call_of_a_cut_reply_runs_although_something_before_it_looks_like_a_tag(text, before):
    reply = read_reply(f"{before}{text}\n\nand more te", is_cut=True)
    fenced = "```" in text
    assert [command.name for command in reply.commands] == ["get"] or fenced


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ('<rm path="src/ma', "rm", None),
        ('<tool_call>{"name": "set", "arguments": {"path": "a", "body": "hal', "set", "a"),
        ('<tool_call>{"name": "set", "arguments": {"body": "b", "path": "a', "set", None),
        ('<tool_call>{"name": "set", "argum', "set", None),
        ('<tool_call>{"name": "se', "", None),
        ("<tool_call>", None, None),
        ("<function=set><parameter=path>a</parameter><parameter=body>hal", "set", "a"),
        ("<function=set><parameter=path>a", "set", None),
        ('<invoke name="set"><parameter name="path">a</parameter><parameter name="body">x', "set", "a"),
        ("<tool_call>set<arg_key>path</arg_key><arg_value>a</arg_value><arg_key>body</arg_key><arg_value>b", "set", "a"),
        ('{"name": "set", "arguments": {"path": "a", "body": "hal', "set", "a"),
        ('[TOOL_CALLS]set[ARGS]{"path": "a", "body": "ha', "set", "a"),
        ('[TOOL_CALLS][{"name": "get", "arguments": {"path": "x"}}, {"name": "set", "arguments": {"path": "a", "body": "b', "set", "a"),
        ('<|start|>assistant<|channel|>commentary to=functions.set <|constrain|>json<|message|>{"path": "a", "body": "b', "set", "a"),
        ('[set(path="a", body="hal', "set", None),
        ("a.py\n<<<<<<< SEARCH\nold\n=======\nnew", "set", "a.py"),
        ("<<<<<<< SEARCH\nold\n=======\nnew", "set", None),
    ],
)  # fmt: skip
def test_of_a_command_that_is_cut_off_what_is_complete_is_told(text, name, path, is_cut):
    lost = [one for warning in read_reply(text, is_cut=is_cut).warnings for one in warning.lost]
    assert [(one.name, one.attributes.get("path")) for one in lost] == ([] if name is None else [(name, path)])
