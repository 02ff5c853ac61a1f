"""Generic conversion of values to messages and back, for fields with the same names.

The differences are determined once for each class: a time in milliseconds is `*_ms` in a value and `*_time` in a
message; a field that a message does not set is None in the value if that is allowed, else the default.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar

from google.protobuf.message import Message
from msgspec import Struct
from msgspec.structs import asdict

from turnwright_core.wire.times import time_from_pb, time_to_pb

V = TypeVar("V", bound=Struct)
M = TypeVar("M", bound=Message)
FieldCodec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Encoder and decoder of one field; neither is called with None."""

_TIME: FieldCodec = (time_to_pb, time_from_pb)


def each(to_pb: Callable[[Any], Any], from_pb: Callable[[Any], Any]) -> FieldCodec:
    """Codec of a repeated field."""
    return (lambda items: map(to_pb, items), lambda messages: tuple(map(from_pb, messages)))


def codec(value: type[V], message: type[M], /, **special: FieldCodec) -> tuple[Callable[[V], M], Callable[[M], V]]:
    """Encoder and decoder for values of a class; `special` are fields that need more than a copy."""
    fields = message.DESCRIPTOR.fields_by_name
    names = value.__struct_fields__
    outside = [name if name in fields else name.removesuffix("_ms") + "_time" for name in names]
    pairs = [special.get(name, None if name in fields else _TIME) for name in names]
    encoders = [(name, other, pair[0]) for name, other, pair in zip(names, outside, pairs, strict=True) if pair]
    decoders = [(at, pair[1]) for at, pair in enumerate(pairs) if pair]
    optional = [(at, outside[at]) for at, name in enumerate(names) if "None" in value.__annotations__[name]]
    read_message = attrgetter(*outside)

    def to_pb(one: V) -> M:
        made = asdict(one)
        for name, other, encode in encoders:
            inner = made.pop(name)
            if inner is not None:
                made[other] = encode(inner)
        return message(**made)

    def from_pb(one: M) -> V:
        read = [*read_message(one)]
        for at, name in optional:
            if not one.HasField(name):
                read[at] = None
        for at, decode in decoders:
            if read[at] is not None:
                read[at] = decode(read[at])
        return value(*read)

    def copied(one: M) -> V:
        return value(*read_message(one))

    return to_pb, from_pb if decoders or optional else copied
