"""Batching of deltas: the first is sent at once, then at most one batch for each flush interval.

Leading edge: a delta that comes after a pause does not wait. The order of content and reasoning is kept; of tool calls
and usage only the latest is kept. Source: architecture 12.6; research/perf.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from turnwright_core.chat.deltas import AppendContent, AppendReasoning, Delta, SetToolCalls, SetUsage

TEXT_CHARS_MAX: Final = 64 * 1024
"""Longest text of one delta, in code points; longer ones are split (at most 256 KB, architecture 12.4)."""


class DeltaBuffer:
    """Holds deltas until they are due. `flush_s` is the interval in seconds; `now` is any monotonic clock."""

    def __init__(self, flush_s: float, flush_bytes: int, sent_s: float = float("-inf")) -> None:
        """`sent_s`: when the last one was sent that did not come through here."""
        self._flush_s = flush_s
        self._flush_bytes = flush_bytes
        self._texts: list[AppendContent | AppendReasoning] = []
        self._latest: dict[type[Delta], Delta] = {}
        self._blocks: list[Delta] = []
        self._next_at = sent_s + flush_s
        self.size_bytes = 0
        """Size of the held deltas, in bytes of UTF-8."""

    def __bool__(self) -> bool:
        return bool(self._texts or self._blocks or self._latest)

    def add(self, delta: Delta) -> None:
        if isinstance(delta, AppendContent | AppendReasoning):
            self._texts.append(delta)
            self.size_bytes += len(delta.text) if delta.text.isascii() else len(delta.text.encode())
        elif isinstance(delta, SetToolCalls | SetUsage):
            self._latest[type(delta)] = delta
        else:
            self._blocks.append(delta)
            self.size_bytes += 1

    def is_full(self) -> bool:
        """Whether the held deltas should be sent without waiting for the interval."""
        return self.size_bytes >= self._flush_bytes

    def wait_s(self, now: float) -> float:
        """Seconds until the held deltas are due; 0 if they are."""
        return 0.0 if self.is_full() else max(0.0, self._next_at - now)

    def take(self, now: float) -> list[Delta]:
        """The held deltas, merged; empties the buffer and starts the next interval."""
        deltas: list[Delta] = []
        for kind, run in groupby(self._texts, type):
            text = "".join(delta.text for delta in run)
            deltas += [kind(text[i : i + TEXT_CHARS_MAX]) for i in range(0, len(text), TEXT_CHARS_MAX)]
        deltas += self._blocks
        deltas += [self._latest[kind] for kind in (SetToolCalls, SetUsage) if kind in self._latest]
        self._texts, self._blocks, self._latest, self.size_bytes = [], [], {}, 0
        self._next_at = now + self._flush_s
        return deltas
