"""Reading a reply, and where that happens."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from turnwright_values.replies import ToolCall

from turnwright_core.chat.deltas import AppendContent, AppendReasoning
from turnwright_core.limits import REPLY_CALLS_MAX
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.recording import READ_ASIDE_CHARS, read_aside, read_draft, reply_reader
from turnwright_executor.turn.unsaved import UnsavedState
from turnwright_grammar.reader.parts import DELTA_CHARS_MAX, LIVE_CHARS_MAX


class Names(list):
    """Names of tools that know who looked at them."""

    def __init__(self) -> None:
        super().__init__(TOOL_ORDER)
        self.readers: set[int] = set()

    def __iter__(self):
        self.readers.add(threading.get_ident())
        return super().__iter__()


@pytest.mark.parametrize(
    ("draft", "is_aside"),
    [
        (Draft(["<get path='a.txt'/>"]), False),
        (Draft(["<get path='a.txt'/>", "x" * READ_ASIDE_CHARS]), True),
        (Draft(calls=(ToolCall("think", "x" * READ_ASIDE_CHARS),)), True),
    ],
    ids=["short", "text", "calls"],
)
@pytest.mark.asyncio
async def test_a_long_reply_is_read_beside_the_event_loop(draft, is_aside) -> None:
    names = Names()
    reading = await read_aside(draft, 9, names)
    assert (threading.get_ident() not in names.readers, reading) == (is_aside, read_draft(draft, 9))


def read_cut(text: str, *calls: tuple[str, str]) -> tuple[list[str], list[str]]:
    """What runs of a reply that its vendor cut, and what is said to be lost."""
    reading = read_draft(Draft([text], calls=tuple(ToolCall(*call) for call in calls), is_cut=True), 9)
    return [command.name for command in reading.commands], [warning.kind for warning in reading.losses]


GET, RM = ("get", '{"path": "a"}'), ("rm", '{"path": "b"}')


@pytest.mark.parametrize(
    ("text", "calls", "run", "lost"),
    [
        ("I read.", [GET, RM], ["get", "rm"], []),
        ("I read.", [GET, ("rm", '{"path": "b')], ["get"], ["cut_reply"]),
        ("I read.", [GET, ("rm", '{"path": "b"')], ["get"], ["cut_reply"]),
        ("I read.", [GET, ("rm", "")], ["get"], ["cut_reply"]),
        ("I read.", [("rm", "{'path': 'b'}"), GET], ["rm", "get"], []),
        ("I read.", [("sh", '{"command": "echo </tool_call>')], [], ["cut_reply"]),
        ("", [GET, ("get", '{"path": "a"}{"path": "b')], ["get"], ["cut_reply"]),
        ('<set path="a">half', [GET], [], ["cut_reply", "cut_reply"]),
    ],
)
def test_of_native_calls_that_the_vendor_cut_those_run_that_are_complete(text, calls, run, lost) -> None:
    # C54
    assert read_cut(text, *calls) == (run, lost)


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("name", ["get", "rm", "sh"])
def test_joined_objects_of_a_call_run_nothing_and_are_told(name, is_cut) -> None:
    # C60
    joined = ToolCall(name, '{"path": "a"}{"path": "b"}')
    reading = read_draft(Draft(calls=(joined,), is_cut=is_cut), 9)
    assert (reading.commands, [one.call for one in reading.lost_calls]) == ((), [joined])
    assert [warning.kind for warning in reading.losses] == ["cut_reply" if is_cut else "arguments_joined"]


@pytest.mark.parametrize(("commands_max", "taken"), [(99, 99), (1000, 128)])
def test_what_is_sent_back_of_a_reply_has_no_more_calls_than_vendors_take(commands_max, taken) -> None:
    calls = tuple(ToolCall("get", '{"path": "a"}', place) for place in range(REPLY_CALLS_MAX + 1))
    reading = read_draft(Draft(calls=calls), commands_max)
    assert len(reading.commands) == taken
    assert len(reading.commands) + len(reading.lost_calls) == REPLY_CALLS_MAX
    assert [warning.kind for warning in reading.losses] == ["too_many_commands"]


LONG = "".join(
    f'I read on.\n<get path="{n}.txt"/>\n<set path="b.py">\n' + f"x = {n}\n" * 400 + "</set>\n" for n in range(9)
)


def reading_along(text: str, chars: int, *, is_cut: bool) -> Draft:
    """A draft to which a text came in pieces of so many characters, with a reader beside it."""
    draft = Draft(is_cut=is_cut)
    draft.reader = reply_reader(50, TOOL_ORDER)
    for start in range(0, len(text), chars):
        draft.take(AppendContent(text[start : start + chars]))
    return draft


@pytest.mark.parametrize("chars", [1, 1_000, 50_000, LIVE_CHARS_MAX])
@pytest.mark.parametrize(
    "text", [LONG, LONG * 6, LONG[:-20], "```\n" + LONG], ids=["short", "long", "unclosed", "in a fence"]
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_reply_that_is_read_while_it_comes_reads_as_the_whole_and_so_it_does_again(text, chars, is_cut) -> None:
    draft = reading_along(text, chars, is_cut=is_cut)
    whole = read_draft(Draft([text], is_cut=is_cut), 50)
    reading = read_draft(draft, 50)
    assert [replace(reading, parts=()), read_draft(draft, 50)] == [whole, whole]


def test_a_reply_is_read_as_it_comes_until_too_much_of_it_may_have_to_be_read_again() -> None:
    draft = reading_along(LONG, 100, is_cut=False)
    assert draft.take(AppendContent("And now"))
    fence = reading_along("```\n" + "x = 1\n" * (LIVE_CHARS_MAX // 6 + 1), 100, is_cut=False)
    assert fence.take(AppendContent("x = 2\n```\nAnd now")) == []


def test_a_long_piece_that_comes_at_once_is_not_read_in_the_event_loop() -> None:
    draft = reading_along("I read.\n", 100, is_cut=False)
    assert draft.take(AppendContent("on\n" * DELTA_CHARS_MAX)) == []
    assert draft.take(AppendContent("and on")) == []


def test_a_call_that_is_made_again_is_read_from_its_beginning() -> None:
    unsaved = UnsavedState(1, reading_along("<sh>echo no</sh>" + "x" * 5_000, 100, is_cut=False))
    draft = unsaved.begin_reply(1)
    draft.reader = reply_reader(9, TOOL_ORDER)
    draft.take(AppendContent("<get path='a.txt'/>"))
    assert [command.name for command in read_draft(draft, 9).commands] == ["get"]


THOUGHT = "I could\n<sh>rm -rf build</sh>\nbut not now.\n"


@pytest.mark.parametrize("chars", [1, 7, 4_000, 1_000_000])
@pytest.mark.parametrize("padding", [0, 3_000, 50_000], ids=["short", "read along", "long"])
@pytest.mark.parametrize("calls", [(), (ToolCall(*GET),)], ids=["tags", "native"])
def test_what_stands_before_the_close_of_an_unopened_thought_is_kept_as_reasoning(chars, padding, calls) -> None:
    thought, rest = THOUGHT + "so " * padding, "\n\nWhat <b>now</b>?" + " or" * padding
    draft = reading_along(f"{thought}</think>{rest}", chars, is_cut=False)
    draft.add(AppendReasoning("Of the vendor. "))
    draft.calls = calls
    reading = read_draft(draft, 50, is_native=bool(calls))
    assert [command.name for command in reading.commands] == ["get"] * len(calls)
    assert (draft.thoughts, draft.text) == (f"Of the vendor. {thought}", rest)
    assert (reading.narration, reading.losses) == (rest.strip(), ())
    assert read_draft(draft, 50, is_native=bool(calls)).commands == reading.commands


@pytest.mark.asyncio
async def test_the_reading_of_a_long_reply_stops_with_its_caller() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    names = Names()
    reading = asyncio.create_task(read_aside(Draft(["<get path='a'/> " * 2_000_000]), 9, names))
    while not names.readers:  # noqa: ASYNC110 - a thread says so
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # The only thread is free again long before it could have read all of it.
    await asyncio.wait_for(asyncio.to_thread(int), 30)
