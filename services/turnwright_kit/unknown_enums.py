"""Numbers of enums that this release does not know, in requests.

Protobuf keeps them, so a handler would take a later release's word for something for the absence of one. They are
refused by name where requests are read, before anything is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from turnwright_core.checks import invalid
from turnwright_core.errors import TurnwrightError

_SHOWN_MAX: Final = 20
"""Values of an enum that an error lists."""


def unknown_enum(message: Any) -> TurnwrightError | None:
    """The error for the first enum in a message whose number has no name; None if all have one."""
    for path, number, field in _unknown(message):
        kind: Any = field.enum_type
        known = [value.name for value in kind.values][:_SHOWN_MAX]
        return invalid(path, f"{path} has no value {number}: it is one of {', '.join(known)}.")
    return None


def _unknown(message: Any) -> Iterator[tuple[str, int, FieldDescriptor]]:
    for field, is_many, numbers in _fields(message.DESCRIPTOR):
        name = field.name
        if numbers is not None:
            value = getattr(message, name)
            for number in value if is_many else (value,):
                if number not in numbers:
                    yield name, number, field
        elif is_many:
            value = getattr(message, name)
            for each in value.values() if hasattr(value, "values") else value:
                yield from ((f"{name}.{path}", number, of) for path, number, of in _unknown(each))
        elif message.HasField(name):
            yield from ((f"{name}.{path}", number, of) for path, number, of in _unknown(getattr(message, name)))


@cache
def _fields(kind: Descriptor) -> tuple[tuple[FieldDescriptor, bool, frozenset[int] | None], ...]:
    """The fields of a message that are enums, with their numbers, or that have enums somewhere below them."""
    found: list[tuple[FieldDescriptor, bool, frozenset[int] | None]] = []
    for field in kind.fields:
        if field.enum_type is not None:
            found.append((field, field.is_repeated, frozenset(field.enum_type.values_by_number)))
        elif field.message_type is not None and _has_enums(_value_of(field), frozenset()):
            found.append((field, field.is_repeated, None))
    return tuple(found)


def _value_of(field: FieldDescriptor) -> Any:
    """The message of a field; of a map, that of its values."""
    kind: Any = field.message_type
    of_map = kind.fields_by_name["value"].message_type if kind.GetOptions().map_entry else None
    return of_map or kind


def _has_enums(kind: Descriptor, above: frozenset[str]) -> bool:
    if kind.full_name in above:
        return False
    above |= {kind.full_name}
    return any(
        field.enum_type is not None or (field.message_type is not None and _has_enums(_value_of(field), above))
        for field in kind.fields
    )
