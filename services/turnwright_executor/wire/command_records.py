"""Records of commands: CommandRecord as a value and as the message in its entry.

State, outcome and body are those of the entry. Its attributes hold what tags show (`tool`, `target`) and what tools
add. Source: rows RU128, RU149; architecture 11.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from turnwright.types.v1 import command_record_pb2 as pb
from turnwright.types.v1 import rule_pb2
from turnwright_values.types import (
    AgentsEffect,
    ClientCall,
    ClientToolEffect,
    CommandEffect,
    DecidingRule,
    Entry,
    FileEffect,
    Permission,
    QuestionEffect,
    Tier,
    WrittenFile,
)

from turnwright_core.wire.codec import codec
from turnwright_core.wire.command_records import command_decision_from_pb, command_decision_to_pb
from turnwright_executor.domain.command_record import CommandRecord, Stage
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_grammar.reply import Command

CLASSES_PB: Final = {one: pb.EffectClass.Value(f"EFFECT_CLASS_{one.name}") for one in EffectClass}
_CLASSES: Final[dict[int, EffectClass]] = {number: one for one, number in CLASSES_PB.items()}
written_to_pb, written_from_pb = codec(WrittenFile, pb.WrittenFile)


def _plugin_call_to_pb(effect: CallEffect) -> pb.PluginCall:
    return pb.PluginCall(data_json=json.dumps(dict(effect.data), ensure_ascii=False, separators=(",", ":")))


_KINDS: Final[dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    FileEffect: ("files", *codec(FileEffect, pb.FileEffect)),
    CommandEffect: ("command", *codec(CommandEffect, pb.CommandEffect)),
    QuestionEffect: ("question", *codec(QuestionEffect, pb.QuestionEffect)),
    CallEffect: ("call", _plugin_call_to_pb, lambda call: CallEffect(json.loads(call.data_json))),
    ClientToolEffect: ("client_tool", *codec(ClientToolEffect, pb.ClientToolEffect)),
    AgentsEffect: ("agents", *codec(AgentsEffect, pb.AgentsEffect)),
}
"""By kind of effect: its field, encoder and decoder."""
_DECODERS: Final = {name: decode for name, _, decode in _KINDS.values()}


def effect_class_from_pb(number: int) -> EffectClass:
    return _CLASSES.get(number, EffectClass.OUTSIDE)


def effect_to_pb(effect: Effect) -> pb.Effect:
    name, encode, _ = _KINDS[type(effect)]
    return pb.Effect(**{name: encode(effect)})


def effect_from_pb(effect: pb.Effect) -> Effect | None:
    """The effect; None if this version does not know it, so the command is prepared again."""
    name = effect.WhichOneof("kind")
    found: Effect | None = _DECODERS[name](getattr(effect, name)) if name else None
    return found


def effect_bytes(effect: Effect) -> int:
    return effect_to_pb(effect).ByteSize()


_call_to_pb, _call_from_pb = codec(ClientCall, pb.ClientCall)
_rule_to_pb, _rule_from_pb = codec(DecidingRule, rule_pb2.DecidingRule)
_STAGES: Final[Mapping[Stage, tuple[str, tuple[str, ...]]]] = {
    Stage.RECORDED: ("recorded", ("effect",)),
    Stage.PROPOSED: ("proposed", ("effect",)),
    Stage.ASKED: ("proposed", ("effect", "interrupted")),
    Stage.ACCEPTED: ("accepted", ("effect", "decision")),
    Stage.ANSWERED: ("accepted", ("effect", "interrupted", "decision")),
    Stage.DISPATCHED: ("dispatched", ("effect", "decision")),
    Stage.SETTLED: ("settled", ("effect", "interrupted", "decision")),
}
"""The field of each stage, and the parts of the record that it contains."""

_TO_PB: Final[Mapping[str, Callable[[Any], object]]] = {
    "effect": effect_to_pb,
    "interrupted": effect_to_pb,
    "decision": command_decision_to_pb,
}
_FROM_PB: Final[Mapping[str, Callable[[Any], object]]] = {
    "effect": effect_from_pb,
    "interrupted": effect_from_pb,
    "decision": command_decision_from_pb,
}
_PERMISSIONS: Final[Mapping[int, Permission]] = {int(one): one for one in Permission}


def command_record_to_pb(record: CommandRecord) -> pb.CommandRecord:
    command, call = record.command, record.call
    message = pb.CommandRecord(
        tool=record.tool,
        command=pb.CommandText(
            attributes=[pb.CommandAttribute(name=name, value=value) for name, value in command.attributes.items()],
            body=command.body,
            body_name=command.body_name,
            json_names=command.json_names,
        ),
        ordinal=record.ordinal,
        effect_class=CLASSES_PB[record.effect_class],
        key=record.key,
        call_id=record.call_id,
        vendor_call_id=record.vendor_call_id,
    )
    if call:
        message.call.CopyFrom(_call_to_pb(call))
    if record.rule:
        message.rule.CopyFrom(_rule_to_pb(record.rule))
    name, holds = _STAGES[record.stage]
    stage = getattr(message, name)
    stage.SetInParent()
    for field in holds:
        if (value := getattr(record, field)) is not None:
            getattr(stage, field).CopyFrom(_TO_PB[field](value))
    if record.stage is Stage.DISPATCHED:
        message.dispatched.permission = pb.Permission.ValueType(record.permission)
    if record.files:
        message.settled.files.extend(map(written_to_pb, record.files))
    return message


def record_from_entry(entry: Entry) -> CommandRecord:
    """The record in an entry. A record that was too large to be kept has an empty command and is settled."""
    message = pb.CommandRecord.FromString(entry.record)
    attributes = entry.attributes
    target = str(attributes.pop("target", ""))
    attributes.pop("tool", None)
    command, call = message.command, message.call
    return CommandRecord(
        path=entry.path,
        tool=message.tool,
        target=target,
        command=Command(
            message.tool,
            {one.name: one.value for one in command.attributes},
            command.body,
            json_names=tuple(command.json_names),
            body_name=command.body_name,
        ),
        ordinal=message.ordinal if message.HasField("ordinal") else None,
        effect_class=effect_class_from_pb(message.effect_class),
        key=message.key,
        call_id=message.call_id,
        vendor_call_id=message.vendor_call_id,
        state=entry.state,
        outcome=entry.outcome,
        body=entry.body,
        call=_call_from_pb(call) if message.HasField("call") else None,
        attributes=attributes,
        permission=_PERMISSIONS.get(message.dispatched.permission, Permission.UNSPECIFIED),
        is_dispatched=message.HasField("dispatched"),
        files=tuple(map(written_from_pb, message.settled.files)),
        rule=_rule_from_pb(message.rule) if message.HasField("rule") else None,
        **_stage_from_pb(message),
    )


def _stage_from_pb(message: pb.CommandRecord) -> dict[str, Any]:
    """The fields of a record's stage, by their names in CommandRecord."""
    stage = message.WhichOneof("stage")
    held = getattr(message, stage).ListFields() if stage else ()
    return {field.name: _FROM_PB[field.name](value) for field, value in held if field.name in _FROM_PB}


def files_in(record: bytes) -> tuple[WrittenFile, ...]:
    """The project files that a command changed; none before it has ended."""
    return tuple(map(written_from_pb, pb.CommandRecord.FromString(record).settled.files))


def effect_in(record: bytes) -> Effect | None:
    """The effect in a record; None if this version does not know it."""
    effect: Effect | None = _stage_from_pb(pb.CommandRecord.FromString(record)).get("effect")
    return effect


def is_command(entry: Entry) -> bool:
    """Whether an entry is the record of a command; errors and messages are in the same folder."""
    return bool(entry.record) and is_ours(entry) and pb.CommandRecord.FromString(entry.record).HasField("ordinal")


def is_ours(entry: Entry) -> bool:
    """Whether a record may be carried out, or has ended.

    Models and plugins may write to `log://` too: what they write over an open record was not proposed by anybody.
    """
    return entry.state.is_settled or entry.writer is Tier.SYSTEM


def is_dispatched(entry: Entry) -> bool:
    return pb.CommandRecord.FromString(entry.record).HasField("dispatched")
