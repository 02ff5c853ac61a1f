"""The rows of one run, rendered: brought up to date by what changed, read by one packet after another."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from sys import getsizeof
from typing import Final

from turnwright_assembler.domain.blocks import Block, make_block
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.system import SYSTEM_PATH, render_system
from turnwright_core.differences import Copied, Differences
from turnwright_core.entries import Cursor, Entry
from turnwright_core.schemes import BUILT_IN

_ROW_BYTES: Final = 700
"""What a row takes beside its two texts, in bytes: objects, path, place in the tables."""


class OtherRulesError(Exception):
    """The rows were rendered by other schemes than are registered now: a snapshot has to be read."""


class RunRows:
    """Blocks by path and the system message, as of `cursor`; rendered when they arrive and not again."""

    def __init__(self, divisor: int) -> None:
        """Empty: what a snapshot is read into. `divisor` is that of the token estimate."""
        self.cursor: Cursor | None = None
        self.schemes = BUILT_IN
        self.system = render_system({})
        self.size_bytes = getsizeof(self.system)
        self._divisor = divisor
        self._blocks: dict[str, Block] = {}
        self._ordered: tuple[Block, ...] | None = None
        self._told_digest = ""
        self._told: tuple[str, ...] = ()

    def apply(self, part: ViewPart) -> None:
        """Take over what entered, changed or left. Parts of one read belong together: keep all or drop the rows.

        Raises OtherRulesError.
        """
        if part.schemes:
            if self.cursor or self._blocks:
                raise OtherRulesError
            self.schemes = part.schemes
        for entry in part.entries:
            self._replace(entry.path, self._rendered(entry))
        for path in part.removed:
            self._replace(path, None)
        if part.cursor:
            self.cursor = part.cursor

    def ordered(self) -> tuple[Block, ...]:
        """The blocks in the order in which the run first saw them."""
        if self._ordered is None:
            self._ordered = tuple(sorted(self._blocks.values(), key=lambda block: (block.position, block.path)))
        return self._ordered

    def told(
        self, messages: Sequence[tuple[str, Sequence[str]]], digest: str, base_digest: str
    ) -> tuple[tuple[str, tuple[Copied | str, ...]], ...]:
        """The messages of a packet by what differs from the packet told last, if that is the one named; else whole."""
        differences = Differences(self._told if base_digest and base_digest == self._told_digest else ())
        parts = tuple((role, tuple(differences.of(pieces))) for role, pieces in messages)
        # Nearly all of them are texts of the rows: what is kept here are names of them.
        self._told_digest, self._told = digest, tuple(chain.from_iterable(pieces for _, pieces in messages))
        return parts

    def __contains__(self, path: object) -> bool:
        return path in self._blocks

    def _rendered(self, entry: Entry) -> Block | None:
        if entry.path == SYSTEM_PATH:
            self._set_system(render_system(entry.attributes))
            return None
        return make_block(entry, self._divisor, self.schemes)

    def _set_system(self, text: str) -> None:
        self.size_bytes += getsizeof(text) - getsizeof(self.system)
        self.system = text

    def _replace(self, path: str, block: Block | None) -> None:
        before = self._blocks.pop(path, None)
        if before:
            self.size_bytes -= _weight(before)
        if block:
            self._blocks[path] = block
            self.size_bytes += _weight(block)
        if before or block:
            self._ordered = None


def _weight(block: Block) -> int:
    prompt = getsizeof(block.prompt.whole) + getsizeof(block.prompt.condensed) if block.prompt else 0
    return _ROW_BYTES + getsizeof(block.whole) + getsizeof(block.condensed) + prompt
