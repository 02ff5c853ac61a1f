"""JSONPath (RFC 9535) over texts that are JSON.

python-jsonpath was chosen over jsonpath-ng: it follows the RFC and is tested against its compliance
suite, answers lazily, and needs no parser generator; jsonpath-ng has a dialect of its own.

Nothing in the library bounds the time of a query, and `$..[?count($..[?count($..*) > 0]) > 0]` is
cubic. So the document is made of containers that check the deadline whenever they are read, and the
regexes of `match()` and `search()` run by ours.

This module loads python-jsonpath: import it where a jsonpath is about to run.

Source: RU273, RU274.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, SupportsIndex, overload

from jsonpath import CompoundJSONPath, JSONPath, JSONPathEnvironment, JSONPathError, JSONPathMatch
from jsonpath.function_extensions import ExpressionType, FilterFunction

from turnwright_core.patterns.bounds import Deadline, check_length
from turnwright_core.patterns.compiled import compiled_regex
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.selection import NO_DOCUMENT, Selection, with_spans_replaced

JSON_CHARS_MAX = 1_000_000
JSON_DEPTH_MAX = 100
# The library writes the whole path of each value that it passes: long keys far up would fill the memory.
JSON_PATH_CHARS_MAX = 20_000_000
_EXPRESSIONS_KEPT = 64


def select(pattern: str, text: str) -> Selection:
    """Return what `pattern` selects in `text`; what is no string is given as JSON. Raises PatternError."""
    check(pattern)
    deadline = Deadline(pattern)
    document = _parsed(pattern, text, deadline)
    if document is None:
        return NO_DOCUMENT
    for found in _found(pattern, document, deadline):
        return Selection(found.obj if isinstance(found.obj, str) else json.dumps(found.obj, ensure_ascii=False))
    return Selection(None)


def replace(pattern: str, replacement: str, text: str) -> str | None:
    """Return `text` with the values that `pattern` selects replaced; None when it is no JSON. Raises PatternError.

    A string stays a string, whatever `replacement` looks like; any other value becomes `replacement` when
    that is JSON, else a string. No byte beside them changes.
    """
    check(pattern)
    deadline = Deadline(pattern)
    document = _parsed(pattern, text, deadline)
    if document is None:
        return None
    spans = json_spans(text, deadline.check)
    as_string = json.dumps(replacement, ensure_ascii=False)
    as_value = replacement if _is_json(replacement) else as_string
    replacements = {
        spans[found.parts]: as_string if isinstance(found.obj, str) else as_value
        for found in _found(pattern, document, deadline)
    }
    check_length(pattern, len(text) + sum(map(len, replacements.values())))
    replaced = with_spans_replaced(text, replacements)
    if replaced is None:
        raise PatternError("unsupported", pattern, "The jsonpath selects a value inside of another that it selects")
    return replaced


@lru_cache(maxsize=_EXPRESSIONS_KEPT)
def check(pattern: str) -> None:
    """Raise PatternError when `pattern` is no JSONPath."""
    _compiled(pattern, Deadline(pattern))


def _compiled(pattern: str, deadline: Deadline) -> JSONPath | CompoundJSONPath:
    # Made anew for each run, because the functions hold the run's deadline; that costs 0.2 ms.
    try:
        return _Environment(deadline).compile(pattern)
    except (JSONPathError, RecursionError, ValueError) as error:
        raise PatternError("invalid_jsonpath", pattern, f"The jsonpath cannot be used: {_first_line(error)}") from None


def _found(pattern: str, document: _Object | _Array, deadline: Deadline) -> Iterator[JSONPathMatch]:
    try:
        yield from _compiled(pattern, deadline).finditer(document)
    except (JSONPathError, RecursionError) as error:
        raise PatternError("too_large", pattern, f"The jsonpath went too deep: {_first_line(error)}") from None


def _parsed(pattern: str, text: str, deadline: Deadline) -> _Object | _Array | None:
    if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
        return None
    if len(text) > JSON_CHARS_MAX:
        detail = f"A jsonpath reads documents of at most {JSON_CHARS_MAX} characters; use a regex for this text"
        raise PatternError("too_large", pattern, detail)
    try:
        value = json.loads(text.lstrip("\ufeff"), strict=False)
    except ValueError:
        return None
    except RecursionError:
        raise _too_deep(pattern) from None
    document = _Reading(pattern, deadline).document(value, 0, 1)
    return document if isinstance(document, _Object | _Array) else None


class _Reading:
    """Turns what was parsed into containers with a deadline."""

    def __init__(self, pattern: str, deadline: Deadline) -> None:
        self.pattern = pattern
        self.deadline = deadline
        self.path_chars = 0

    def document(self, value: object, depth: int, path_chars: int) -> object:
        self.deadline.check()
        self.path_chars += path_chars
        if depth > JSON_DEPTH_MAX or self.path_chars > JSON_PATH_CHARS_MAX:
            raise _too_deep(self.pattern)
        if isinstance(value, dict):
            pairs = ((key, self.document(one, depth + 1, path_chars + len(key) + 4)) for key, one in value.items())
            return _Object(pairs, self.deadline)
        if isinstance(value, list):
            return _Array((self.document(one, depth + 1, path_chars + 8) for one in value), self.deadline)
        return value


def _too_deep(pattern: str) -> PatternError:
    detail = f"A jsonpath reads documents of at most {JSON_DEPTH_MAX} levels; use a regex for this text"
    return PatternError("too_large", pattern, detail)


class _Object(dict[str, Any]):
    """A JSON object that checks the deadline whenever it is read."""

    def __init__(self, pairs: Iterator[tuple[str, object]], deadline: Deadline) -> None:
        super().__init__(pairs)
        self.deadline = deadline

    def __getitem__(self, key: str) -> Any:
        self.deadline.check()
        return super().__getitem__(key)

    def __eq__(self, other: object) -> bool:
        self.deadline.check()
        return super().__eq__(other)

    __hash__ = None

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]  # a view would not pass by here
        for item in super().items():
            self.deadline.check()
            yield item


class _Array(list[Any]):
    """A JSON array that checks the deadline whenever it is read."""

    def __init__(self, values: Iterator[object], deadline: Deadline) -> None:
        super().__init__(values)
        self.deadline = deadline

    def __iter__(self) -> Iterator[Any]:
        for value in super().__iter__():
            self.deadline.check()
            yield value

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        self.deadline.check()
        if isinstance(index, slice):
            return _Array(iter(super().__getitem__(index)), self.deadline)
        return super().__getitem__(index)

    def __eq__(self, other: object) -> bool:
        self.deadline.check()
        return super().__eq__(other)

    __hash__ = None


class _Environment(JSONPathEnvironment):
    """RFC 9535 without the library's extensions, its regexes bounded."""

    def __init__(self, deadline: Deadline) -> None:
        self.deadline = deadline
        super().__init__(strict=True)

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _RegexFunction(self.deadline, whole=True)
        self.function_extensions["search"] = _RegexFunction(self.deadline, whole=False)


class _RegexFunction(FilterFunction):
    """`match(value, regex)` or `search(value, regex)` of the RFC."""

    arg_types = [ExpressionType.VALUE, ExpressionType.VALUE]  # noqa: RUF012  # the library declares a property
    return_type = ExpressionType.LOGICAL

    def __init__(self, deadline: Deadline, *, whole: bool) -> None:
        self.deadline = deadline
        self.whole = whole

    def __call__(self, value: object, expression: object) -> bool:
        if not isinstance(value, str) or not isinstance(expression, str):
            return False
        try:
            engine = compiled_regex(expression)
        except PatternError as error:
            if error.reason == "invalid_regex":
                return False  # as the RFC says
            raise
        run = engine.fullmatch if self.whole else engine.search
        return self.deadline.bound(lambda limit_s: run(value, timeout=limit_s)) is not None


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
    """An array or object that is being read: where it began, and the key or index of its next value."""

    __slots__ = ("key", "location", "start")

    def __init__(self, start: int, location: Location, *, is_array: bool) -> None:
        self.start = start
        self.location = location
        self.key: int | str | None = 0 if is_array else None


def json_spans(text: str, check: Callable[[], None]) -> dict[Location, JsonSpan]:
    """Return the span of each value of `text`, which must be valid JSON, by keys and indexes from the root.

    `check` is called at every piece and may raise, because a location costs as much as it is deep.
    Of a key that is written twice the last value counts, as it does when the text is read.
    """
    spans: dict[Location, JsonSpan] = {}
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
