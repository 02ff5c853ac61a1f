"""What a person sees: each thing once, without control characters, as plain lines where there is no terminal."""

from __future__ import annotations

import asyncio
import io
import json
from datetime import timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console
from turnwright.executor.v1 import event_pb2, executor_service_pb2
from turnwright.types.v1 import (
    command_record_pb2,
    cursor_pb2,
    delta_pb2,
    entry_pb2,
    heartbeat_pb2,
    loop_pb2,
    proposal_pb2,
    run_pb2,
    turn_pb2,
    usage_pb2,
)

from turnwright_cli.effects import effect_title
from turnwright_cli.render import TextScreen
from turnwright_cli.screen import JsonScreen
from turnwright_core.errors import Reason, fault
from turnwright_core.wire.deltas import delta_to_pb
from turnwright_grammar.reader.parts import PartsReader

Event = executor_service_pb2.WatchRunResponse
RUN = run_pb2.Run(project="p", run="r\x1b[2Jun", status=102)


def record(path: str, state: int, outcome: str = "", status: int = 200, body: str = "", **attributes) -> Event:
    entry = entry_pb2.Entry(
        path=path, state=state, outcome=outcome, status=status, body=body, turn=1, loop=1,
        attributes_json=json.dumps({"tool": path.split("/")[3], **attributes}),
    )  # fmt: skip
    return Event(message_updated=event_pb2.MessageUpdated(entry=entry))


def delta(**change) -> Event:
    return Event(stream_delta=event_pb2.StreamDelta(turn=1, deltas=[delta_pb2.Delta(**change)]))


STORY = [
    Event(turn_started=event_pb2.TurnStarted(turn=turn_pb2.Turn(number=1, loop=1))),
    delta(append_reasoning="Hm\x1b]0;title\x07. "),
    delta(append_content="I look\x1b[31m first."),
    delta(append_content="\r\nThen I edit."),
    record("log://turn_1/get/a", entry_pb2.STATE_RECORDED),
    record("log://turn_1/get/a", entry_pb2.STATE_RESOLVED, target="a\x9b\n.py", body="12 lines\nand more"),
    record("log://turn_1/get/a", entry_pb2.STATE_RESOLVED, target="a.py"),
    record("log://turn_1/set/b", entry_pb2.STATE_FAILED, "conflict:409", 409, "SEARCH not found", target="b.py"),
    record("log://turn_1/sh/c", entry_pb2.STATE_CANCELLED, "aborted:499", 499),
    Event(run_progress=event_pb2.RunProgress(phase=3, turn=1, detail="rate limit\x1b[A", wait=timedelta(seconds=2.5))),
    Event(
        turn_finished=event_pb2.TurnFinished(
            turn=turn_pb2.Turn(
                number=1,
                result=turn_pb2.TurnResult(usage=usage_pb2.Usage(prompt_tokens=1234, completion_tokens=5)),
                begin_time=Timestamp(seconds=10),
                end_time=Timestamp(seconds=11, nanos=500_000_000),
            )
        )
    ),
    Event(heartbeat=heartbeat_pb2.Heartbeat()),
    Event(output_appended=event_pb2.OutputAppended(path="sh://turn_1/c_1", text="one\x1b[A\ntwo\x07\n\n")),
]
LOOP = loop_pb2.Loop(
    sequence=1, status=499, reason="strikes_max", summary="Given up\x07.", turns=1,
    usage=usage_pb2.Usage(prompt_tokens=1234, cached_tokens=1012, completion_tokens=5, cost_usd=0.0125),
    create_time=Timestamp(seconds=10), end_time=Timestamp(seconds=12),
)  # fmt: skip


def told(*, session=False, events=STORY, loop=LOOP, **console) -> str:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False, soft_wrap=True, **console), session=session)
    screen.begin(RUN, 1)
    for event in events:
        screen.show(event)
    screen.end(RUN, loop)
    return out.getvalue()


def test_a_pipe_gets_plain_lines() -> None:
    assert told(width=80).splitlines() == [
        "run r[2Jun in p",
        "turn 1",
        "Hm]0;title. ",
        "I look[31m first.",
        "Then I edit.",
        "  ✓ get a .py 200  12 lines",
        "  ✗ set b.py 409 conflict  SEARCH not found",
        "  ⊘ sh 499 aborted",
        "↻ rate limit[A: next try in 2.5 s",
        "  1,234 tokens in, 5 out · 1.5 s",
        "Stopped (499 strikes_max)",
        "Given up.",
        "run r[2Jun · 1 turn · 1,234 tokens in (82% cached), 5 out · $0.0125 · 2.0 s",
    ]


def retry(why: str, seconds: float = 3600) -> Event:
    progress = event_pb2.RunProgress(phase=event_pb2.RunProgress.PHASE_RETRYING, turn=1, detail=why)
    progress.wait.FromTimedelta(timedelta(seconds=seconds))
    return Event(run_progress=progress)


def test_a_reason_to_try_again_is_said_once_until_it_changes_or_the_model_has_said_something() -> None:
    tries = [retry("away"), retry("away", 2), retry("busy"), retry("away"), delta(append_content="I"), retry("away")]
    turn = Event(turn_started=event_pb2.TurnStarted(turn=turn_pb2.Turn(number=2, loop=1)))
    shown = told(events=[*tries, turn, retry("away")], width=80).splitlines()
    again = [line for line in shown if line.startswith("↻")]
    assert again == [f"↻ {why}: next try in 3600.0 s" for why in ("away", "busy", "away", "away", "away")]


def test_a_terminal_counts_the_tries_in_place() -> None:
    out = io.StringIO()

    async def wait() -> None:
        screen = TextScreen(Console(file=out, force_terminal=True, width=80))
        for event in (retry("away"), retry("away"), retry("away", 7200)):
            screen.show(event)
        async with asyncio.timeout(60):
            while "try 4 in" not in out.getvalue():  # noqa: ASYNC110 - the line is drawn by a clock
                await asyncio.sleep(0.01)
        screen.pause()

    asyncio.run(wait())
    assert out.getvalue().count("away") == 1
    assert "\n" not in out.getvalue().partition("try 4 in")[2]


@pytest.mark.parametrize("session", [False, True])
def test_a_loop_that_was_given_up_says_after_how_many_failed_turns(session) -> None:
    loop = loop_pb2.Loop(sequence=1, status=499, reason="strikes", turns=7)
    ends = [
        Event(turn_finished=event_pb2.TurnFinished(turn=turn_pb2.Turn(result=turn_pb2.TurnResult(strikes=strikes))))
        for strikes in (1, 0, 1, 2, 3)
    ]
    shown = told(session=session, events=ends, loop=loop, width=80).splitlines()
    assert "Stopped after 3 failed turns in a row (strikes)." in shown
    # Of a loop whose turns were not seen, only its reason is known.
    assert "(499 strikes)" in told(session=session, events=[], loop=loop, width=80)


def test_a_session_shows_no_codes_and_tells_nothing_twice() -> None:
    rejected = record("log://turn_1/set/d", entry_pb2.STATE_FAILED, "rejected:403", 403, "Not here.", target="d.py")
    shell = "ran 'make', exit=3, Output: sh://turn_1/make_1, sh://turn_1/make_2"
    events = [
        *STORY[:7],
        record("log://turn_1/think/t", entry_pb2.STATE_RESOLVED),
        rejected,
        record("log://turn_1/sh/e", entry_pb2.STATE_FAILED, "exit_3:500", 500, shell, target="make"),
        *STORY[7:9],
        STORY[10],
    ]
    assert told(session=True, events=events, width=80).splitlines()[5:] == [
        "  ✓ get a .py  12 lines",
        "  ✗ set d.py  rejected: Not here.",
        "  ✗ sh make  exit=3",
        "  ✗ set b.py  SEARCH not found",
        "  ⊘ sh  aborted",
        "Stopped (499 strikes_max)",
        "Given up.",
        "1 turn · 1,234 tokens in (82% cached), 5 out · $0.0125 · 2.0 s",
    ]
    assert told(session=True, events=[], loop=loop_pb2.Loop(sequence=1, status=202), width=80).count("\n") == 1


def test_an_answer_that_was_the_reply_is_not_told_again() -> None:
    loop = loop_pb2.Loop(sequence=1, status=200, reason="text", summary="Then I edit.", turns=1)
    assert told(events=STORY[:4], loop=loop, width=80).count("Then I edit.") == 1


def test_a_session_shows_calls_of_unknown_tools_by_what_became_of_them_and_html_as_text() -> None:
    reply = "I try <b>it</b>:\n<run_shell><command>ls</command></run_shell>\n```\n<get path='x'/>\n```\nEnd <a"
    reader = PartsReader()
    parts = [part for char in reply for part in reader.feed(char)]
    read, rest = reader.finish()
    prose = read.narration
    assistant = entry_pb2.Entry(path="assistant://1", body=prose, body_size_bytes=len(prose), turn=1, loop=1)
    events = [
        Event(stream_started=event_pb2.StreamStarted(turn=1)),
        delta(append_content="A first att"),
        Event(stream_started=event_pb2.StreamStarted(turn=1)),
        *(Event(stream_delta=event_pb2.StreamDelta(turn=1, deltas=[delta_to_pb(part)])) for part in (*parts, *rest)),
        Event(message_added=event_pb2.MessageAdded(entry=assistant)),
    ]
    shown = told(session=True, events=events, loop=loop_pb2.Loop(sequence=1, status=202), width=80)
    assert shown.splitlines()[2:] == [
        "A first att",
        "The reply begins again.",
        "I try <b>it</b>:",
        "",
        "```",
        "<get path='x'/>",
        "```",
        "End <a",
    ]


def test_services_that_are_away_are_told_of_once_each_time_in_a_pipe_on_standard_error(capsys) -> None:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False, width=100))
    away = fault(Reason.SERVICE_UNAVAILABLE, "The executor at a:1 does not answer: refused.")
    for _ in range(2):
        screen.lost(away)
        screen.lost(away)
        screen.show(Event(heartbeat=heartbeat_pb2.Heartbeat()))
    told = "turnwright: The executor at a:1 does not answer. The run is shown again once it does.\n"
    assert (out.getvalue(), capsys.readouterr().err) == ("", told * 2)
    lines: list[str] = []
    for one in (programs := JsonScreen(lines.append), programs):
        one.lost(away)
    assert (lines, capsys.readouterr().err) == ([], told)


@pytest.mark.parametrize("width", [10, 40, 200])
def test_a_pipe_gets_no_control_characters_at_any_width(width) -> None:
    assert not [c for c in told(width=width) if ord(c) < 32 and c != "\n"]


@pytest.mark.asyncio
async def test_no_color_leaves_no_colour() -> None:
    text = told(width=80, force_terminal=True, no_color=True, legacy_windows=False)

    assert "\x1b[31" not in text
    assert "\x1b[32" not in text
    assert "409 conflict" in text


@pytest.mark.asyncio
async def test_a_rule_fits_a_narrow_terminal() -> None:
    lines = told(width=30, force_terminal=True, color_system=None).splitlines()

    assert next(line for line in lines if line.startswith("turn 1 ")) == "turn 1 " + "─" * 23


def test_an_ascii_terminal_gets_words_for_icons() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    screen = TextScreen(Console(file=out, highlight=False, soft_wrap=True))
    screen.begin(RUN, 1)
    for event in STORY:
        screen.show(event)
    screen.end(RUN, LOOP)
    out.flush()

    assert b"  failed set b.py 409" in out.buffer.getvalue()


@pytest.mark.parametrize("second", ["other", RUN.run])
def test_what_one_run_has_shown_hides_nothing_of_another(second) -> None:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False), session=True)
    events = [STORY[0], delta(append_content="I look."), record("log://turn_1/get/a", entry_pb2.STATE_RESOLVED)]
    for run in (RUN, run_pb2.Run(project="p", run=second)):
        screen.begin(run, 1)
        for event in events:
            screen.show(event)
        screen.end(run, LOOP)
    shown, runs = out.getvalue(), len({RUN.run, second})
    assert [shown.count(each) for each in ("turn 1", "✓ get", "run ", "again")] == [runs, runs, runs, 0]


def test_commands_of_other_loops_and_of_the_runtime_are_not_reported() -> None:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False))
    screen.begin(RUN, 2)
    screen.show(record("log://turn_1/get/a", entry_pb2.STATE_RESOLVED))
    manifest = record("log://turn_0/repo/manifest", entry_pb2.STATE_RESOLVED)
    manifest.message_updated.entry.turn = 0
    screen.show(manifest)

    assert out.getvalue().count("\n") == 1


def test_a_proposal_is_shown_whole_with_what_hides_written_out() -> None:
    out = io.StringIO()
    screen = TextScreen(Console(file=out, highlight=False, width=80))
    patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\x1b[8m hidden\n"
    change = proposal_pb2.FileChange(path="x\x1b[2K", kind=proposal_pb2.FILE_CHANGE_KIND_MODIFY, patch=patch)
    files = proposal_pb2.Proposal(path="p", tool="set", files=proposal_pb2.FileChanges(changes=[change]))
    command = command_record_pb2.CommandEffect(command="ls\n\rrm -rf /", timeout=Duration(seconds=9))

    screen.propose(files)
    screen.propose(proposal_pb2.Proposal(path="p", tool="sh", command=command))

    text = out.getvalue()
    assert "\x1b" not in text
    assert r"+new\x1b[8m hidden" in text
    assert r"  $ \rrm -rf /" in text
    assert effect_title(files) == r"change x\x1b[2K"
    # The data of a server's tool say where it is, and its text what it would do.
    call = command_record_pb2.PluginCall(data_json='{"server": "tickets", "tool": "create"}')
    asked = proposal_pb2.Proposal(
        tool="tickets.create", call=call, body='call tickets.create with {\n "title": "A"\n}.'
    )
    assert effect_title(asked) == 'call tickets.create with { "title": "A" }.'
    asked.body = "Open a ticket\x1b[2K."
    assert effect_title(asked) == r"call tickets.create: Open a ticket\x1b[2K."
    out.truncate(0)
    screen.propose(asked)
    assert "server: tickets" not in out.getvalue()


def test_json_lines_are_ascii_with_the_contracts_names_and_integer_statuses() -> None:
    lines: list[str] = []
    screen = JsonScreen(lines.append)
    run = run_pb2.Run(run="ä", status=102, loops_queued=1)
    screen.show(Event(run_state=event_pb2.RunState(run=run, loop=loop_pb2.Loop(sequence=1, status=102))))

    assert lines[0].isascii()
    assert json.loads(lines[0]) == {
        "run_state": {"run": {"run": "ä", "status": 102, "loops_queued": 1}, "loop": {"sequence": 1, "status": 102}}
    }


@pytest.mark.parametrize("last", ["none", "snapshot", "earlier", "other", "same"])
def test_the_last_json_line_is_the_state_of_the_loop_exactly_once(last) -> None:
    lines: list[str] = []
    screen = JsonScreen(lines.append)
    cursor = cursor_pb2.EventCursor(epoch="e", seq=3)
    events = {
        "snapshot": Event(cursor=cursor, snapshot=event_pb2.Snapshot(last=True)),
        "earlier": Event(run_state=event_pb2.RunState(loop=loop_pb2.Loop(sequence=1, status=102))),
        "other": Event(run_state=event_pb2.RunState(loop=loop_pb2.Loop(sequence=2, status=499))),
        "same": Event(run_state=event_pb2.RunState(loop=LOOP)),
    }
    if last in events:
        screen.show(events[last])

    screen.end(RUN, LOOP)

    ends = [json.loads(line) for line in lines if json.loads(line).get("run_state", {}).get("loop", {}) != {}]
    assert (ends[-1]["run_state"]["loop"]["sequence"], ends[-1]["run_state"]["loop"]["status"]) == (1, 499)
    assert json.loads(lines[-1]) == ends[-1]
    assert len(lines) == {"none": 1, "same": 1}.get(last, 2)
