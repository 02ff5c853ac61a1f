"""What a server's call has come to, as a record and entries: short texts in the record, everything else beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_core.limits import BODY_BYTES_MAX, IMAGE_BYTES_MAX, SUMMARY_CHARS_MAX
from turnwright_core.streams import channel_path
from turnwright_core.text import cut_bytes
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import Done

INLINE_BYTES_MAX: Final = 16 * 1024
"""Longest text in the record itself, in bytes; a longer one is an entry, of which the record has the beginning."""

BEGINNING_CHARS: Final = 1500
PARTS_MAX: Final = 64
FIRST: Final = 3
"""Number of the first entry of a result: lower ones are output."""
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class TextPart(Struct, frozen=True):
    """Text for the model."""

    text: str


class StructuredPart(Struct, frozen=True):
    """A JSON value, as text."""

    text: str


class ImagePart(Struct, frozen=True):
    """An image."""

    mime_type: str
    data: bytes


class EntryPart(Struct, frozen=True):
    """A text with a name."""

    name: str
    text: str
    summary: str = ""


ResultPart = TextPart | StructuredPart | ImagePart | EntryPart


class ToolResult(Struct, frozen=True):
    """The end of a call. `status` is 0, or what HTTP has for the failure."""

    parts: Sequence[ResultPart] = ()
    status: int = 0


def done_of(result: ToolResult, record_path: str) -> Done:
    """The result as the end of the record at a path. Never raises: what does not fit is left out."""
    kept = _Kept(record_path)
    parts = result.parts[:PARTS_MAX]
    texts = [_plain(part.text) for part in parts if isinstance(part, TextPart)]
    # Servers that send both send the same twice, once for programs.
    structured = [_indented(part.text) for part in parts if isinstance(part, StructuredPart)]
    body = kept.text("\n".join(filter(None, texts or structured)))
    lines = [kept.beside(part) for part in parts if isinstance(part, ImagePart | EntryPart)]
    if texts and structured:
        lines.append(kept.entry("structured", "\n".join(structured), "structured content", Visibility.ARCHIVED))
    if len(result.parts) > PARTS_MAX:
        lines.append(f"{len(result.parts) - PARTS_MAX} more parts were left out.")
    body = "\n".join(filter(None, [body, *lines]))
    if not result.status:
        return Done(body or "Done; the tool had nothing to say.", writes=tuple(kept.writes))
    status = result.status if 400 <= result.status <= 599 else 500
    return Done(body or "It failed, and said nothing.", State.FAILED, f"tool:{status}", writes=tuple(kept.writes))


class _Kept:
    """The entries of a result. Mutable."""

    def __init__(self, record_path: str) -> None:
        self._record = record_path
        self._bytes = 0
        self.writes: list[EntryWrite] = []

    def text(self, text: str) -> str:
        """The text as the record shows it."""
        size = len(text.encode())
        if size <= INLINE_BYTES_MAX:
            return text
        line = self.entry("text", text, " ".join(text[: 2 * SUMMARY_CHARS_MAX].split()), Visibility.SUMMARIZED)
        return f"{text[:BEGINNING_CHARS]}\n... {size} bytes in all. {line}"

    def beside(self, part: ImagePart | EntryPart) -> str:
        if isinstance(part, EntryPart):
            return self.entry(part.name, _plain(part.text), part.summary or part.text, Visibility.SUMMARIZED)
        if part.mime_type not in IMAGE_TYPES or len(part.data) > IMAGE_BYTES_MAX:
            return f"An image of {len(part.data)} bytes, {part.mime_type[:64]!r}, was left out."
        url = f"data:{part.mime_type};base64,{base64.b64encode(part.data).decode()}"
        return self.entry("image", url, f"{part.mime_type}, {len(part.data)} bytes", Visibility.ARCHIVED)

    def entry(self, name: str, text: str, summary: str, visibility: Visibility) -> str:
        """Keep a text; returns the line of the record about it."""
        name = " ".join(name.split())[:128] or "entry"
        size = len(text.encode())
        self._bytes += size
        if self._bytes > BODY_BYTES_MAX:
            left = max(0, BODY_BYTES_MAX - self._bytes + size)
            text, self._bytes = cut_bytes(text, left), BODY_BYTES_MAX
        path = channel_path(self._record, FIRST + len(self.writes))
        short = " ".join(summary.split())[:SUMMARY_CHARS_MAX]
        attributes = to_attributes_json({"summary": short, "name": name})
        change = SetEntry(text, attributes, visibility=visibility, state=State.RESOLVED)
        self.writes.append(EntryWrite(path, change, Tier.PLUGIN))
        how = (
            f', in parts with <get path="{path}" line="1" limit="100"/>' if visibility is Visibility.SUMMARIZED else ""
        )
        return f"{name}: {path} ({size} bytes){how}"


def _plain(text: str) -> str:
    return text.replace("\0", "")


def _indented(text: str) -> str:
    """A short JSON text as people write it: indented, a long one could grow without a bound."""
    if len(text) > INLINE_BYTES_MAX:
        return _plain(text)
    try:
        made = json.dumps(json.loads(text), ensure_ascii=False, indent=1)
    except (ValueError, RecursionError):
        return _plain(text)
    # Half of a surrogate pair, which JSON may have, can stand in no message.
    return made.encode(errors="replace").decode()
