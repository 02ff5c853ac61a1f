"""Generic conversion of values to messages and back, for fields with the same names.

The differences are determined once for each class: a time in milliseconds is `*_ms` in a value and `*_time` in a
message; an enum is a number there; a field that a message does not set is None in the value
if that is allowed, else the default.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import IntEnum
from functools import cache, partial
from operator import attrgetter
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from msgspec import Struct

from turnwright_core.checks import invalid
from turnwright_core.wire.times import time_from_pb, time_to_pb

V = TypeVar("V", bound=Struct)
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=IntEnum)
FieldCodec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Encoder and decoder of one field; neither is called with None."""

_NAMES: Final = {"epoch": "fence"}
"""Other names in messages."""

_TIME: Final[FieldCodec] = (time_to_pb, time_from_pb)
_LIST: Final[FieldCodec] = (tuple, tuple)


def known(kind: type[E], value: int, field: str) -> E:
    """Decode an enum value. Raises InvalidError for an unknown one."""
    member: E | None = _members(kind).get(value)
    if member is None:
        raise invalid(field, f"{value} is not a valid {field}.")
    return member


# Enum look-up by value is slow (it goes through the metaclass), and each write needs four.
@cache
def _members(kind: type[IntEnum]) -> dict[int, Any]:
    return {int(member): member for member in kind}


def each(to_pb: Callable[[Any], Any], from_pb: Callable[[Any], Any]) -> FieldCodec:
    return (lambda items: map(to_pb, items), lambda messages: tuple(map(from_pb, messages)))


def codec(
    value: type[V], message: type[M], /, *, only: tuple[str, ...] = (), **special: FieldCodec
) -> tuple[Callable[[V], M], Callable[[M], V]]:
    """Encoder and decoder for values of a class; `special` are fields that need more than a copy.

    `only` these fields are in the message; empty: all.
    """
    fields = message.DESCRIPTOR.fields_by_name
    names = only or value.__struct_fields__
    outside = [name if name in fields else _NAMES.get(name, name.removesuffix("_ms") + "_time") for name in names]
    pairs = [special.get(name) or (_usual(value, name) if name in fields else _TIME) for name in names]
    encoders = [(at, pair[0]) for at, pair in enumerate(pairs) if pair]
    decoders = [(at, pair[1]) for at, pair in enumerate(pairs) if pair]
    optional = [(at, outside[at]) for at, name in enumerate(names) if "None" in value.__annotations__[name]]
    read_value, read_message = attrgetter(*names), attrgetter(*outside)
    make: Any = partial(_made_by_name, value, only) if only else value

    def to_pb(one: V) -> M:
        made: list[Any] = [*read_value(one)]
        for at, encode in encoders:
            if made[at] is not None:
                made[at] = encode(made[at])
        return message(**dict(zip(outside, made, strict=True)))

    def from_pb(one: M) -> V:
        read = [*read_message(one)]
        for at, name in optional:
            if not one.HasField(name):
                read[at] = None
        for at, decode in decoders:
            if read[at] is not None:
                read[at] = decode(read[at])
        made: V = make(*read)
        return made

    return to_pb, from_pb


def _made_by_name(value: type[V], names: tuple[str, ...], *read: Any) -> V:
    return value(**dict(zip(names, read, strict=True)))


def _usual(value: type[Struct], name: str) -> FieldCodec | None:
    """Codec of an enum or of a list; None for a field that is copied."""
    # Not get_type_hints, which would add ten milliseconds to the start of every process.
    annotation = value.__annotations__[name]
    if annotation.startswith(("tuple[", "Sequence[")):
        return _LIST
    kind = getattr(sys.modules[value.__module__], annotation, None)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return (int, partial(known, kind, field=name))
    return None
