"""Why a run is paused: what its commands wait for, and what a rule has denied. Source: row RE06."""

from __future__ import annotations

from typing import Final

from turnwright.executor.v1 import session_event_pb2
from turnwright.types.v1 import entry_pb2

from turnwright_core.limits import TARGET_CHARS_MAX
from turnwright_core.session import Wait
from turnwright_core.wire.entries import entry_from_pb
from turnwright_executor.domain.endings import REJECTED_OUTCOME

DENIAL_RULE: Final = "tool_rules"


def pause_reason(entry: entry_pb2.Entry, wait: Wait | None) -> session_event_pb2.PauseReason | None:
    """The reason in a command's record, by what it waits for; None unless that is approval, or a rule denied it."""
    record = entry.record
    if wait is Wait.APPROVAL:
        effect = record.proposed.effect
        kind = effect.WhichOneof("kind") or "call"
        about = effect.command.command if kind == "command" else _target(entry)
        return _reason(session_event_pb2.PauseReason.TYPE_CONFIRMATION, entry, about, kind)
    is_denied = entry.outcome == REJECTED_OUTCOME and not record.settled.HasField("decision")
    if is_denied and record.HasField("ordinal"):
        return _reason(session_event_pb2.PauseReason.TYPE_DENIAL, entry, _target(entry), DENIAL_RULE)
    return None


def _target(entry: entry_pb2.Entry) -> str:
    return str(entry_from_pb(entry).attributes.get("target", ""))


def _reason(
    reason: session_event_pb2.PauseReason.Type.ValueType, entry: entry_pb2.Entry, about: str, rule: str
) -> session_event_pb2.PauseReason:
    return session_event_pb2.PauseReason(
        type=reason,
        tool=entry.record.tool,
        command=" ".join(about.split())[:TARGET_CHARS_MAX],
        rule=rule,
        path=entry.path,
        call_id=entry.record.call_id,
    )
