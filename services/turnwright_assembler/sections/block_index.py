"""Index of a run's blocks by section, in packet order, with the counts for its budget.

It is updated as blocks come and go, so that the cost of a packet depends on what changed, not on the size of the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct, field

from turnwright_assembler.domain.account import EntryCounts
from turnwright_assembler.domain.blocks import Block, active_prompt

T = TypeVar("T")
Place = tuple[int, str]
"""Sort key of a block in a packet: position and path."""


class ByPlace(Struct, Generic[T]):
    """Items in packet order. Mutable: two parallel lists."""

    places: list[Place] = field(default_factory=list)
    items: list[T] = field(default_factory=list)

    def add(self, block: Block, item: T) -> None:
        place = (block.position, block.path)
        index = bisect_left(self.places, place)
        self.places.insert(index, place)
        self.items.insert(index, item)

    def remove(self, block: Block) -> None:
        index = bisect_left(self.places, (block.position, block.path))
        del self.places[index], self.items[index]


class BlockIndex:
    """Blocks by section. Mutable."""

    def __init__(self, tags: Iterable[str], blocks: Iterable[Block] = ()) -> None:
        self._texts: dict[str, ByPlace[str]] = {tag: ByPlace() for tag in tags}
        self._prompts: dict[str, Block] = {}
        self._active = ""
        """Path of the active prompt."""
        self.counts = EntryCounts()
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        self.counts.count(block, 1)
        if block.prompt:
            self._prompts[block.path] = block
        self._show(block)

    def remove(self, block: Block) -> None:
        self.counts.count(block, -1)
        self._prompts.pop(block.path, None)
        self._hide(block)

    def _show(self, block: Block) -> None:
        if block.path != self._active:
            for tag, text in block.sections:
                self._texts[tag].add(block, text)

    def _hide(self, block: Block) -> None:
        if block.path != self._active:
            for tag, _ in block.sections:
                self._texts[tag].remove(block)

    def activate(self, loop: int) -> Block | None:
        """Make the prompt of a loop the active one; None if it has none."""
        prompt = active_prompt(self._prompts.values(), loop)
        path = prompt.path if prompt else ""
        if path != self._active:
            moved = [self._prompts[one] for one in (self._active, path) if one in self._prompts]
            for block in moved:
                self._hide(block)
            self._active = path
            for block in moved:
                self._show(block)
        return prompt

    def texts(self, tag: str) -> Sequence[str]:
        return self._texts[tag].items

    def paths(self, tag: str) -> Sequence[str]:
        return [path for _, path in self._texts[tag].places]
