"""The close of a thought that was never opened: all before it is reasoning and never runs (C59)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_grammar.reader.parser import read_reply

from .mixtures import MIXTURES, WHOLE
from .streams import check_stream, cut_at, in_pieces

CLOSES = [
    "</think>", "</thinking>", "</THINK>", "</Think >", "</thought>", "</reasoning>", "</reflection>", "</scratchpad>",
    "</seed:think>", "[/THINK]", "<|END_THINKING|>", "<|end_of_thought|>", "<|inner_suffix|>", "<channel|>",
    "\u25c1/think\u25b7",
]  # fmt: skip
AFTER = '<get path="b"/>'


def paths(text: str, *, is_cut: bool = False) -> list[str]:
    return [command.attributes.get("path", command.name) for command in read_reply(text, is_cut=is_cut).commands]


@pytest.mark.parametrize("close", CLOSES)
@pytest.mark.parametrize("around", ["\n{}\n\n", "{}", " so{}", "{} ", "\n> {}\n", "\n\n    {}\n"])
def test_what_stands_before_it_does_not_run_and_what_follows_does(close, around):
    thought = 'I could\n<sh>rm -rf build</sh>\n<set path="a">x</set>'
    text = f"{thought}{around.format(close)}{AFTER}"
    reply = read_reply(text)
    assert [command.attributes for command in reply.commands] == [{"path": "b"}]
    assert [warning.kind for warning in reply.warnings] == ["unopened_thought"]
    assert reply.split_thought(text)[0].startswith(thought)
    assert reply.split_thought(text)[1].endswith(AFTER)
    check_stream(text, text, reply)
    check_stream(text, in_pieces(text, 3), reply)


# What is not closed protects no close: it is the thought that stopped there.
OPEN = [
    "<sh>rm -rf build",
    '<sh command="rm">\n',
    "<set path='a'>\nx",
    "<think>\n<sh>ls</sh>",
    "```\n<sh>ls</sh>",
    "~~~sh\nls",
    "```\na.py\n<<<<<<< SEARCH\na",
    "a `tick",
    "User: do it\n<sh>ls</sh>",
    "<tool_response>ok",
    "Observation: ok",
    "<|im_start|>user\nhi",
    '<tool_call>{"name": "sh", "arguments": {"command": "rm ',
    '<tool_call>{"name": "get", "arguments": {"path": "a"}}</tool_call><tool_call>{"name": "sh", "arg',
    '[TOOL_CALLS][{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "argum',
    "<function=sh><parameter=command>rm",
    '<invoke name="sh"><parameter name="command">rm',
    "<tool_call>sh<arg_key>command</arg_key><arg_value>rm",
    '{"name": "sh", "arguments": {"command": "rm',
    "\n[sh(command='rm",
    "<|channel|>analysis<|message|>hm",
    '<|channel|>commentary to=functions.sh<|message|>{"command": "rm',
    "a.py\n<<<<<<< SEARCH\na\n=======\nb",
    "*** Begin Patch\n*** Delete File: x\n",
    "<!-- a",
    "<read_file><path>a</path>",
    "<thinking>or <get path='a'/>",
]  # fmt: skip


@pytest.mark.parametrize("opened", OPEN)
@pytest.mark.parametrize("close", ["</think>", "</thinking>", "[/THINK]"])
def test_something_that_was_never_closed_does_not_hide_it(opened, close):
    if opened.startswith(close.replace("/", "")):
        return
    text = f"<sh>rm -rf build</sh>\n{opened}\n{close}\n{AFTER}"
    reply = read_reply(text)
    assert [command.attributes for command in reply.commands] == [{"path": "b"}]
    check_stream(text, in_pieces(text, 5), reply)
    assert paths(f"{text}\nand then <se", is_cut=True) == ["b"]


@pytest.mark.parametrize(
    "protected",
    [
        "`</think>`",
        "``a </think>``",
        "```\n</think>\n```",
        "~~~xml\n<a></think>\n~~~",
        "```\nb.py\n<<<<<<< SEARCH\na\n=======\n</think>\n>>>>>>> REPLACE\n```",
        '<set path="a">say </think> now</set>',
        "<sh>echo '</think>'</sh>",
        '<update status="102">a </think> b</update>',
        '<tool_call>{"name": "set", "arguments": {"path": "a", "body": "x </think> y"}}</tool_call>',
        '[TOOL_CALLS][{"name": "set", "arguments": {"path": "a", "body": "</think>"}}]',
        "<function=set><parameter=path>a</parameter><parameter=body>\n</think>\n</parameter></function>",
        "<think>a</think>",
        "<think>a <think>b</think> c</think>",
        "<thinking>a</think></thinking>",
        "[THINK]a[/THINK]",
        "\u25c1think\u25b7a\u25c1/think\u25b7",
        "\nb.py\n<<<<<<< SEARCH\n</think>\n=======\n\n>>>>>>> REPLACE\n",
        "*** Begin Patch\n*** Add File: x\n+</think>\n*** End Patch",
    ],
)
def test_it_counts_neither_in_code_nor_in_a_body_or_a_call(protected):
    text = f'<rm path="first"/>\n\n{protected}\n\n{AFTER}'
    assert paths(text)[0] == "first"
    assert read_reply(text).thought_ends == ()


def test_of_several_the_last_one_counts_and_the_thought_is_all_before_it():
    text = 'a<get path="1"/></think>b<get path="2"/></thinking>c<get path="3"/>'
    reply = read_reply(text)
    assert paths(text) == ["3"]
    assert reply.split_thought(text) == ('a<get path="1"/>b<get path="2"/>', 'c<get path="3"/>')
    assert paths(f"<think>x</think>{text}") == ["3"]


@given(st.lists(st.one_of(MIXTURES, st.sampled_from(CLOSES)), max_size=5).map("".join), st.data())
def test_any_split_has_the_same_thought_and_the_rest_reads_by_itself_as_it_did(text, data):
    reply = read_reply(text)
    check_stream(text, cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))), reply)
    _, rest = reply.split_thought(text)
    again = read_reply(rest)
    assert (again.thought_ends, again.narration) == ((), reply.narration)
    assert [one.attributes for one in again.commands] == [one.attributes for one in reply.commands]


@pytest.mark.parametrize("text", WHOLE)
@pytest.mark.parametrize("close", ["</think>", "</thinking>"])
def test_no_dialect_runs_before_it(text, close):
    assert paths(f"{text}\n{close}\nSo be it.") == []


@pytest.mark.parametrize("call", [
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"path": "b"}<|tool_call_end|>',
    '<tool_call>{"name": "get", "arguments": {"path": "b"}}</tool_call>',
    '[TOOL_CALLS][{"name": "get", "arguments": {"path": "b"}}]',
    "<function=get><parameter=path>b</parameter></function>",
    '<function_calls><invoke name="get"><parameter name="path">b</parameter></invoke></function_calls>',
    '<|channel|>commentary to=functions.get<|message|>{"path": "b"}<|call|>',
    "<tool_call>get<arg_key>path</arg_key><arg_value>b</arg_value></tool_call>",
])  # fmt: skip
def test_a_call_behind_a_thought_that_is_never_closed_runs_wherever_it_stands_on_its_line(call):
    text = f"<think>I look. The token <tool_call> begins one.{call}"
    assert paths(text) == ["think", "b"]
    check_stream(text, in_pieces(text, 4))


def test_each_of_several_thoughts_that_are_never_closed_ends_at_its_own_call():
    text = "".join(
        f'<think a="b">x<tool_call>{{"name": "get", "arguments": {{"path": "{n}"}}}}</tool_call> ' for n in range(4)
    )
    assert paths(text) == ["think", "0", "think", "1", "think", "2", "think", "3"]
    check_stream(text, in_pieces(text, 4))
