"""Index of a run's blocks by section, in packet order, with the sums for their account.

It is updated as blocks come and go, so that the cost of a packet depends on what changed, not on the size of the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from turnwright_assembler.domain.account import Account, EntryCounts
from turnwright_assembler.domain.blocks import Block, active_prompt
from turnwright_assembler.sections.contract import BlockSection

Place = tuple[int, str]
"""Sort key of a block in a packet: position and path."""


class _Shown(Struct):
    """The blocks of one section. Mutable: two parallel lists, sorted by place."""

    section: BlockSection
    places: list[Place] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def add(self, place: Place, text: str) -> None:
        index = bisect_left(self.places, place)
        self.places.insert(index, place)
        self.texts.insert(index, text)

    def remove(self, place: Place) -> None:
        index = bisect_left(self.places, place)
        del self.places[index], self.texts[index]


class BlockIndex:
    """Blocks by section. Mutable."""

    def __init__(self, sections: Iterable[BlockSection], blocks: Iterable[Block] = ()) -> None:
        """Index these blocks for these sections."""
        self._shown = {section.tag: _Shown(section) for section in sections}
        self._prompts: dict[str, Block] = {}
        self._active = ""
        """Path of the active prompt."""
        self._counts = EntryCounts()
        for block in blocks:
            self.add(block)

    def add(self, block: Block) -> None:
        """A block has come."""
        self._counts.add(block)
        if block.prompt:
            self._prompts[block.path] = block
        self._show(block)

    def remove(self, block: Block) -> None:
        """A block that is here has left."""
        self._counts.remove(block)
        self._prompts.pop(block.path, None)
        self._hide(block)

    def _show(self, block: Block) -> None:
        for shown in self._shown.values():
            if block.path != self._active and (text := shown.section.shows(block)):
                shown.add((block.position, block.path), text)

    def _hide(self, block: Block) -> None:
        for shown in self._shown.values():
            if block.path != self._active and shown.section.shows(block):
                shown.remove((block.position, block.path))

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
        """The texts of a section, in order."""
        return self._shown[tag].texts

    def paths(self, tag: str) -> Sequence[str]:
        """The paths of the entries that they are of."""
        return [path for _, path in self._shown[tag].places]

    def account(self) -> Account:
        """Their token account."""
        return self._counts.account()
