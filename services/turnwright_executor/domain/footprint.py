"""Upper bound for how much a turn's commands can add to the next packet; most turns then need no CheckBudget.

It is measured in code points. Each entry that the turn wrote counts as if it were new: its tag, both of its forms if
two may appear, and its body if it may be visible. Anything unknown counts as infinite. Source: row RU142; architecture
12.1 (count RPCs).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final

from turnwright_values.store import AppendEntry, EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Entry, Visibility

from turnwright_core.json_text import JsonMapping
from turnwright_core.limits import SUMMARY_CHARS_MAX, TARGET_CHARS_MAX
from turnwright_core.value_methods import parse_attributes

QUIET_TOOLS: Final = frozenset({"think", "update", "ask_user"})
"""Tools whose commands write nothing but their records."""

FRAME_CHARS: Final = 400
"""Overhead of the tag around an entry, besides its path, target and summary."""

CONDENSED_CHARS: Final = 700
"""Longest condensed body of an entry, including the note about what is missing."""

SLACK_CHARS: Final = 1024
"""Growth of a packet's sections besides entries: their own tags, lines of the budget."""

_ESCAPE_CHARS: Final = 6
"""Maximum growth of a character when it is escaped in an attribute, or in the payload of an event."""

_PARSED_CHARS_MAX: Final = 4096
"""Longest attributes that are parsed; for longer ones target and summary count with their maximum length."""

_EVENT: Final = "event://"
_ESCAPED: Final = re.compile('[\x00-\x1f\x7f\x85\u2028\u2029&<>"]')
_SHOWN_CHARS_MAX: Final = (TARGET_CHARS_MAX + SUMMARY_CHARS_MAX) * (1 + _ESCAPE_CHARS)
_HIDDEN: Final = frozenset({Visibility.SUMMARIZED, Visibility.ARCHIVED})


class Footprint:
    """The entries that a turn wrote, and the lengths of those that it read. Mutable: grows with the turn."""

    def __init__(self) -> None:
        self._read: dict[str, int] = {}
        self._parts: dict[str, tuple[int, float, bool]] = {}
        """By entry: length of its tags and condensed body, length of its body, and whether that may be shown."""
        self._is_unknown = False

    def read(self, entries: Iterable[Entry]) -> None:
        self._read.update((entry.path, entry.body_size_bytes) for entry in entries)

    def mark_unknown(self) -> None:
        """Something unknown was written: by somebody else, or by a call that makes no entry here."""
        self._is_unknown = True

    def record(self, path: str, body: str, attributes: JsonMapping) -> None:
        self._parts[path] = _shown(path, attributes), len(body), True

    def wrote(self, writes: Iterable[EntryWrite]) -> None:
        for write in writes:
            match write.change:
                case RemoveEntry():
                    self._parts.pop(write.path, None)
                case AppendEntry(text):
                    shown, body, is_visible = self._before(write.path)
                    self._parts[write.path] = shown, body + len(text), is_visible
                case SetEntry():
                    self._set(write.path, write.change)
                case _:
                    self.mark_unknown()

    def _before(self, path: str) -> tuple[int, float, bool]:
        """An entry as it was, in the turn or before it."""
        if part := self._parts.get(path):
            return part
        # A packet shows an event's attributes, whose length was not kept.
        body = inf if path.startswith(_EVENT) else self._read.get(path, inf)
        return _frame(path, more=_SHOWN_CHARS_MAX), body, True

    def _set(self, path: str, change: SetEntry) -> None:
        shown, body, is_visible = self._before(path)
        if path not in self._parts:
            # An unchanged body adds nothing.
            is_visible = change.body is not None
        if change.visibility is not Visibility.UNSPECIFIED:
            # An event has no summarized form.
            is_visible = change.visibility not in ({Visibility.ARCHIVED} if path.startswith(_EVENT) else _HIDDEN)
        if change.attributes_json is not None:
            shown = _shown_in(path, change.attributes_json)
        self._parts[path] = shown, body if change.body is None else len(change.body), is_visible

    @property
    def chars(self) -> float:
        """Upper bound for the growth of the next packet in code points; infinite if unknown."""
        parts = self._parts.values()
        shown = [shown + (body if is_visible else 0) for shown, body, is_visible in parts]
        return inf if self._is_unknown else SLACK_CHARS + sum(shown)


def chars_of(writes: Sequence[EntryWrite]) -> float:
    """Upper bound for the growth of the next packet through some writes, in code points; infinite if unknown."""
    if not writes:
        return 0
    written = Footprint()
    written.wrote(writes)
    return written.chars


def _shown_in(path: str, attributes_json: str) -> int:
    if path.startswith(_EVENT):
        # The packet shows nearly all of it, with numbers and characters in their longest form.
        return _frame(path, more=_ESCAPE_CHARS * len(attributes_json))
    if len(attributes_json) > _PARSED_CHARS_MAX:
        return _frame(path, more=_SHOWN_CHARS_MAX)
    return _shown(path, parse_attributes(attributes_json))


def _shown(path: str, attributes: JsonMapping) -> int:
    target = str(attributes.get("target") or "")[:TARGET_CHARS_MAX]
    return _frame(path, target + str(attributes.get("summary") or "")[:SUMMARY_CHARS_MAX])


def _frame(path: str, text: str = "", more: int = 0) -> int:
    """Both tags of an entry with this text and `more` code points, and its condensed body."""
    # The path also occurs in both sentinels.
    text = path * 3 + text
    return 2 * (FRAME_CHARS + len(text) + _ESCAPE_CHARS * len(_ESCAPED.findall(text)) + more) + CONDENSED_CHARS


def room_chars(tokens: int, chars: int, ceiling: int, calibration: float) -> int | None:
    """Code points by which a packet can grow and certainly still fit; None if its ceiling is unknown.

    `tokens` and `chars` are those of the packet, `calibration` is reported over estimated tokens, 0 if unknown.
    """
    if not ceiling or not tokens:
        return None
    # A token has at least this many code points on average: the estimate is rounded up. Figures are rounded once more.
    return int(((ceiling - 1) / (calibration or 1.0) - tokens - 2) * (chars / tokens))
