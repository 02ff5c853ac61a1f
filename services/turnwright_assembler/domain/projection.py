"""Projections: the condensed body of a summarized entry, informative and never longer than the body itself.

The visible projection of every entry is its body, unless a plugin defines one for its scheme. The summarized one
depends on the kind of entry: the outline of a file, the end of a channel, the first line of a record, the beginning of
anything else. Source: RU063, RU185; packet_structure, token_accounting of the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import Entry

from turnwright_assembler.domain.envelope import RESERVED
from turnwright_core.schemes import BUILT_IN, Schemes

SUMMARY_CHARS: Final = 500
"""Code points of a body in a summarized projection (token_accounting)."""

RECORD_CHARS: Final = 120
"""Code points of a summarized log record: what happened, without the output."""

OUTLINE_SCAN_CHARS: Final = 64 * 1024
"""Code points of a file that are read for its outline."""

OUTLINE_LINE_CHARS: Final = 100
"""Code points of one line of an outline."""

_DEFINITIONS: Final = (
    "def ", "async def ", "class ", "function ", "async function ", "export ", "interface ", "type ", "enum ",
    "struct ", "trait ", "impl ", "impl<", "fn ", "pub ", "func ", "module ", "package ", "namespace ", "public ",
    "protected ", "private ", "abstract ", "static ", "message ", "service ", "CREATE ", "create table ",
)  # fmt: skip
_HEADINGS: Final = ("# ", "## ", "### ")
_TEXT_SUFFIXES: Final = (".md", ".markdown", ".txt", ".rst", ".adoc")


class Projection(Struct, frozen=True):
    """A plugin's projections for its scheme; None: the default."""

    visible: Callable[[Entry], str] | None = None
    summarized: Callable[[Entry], str] | None = None


_DEFAULT: Final = Projection()


class Views(Struct, frozen=True):
    """How entries are shown: plugins' projections by scheme, and the defaults for all others."""

    projections: Mapping[str, Projection] = field(default_factory=dict)
    reserved: frozenset[str] = RESERVED
    """Tags of sections, which no entry can have."""

    def bodies(self, entry: Entry, schemes: Schemes) -> tuple[str, str]:
        """The body of an entry while it is visible, and while it is summarized."""
        own = self.projections.get(entry.scheme, _DEFAULT)
        return (
            own.visible(entry) if own.visible else entry.body,
            own.summarized(entry) if own.summarized else summarize(entry.path, entry.scheme, entry.body, schemes),
        )


OWN_VIEWS: Final = Views()
"""The defaults, without plugins."""


def summarize(path: str, scheme: str, body: str, schemes: Schemes = BUILT_IN) -> str:
    if scheme == "":
        return _outline(path, body)
    if scheme in _BY_SCHEME:
        return _BY_SCHEME[scheme](body)
    return _first_line(body) if schemes.rules(scheme).category == "logging" else _head(body)


def _kept(body: str, part: str, cue: str) -> str:
    """A part with a note about what is missing, or the body if that would not be longer."""
    short = f"{part}\n{cue}"
    return short if len(short) < len(body) else body


def _head(body: str) -> str:
    if len(body) <= SUMMARY_CHARS:
        return body
    return _kept(body, body[:SUMMARY_CHARS], f"[the first {SUMMARY_CHARS} of {len(body)} characters]")


def _tail(body: str) -> str:
    if len(body) <= SUMMARY_CHARS:
        return body
    part = body[-SUMMARY_CHARS:]
    newline = part.find("\n", 0, len(part) - 1)
    part = part[newline + 1 :]
    cue = f"[the last {len(part)} of {len(body)} characters]"
    short = f"{cue}\n{part}"
    return short if len(short) < len(body) else body


def _first_line(body: str) -> str:
    line = body[: RECORD_CHARS + 1].partition("\n")[0][:RECORD_CHARS]
    return body if len(line) == len(body) else _kept(body, line, f"[{len(line)} of {len(body)} characters]")


def _outline(path: str, body: str) -> str:
    if len(body) <= SUMMARY_CHARS:
        return body
    starts = _HEADINGS if path.lower().endswith(_TEXT_SUFFIXES) else _DEFINITIONS
    if not any(start in body for start in starts):
        return _head(body)
    shown: list[str] = []
    room = SUMMARY_CHARS
    for number, line in enumerate(body[:OUTLINE_SCAN_CHARS].split("\n"), 1):
        if not line.lstrip().startswith(starts):
            continue
        item = f"{number}: {line.rstrip()[:OUTLINE_LINE_CHARS]}"
        room -= len(item) + 1
        if room < 0:
            break
        shown.append(item)
    if not shown:
        return _head(body)
    return _kept(body, "\n".join(shown), f"[outline of {body.count(chr(10)) + 1} lines]")


_BY_SCHEME: Final[dict[str, Callable[[str], str]]] = {"sh": _tail, "env": _tail}
