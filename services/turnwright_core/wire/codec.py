"""Conversion of values to messages and back.

The differences are determined once for each class: a time in milliseconds is `*_ms` in a value and `*_time` in a
message, a duration is `*_ms` or `*_s`, and an enum a number; a oneof is one field whose
value is of one of its classes; a field that a message does not set is None in the value if that is allowed, else the
default. What differs in another way is written by hand, as the codec of a field.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from turnwright_core.checks import invalid
from turnwright_core.wire.times import (
    seconds_from_pb,
    seconds_to_pb,
    span_from_pb,
    span_to_pb,
    time_from_pb,
    time_to_pb,
)

V = TypeVar("V", bound=Struct)
M = TypeVar("M", bound=Message)
E = TypeVar("E", bound=IntEnum)
FieldCodec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""Encoder and decoder of one field; neither is called with None."""

_TIME: Final[FieldCodec] = (time_to_pb, time_from_pb)
_SPAN: Final[FieldCodec] = (span_to_pb, span_from_pb)
_SECONDS: Final[FieldCodec] = (seconds_to_pb, seconds_from_pb)
_UNIT: Final = re.compile(r"_m?s(?=_|$)")
_LIST: Final[FieldCodec] = (tuple, tuple)
_KNOWN: Final[dict[type, FieldCodec]] = {}
"""Of the values that have one, by class."""
_Union = tuple[str, dict[type, tuple[str, Callable[[object], object]]], dict[str, Callable[[object], object]]]
"""A field of a oneof, and its codecs: by the class of a value, and by the name of a field."""
_SPECIAL: Final = ("messages", "prompt_edits", "entries", "runs", "plans")
"""Modules with codecs of values that differ in their own way, in this order."""
_KIND: Final = re.compile(r"(?P<many>(tuple|Sequence)\[)?(?P<name>\w+)")


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


def each(to_pb: Callable[[Any], object], from_pb: Callable[[Any], object]) -> FieldCodec:
    return (lambda items: map(to_pb, items), lambda messages: tuple(map(from_pb, messages)))


def codec_of(value: type[Struct], message: Any) -> FieldCodec:
    """The codec of a class: the one that is known, or the usual one to messages of this descriptor."""
    if value not in _KNOWN:
        for name in _SPECIAL:
            import_module(f"turnwright_core.wire.{name}")
    return _KNOWN.get(value) or codec(value, GetMessageClass(message))


def written(value: type, to_pb: Callable[[Any], object], from_pb: Callable[[Any], object]) -> FieldCodec:
    """The codec of a value that differs from its message, for all codecs that come later."""
    _KNOWN[value] = (to_pb, from_pb)
    return to_pb, from_pb


def codec(  # noqa: C901 - what is done once, and both directions, in one view
    value: type[V], message: type[M], /, *, only: tuple[str, ...] = (), **special: FieldCodec
) -> tuple[Callable[[V], M], Callable[[M], V]]:
    """Encoder and decoder for values of a class; `special` are fields that need more than a copy.

    `only` these fields are in the message; empty: all.
    """
    fields = message.DESCRIPTOR.fields_by_name
    names = only or value.__struct_fields__
    unions = {name: _union(value, found) for name, found in message.DESCRIPTOR.oneofs_by_name.items() if name in names}
    outside = [name if name in fields or name in unions else _other_name(name, fields) for name in names]
    pairs = [
        None if name in unions else special.get(name) or _usual(value, name, fields[where])
        for name, where in zip(names, outside, strict=True)
    ]
    encoders = [(at, pair[0]) for at, pair in enumerate(pairs) if pair]
    decoders = [(at, pair[1]) for at, pair in enumerate(pairs) if pair]
    optional = [(at, outside[at]) for at, name in enumerate(names) if "None" in value.__annotations__[name]]
    read_value = _reader(names)
    read_message = _reader([unions[name][0] if name in unions else name for name in outside])
    make: Any = partial(_made_by_name, value, only) if only else value

    def to_pb(one: V) -> M:
        made: list[object] = [*read_value(one)]
        for at, encode in encoders:
            if made[at] is not None:
                made[at] = encode(made[at])
        given = dict(zip(outside, made, strict=True))
        for name, (_, by_class, _) in unions.items():
            chosen = given.pop(name)
            which, encode = by_class[type(chosen)]
            given[which] = encode(chosen)
        return message(**given)

    def from_pb(one: M) -> V:
        read = [*read_message(one)]
        for at, name in optional:
            if not one.HasField(name):
                read[at] = None
        for at, decode in decoders:
            if read[at] is not None:
                read[at] = decode(read[at])
        for name, (_, _, by_name) in unions.items():
            which = one.WhichOneof(name)
            if which is None:
                raise invalid(name, f"There is no {name}: set one of {', '.join(by_name)}.")
            read[names.index(name)] = by_name[which](getattr(one, which))
        made: V = make(*read)
        return made

    if not only:
        _KNOWN.setdefault(value, (to_pb, from_pb))
    return to_pb, from_pb


def _reader(names: Sequence[str]) -> Callable[[object], Sequence[object]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: [getattr(one, name) for name in names]


def _made_by_name(value: type[V], names: tuple[str, ...], *read: object) -> V:
    return value(**dict(zip(names, read, strict=True)))


def _other_name(name: str, fields: Any) -> str:
    bare = _UNIT.sub("", name)
    return next(one for one in (bare, f"{bare}_duration", f"{bare}_time") if one in fields)


def _union(value: type[Struct], oneof: Any) -> _Union:
    by_class: dict[type, tuple[str, Callable[[object], object]]] = {}
    by_name: dict[str, Callable[[object], object]] = {}
    for field in oneof.fields:
        kind = getattr(sys.modules[value.__module__], field.message_type.name)
        to_pb, from_pb = codec_of(kind, field.message_type)
        by_class[kind], by_name[field.name] = (field.name, to_pb), from_pb
    return next(iter(by_name)), by_class, by_name


def _usual(value: type[Struct], name: str, field: Any) -> FieldCodec | None:
    """Codec of an enum, a list or another value; None for a field that is copied."""
    if field.name != name:
        units = {"Timestamp": _TIME, "Duration": _SPAN if "_ms" in name else _SECONDS}
        return units[field.message_type.name]
    # Not get_type_hints, which would add ten milliseconds to the start of every process.
    found = _KIND.match(value.__annotations__[name])
    assert found, field.full_name
    if found["name"] == "bytes" and field.message_type:
        kept: Any = GetMessageClass(field.message_type)
        # Where it is not optional, empty bytes stand for no message.
        is_optional = "None" in value.__annotations__[name]
        return (lambda data: kept.FromString(data) if data or is_optional else None, kept.SerializeToString)
    kind = getattr(sys.modules[value.__module__], found["name"], None)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        member = (int, partial(known, kind, field=field.name))
        return each(*member) if found["many"] else member
    pair = None
    if field.message_type and isinstance(kind, type) and issubclass(kind, Struct):
        pair = codec_of(kind, field.message_type)
    if found["name"] == "Mapping":
        return (dict, dict)
    if found["many"]:
        return each(*pair) if pair else _LIST
    return pair
