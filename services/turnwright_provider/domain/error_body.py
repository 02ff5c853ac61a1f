"""Parsing of vendors' error bodies, in all known formats.

Source: research/wire 2.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import islice
from typing import Final

from msgspec import Struct

from turnwright_core.json_text import JsonMapping, JsonObject, parse_json

TEXT_CHARS_MAX: Final = 4000
"""Maximum number of characters of a message that are parsed."""

_LEVELS: Final = 5
_WIDTH: Final = 8

_MESSAGES: Final = (
    *("message", "Message", "detail", "msg", "title", "error_msg", "errorMessage"),
    *("error_description", "status_msg"),
)
_DELAY: Final = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")

_TITLE: Final = re.compile(r"<title[^>]{0,100}>([^<]{1,200})</title>", re.IGNORECASE)


class ErrorBody(Struct, frozen=True):
    """The parsed error. `status` is the HTTP status in the body, 0 if it has none.

    `reason` is the code in its details, `retry_s` the seconds to wait given there.
    """

    message: str
    type: str = ""
    code: str = ""
    status: int = 0
    param: str = ""
    reason: str = ""
    retry_s: float | None = None

    @property
    def codes(self) -> tuple[str, str, str]:
        """All codes, as opposed to sentences."""
        return self.code, self.type, self.reason


def read_error_bytes(body: bytes) -> ErrorBody:
    """The error of an HTTP body: JSON, HTML or text."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return read_error(parse_json(text))
    except (ValueError, RecursionError):
        title = _TITLE.search(text[:TEXT_CHARS_MAX])
        return ErrorBody(title[1].strip() if title else text[:TEXT_CHARS_MAX])


def is_error_body(body: JsonMapping) -> bool:
    """Whether a body with status 200 is an error: by its fields, or by its text if it has no choices."""
    if body.get("error") or body.get("errors") or "error" in (body.get("object"), body.get("type")):
        return True
    if body.get("choices"):
        return False
    base = body.get("base_resp")
    is_refused = isinstance(base, dict) and bool(base.get("status_code"))
    return is_refused or any(isinstance(body.get(name), str) and body[name] for name in _MESSAGES)


def read_error(body: object) -> ErrorBody:
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return ErrorBody(_words(body))
    error = body.get("error") or body.get("base_resp")
    if not error and isinstance(errors := body.get("errors"), list) and errors:
        error = errors[0]
    found = error if isinstance(error, dict) else body
    metadata, details = found.get("metadata"), _details(found.get("details"))
    # OpenRouter says "Provider returned error"; the provider's own message is in `raw`.
    raw = _words(metadata.get("raw")) if isinstance(metadata, dict) else ""
    text = "" if found is error else _words(error)
    return ErrorBody(
        _joined((text, _first_words(found, _MESSAGES), raw, details.message)) or truncated_json(found),
        _first_words(found, ("type", "__type")) or (_words(found.get("status")) if found is error else ""),
        _first_words(found, ("code", "error_code")),
        _status(found),
        _words(found.get("param")),
        details.reason,
        details.retry_s,
    )


def _details(details: object) -> ErrorBody:
    """Details besides the message: a text, an object, or Google's list of typed objects."""
    if isinstance(details, str):
        return ErrorBody(details[:TEXT_CHARS_MAX])
    parts = _objects(details)
    parts += [violation for part in parts for violation in _objects(part.get("fieldViolations"))][:_WIDTH]
    reasons = (_first_words(part, ("error_code", "reason", "code")) for part in parts)
    delays = (_seconds(part.get("retryDelay")) for part in parts)
    return ErrorBody(
        _joined(_first_words(part, (*_MESSAGES, "description")) for part in parts),
        reason=next(filter(None, reasons), ""),
        retry_s=next(filter(None, delays), None),
    )


def _objects(value: object) -> list[JsonObject]:
    return [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, dict)][:_WIDTH]


def _seconds(delay: object) -> float | None:
    """Parses Google's `34.07s`."""
    found = _DELAY.fullmatch(delay) if isinstance(delay, str) else None
    return float(found[1]) if found else None


def _joined(texts: Iterable[str]) -> str:
    """Joined sentences; one that is contained in another is left out."""
    distinct: list[str] = []
    for words in filter(None, texts):
        if not any(words in other for other in distinct):
            distinct.append(words)
    return ": ".join(distinct)[:TEXT_CHARS_MAX]


def _first_words(body: JsonMapping, names: tuple[str, ...]) -> str:
    return next((words for name in names if (words := _words(body.get(name)))), "")


def _words(value: object) -> str:
    if value is None:
        return ""
    return value[:TEXT_CHARS_MAX] if isinstance(value, str) else truncated_json(value)


def truncated_json(value: object) -> str:
    """A value as JSON, truncated, whatever its size and depth."""
    return json.dumps(_pruned(value, _LEVELS), ensure_ascii=False)[:TEXT_CHARS_MAX]


def _pruned(value: object, levels: int) -> object:
    if isinstance(value, str):
        return value[:TEXT_CHARS_MAX]
    if isinstance(value, dict | list) and not levels:
        return "..."
    if isinstance(value, dict):
        return {name[:TEXT_CHARS_MAX]: _pruned(inner, levels - 1) for name, inner in islice(value.items(), _WIDTH)}
    if isinstance(value, list):
        return [_pruned(inner, levels - 1) for inner in value[:_WIDTH]]
    return value


def _status(error: JsonMapping) -> int:
    for name in ("status_code", "code", "status", "http_code"):
        value = error.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) == 3:
            value = int(value)
        if isinstance(value, int) and 400 <= value < 600:
            return value
    return 0
