"""Output of commands while they run: the first lines at once, the rest counted, the last ones at the end."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.types.v1 import entry_pb2, run_pb2

from turnwright_cli.live_output import CONTENT, HEAD_LINES, LINE_CHARS_MAX, REASONING, TAIL_LINES, ShownReplies
from turnwright_cli.render import OUTPUT_CHARS, OUTPUT_CHARS_MIN, TextScreen

Event = executor_service_pb2.WatchRunResponse
RECORD = "log://turn_1/sh/make"
STREAMING, RESOLVED = entry_pb2.STATE_STREAMING, entry_pb2.STATE_RESOLVED


def channel(number=1, body="", body_size_bytes=None, state=STREAMING, loop=1, path=None) -> Event:
    entry = entry_pb2.Entry(
        path=path or f"sh://turn_1/make_{number}", body=body, turn=1, loop=loop, state=state,
        body_size_bytes=len(body.encode()) if body_size_bytes is None else body_size_bytes,
    )  # fmt: skip
    return Event(message_added=event_pb2.MessageAdded(entry=entry))


def piece(offset: int, text: str, number=1) -> Event:
    appended = event_pb2.OutputAppended(path=f"sh://turn_1/make_{number}", offset=offset, text=text)
    return Event(output_appended=appended)


def ended(body="exit 0") -> Event:
    entry = entry_pb2.Entry(
        path=RECORD, body=body, turn=1, loop=1, state=RESOLVED, status=200,
        attributes_json='{"tool": "sh", "target": "make"}',
    )  # fmt: skip
    return Event(message_updated=event_pb2.MessageUpdated(entry=entry))


def told(*events: Event, sequence=1, **console) -> list[str]:
    """The lines behind the one that names the run."""
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False, soft_wrap=True, **{"width": 80, **console}))
    screen.begin(run_pb2.Run(project="p", run="r"), sequence)
    for event in events:
        screen.show(event)
    return out.getvalue().splitlines()[1:]


def numbered(first: int, last: int) -> str:
    return "".join(f"{number}\n" for number in range(first, last + 1))


def test_lines_are_shown_as_they_come_and_before_the_commands_own() -> None:
    assert told(channel(), piece(0, "on"), piece(2, "e\n  two\n\tth"), piece(13, "ree"), ended()) == [
        "  │ one",
        "  │   two",
        "  │     three",
        "  ✓ sh make 200  exit 0",
    ]


def test_nothing_waits_for_the_end_of_a_command() -> None:
    assert told(channel(), piece(0, "one\ntw")) == ["  │ one"]


def test_of_much_output_the_beginning_and_the_end_are_shown_with_what_lies_between_counted() -> None:
    text = numbered(1, HEAD_LINES + 1000 + TAIL_LINES)
    head = [f"  │ {number}" for number in range(1, HEAD_LINES + 1)]
    tail = [f"  │ {number}" for number in range(HEAD_LINES + 1001, HEAD_LINES + 1001 + TAIL_LINES)]
    assert told(channel(), piece(0, text)) == head
    assert told(channel(), piece(0, text), ended()) == [
        *head, "  │ ... 1,000 more lines", *tail, "  ✓ sh make 200  exit 0",
    ]  # fmt: skip


def test_a_few_lines_too_many_are_shown_all_the_same() -> None:
    text = numbered(1, HEAD_LINES + TAIL_LINES)
    lines = told(channel(), piece(0, text), ended())
    assert lines[:-1] == [f"  │ {number}" for number in range(1, HEAD_LINES + TAIL_LINES + 1)]


@pytest.mark.parametrize(
    "events",
    [
        [channel(), piece(0, "one\ntwo\n"), piece(0, "one\ntwo\n")],
        [channel(), piece(0, "one\n"), piece(4, "tw"), piece(0, "one\n"), piece(4, "two\n")],
        [channel(), piece(0, "one\ntw"), piece(4, "two\n")],
        [channel(), piece(0, "one\ntwo\n"), channel(body="one\ntwo\n")],
        [channel(), piece(0, "one\n"), channel(body="one\ntwo\n", state=RESOLVED)],
        [channel(body="one\n"), piece(4, "two\n")],
        [Event(snapshot=event_pb2.Snapshot(entries=[channel(body="one\ntwo\n").message_added.entry], last=True))],
    ],
    ids=[
        "a piece again",
        "pieces again",
        "an overlap",
        "the whole channel",
        "the ended channel",
        "a later watcher",
        "a snapshot",
    ],
)
def test_what_is_reported_twice_is_shown_once(events) -> None:
    assert told(*events, ended()) == ["  │ one", "  │ two", "  ✓ sh make 200  exit 0"]


@pytest.mark.parametrize(
    "event", [piece(100, "late\n"), channel(body="one\ntw", body_size_bytes=100)], ids=["a later piece", "a cut body"]
)
def test_what_was_missed_is_said(event) -> None:
    lines = told(channel(), piece(0, "one\ntw"), event, piece(105, "more\n"), ended())
    assert lines[:3] == ["  │ one", "  │ tw", "  │ ..."]
    assert lines[-2:] == ["  │ more", "  ✓ sh make 200  exit 0"]


def test_a_quick_command_whose_output_comes_at_once_is_shown_as_others_are() -> None:
    whole = channel(state=RESOLVED, body="one\ntwo\n")
    assert told(whole, ended()) == ["  │ one", "  │ two", "  ✓ sh make 200  exit 0"]


def test_both_channels_of_a_command_are_shown_line_by_line() -> None:
    events = [channel(1), channel(2), piece(0, "ou"), piece(0, "wrong\n", 2), piece(2, "t\n"), ended()]
    assert told(*events)[:2] == ["  │ wrong", "  │ out"]


@pytest.mark.parametrize(
    "events",
    [
        [piece(0, "nobody told of it\n")],
        [channel(loop=2), piece(0, "of another loop\n")],
        [channel(state=RESOLVED, body="over before we came\n")],
        [channel(path="known://a", body="no channel\n")],
        [channel(), ended(), piece(0, "after the end\n")],
    ],
)
def test_output_of_nothing_that_runs_here_is_not_shown(events) -> None:
    assert not [line for line in told(*events) if "│" in line]


def test_a_progress_bar_is_shown_as_it_ends() -> None:
    assert told(channel(), piece(0, " 10%\r 50%\r100%\r\ndone\r\n"))[:2] == ["  │ 100%", "  │ done"]


def test_what_moves_a_cursor_is_taken_out() -> None:
    assert told(channel(), piece(0, "a\x1b[2Jb\x07\x9bc\n")) == ["  │ a[2Jbc"]


def test_a_line_without_end_is_broken() -> None:
    (*lines,) = told(channel(), piece(0, "x" * (2 * LINE_CHARS_MAX + 1)))
    assert [len(line) for line in lines] == [OUTPUT_CHARS - 1] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("width", [10, 40, 200])
async def test_a_line_takes_one_line_of_a_terminal(width) -> None:
    (line,) = told(channel(), piece(0, "y" * 500 + "\n"), width=width, force_terminal=True, color_system=None)
    assert len(line) == max(OUTPUT_CHARS_MIN, width - 1)


@pytest.mark.asyncio
async def test_output_is_dim_and_that_for_errors_red_on_a_terminal() -> None:
    terminal = {"force_terminal": True, "color_system": "standard", "legacy_windows": False}
    lines = told(channel(1), channel(2), piece(0, "out\n"), piece(0, "wrong\n", 2), **terminal)
    assert lines == ["\x1b[2m  │ out\x1b[0m", "\x1b[2;31m  │ wrong\x1b[0m"]


def test_a_thought_that_was_shown_as_content_is_not_shown_again_as_reasoning():
    shown = ShownReplies()
    shown.grew(1, REASONING, "Native. ")
    shown.grew(1, CONTENT, "I could run it.</think>What now?")
    assert shown.rest(1, REASONING, "Native. I could run it.") == ""
    assert shown.rest(1, CONTENT, "What now?") == ""
    assert shown.rest(2, REASONING, "Another thought.") == "Another thought."
