r"""The arguments of a native call, as hosts send them: one object, or what went wrong on its way.

| sent | read as |
|---|---|
| `{"path":"a"}` | the object |
| broken, fenced, with a vendor's token after it | the object, repaired |
| `{}{"path":"a"}` | the second: the host announced the call with an empty object |
| `{"path":"a"}{"path":"a"}` | the object once: the host sent the whole again |
| `{"pa{"path":{"path":"a"}` | the last: each piece repeats all before it |
| `{"path":"a"}{"path":"b"}`, a list of objects | both, of which no call is made: whose they are is unknown |
| `"{\"path\":\"a\"}"` | the object in the string, encoded once more or oftener |

Tools and commands are not known here.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from turnwright_grammar.values.lenient import read_value
from turnwright_grammar.values.repair import read_all
from turnwright_grammar.values.strict import STRICT, Value, compact_json

ENCODINGS_MAX = 4
"""How often JSON in a string in JSON is opened."""

_OBJECT_START = re.compile(r"\s*\{\s*(?:\\*[\"'\u201c]|[A-Za-z_]\w{0,80}\s{0,80}[:=]|\}\s*\Z)")
_NOTHING = re.compile(r"[\s}\]),;`.]*")
_PIECES_TRIED_MAX = 1_024


class ReadArguments(Struct, frozen=True):
    """The objects that were sent, or the one string; empty when the call has no arguments.

    `over`: text is left over behind a value, which may have been meant to be part of it.
    """

    values: tuple[Value, ...]
    repaired: bool = False
    cut: bool = False
    over: bool = False


def read_arguments(text: str) -> ReadArguments | None:
    """Return the arguments in `text`, or None when it holds neither an object nor a string. Never raises."""
    for start in (0, _last_piece(text)):
        try:
            return _objects_among([STRICT.decode(text[start:])], repaired=start > 0)
        except (ValueError, RecursionError):
            continue
    reads = read_all(text)
    if len(reads) > 1 and reads[-1].cut and text.startswith(text[reads[-2].end :].strip()):
        # The whole was sent again, and the end of that is missing.
        reads = reads[:-1]
    if not reads:
        return None
    found = _objects_among([read.value for read in reads], repaired=True, cut=reads[-1].cut)
    return found and replace(found, over=any(read.over or _has_text_left(text, read.end) for read in reads))


def object_in(text: str) -> dict[str, Value] | None:
    """Return the object that a string holds as JSON, broken or encoded repeatedly, or None. Never raises."""
    value: Value = text
    for _ in range(ENCODINGS_MAX):
        if isinstance(value, str):
            value = _decoded(value)
    return value if isinstance(value, dict) else None


def _decoded(text: str) -> Value:
    try:
        value: Value = STRICT.decode(text)
    except (ValueError, RecursionError):
        read = read_value(text, full_lookahead=True) if _OBJECT_START.match(text) else None
        value = read.value if read else None
    return value


def _objects_among(found: list[Value], *, repaired: bool = False, cut: bool = False) -> ReadArguments | None:
    """Keep the objects; a string counts where there is no object, anything else makes it no arguments."""
    values = [item for value in found for item in (value if isinstance(value, list) else [value])]
    values = [opened for value in values for opened in _opened(value)]
    values = [value for value in values if value not in (None, {}, [], "")]
    objects: list[Value] = [value for value in values if isinstance(value, dict)]
    if not objects and values:
        if len(values) > 1 or not isinstance(values[0], str):
            return None
        objects = values
    # Compared as text: comparing values that are nested deep would recurse.
    distinct: dict[str, Value] = {}
    for value in objects:
        distinct.setdefault(compact_json(value), value)
    return ReadArguments(tuple(distinct.values()), repaired, cut)


def _opened(value: Value) -> tuple[Value, ...]:
    """What a string holds as JSON: an object, or several one after another."""
    inner = object_in(value) if isinstance(value, str) else None
    if inner is None or not isinstance(value, str):
        return (value,)
    read = read_arguments(value)
    return read.values if read and len(read.values) > 1 else (inner,)


def _has_text_left(text: str, end: int) -> bool:
    """Whether something stands behind a value that is neither a closer, another value nor a vendor's token."""
    following = _NOTHING.match(text, end).end()  # type: ignore[union-attr]
    return following < len(text) and not text.startswith(("{", "[", "<"), following)


def _last_piece(text: str) -> int:
    """Where the last of several pieces begins each of which repeats all before it; 0 when it is one piece."""
    start = position = 0
    for _ in range(_PIECES_TRIED_MAX if text.startswith("{") else 0):
        position = text.find("{", position + 1)
        if position < 0 or position - start > len(text) - position:
            break
        if text.startswith(text[start:position], position):
            start = position
    return start
