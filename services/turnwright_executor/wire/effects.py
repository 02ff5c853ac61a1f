"""Effects in the records of commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from turnwright.types.v1 import command_record_pb2 as pb
from turnwright_values.types import (
    AgentsEffect,
    ClientToolEffect,
    CommandEffect,
    FileEffect,
    QuestionEffect,
    WrittenFile,
)

from turnwright_core.wire.codec import codec
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass

CLASSES_PB: Final = {one: pb.EffectClass.Value(f"EFFECT_CLASS_{one.name}") for one in EffectClass}
_CLASSES: Final[dict[int, EffectClass]] = {number: one for one, number in CLASSES_PB.items()}
written_to_pb, written_from_pb = codec(WrittenFile, pb.WrittenFile)


def _call_to_pb(effect: CallEffect) -> pb.PluginCall:
    return pb.PluginCall(data_json=json.dumps(dict(effect.data), ensure_ascii=False, separators=(",", ":")))


_KINDS: Final[dict[type, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    FileEffect: ("files", *codec(FileEffect, pb.FileEffect)),
    CommandEffect: ("command", *codec(CommandEffect, pb.CommandEffect)),
    QuestionEffect: ("question", *codec(QuestionEffect, pb.QuestionEffect)),
    CallEffect: ("call", _call_to_pb, lambda call: CallEffect(json.loads(call.data_json))),
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
