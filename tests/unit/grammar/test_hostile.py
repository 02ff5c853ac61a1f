"""Hostile text ends within the timeout: at these sizes anything quadratic would not."""

import pytest

from turnwright_grammar import EditConflict, EditResult, EditSyntaxError, apply_edit, command_from_call, read_reply
from turnwright_grammar.values import repair_json

SIZE_CHARS = 200_000
LARGE_CHARS = 1_000_000
PIECES = [
    "<",
    "<get ",
    '<get path="',
    "<get path='x\" ",
    '<get a="\\"',
    "<set>",
    '<set path="a">\n',
    "</set>",
    "<set><get>",
    "<update>x</get>",
    '<set path="a">\n```\n</set>',
    "<think>a",
    "<thinking>",
    "<a_b><c>",
    "<|",
    '{"name":',
    '{"name":"a","arguments":{"b":"c"}',
    '[{"name":',
    "<tool_call>",
    '<tool_call>{"a"',
    "[TOOL_CALLS]a{",
    "\n[get(a=",
    "<function=a><parameter=b>",
    "<tool_call>a<arg_key>k</arg_key><arg_value>",
    "<|channel|>analysis<|message|>",
    "` `` ``` ",
    "```\n",
    "```x\n",
    "```tool_code\nx\n```\n",
    "<<<<<<< SEARCH\n=======\n",
    "a.py\n<<<<<<< SEARCH\n",
    " ",
]
EDITS = [
    "<<A ",
    "<<SEARCH ",
    "<<SEARCH a SEARCH ",
    "<<A x A y ",
    "<<NEW\nNEW x\n",
    "s/a/b/ ",
    "<<<<<<< SEARCH\n",
    "a b\n",
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", PIECES)
def test_a_reply_of_one_repeated_piece_is_read(piece):
    assert read_reply(piece * (SIZE_CHARS // len(piece))).dropped >= 0


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["<get ", "<", "<<A "])
def test_a_million_characters_are_read(piece):
    assert read_reply(piece * (LARGE_CHARS // len(piece))).commands == ()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("prefix", ['<get path="', '<tool_call>{"a":"', "<tool_call>", "<get"])
@pytest.mark.parametrize("piece", [" ", "{", "[", '{"a":', '", ', '" ', "&amp;", "\\"])
def test_an_opener_with_a_long_tail_is_read(prefix, piece):
    assert read_reply(prefix + piece * (SIZE_CHARS // 4 // len(piece))).dropped == 0


@pytest.mark.timeout(20)
def test_ten_thousand_foreign_names_are_read():
    assert read_reply("".join(f"<a_{n}><c>" for n in range(50_000))).commands == ()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", EDITS)
def test_a_body_of_one_repeated_piece_is_applied(piece):
    result = apply_edit("a b\n" * 1000, piece * (SIZE_CHARS // len(piece)))
    assert isinstance(result, EditResult | EditConflict | EditSyntaxError)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "search", ["a b\na b\na c", "ab" * 1000, "a\n" * 50_000 + "z", " a" * 50_000, "a b\n" * 50_000 + "q"]
)
def test_a_search_in_a_large_repetitive_text_ends(search):
    text = "a b\n" * (SIZE_CHARS // 8)
    assert isinstance(apply_edit(text, f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\nz\nREPLACE"), EditConflict)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["{", "[", "(", '{"a":', '"', "'", "[1,", '{"a":"b" ', "a", "\\"])
def test_broken_json_of_one_repeated_piece_is_repaired(piece):
    text = piece * (SIZE_CHARS // 4 // len(piece))
    repair_json(text)
    command, _ = command_from_call("get", text)
    assert command.name == "get"
