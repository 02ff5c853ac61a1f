"""What generated values can do, beside having fields: their bases. Reading and writing attributes of entries."""

from __future__ import annotations

import json
from enum import IntEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from turnwright_core.json_text import JsonObject

_STATUSES: Final = {
    "RECORDED": 100,
    "STREAMING": 102,
    "RESOLVED": 200,
    "PROPOSED": 202,
    "CANCELLED": 499,
    "FAILED": 500,
}
"""HTTP status of a state if the outcome has no code (C10)."""


def status_of(state: IntEnum, outcome: str = "") -> int:
    """HTTP status of an entry, 100 to 599: the code in its outcome (`word:code`), else that of its state.

    Source: RU062; C10, C26.
    """
    if state.name in ("FAILED", "CANCELLED"):
        code = outcome.rpartition(":")[2]
        if len(code) == 3 and code.isascii() and code.isdecimal() and "1" <= code[0] <= "5":
            return int(code)
    return _STATUSES.get(state.name, 200)


class EntryMethods(Struct, frozen=True):
    """Base of entries."""

    @property
    def status(self: Any) -> int:
        return status_of(self.state, self.outcome)

    @property
    def attributes(self: Any) -> JsonObject:
        """The attributes, parsed at each access."""
        return parse_attributes(self.attributes_json)


class SettlingState(IntEnum):
    """Base of the states of entries."""

    @property
    def is_settled(self) -> bool:
        return self.name in ("RESOLVED", "FAILED", "CANCELLED")


class Grantable(IntEnum):
    """Base of what can have allowed an effect."""

    @property
    def is_grant(self) -> bool:
        """Whether it can be taken away before the effect has happened (C62)."""
        return self.name not in ("NOT_NEEDED", "DECISION", "CALLER")


class NamedReason(IntEnum):
    """Base of the reasons of errors. Its text is its name: what people read, and what programs branch on."""

    def __str__(self) -> str:
        return self.name

    def __format__(self, spec: str) -> str:
        return format(self.name, spec)


def parse_attributes(text: str) -> JsonObject:
    """The attributes of their text; empty for an empty one.

    msgspec takes a third of the time of the standard library, which reads what msgspec refuses: NaN, unpaired
    surrogates and integers of more than 64 bits.
    """
    try:
        parsed: JsonObject = _DECODER.decode(text or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        parsed = json.loads(text)
    return parsed


def to_attributes_json(attributes: JsonObject) -> str:
    """The canonical text of attributes: compact, keys in the given order, no ASCII escapes.

    msgspec takes a tenth of the time of the standard library, which only handles what msgspec refuses: unpaired
    surrogates and integers of more than 64 bits. NaN would become null.
    """
    try:
        text = _ENCODER.encode(attributes).decode()
    except (TypeError, ValueError, OverflowError):
        text = "null"
    return text if "null" not in text else json.dumps(attributes, ensure_ascii=False, separators=(",", ":"))


_DECODER: Final = msgspec.json.Decoder(JsonObject)
_ENCODER: Final = msgspec.json.Encoder(enc_hook=json.JSONEncoder().default)
