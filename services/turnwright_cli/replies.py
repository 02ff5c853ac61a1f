"""What has been shown of the model's replies, so that after a gap the rest is shown and nothing twice.

Replies come in pieces. If a watch was resumed with a snapshot, or at an executor without the pieces, the text so far
comes at once: as a partial message, or as the entry of the reply.
"""

from __future__ import annotations

from typing import Final

from turnwright.types.v1 import entry_pb2

from turnwright_core.text import scheme_of

CONTENT: Final = "append_content"
REASONING: Final = "append_reasoning"

_KINDS: Final = {"reasoning": REASONING, "assistant": CONTENT}
"""The kind of text for each scheme of entries that contain it."""


class ShownReplies:
    """The texts of replies shown so far, by turn."""

    def __init__(self) -> None:
        self._shown: dict[tuple[int, str], list[str]] = {}
        self._has_gap = False
        self._first = 1

    def begin(self, after_turn: int) -> None:
        """Show only replies after this turn; earlier ones belong to another command."""
        self._first = after_turn + 1

    def started(self, turn: int) -> bool:
        """The model starts to answer; whether some text of an earlier attempt was shown."""
        content, reasoning = (self._shown.pop((turn, kind), None) for kind in (CONTENT, REASONING))
        return bool(content or reasoning)

    def jumped(self) -> None:
        """A snapshot replaced events: the next text of a turn need not continue what was shown."""
        self._has_gap = True

    def grew(self, turn: int, kind: str, text: str) -> None:
        self._shown.setdefault((turn, kind), []).append(text)

    def rest(self, turn: int, kind: str, whole: str) -> str:
        """The part of a text that was not shown yet; it counts as shown from now on."""
        shown = "".join(self._shown.get((turn, kind), ()))
        if whole.startswith(shown):
            rest = whole[len(shown) :]
        else:
            # More than this was shown, or it is the text of another attempt.
            rest = "" if shown.startswith(whole) or not self._has_gap else whole
        if rest:
            self._shown[turn, kind] = [whole]
        return rest

    def ended_with(self, text: str) -> bool:
        """Whether the latest text that was shown of the model ends with this."""
        latest = max((turn for turn, kind in self._shown if kind == CONTENT), default=0)
        return "".join(self._shown.get((latest, CONTENT), ())).strip().endswith(text.strip())

    def text_of(self, entry: entry_pb2.Entry) -> tuple[int, str] | None:
        """Turn and kind of an entry that contains a text to show; None for others."""
        kind = _KINDS.get(scheme_of(entry.path) or "")
        return (entry.turn, kind) if kind and entry.turn >= self._first else None

    def lacks(self, entry: entry_pb2.Entry) -> bool:
        """Whether an entry was truncated before the end of a text that was not completely shown."""
        text = self.text_of(entry)
        if text is None or len(entry.body.encode()) >= entry.body_size_bytes:
            return False
        return sum(len(piece.encode()) for piece in self._shown.get(text, ())) < entry.body_size_bytes
