"""The rows of one run, rendered: brought up to date by what changed, read by one packet after another."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from turnwright_assembler.domain.blocks import Block, make_block
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.system import SYSTEM_PATH, render_system
from turnwright_core.entries import Cursor, Entry

_ROW_BYTES: Final = 700
"""What a row takes beside its two texts, in bytes: objects, path, place in the tables."""


class RunRows:
    """Blocks by path and the system message, as of `cursor`; rendered when they arrive and not again."""

    def __init__(self, divisor: int) -> None:
        """Empty: what a snapshot is read into. `divisor` is that of the token estimate."""
        self.cursor: Cursor | None = None
        self.system = render_system({})
        self.size_bytes = getsizeof(self.system)
        self._divisor = divisor
        self._blocks: dict[str, Block] = {}
        self._ordered: tuple[Block, ...] | None = None

    def apply(self, part: ViewPart) -> None:
        """Take over what entered, changed or left. Parts of one read belong together: keep all or drop the rows."""
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

    def __contains__(self, path: object) -> bool:
        return path in self._blocks

    def _rendered(self, entry: Entry) -> Block | None:
        if entry.path == SYSTEM_PATH:
            self._set_system(render_system(entry.attributes))
            return None
        return make_block(entry, self._divisor)

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
