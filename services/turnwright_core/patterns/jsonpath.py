"""JSONPath (RFC 9535) on JSON texts.

python-jsonpath was chosen over jsonpath-ng: it follows the RFC and is tested against its compliance suite, evaluates
lazily, and needs no parser generator; jsonpath-ng has its own dialect.

The library cannot limit the time of a query, and `$..[?count($..[?count($..*) > 0]) > 0]` is cubic: only
`document_worker` runs it.

Source: RU273, RU274.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch

from turnwright_core.json_text import JsonObject
from turnwright_core.patterns.bounds import check_length
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.selection import NO_DOCUMENT, Selection, with_spans_replaced

_EXPRESSIONS_KEPT = 64
# RFC 9535 without the library's extensions.
_ENVIRONMENT = JSONPathEnvironment(strict=True)


def select(pattern: str, text: str) -> Selection:
    """What `pattern` selects in `text`; values other than strings as JSON. Raises PatternError."""
    expression = check(pattern)
    document = _parsed(text)
    if document is None:
        return NO_DOCUMENT
    for found in _found(pattern, expression, document):
        return Selection(found.obj if isinstance(found.obj, str) else json.dumps(found.obj, ensure_ascii=False))
    return Selection(None)


def replace(pattern: str, replacement: str, text: str) -> str | None:
    """`text` with the values that `pattern` selects replaced; None if it is not JSON. Raises PatternError.

    A string stays a string, whatever `replacement` looks like; any other value becomes `replacement` if that is JSON,
    else a string. No other byte changes.
    """
    expression = check(pattern)
    document = _parsed(text)
    if document is None:
        return None
    spans = json_spans(text)
    as_string = json.dumps(replacement, ensure_ascii=False)
    as_value = replacement if _is_json(replacement) else as_string
    replacements = {
        spans[found.parts]: as_string if isinstance(found.obj, str) else as_value
        for found in _found(pattern, expression, document)
    }
    check_length(pattern, len(text) + sum(map(len, replacements.values())))
    replaced = with_spans_replaced(text, replacements)
    if replaced is None:
        raise PatternError("unsupported", pattern, "The jsonpath selects a value inside of another that it selects")
    return replaced


@lru_cache(maxsize=_EXPRESSIONS_KEPT)
def check(pattern: str) -> JSONPath | CompoundJSONPath:
    """The compiled `pattern`. Raises PatternError if it is not JSONPath."""
    try:
        return _ENVIRONMENT.compile(pattern)
    except (JSONPathError, RecursionError, ValueError) as error:
        raise PatternError("invalid_jsonpath", pattern, f"The jsonpath cannot be used: {_first_line(error)}") from None


def _found(pattern: str, expression: JSONPath | CompoundJSONPath, document: Any) -> Iterator[JSONPathMatch]:
    try:
        yield from expression.finditer(document)
    except (JSONPathError, RecursionError) as error:
        raise PatternError("too_large", pattern, f"The jsonpath went too deep: {_first_line(error)}") from None


def _parsed(text: str) -> JsonObject | list[Any] | None:
    try:
        value = json.loads(text.lstrip("\ufeff"), strict=False)
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


_TOKEN = re.compile(r'"(?>(?:[^"\\]|\\.)*)"|[][{},:]|[^][{},:"\s]++', re.DOTALL)

Location = tuple[int | str, ...]
JsonSpan = tuple[int, int]


class _Container:
    """An array or object that is being read: its start, and the key or index of its next value."""

    __slots__ = ("key", "location", "start")

    def __init__(self, start: int, location: Location, *, is_array: bool) -> None:
        self.start = start
        self.location = location
        self.key: int | str | None = 0 if is_array else None


def json_spans(text: str) -> dict[Location, JsonSpan]:
    """The span of each value of `text`, which must be valid JSON, by keys and indexes from the root.

    If a key occurs twice, the last value counts, as in a JSON parser.
    """
    spans: dict[Location, JsonSpan] = {}
    opened: list[_Container] = []
    for found in _TOKEN.finditer(text):
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
