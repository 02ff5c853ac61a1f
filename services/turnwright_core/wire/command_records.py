"""What records of commands have: decisions, which the store writes, and what approval rules are held against."""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Raw, json
from turnwright.types.v1 import command_record_pb2
from turnwright.types.v1.command_record_pb2 import (
    CommandDecision,
    CommandRecord,
    EditedContent,
    Effect,
    ProposedStage,
)
from turnwright_values.types import DecisionKind, Mode, State

from turnwright_core.chat.timeline import RecordedCall
from turnwright_core.decisions import Decision
from turnwright_core.rules import COMMAND_TOOLS, IntendedEffect
from turnwright_core.session import Wait
from turnwright_core.wire.times import time_from_pb, time_to_pb

_KINDS: Final[dict[int, DecisionKind]] = {int(kind): kind for kind in DecisionKind if kind}
_DECIDED: Final = ("accepted", "dispatched", "settled")
"""Stages with a decision."""


def command_decision_to_pb(decision: Decision) -> CommandDecision:
    return CommandDecision(
        kind=command_record_pb2.DecisionKind.ValueType(decision.kind),
        principal=decision.principal,
        comment=decision.comment,
        decide_time=time_to_pb(decision.time_ms),
        contents=[EditedContent(path=path, content=text) for path, text in decision.contents.items()],
        edited_paths=decision.edited,
        client_runs=decision.client_runs,
        tool_failed=decision.tool_failed,
        decider=decision.decider,
    )


def command_decision_from_pb(decision: CommandDecision) -> Decision | None:
    """The decision in a record; None if there is none that this version knows."""
    kind = _KINDS.get(decision.kind)
    if kind is None:
        return None
    return Decision(
        kind,
        decision.comment,
        decision.principal,
        time_from_pb(decision.decide_time),
        {one.path: one.content for one in decision.contents},
        tuple(decision.edited_paths),
        decision.client_runs,
        decision.tool_failed,
        decision.decider,
    )


def decision_in(record: bytes) -> Decision | None:
    """The latest decision in a record; None if there is none."""
    message = CommandRecord.FromString(record)
    stage = message.WhichOneof("stage")
    return command_decision_from_pb(getattr(message, stage).decision) if stage in _DECIDED else None


def recorded_call(record: bytes) -> RecordedCall:
    """The call that a record is of, with the arguments as JSON of the types that the model gave them."""
    message = CommandRecord.FromString(record)
    command = message.command
    arguments: dict[str, str | Raw] = {one.name: one.value for one in command.attributes}
    if command.body:
        arguments[command.body_name or "body"] = command.body
    for name in command.json_names:
        if (value := arguments.get(name)) is not None:
            arguments[name] = _typed(value)
    text = json.encode(arguments).decode()
    return RecordedCall(message.tool, text, message.call_id, message.vendor_call_id)


def _typed(text: str | Raw) -> str | Raw:
    try:
        return json.decode(text, type=Raw)
    except (DecodeError, RecursionError):
        # A filter has put something else in its place.
        return text


def wait_in(state: State, message: CommandRecord) -> Wait | None:
    """What a model's command waits for; None where it has ended, and for a client's."""
    if state.is_settled or not message.HasField("ordinal"):
        return None
    if state is not State.PROPOSED:
        return Wait.WORK
    return _WAITS.get(message.proposed.effect.WhichOneof("kind") or "", Wait.APPROVAL)


def may_have_happened(record: bytes) -> bool:
    """Whether the effect of a record that has not ended may have happened."""
    message = CommandRecord.FromString(record)
    stage = message.WhichOneof("stage")
    if stage == "dispatched":
        return message.effect_class != command_record_pb2.EFFECT_CLASS_PURE
    held = getattr(message, stage) if stage in ("proposed", "accepted") else ProposedStage()
    # A question about an interrupted effect, a tool that a client executes, or agents that have been started.
    return held.HasField("interrupted") or held.effect.WhichOneof("kind") in ("client_tool", "agents")


_WAITS: Final = {"question": Wait.ANSWER, "client_tool": Wait.CLIENT, "agents": Wait.AGENTS}
"""What a proposal with an effect waits for, where that is no approval."""


def tool_in(record: bytes) -> str:
    """The tool of a record; empty if it does not belong to a command."""
    return CommandRecord.FromString(record).tool


def with_decision(record: bytes, decision: Decision) -> bytes:
    """The record with a decision. `record` is empty for a proposal that was not a command."""
    message = CommandRecord.FromString(record)
    # A copy: a message has one stage, and what another one held is gone once it is given.
    waited = ProposedStage()
    waited.CopyFrom(message.proposed)
    stage = message.accepted if decision.kind is DecisionKind.ACCEPTED else message.settled
    stage.decision.CopyFrom(command_decision_to_pb(decision))
    if waited.HasField("effect"):
        stage.effect.CopyFrom(waited.effect)
    if waited.HasField("interrupted"):
        stage.interrupted.CopyFrom(waited.interrupted)
    return message.SerializeToString()


def intended_effect(record: CommandRecord, principal: str = "", mode: Mode = Mode.UNSPECIFIED) -> IntendedEffect:
    """The effect that a record holds, for a person and in a mode."""
    stage = record.WhichOneof("stage")
    effect: Effect = getattr(record, stage).effect if stage else Effect()
    line, places = None, tuple[str, ...]()
    match effect.WhichOneof("kind"):
        case "command":
            line = effect.command.command
        case "files":
            places = tuple([edit.path for edit in effect.files.edits])
        case "call":
            places = _address_in(effect.call.data_json)
    return IntendedEffect(record.tool, line, places, principal, mode)


def recorded_effect(
    record: CommandRecord, target: str, principal: str = "", mode: Mode = Mode.UNSPECIFIED
) -> IntendedEffect:
    """What a command wanted to do, of which the record keeps no effect once it has ended; `target` is its entry's."""
    intended = intended_effect(record, principal, mode)
    if intended.line is not None or intended.places:
        return intended
    command = record.command
    if record.tool in COMMAND_TOOLS:
        given = {one.name: one.value for one in command.attributes}
        line = command.body.strip() or given.get("command", target)
        return IntendedEffect(record.tool, line, (), principal, mode)
    places = tuple([one.path for one in record.settled.files]) or ((target,) if target else ())
    return IntendedEffect(record.tool, None, places, principal, mode)


def _address_in(data: str) -> tuple[str, ...]:
    try:
        found = json.decode(data)
    except DecodeError:
        return ()
    address = found.get("address") if isinstance(found, dict) else None
    return (address,) if isinstance(address, str) and address else ()
