"""What approval rules are held against, as records of commands have it."""

from __future__ import annotations

from msgspec import DecodeError, json
from turnwright.types.v1.command_record_pb2 import CommandRecord, Effect
from turnwright_values.types import Mode

from turnwright_core.rules import COMMAND_TOOLS, IntendedEffect


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
