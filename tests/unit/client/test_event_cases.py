"""Cases of events from another agent: folding, numbers, wire forms, ends of processes, ends of replies. RE01-RE08."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from turnwright.executor.v1 import event_pb2, executor_service_pb2, session_event_pb2
from turnwright.types.v1 import cursor_pb2, entry_pb2, message_pb2, session_pb2, settings_pb2
from turnwright_values.replies import ThinkingBlock, ToolCall
from turnwright_values.types import SessionState

from cases import load_shared, params
from turnwright_client import RunView
from turnwright_client.watch import WatchPolicy, is_behind_a_gap, resume_point, watch_events
from turnwright_core.chat.deltas import AppendContent, AppendReasoning, SetThinkingBlocks, SetToolCalls
from turnwright_core.wire.deltas import delta_to_pb
from turnwright_core.wire.messages import message_from_pb
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.publishing import Activity
from turnwright_executor.watching.hub import RunHub

TESTS = Path(__file__).resolve().parents[2]
Event = executor_service_pb2.WatchRunResponse
TURN = 1
"""The turn whose reply is streamed: `a` in the cases."""


def proven(where: str) -> None:
    """A reason, or the test that proves a case: it must exist."""
    if "::" in where:
        path, _, name = where.partition("::")
        assert f"def {name}(" in (TESTS / path).read_text()


# ---- Folding


def path_of(message: dict, place: int) -> str:
    return message.get("message_id") or f"m{place}"


def entry(message: dict, place: float) -> entry_pb2.Entry:
    path = path_of(message, int(place))
    # Positions leave room between two messages: a store may give one in between.
    return entry_pb2.Entry(path=path, position=int(2 * place), body=message.get("content", ""), scheme=message["role"])


def delta_of(op: dict):
    match op.get("op"):
        case "append_content":
            return AppendContent(op["text"])
        case "append_reasoning":
            return AppendReasoning(op["text"])
        case "set_tool_calls":
            calls = [ToolCall(c["function"]["name"], c["function"]["arguments"], id=c["id"]) for c in op["tool_calls"]]
            return SetToolCalls(tuple(calls))
        case "set_thinking_blocks":
            blocks = [ThinkingBlock(b["type"], text=b["text"], signature=b["signature"]) for b in op["blocks"]]
            return SetThinkingBlocks(tuple(blocks))
        case _:
            return None


def streamed(ops: list[dict]) -> list[dict]:
    deltas = [delta_to_pb(delta) for delta in map(delta_of, ops) if delta]
    return [{"stream_delta": event_pb2.StreamDelta(turn=TURN, deltas=deltas)}]


def ours(event: dict, known: RunView) -> list[dict]:  # noqa: C901 - one case for each kind of event
    """An event of a case as ours."""
    paths = [one.path for one in known.timeline()]
    match event["type"]:
        case "snapshot":
            state = session_pb2.SessionState.ValueType(SessionState[event["runtime"]["state"].upper()])
            entries = [entry(message, place) for place, message in enumerate(event["messages"])]
            return [{"snapshot": event_pb2.Snapshot(last=True, entries=entries, state=state)}]
        case "stream_started":
            return [{"stream_started": event_pb2.StreamStarted(turn=TURN)}]
        case "stream_delta":
            return streamed(event["ops"])
        case "stream_finished":
            return [{"stream_finished": event_pb2.StreamFinished(turn=TURN)}]
        case "message_added":
            # An index in the middle is a position between two others (OM15).
            index = event.get("index", len(paths))
            place = index if index >= len(paths) else index - 0.5
            return [{"message_added": event_pb2.MessageAdded(entry=entry(event["message"], place))}]
        case "message_removed" if known.partial:
            # A reply that was cut short has no entry yet.
            return [{"stream_cancelled": event_pb2.StreamCancelled(turn=TURN)}]
        case "message_removed":
            return [{"message_removed": event_pb2.MessageRemoved(path=event["message_id"])}]
        case "messages_truncated":
            gone = paths[max(0, event["from_index"]) :]
            return [{"messages_truncated": session_event_pb2.MessagesTruncated(paths=gone)}]
        case "runtime_updated":
            state = session_pb2.SessionState.ValueType(SessionState[event["state"].upper()])
            return [{"runtime_updated": event_pb2.RuntimeUpdated(state=state)}]
        case "pause_required":
            paused = event_pb2.RuntimeUpdated(state=session_pb2.SESSION_STATE_PAUSED)
            reasons = [session_event_pb2.PauseReason(call_id=one["tool_call_id"]) for one in event["reasons"]]
            why = session_event_pb2.PauseRequired(reasons=reasons)
            return [{"runtime_updated": paused}, {"pause_required": why}]
    raise AssertionError(event["type"])


def shown(view: RunView) -> list[dict]:
    """The messages of a view as the cases show them."""
    messages = [{"role": one.scheme, "message_id": one.path, "content": one.body} for one in view.timeline()]
    if view.partial:
        reply = view.partial.reply.message()
        said = {"role": "assistant", "message_id": "a", "content": view.partial.content}
        calls = [{"id": c.id, "function": {"name": c.name, "arguments": c.arguments}} for c in reply.calls]
        blocks = [{"type": b.type, "text": b.text, "signature": b.signature} for b in reply.thinking]
        more = {"reasoning_content": view.partial.reasoning, "tool_calls": calls, "thinking_blocks": blocks}
        messages.append(said | {name: value for name, value in more.items() if value})
    return messages


@pytest.mark.parametrize("case", params("refact/event_fold.jsonl"))
def test_a_case_of_folding_holds(case) -> None:
    # RE03, RE08
    view, expected = RunView(), case["expected"]
    last = None
    for event in case["input"]["events"]:
        seq = int(event["seq"])
        is_gap = last is not None and event["type"] != "snapshot" and seq != last + 1
        # A lenient client passes over a number that comes again; ours begins again, and tells nothing twice either.
        is_lenient = case["input"].get("policy") == "lenient"
        assert is_gap == is_lenient or is_gap == (
            "recovery" in expected and expected["recovery"].endswith(f"got {seq}")
        )
        if is_gap:
            # The client begins again: see the cases of numbers.
            continue
        last = seq
        for fields in ours(event, view):
            view.apply(Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=seq), **fields))
    told = shown(view)
    if "messages" in expected:
        wanted = [{name: one[name] for name in one if name not in ("tool_call_id", "tool_failed")}
                  for one in expected["messages"]]  # fmt: skip
        named = [
            {name: one.get(name) for name in want}
            for one, want in zip(sorted_by_role(told), sorted_by_role(wanted), strict=True)
        ]
        assert named == sorted_by_role(wanted)
    if "message_roles" in expected:
        assert [one["role"] for one in told] == expected["message_roles"]
    if "message_ids" in expected:
        assert [one["message_id"] for one in told] == expected["message_ids"]
    if "state" in expected:
        assert SessionState(view.state).name.lower() == expected["state"]
    if "pause_tool_call_ids" in expected:
        assert [reason.call_id for reason in view.pause_reasons] == expected["pause_tool_call_ids"]


def sorted_by_role(messages: list[dict]) -> list[dict]:
    return sorted(messages, key=lambda one: one["role"])


# ---- Numbers

TYPED = "fields are typed in the contract"
OTHER_NUMBERS = {
    "strict_missing_seq": f"every message has a cursor: {TYPED}",
    "server_lag_recovery": "contract/executor/test_session_events.py::test_a_watcher_that_stalls_is_resynchronised_in_its_stream",
}


def numbered(event: dict) -> Event:
    """An event of a case with its number, as JSON has it; what it says does not matter. Raises ParseError."""
    is_snapshot = event["type"] == "snapshot"
    said = {"snapshot": {"last": True}} if is_snapshot else {"stream_started": {}}
    return ParseDict({"cursor": {"epoch": "e", "seq": event["seq"]}, **said}, Event())


@pytest.mark.parametrize("case", params("refact/seq.jsonl"))
def test_a_case_of_numbers_holds(case) -> None:
    # RE02, RE03
    given, expected = case["input"], case["expected"]
    if case["id"] in OTHER_NUMBERS:
        return proven(OTHER_NUMBERS[case["id"]])
    if "server" in given:
        return asyncio.run(check_hub(case))
    if "parse_error" in expected:
        with pytest.raises(ParseError):
            numbered(given["events"][0])
        return None
    decisions, cursor, applied = [], None, 0
    for event in map(numbered, given["events"]):
        is_gap = is_behind_a_gap(event, cursor)
        decisions.append("resubscribe" if is_gap else "apply")
        cursor = cursor if is_gap else resume_point(event, cursor)
        applied += not is_gap and not event.HasField("snapshot")
    if "decisions" in expected:
        assert decisions == expected["decisions"]
    else:
        # The cases' fold takes any later number, and leaves gaps to its caller; ours takes the next one alone.
        assert applied == expected["messages_added"]
    return None


async def check_hub(case: dict) -> None:
    """Watchers of a hub get a snapshot with its number, and then the next ones."""

    async def no_other(_condition) -> None:
        raise AssertionError("the hub goes on")

    hub = RunHub(RunAddress("p", "r"), "e", None, ExecutorSettings(), no_other)
    for _ in range(case["input"].get("start_seq", 0)):
        hub.progress(Activity.THINKING, 1, "")
    told: dict[str, list] = {}
    watches = {}
    for step in case["input"]["server"]:
        if "subscribe" in step:
            watch = watches[step["subscribe"]] = await hub.watch(cursor_pb2.EventCursor())
            told[step["subscribe"]] = [await anext(watch)]
        for _ in range(step.get("times", 1) if "emit" in step else 0):
            hub.progress(Activity.THINKING, 1, "")
            for name, watch in watches.items():
                told[name].append(await anext(watch))
    for name, expected in case["expected"].items():
        found = [("snapshot" if one.HasField("snapshot") else "x", str(one.cursor.seq)) for one in told[name]]
        assert found == [("snapshot" if kind == "snapshot" else "x", seq) for kind, seq in expected]
    for watch in watches.values():
        await watch.aclose()


def test_a_watch_begins_again_with_a_snapshot_where_events_are_missing() -> None:
    # RE03
    told = [("snapshot", 0), ("x", 1), ("x", 3)], [("snapshot", 7), ("x", 8)]
    opened = []

    async def open_stream(after):
        opened.append(after)
        for name, seq in told[len(opened) - 1]:
            yield numbered({"type": name, "seq": seq})

    async def watched() -> list[int]:
        seen = []
        events = watch_events(lambda after: contextlib.aclosing(open_stream(after)), None, WatchPolicy(backoff_s=0.001))
        async for event in events:
            seen.append(event.cursor.seq)
            if event.cursor.seq == 8:
                await events.aclose()
                return seen
        raise AssertionError("the watch ended")

    assert asyncio.run(watched()) == [0, 1, 7, 8]
    assert opened == [None, None]


# ---- Wire forms, ends of processes, ends of replies

WHERE = {
    "process_completed": {
        "status_labels": "a process is told of when it has ended: exited, aborted, cancelled or producer_lost",
        "foreground_ignored": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
        "background_and_service_injected": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
        "busy_chat_interrupted": "RE07 is better: contract/executor/test_schedules.py shows that nothing is interrupted",
        "queue_full_drops_event": "RE07 is better: the same test has a full queue",
        "append_only_prefix": "contract/assembler/test_plans_and_events.py::test_a_delta_leaves_every_earlier_byte_warm_and_cold",
    },
}
"""Where the other cases are proven, by their names or what these begin with, or why we differ."""


@pytest.mark.parametrize("file", WHERE)
def test_every_other_case_is_proven_or_named(file) -> None:
    for case in (one["id"] for one in load_shared(f"refact/{file}.jsonl")):
        places = [
            where for name, where in WHERE[file].items() if case == name or case.startswith((f"{name}/", f"{name}_"))
        ]
        assert places, case
        proven(places[0])


OTHER_FORMS = {
    "process_completed": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
    "background_agent": "a fault of the origin: events have one cursor",
    "runtime_state": f"we have no goals, and compression is reported on the turn (RL07); {TYPED}",
    "chat_message_unknown_keys": "unit/core/test_reply.py::test_extras_are_merged_by_their_keys_alone",
    "chat_message_missing_role": TYPED,
    "usage_wire_names": "unit/provider/test_folds.py::test_usage_has_one_meaning_for_each_figure",
}
"""Forms that are proven elsewhere, or that we do not have, by the beginnings of their names."""

MADE = {
    "StreamDelta": lambda given: {"stream_delta": streamed_delta(given["ops"])},
    "MessageAdded": lambda given: {
        "message_added": event_pb2.MessageAdded(entry=entry(given["message"], given["index"]))
    },
    "MessageUpdated": lambda given: {"message_updated": event_pb2.MessageUpdated(entry=entry(given["message"], 0))},
    "MessageRemoved": lambda given: {"message_removed": event_pb2.MessageRemoved(path=given["message_id"])},
    "ThreadUpdated": lambda given: {
        "thread_updated": session_event_pb2.ThreadUpdated(
            settings=settings_pb2.RunSettings(model=given["params"]["model"])
        )
    },
    "PauseRequired": lambda given: {
        "pause_required": session_event_pb2.PauseRequired(reasons=list(map(pause_reason, given["reasons"])))
    },
    "RuntimeUpdated": lambda given: {
        "runtime_updated": event_pb2.RuntimeUpdated(state=int(SessionState[given["state"].upper()]))
    },
    "Snapshot": lambda _: {"snapshot": event_pb2.Snapshot(last=True)},
}
"""Events of the cases as ours."""


def streamed_delta(ops: list[dict]) -> event_pb2.StreamDelta:
    [(_, text)] = ops[0].items()
    return event_pb2.StreamDelta(turn=TURN, deltas=[delta_to_pb(AppendContent(text))])


def pause_reason(given: dict) -> session_event_pb2.PauseReason:
    kind = session_event_pb2.PauseReason.Type.Value(f"TYPE_{given['reason_type'].upper()}")
    # There, a rule is a word of the user; here, it is what the effect is.
    rule = session_event_pb2.PauseReason.RULE_COMMAND
    fields = {"tool": given["tool_name"], "command": given["command"], "call_id": given["tool_call_id"]}
    return session_event_pb2.PauseReason(type=kind, rule=rule, **fields)


@pytest.mark.parametrize("case", params("refact/events_serde.jsonl"))
def test_a_case_of_wire_forms_holds(case) -> None:
    # RE01, RE06, RS01: JSON has the same names, and is read back as it was
    name, given = case["id"], case["input"]
    if where := next((reason for begin, reason in OTHER_FORMS.items() if name.startswith(begin)), ""):
        return proven(where)
    if name == "session_states":
        assert [state.name.lower() for state in SessionState if state] == case["expected"]
    elif "event" in given:
        made = Event(cursor=cursor_pb2.EventCursor(epoch="e", seq=1), **MADE[given["event"]](given))
        told = MessageToDict(made, preserving_proto_field_name=True)
        assert case["expected"]["type"] in told
        assert ParseDict(told, Event()) == made
        assert made.WhichOneof("event") == case["expected"]["type"]
    elif name.startswith("envelope"):
        with pytest.raises(ParseError):
            numbered(json.loads(given["json"]))
    elif name.startswith("chat_message"):
        said = message_pb2.Message(role=message_pb2.ROLE_USER)
        assert "".join(part.text for part in message_from_pb(said).parts) == case["expected"]["content"]
    else:
        raise AssertionError(name)
    return None
