"""The blocks of a run by section, in the order of the packet, with what their account is made of.

It is brought up to date by the blocks that come and go, so that a packet costs what has changed since the one before,
and not what the run has become.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from turnwright_assembler.domain.account import Account, EntryCounts
from turnwright_assembler.domain.blocks import Block, active_prompt
from turnwright_assembler.sections.contract import BlockSection

Place = tuple[int, str]
"""Position and path of a block: by them a packet is ordered."""


class _Shown(Struct):
    """What one section shows. Mutable: two lists that are sorted by place."""

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
        """What these sections show of these blocks."""
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
        """The prompt of a loop, which is from now on the active one; None where it has none."""
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
        """What a section shows, in order."""
        return self._shown[tag].texts

    def account(self) -> Account:
        """What they cost by the parts that the model can act on."""
        return self._counts.account()
