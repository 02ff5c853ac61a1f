"""The members of a JSON object as its bytes come: each value whole, but of a list each element by itself.

Only one value is in memory, and none that is longer, deeper or of more parts than a limit: it is passed over, and comes
without its text. A value is found by its brackets and quotes alone. Whether it is JSON its reader sees, who can leave
it out and read on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import decode

_MARK: Final = re.compile(rb'["{}\[\],:]')
_IN_STRING: Final = re.compile(rb'["\\]')
_BEGIN: Final = b"\xef\xbb\xbf \t\r\n"
"""What may stand before the object."""


class ItemLimits(Struct, frozen=True):
    """What one value may have; it is passed over beyond that."""

    bytes_max: int = 32 * 1024 * 1024
    depth_max: int = 64
    marks_max: int = 50_000
    """Brackets, commas, colons and quotes outside of strings."""


class JsonItem(Struct, frozen=True):
    """The value of a member, or an element of its list."""

    name: str
    index: int | None
    """0-based place in the list; None: the value is not a list."""
    text: bytes
    problem: str = ""
    """Why the value was passed over; empty: it is in `text`."""


class _At(Enum):
    """Where a reader is; the value has the marks that end what stands there."""

    START = b"{"
    NAME = b":},"
    VALUE = b"[,}"
    ELEMENT = b",]"
    AFTER_LIST = b"},"
    END = b""


class JsonItems:
    """Reads one object. `feed` raises ValueError for anything else; it is whole once `has_ended`."""

    def __init__(self, limits: ItemLimits | None = None) -> None:
        self._limits = limits or ItemLimits()
        self._at, self._name, self._index = _At.START, "", 0
        self._in_string = self._is_escaped = False
        self._parts: list[bytes] = []
        self._size = self._depth = self._marks = 0
        self._problem = ""

    @property
    def has_ended(self) -> bool:
        return self._at is _At.END

    def feed(self, data: bytes) -> Iterator[JsonItem]:
        """The values that end in the next bytes."""
        begin = at = 0
        while (mark := self._next_mark(data, at)) >= 0:
            at = mark + 1
            kind = data[mark]
            if self._depth == 0 and kind in self._at.value and (kind != ord("[") or self._is_blank(data[begin:mark])):
                self._take(data[begin:mark])
                begin = at
                if item := self._step(kind):
                    yield item
            else:
                self._nest(kind)
        self._take(data[begin:])
        if self._at is _At.END and not self._is_blank(b""):
            raise ValueError("something follows its end")

    def _next_mark(self, data: bytes, at: int) -> int:
        """The next mark outside of strings; -1: none."""
        while True:
            if self._is_escaped and at < len(data):
                self._is_escaped = False
                at += 1
            found = (_IN_STRING if self._in_string else _MARK).search(data, at)
            if found is None:
                return -1
            at = found.end()
            if found[0] == b"\\":
                self._is_escaped = True
            elif found[0] == b'"':
                self._in_string = not self._in_string
                self._marks += 1
            else:
                return found.start()

    def _nest(self, kind: int) -> None:
        if self._at is _At.START:
            raise ValueError("it is not a JSON object")
        self._marks += 1
        self._depth += (kind in b"{[") - (kind in b"}]")
        if self._depth < 0 or self._at is _At.END:
            raise ValueError("its brackets do not match")
        if self._depth > self._limits.depth_max:
            self._problem = f"it is nested deeper than {self._limits.depth_max}"
        if self._marks > self._limits.marks_max:
            self._problem = f"it has more than {self._limits.marks_max} values, names and brackets"

    def _take(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limits.bytes_max:
            self._problem = f"it has more than {self._limits.bytes_max} bytes"
        if self._problem:
            self._parts.clear()
        else:
            self._parts.append(data)

    def _is_blank(self, more: bytes) -> bool:
        return not self._problem and not b"".join([*self._parts, more]).strip(_BEGIN)

    def _step(self, kind: int) -> JsonItem | None:
        """Leave what a mark ends; the value that it was, if it was one."""
        text, problem, at = b"".join(self._parts), self._problem, self._at
        self._parts, self._size, self._marks, self._problem = [], 0, 0, ""
        is_blank = not problem and not text.strip(_BEGIN)
        item = None
        if at in (_At.VALUE, _At.ELEMENT) and not is_blank:
            index = self._index if at is _At.ELEMENT else None
            item = JsonItem(self._name, index, text, problem)
        elif at is _At.NAME and kind == ord(":"):
            self._name = _name_in(text)
        elif not is_blank:
            raise ValueError("a comma or a colon is missing")
        self._index = self._index + 1 if at is _At.ELEMENT else 0
        if kind == ord("}"):
            self._at = _At.END
        elif at is _At.ELEMENT:
            self._at = _At.ELEMENT if kind == ord(",") else _At.AFTER_LIST
        elif kind == ord("["):
            self._at = _At.ELEMENT
        else:
            self._at = _At.VALUE if kind == ord(":") else _At.NAME
        return item


def _name_in(text: bytes) -> str:
    try:
        return decode(text, type=str)
    except (DecodeError, UnicodeDecodeError):
        raise ValueError("the name of a member is not a text") from None
