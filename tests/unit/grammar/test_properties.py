"""Properties of the reader and of edits on arbitrary, on mixed and on well-formed text."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from turnwright_core.patterns.patch import unified_patch
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import EditSyntaxError
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reply import Reply
from turnwright_grammar.values.repair import repair_json

from .canonical import unplaced, written
from .invariants import check_reading
from .marked import marker_body
from .mixtures import COMMANDS, EDIT_LINES, MIXTURES, PROSE, REPLIES, UNKNOWN

NAME = re.compile(r"(?<=<)/?(?:get|set|sh|update|think)(?=[ >/])")
CALLS = (
    *('<get path="a"/>', '<get path="a">', "<get>b</get>", "</get>", "<sh>ls</sh>", "<sh>a < b</sh>", "<sh>", "</sh>"),
    *('<set path="a"/>', "<set path='a'>x\n</set>", '<set path="a">', "</set>", "<update>done</update>", "<think>"),
    *("<get path=a/>", '<sh command="a &amp; b" cmd="c"></sh>', "<sh>`a`</sh>", "<sh>```\na</sh>", "</think>", " and "),
    *("`<get path='` <get>b</get> '/>", "\n", "\n\n    ", "\n> ", "`", "\n```\n"),
)


@given(st.text())
def test_arbitrary_text_is_read(text):
    check_reading(text)


@given(MIXTURES)
def test_any_mixture_of_dialects_is_read(text):
    check_reading(text)


@given(st.text(alphabet=st.characters(exclude_characters="<[{`~>*"), max_size=200))
def test_text_without_triggers_is_all_narration(text):
    reply = read_reply(text)
    assert replace(reply, narration_spans=()) == Reply(narration=text.strip())


@given(REPLIES)
def test_what_is_written_well_is_read_as_it_was_meant(commands):
    reply = read_reply(written(commands))
    assert unplaced(reply.commands) == commands
    assert (reply.warnings, reply.narration, reply.dropped) == ((), "", 0)


@given(REPLIES)
def test_spans_cut_well_written_commands_out_of_the_text(commands):
    text = written(commands)
    parts = [text[slice(*one.span)].removesuffix("</tool_call>") for one in read_reply(text).commands]
    assert parts == [written([one]).removesuffix("\n").removesuffix("</tool_call>") for one in commands]


@given(st.lists(st.tuples(PROSE, COMMANDS | UNKNOWN), max_size=5), PROSE)
def test_prose_around_commands_is_narration_and_hides_none(pairs, after):
    text = "".join(f"{prose}\n{written([command])}" for prose, command in pairs) + after
    reply = read_reply(text)
    assert unplaced(reply.commands) == [command for _, command in pairs]
    said = "".join([prose for prose, _ in pairs] + [after])
    assert (reply.narration.split(), reply.warnings) == (said.split(), ())


@given(REPLIES, st.data())
def test_a_command_on_a_line_of_its_own_adds_itself_and_nothing_else(commands, data):
    place = data.draw(st.integers(0, len(commands)))
    more = data.draw(COMMANDS)
    wanted = [*commands[:place], more, *commands[place:]]
    text = written(commands[:place]) + written([more]) + written(commands[place:])
    assert unplaced(read_reply(text).commands) == wanted


@given(MIXTURES, COMMANDS)
def test_a_command_after_a_complete_reply_of_any_kind_is_heard(text, command):
    reply = check_reading(text)
    assume(is_complete(text, reply))
    longer = read_reply(f"{text}\n\n{written([command])}")
    assert longer.commands[:-1] == reply.commands
    assert unplaced(longer.commands[-1:]) == [command]


def is_complete(text: str, reply: Reply) -> bool:
    """Whether nothing is open at the end: nothing was repaired, and neither words nor brackets put after it matter."""
    balanced = all(text.count(opener) == text.count(closer) for opener, closer in ("{}", "[]", "()"))
    if reply.warnings or not balanced or "```" in text or "~~~" in text:
        return False
    # A turn of somebody else that the reply invents ends with the reply, whatever stands in it.
    if any(warning.kind == "invented" for warning in read_reply(f'{text}\n\n<get path="a"/>').warnings):
        return False
    # Longer than what may stand behind a name that ends a reply.
    said = "Nothing is open here, or this would be part of it, as far as any reader looks ahead. Done.\n"
    probes = [read_reply(f"{text}\n\n{end}{said}") for end in ("", "}}}}]]]]))))\n", '"\n}}}}\n', "'\n}}}}\n")]
    same = all((probe.commands, probe.warnings) == (reply.commands, ()) for probe in probes)
    return same and all(probe.narration.endswith("Done.") for probe in probes)


@given(st.text(alphabet="abc <>/=\"'\n{}[]`", max_size=60))
def test_a_body_without_its_own_close_comes_back_as_it_is(body):
    reply = read_reply(f'<set path="p">{body}</set>')
    if "```" not in body and "<path>" not in body:
        assert [one.body for one in reply.commands] == [body]


@given(st.integers(0, 8), st.integers(0, 12))
def test_the_cap_drops_the_rest_and_counts_it(commands_max, wanted):
    text = '<get path="a"/>\n' * wanted
    reply = read_reply(text, commands_max=commands_max)
    assert len(reply.commands) == min(wanted, commands_max)
    assert reply.dropped == wanted - len(reply.commands)
    assert [one.kind for one in reply.warnings] == ["too_many_commands"] * (reply.dropped > 0)


@example("<get path=\"a\">\n`<get path='` <get>b</get> '/>", 4, False)
@given(st.lists(st.sampled_from(CALLS), max_size=14).map("".join), st.integers(0, 4), st.booleans())
def test_plain_calls_read_as_those_that_are_taken_apart(text, commands_max, is_cut):
    plain, other = (
        read_reply(one, commands_max=commands_max, is_cut=is_cut) for one in (text, NAME.sub(upper_case, text))
    )
    assert [told(one) for one in plain.commands] == [told(one) for one in other.commands]
    assert [(one.kind, one.span) for one in plain.warnings] == [(one.kind, one.span) for one in other.warnings]
    assert (plain.narration.lower(), plain.dropped) == (other.narration.lower(), other.dropped)


def upper_case(name):
    """Only names in lower case are read at once."""
    return name[0].upper()


def told(command):
    attributes = {name: value.lower() for name, value in command.attributes.items()}
    return command.name, attributes, command.body.lower(), command.span


@given(st.none() | EDIT_LINES, MIXTURES)
def test_applying_any_body_gives_a_value(original, body):
    assert isinstance(apply_edit(original, body), EditResult | EditConflict | EditSyntaxError)


@given(EDIT_LINES, EDIT_LINES, EDIT_LINES)
def test_a_unique_line_is_replaced_and_nothing_else(before, after, new):
    text = f"{before}\nunique line\n{after}"
    replacement = new.replace("\r", "").strip("\n") or "z"
    result = apply_edit(text, marker_body([("unique line", replacement)]))
    assert isinstance(result, EditResult)
    assert result.text.startswith(f"{before}\n")
    assert result.text.endswith(f"\n{after}")


@given(EDIT_LINES, st.text(alphabet="ab \n", min_size=1, max_size=20), EDIT_LINES)
def test_searching_text_that_is_there_never_says_not_found(before, middle, after):
    # A blank line at an end of a search is a line, and not the end of another one.
    lines = middle.split("\n")
    assume(lines[0].strip() and lines[-1].strip())
    text = before + middle + after
    result = apply_edit(text, marker_body([(middle, "z")]))
    assert not isinstance(result, EditSyntaxError)
    assert not (isinstance(result, EditConflict) and "not found" in result.message)


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=4))
def test_pairs_survive_the_marker_grammar(pairs):
    pairs = [(search.replace("\r", "").strip("\n"), new.replace("\r", "").strip("\n")) for search, new in pairs]
    edits = parse_body(marker_body(pairs))
    assert not isinstance(edits, EditSyntaxError)
    assert [(one.search, one.replace) for one in edits.operations] == pairs


@given(st.text())
def test_any_text_is_repaired_json(text):
    repair_json(text)
    (command, *_), _ = commands_from_call("set", text)
    assert command.name == "set"


@given(EDIT_LINES, EDIT_LINES)
def test_a_patch_is_empty_only_for_equal_texts(old, new):
    assert (unified_patch("f", old, new) == "") is (old == new)


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_blank_text_is_an_empty_reply(text):
    assert check_reading(text) == Reply()
