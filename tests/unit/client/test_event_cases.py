"""Cases of events from another agent: folding, numbers, wire forms, ends of processes, ends of replies. RE01-RE08."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from turnwright.executor.v1 import event_pb2, executor_service_pb2, session_event_pb2, task_pb2
from turnwright.types.v1 import entry_pb2, session_pb2

from cases import params
from turnwright_client import RunView
from turnwright_client.watch import WatchPolicy, is_behind_a_gap, resume_point, watch_events
from turnwright_core.chat.deltas import AppendContent, AppendReasoning, SetThinkingBlocks, SetToolCalls
from turnwright_core.chat.message import ThinkingBlock, ToolCall
from turnwright_core.runs import SessionState
from turnwright_core.wire.deltas import delta_to_pb

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

OTHER_FOLDS = {
    "message_added_negative_index_clamped": "positions are given by the store (OM15), and no event has an index",
    "replayed_message_added_ignored": "a number that comes again is a gap: tests of numbers below",
}


def path_of(message: dict, place: int) -> str:
    return message.get("message_id") or f"m{place}"


def entry(message: dict, place: int) -> entry_pb2.Entry:
    path = path_of(message, place)
    return entry_pb2.Entry(path=path, position=place, body=message.get("content", ""), scheme=message["role"])


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
    deltas = [delta_to_pb(delta) if (delta := delta_of(op)) else None for op in ops]
    return [{"stream_delta": event_pb2.StreamDelta(turn=TURN, delta=delta)} for delta in deltas]


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
            return [{"message_added": event_pb2.MessageAdded(entry=entry(event["message"], len(paths)))}]
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
    if case["id"] in OTHER_FOLDS:
        return
    view, expected = RunView(), case["expected"]
    last = None
    for event in case["input"]["events"]:
        seq = int(event["seq"])
        is_gap = last is not None and event["type"] != "snapshot" and seq != last + 1
        assert is_gap == ("recovery" in expected and expected["recovery"].endswith(f"got {seq}"))
        if is_gap:
            # The client begins again: see the cases of numbers.
            continue
        last = seq
        for fields in ours(event, view):
            view.apply(Event(cursor=task_pb2.EventCursor(epoch="e", seq=seq), **fields))
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

OTHER_NUMBERS = {
    "strict_event_before_snapshot": "a watch without a cursor begins with a snapshot: contract/executor/test_watching.py",
    "strict_missing_seq": "every message of the contract has a cursor",
    "seq_number_or_string": "numbers are typed in the contract",
    "seq_invalid_string": "the same",
    "server_subscribe_snapshot_not_incremented": "contract/executor/test_watching.py::test_a_snapshot_stands_at_the_latest_event_and_the_next_one_follows_it",
    "server_lag_recovery": "contract/executor/test_session_events.py::test_a_watcher_that_stalls_is_resynchronised_in_its_stream",
    "ack_advances_watermark": "answers are not events; an older number is a gap (RE03)",
}


def numbered(event: dict) -> Event:
    """An event of a case with its number; what it says does not matter."""
    cursor = task_pb2.EventCursor(epoch="e", seq=int(event["seq"]))
    if event["type"] == "snapshot":
        return Event(cursor=cursor, snapshot=event_pb2.Snapshot(last=True))
    return Event(cursor=cursor, stream_started=event_pb2.StreamStarted())


@pytest.mark.parametrize("case", params("refact/seq.jsonl"))
def test_a_case_of_numbers_holds(case) -> None:
    # RE02, RE03
    if case["id"] in OTHER_NUMBERS:
        proven(OTHER_NUMBERS[case["id"]])
        return
    decisions, cursor = [], None
    for event in map(numbered, case["input"]["events"]):
        is_gap = is_behind_a_gap(event, cursor)
        decisions.append("resubscribe" if is_gap else "apply")
        cursor = cursor if is_gap else resume_point(event, cursor)
    assert decisions == case["expected"]["decisions"]


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
        events = watch_events(open_stream, None, WatchPolicy(backoff_s=0.001))
        async for event in events:
            seen.append(event.cursor.seq)
            if event.cursor.seq == 8:
                await events.aclose()
                return seen
        raise AssertionError("the watch ended")

    assert asyncio.run(watched()) == [0, 1, 7, 8]
    assert opened == [None, None]


# ---- Wire forms, ends of processes, ends of replies

TYPED = "fields are typed in the contract"
WHERE = {
    "events_serde": {
        "session_states": "RS01: the same names; test_states_have_the_names_of_the_cases",
        "envelope_invalid_seq": TYPED,
        "stream_delta": "unit/client/test_fold.py::test_any_split_of_a_stream_folds_to_the_same_message",
        "message_added": "contract/executor/test_watching.py::test_a_turn_is_reported_in_the_order_of_its_steps",
        "message_updated": "contract/executor/test_session_edits.py::test_a_rewritten_message_is_read_as_it_is_now_and_was_what_it_was",
        "thread_updated_flattened": "contract/executor/test_session_events.py::test_each_kind_of_event_comes_once_for_each_change",
        "pause_required": "contract/executor/test_session_events.py::test_a_pause_names_its_reasons_and_ends_with_its_state",
        "process_completed": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
        "runtime_updated_minimal": "we have no goals, and compression is reported on the turn (RL07)",
        "runtime_state_missing_fields_default": TYPED,
        "background_agent_updated_dup_keys": "a fault of the origin: events have one cursor",
        "snapshot_keys": "contract/executor/test_session_events.py::test_each_kind_of_event_comes_once_for_each_change",
        "chat_message_unknown_keys_go_to_extra": "unit/core/test_reply.py::test_extras_are_merged_by_their_keys_alone",
        "usage_wire_names": "unit/provider/test_folds.py::test_usage_has_one_meaning_for_each_figure",
        "chat_message_missing_role_error": TYPED,
        "chat_message_missing_content_empty": TYPED,
    },
    "process_completed": {
        "status_labels": "a process is told of when it has ended: exited, aborted, cancelled or producer_lost",
        "foreground_ignored": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
        "background_and_service_injected": "contract/executor/test_schedules.py::test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing",
        "busy_chat_interrupted": "RE07 is better: contract/executor/test_schedules.py shows that nothing is interrupted",
        "queue_full_drops_event": "RE07 is better: the same test has a full queue",
        "append_only_prefix": "contract/assembler/test_plans_and_events.py::test_a_delta_leaves_every_earlier_byte_warm_and_cold",
    },
    "generation": {
        "tail_needs_assistant": "whether a turn follows is decided by the verdict on its commands (RU152), not by the last message",
        "stop_reason": "the vendor's word is kept (StreamFinished.finish); a cut reply runs what is complete (C54)",
        "length_stop_kind": "a reply that its vendor cut runs what is complete (C54)",
        "length_stop": "the same: it is no turn that is asked for again",
        "finish_reason": "contract/provider/test_wires.py::test_a_loop_of_tools_over_chat_completions",
        "prepare/images_replaced_text_only": "a model that takes no images refuses the call, and the error says so (LoopSettings.images)",
        "prepare/images_kept_vision": "unit/core/test_transcript.py::test_an_image_keeps_its_place_among_texts",
        "prepare/is_thinking_enabled": "unit/provider/test_history.py::test_blocks_and_signatures_go_back_to_the_model_that_wrote_them",
        "cache_guard": "contract/executor/test_transcripts.py::test_each_turn_begins_with_the_messages_of_the_turn_before",
    },
}
"""Where the other cases are proven, by their names or what these begin with, or why we differ."""


@pytest.mark.parametrize("file", WHERE)
def test_every_other_case_is_proven_or_named(file) -> None:
    for parameter in params(f"refact/{file}.jsonl"):
        case = parameter.values[0]["id"]
        places = [
            where for name, where in WHERE[file].items() if case == name or case.startswith((f"{name}/", f"{name}_"))
        ]
        assert places, case
        proven(places[0])


def test_states_have_the_names_of_the_cases() -> None:
    # RS01
    [case] = [p.values[0] for p in params("refact/events_serde.jsonl") if p.values[0]["id"] == "session_states"]
    assert [state.name.lower() for state in SessionState if state] == case["expected"]
