"""Where the values of a JSON text stand, which the json module does not tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

_TOKEN = re.compile(r'"(?>(?:[^"\\]|\\.)*)"|[][{},:]|[^][{},:"\s]++', re.DOTALL)

Location = tuple[int | str, ...]
Span = tuple[int, int]


class _Container:
    """An array or object that is being read: where it began, and the key or index of its next value."""

    __slots__ = ("key", "location", "start")

    def __init__(self, start: int, location: Location, *, is_array: bool) -> None:
        self.start = start
        self.location = location
        self.key: int | str | None = 0 if is_array else None


def json_spans(text: str, check: Callable[[], None]) -> dict[Location, Span]:
    """Return the span of each value of `text`, which must be valid JSON, by keys and indexes from the root.

    `check` is called at every piece and may raise, because a location costs as much as it is deep.
    Of a key that is written twice the last value counts, as it does when the text is read.
    """
    spans: dict[Location, Span] = {}
    opened: list[_Container] = []
    for found in _TOKEN.finditer(text):
        check()
        piece = found[0]
        inner = opened[-1] if opened else None
        if piece in "]}":
            closed = opened.pop()
            spans[closed.location] = (closed.start, found.end())
        elif piece == ",":
            _advance(inner)
        elif piece == ":":
            continue
        elif inner is not None and inner.key is None:
            inner.key = str(json.loads(piece, strict=False))
        elif piece in "[{":
            opened.append(_Container(found.start(), _location(inner), is_array=piece == "["))
        else:
            spans[_location(inner)] = found.span()
    return spans


def _location(inner: _Container | None) -> Location:
    return () if inner is None or inner.key is None else (*inner.location, inner.key)


def _advance(inner: _Container | None) -> None:
    if inner is not None:
        inner.key = inner.key + 1 if isinstance(inner.key, int) else None
