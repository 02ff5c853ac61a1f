"""Content sniffing: the kind of a 200 body from its first bytes. Some servers ignore `stream`, some send a web page.

The content type is only a hint: recorded servers send events as text/plain or without a type.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_ENOUGH_BYTES: Final = 8


class BodyShape(Enum):
    """Kinds of bodies."""

    EVENTS = "events"
    JSON = "json"
    OTHER = "other"


def body_shape(start: bytes, content_type: str, *, at_end: bool) -> BodyShape | None:
    """The kind of a body that begins like this; None if more bytes are needed, which cannot be `at_end`."""
    start = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith((b"{", b"[")):
        return BodyShape.JSON
    if len(start) < _ENOUGH_BYTES and not at_end and not start.startswith(b":"):
        return None
    if start.startswith(_FIELDS) or not start:
        return BodyShape.EVENTS
    is_events = content_type.partition(";")[0].strip().lower() == "text/event-stream" and not start.startswith(b"<")
    return BodyShape.EVENTS if is_events else BodyShape.OTHER
