"""Replies as people read them: what a watch is sent that did not ask for the model's own text.

The numbers of events are the same in both forms, so that a watcher may change its form when it resumes.
"""

from __future__ import annotations

from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from turnwright.types.v1 import entry_pb2

from turnwright_core.chat.timeline import PROSE, prose_of

_MARK: Final = f'"{PROSE}":'


class _Attributes(Struct):
    prose: list[tuple[int, int]] | None = None


_ATTRIBUTES: Final = Decoder(_Attributes)


def entry_in_parts(entry: entry_pb2.Entry) -> entry_pb2.Entry:
    """The entry with its prose as its body; the same one if its text is all prose."""
    spans = spans_of(entry)
    if spans is None:
        return entry
    shown = entry_pb2.Entry()
    shown.CopyFrom(entry)
    shown.body = prose_of(entry.body, spans)
    shown.body_size_bytes = len(shown.body.encode())
    return shown


def spans_of(entry: entry_pb2.Entry) -> list[tuple[int, int]] | None:
    """Where the prose of a reply stands; None for other entries, and where all of the text is prose."""
    if entry.scheme != "assistant" or _MARK not in entry.attributes_json:
        return None
    try:
        return _ATTRIBUTES.decode(entry.attributes_json).prose
    except DecodeError:
        return None
