"""A reply as people read it while it comes: prose and calls, whose sum is that of the whole reply whatever the pieces."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright_values.replies import CallBegun, CallEnded, CallGrown, TakenBack

from cases import load_cases
from turnwright_core.chat.deltas import AppendContent
from turnwright_core.limits import CALL_NAME_CHARS_MAX
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reader.parts import DELTA_CHARS_MAX, LIVE_CHARS_MAX, PartsReader, arguments_of
from turnwright_grammar.reply import Reply

from .mixtures import MIXTURES, WHOLE
from .streams import cut_at, in_pieces

CORPORA = (
    "grammar/aider_real_outputs.jsonl",
    "grammar/native_formats_renamed.jsonl",
    "grammar/roo_xml.jsonl",
    "grammar/sglang_detectors.jsonl",
    "grammar/vllm_tool_parsers.jsonl",
    "rummy/xml_parser.jsonl",
    "rummy/xml_sed_ambiguous.jsonl",
)


class Screen:
    """What a client has that folds parts, and refuses those that say nothing it could do."""

    def __init__(self) -> None:
        self.prose = ""
        self.calls: list[list] = []
        """Name, arguments, whether it has ended."""
        self.taken_back = 0

    def show(self, parts) -> None:
        for part in parts:
            match part:
                case AppendContent(text):
                    assert text
                    self.prose += text
                case CallBegun(index, name):
                    assert index == len(self.calls)
                    self.calls.append([name, "", False])
                case CallGrown(index, arguments):
                    assert arguments
                    assert not self.calls[index][2]
                    self.calls[index][1] += arguments
                case CallEnded(index):
                    assert not self.calls[index][2]
                    self.calls[index][2] = True
                case TakenBack(chars, calls):
                    assert chars <= len(self.prose)
                    assert calls <= len(self.calls)
                    assert chars or calls < len(self.calls)
                    self.taken_back += 1
                    self.prose = self.prose[: len(self.prose) - chars]
                    del self.calls[calls:]
                case _:
                    raise AssertionError(part)


def shown(deltas, **options) -> tuple[Screen, Reply]:
    reader, screen = PartsReader(**options), Screen()
    for delta in deltas:
        screen.show(reader.feed(delta))
    reply, rest = reader.finish()
    screen.show(rest)
    return screen, reply


def check(text: str, deltas, whole: Reply) -> None:
    screen, reply = shown(deltas)
    assert reply == whole
    assert screen.prose == whole.narration
    assert screen.calls == [[one.name, arguments_of(one), True] for one in whole.commands]
    assert "".join(text[begin:end] for begin, end in whole.narration_spans) == whole.narration or whole.thought_ends


@given(MIXTURES, st.data())
def test_any_split_gives_the_parts_of_the_whole(text, data):
    whole = read_reply(text)
    check(text, cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=12))), whole)
    check(text, text, whole)


@given(st.text(max_size=100), st.data())
def test_any_split_of_arbitrary_text_gives_the_parts_of_the_whole(text, data):
    check(text, cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))), read_reply(text))


@pytest.mark.parametrize("text", [*WHOLE, *("x\n" + one + "\ny" for one in WHOLE)])
def test_one_call_cut_anywhere_in_two_gives_the_same_parts(text):
    whole = read_reply(text)
    for cut in range(len(text) + 1):
        check(text, cut_at(text, [cut]), whole)


@pytest.mark.parametrize("name", CORPORA)
def test_the_replies_of_the_cases_give_the_same_parts_in_any_pieces(name):
    dice = random.Random(name)
    for case in load_cases(name):
        text = case.get("model_output", case.get("input"))
        text = text["content"] if isinstance(text, dict) else text
        if text is not None:
            whole = read_reply(text)
            check(text, text, whole)
            check(text, in_pieces(text, 7), whole)
            check(text, cut_at(text, dice.choices(range(len(text) + 1), k=5)), whole)


def test_prose_and_a_call_are_shown_while_they_come():
    reader, screen = PartsReader(), Screen()
    screen.show(reader.feed("I write it.\n\n<set path="))
    assert screen.prose == "I write it."
    screen.show(reader.feed('"a.py">\nx = 1\n'))
    screen.show(reader.feed("y = 2\n"))
    [[name, arguments, has_ended]] = screen.calls
    assert (name, has_ended) == ("set", False)
    assert arguments.startswith('{"path":"a.py","body":"')
    assert "x = 1" in arguments
    assert "y = 2" in arguments
    screen.show(reader.feed("</set>\nNow this."))
    assert [ended for _, _, ended in screen.calls] == [True]
    assert json.loads(screen.calls[0][1]) == {"path": "a.py", "body": "\nx = 1\ny = 2\n"}
    assert screen.prose == "I write it.\n\n\nNow this."
    assert not screen.taken_back


def test_what_turned_out_to_be_a_thought_is_taken_back_with_its_calls():
    screen, reply = shown(["I could ", '<get path="a"/> do that.', "</think>", "\nDone."])
    assert screen.taken_back
    assert (screen.prose, screen.calls) == ("Done.", [])
    assert reply.commands == ()


def test_a_call_that_the_end_of_the_reply_cuts_is_as_it_was_read():
    whole = read_reply('Look: <set path="a">\nx\n', is_cut=True)
    reader, screen = PartsReader(), Screen()
    screen.show(reader.feed('Look: <set path="a">\nx\n'))
    assert len(screen.calls) == 1
    _, rest = reader.finish(is_cut=True)
    screen.show(rest)
    assert screen.prose == whole.narration
    assert screen.calls == [[one.name, arguments_of(one), True] for one in whole.commands]


@given(MIXTURES, st.data())
def test_native_calls_come_behind_the_commands_of_a_text(text, data):
    """In a loop with tags, as the executor reads the whole: whenever they came, and in whatever pieces."""
    whole = read_reply(text)
    pieces = list(cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=6))))
    steps = data.draw(st.lists(st.integers(0, 12), min_size=len(pieces), max_size=len(pieces)))
    reader, screen, arguments = PartsReader(), Screen(), '{"path":"a"}'
    for number, (piece, grown) in enumerate(zip(pieces, steps, strict=True), 1):
        screen.show(reader.feed(piece))
        screen.show(reader.call([("get", arguments[:grown])], "".join(pieces[:number])))
    screen.show(reader.call([("get", arguments), ("x" * 999, "")], text))
    reply, rest = reader.finish()
    screen.show(rest)
    assert (reply, screen.prose) == (whole, whole.narration)
    of_text = [[one.name, arguments_of(one), True] for one in whole.commands]
    assert screen.calls == [*of_text, ["get", arguments, True], ["x" * CALL_NAME_CHARS_MAX, "", True]]


def test_with_native_calls_alone_the_text_is_only_text():
    reader, screen = PartsReader(calls_only=True), Screen()
    text = 'As in <get path="a"/> before.'
    screen.show(reader.feed(text))
    assert len(screen.calls) == 1
    screen.show(reader.call([("sh", '{"comm')], text))
    screen.show(reader.call([("sh", '{"command": "ls"}'), ("get", "")], text))
    assert screen.prose == text
    assert screen.calls == [["sh", '{"command": "ls"}', False], ["get", "", False]]
    # A vendor that says a call anew, under another name.
    screen.show(reader.call([("sh", '{"command": "ls"}'), ("rm", '{"path": "a"}')], text))
    screen.show(reader.feed(" And more."))
    screen.show(reader.finish()[1])
    assert screen.prose == text + " And more."
    assert screen.calls == [["sh", '{"command": "ls"}', True], ["rm", '{"path": "a"}', True]]


@pytest.mark.parametrize("opening", ["<sh>\n", "```\n", ""])
def test_what_is_too_long_to_be_read_again_is_shown_at_the_end(opening):
    text = opening + "line of it\n" * (2 * LIVE_CHARS_MAX // 11)
    for deltas in (in_pieces(text, 16), in_pieces(text, DELTA_CHARS_MAX + 1)):
        check(text, deltas, read_reply(text))


def test_more_commands_than_a_reply_may_have_are_not_shown():
    text = "".join(f'<get path="{number}"/>\n' for number in range(5))
    screen, reply = shown(in_pieces(text, 5), commands_max=3)
    assert [json.loads(arguments)["path"] for _, arguments, _ in screen.calls] == ["0", "1", "2"]
    assert reply.dropped == 2
