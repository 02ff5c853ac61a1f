"""What a vendor says in an error body, in whichever of the known shapes.

Source: research/wire 2.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from turnwright_core.json_text import parse_json
from turnwright_core.values import frozen

TEXT_CHARS_MAX: Final = 4000
"""As much of a message is looked at."""

_LEVELS: Final = 5
_WIDTH: Final = 8

_TITLE: Final = re.compile(r"<title[^>]{0,100}>([^<]{1,200})</title>", re.IGNORECASE)


@frozen
class ErrorBody:
    """The words of a vendor. `status` is the HTTP status that the body names, 0 where it names none."""

    message: str
    type: str = ""
    code: str = ""
    status: int = 0
    param: str = ""


def read_error_bytes(body: bytes) -> ErrorBody:
    """The error of an HTTP body: JSON, HTML or text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return read_error(parse_json(text))
    except (ValueError, RecursionError):
        title = _TITLE.search(text[:TEXT_CHARS_MAX])
        return ErrorBody(title[1].strip() if title else text[:TEXT_CHARS_MAX])


def read_error(body: Any) -> ErrorBody:
    """The error of a parsed body."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return ErrorBody(_words(body))
    error = body.get("error")
    if isinstance(error, dict):
        return _of_object(error)
    message = _words(error) or _first_words(body, ("message", "detail", "title"))
    return ErrorBody(
        message or brief(body),
        _words(body.get("type")),
        _words(body.get("code")),
        _status(body),
        _words(body.get("param")),
    )


def _of_object(error: Mapping[str, Any]) -> ErrorBody:
    message = _first_words(error, ("message", "detail", "msg"))
    metadata = error.get("metadata")
    # OpenRouter says "Provider returned error"; what the provider said is in `raw`.
    raw = _words(metadata.get("raw")) if isinstance(metadata, dict) else ""
    return ErrorBody(
        (f"{message}: {raw}" if raw and raw not in message else message) or brief(error),
        _words(error.get("type")) or _words(error.get("status")),
        _words(error.get("code")),
        _status(error),
        _words(error.get("param")),
    )


def _first_words(body: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((words for name in names if (words := _words(body.get(name)))), "")


def _words(value: Any) -> str:
    if value is None:
        return ""
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else brief(value)


def brief(value: Any) -> str:
    """The JSON of a value as far as anybody would read it, whatever its size and depth."""
    return json.dumps(_pruned(value, _LEVELS), ensure_ascii=False)[:TEXT_CHARS_MAX]


def _pruned(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return value[:TEXT_CHARS_MAX]
    if isinstance(value, dict | list) and not levels:
        return "..."
    if isinstance(value, dict):
        return {name[:TEXT_CHARS_MAX]: _pruned(inner, levels - 1) for name, inner in islice(value.items(), _WIDTH)}
    if isinstance(value, list):
        return [_pruned(inner, levels - 1) for inner in value[:_WIDTH]]
    return value


def _status(error: Mapping[str, Any]) -> int:
    for name in ("status_code", "code", "status", "http_code"):
        value = error.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 0
