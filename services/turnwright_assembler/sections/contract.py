"""The interface of a section: one tag of the user message, rendered from the draft of a packet.

Sections are ordered by priority, lowest first, and are independent of each other. Source: RU183, events_and_filters.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final, Generic, TypeVar

from msgspec import Struct, field
from turnwright_values.types import Entry

from turnwright_assembler.domain.account import EntryCounts
from turnwright_assembler.domain.blocks import Block, Figures, active_prompt

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


NOT_SETTLED: Final = Figures(0, 0)


class PacketDraft(Struct, frozen=True):
    """The input of sections."""

    index: BlockIndex
    prompt: Block | None
    """The block of the active prompt."""
    budget_table: str
    """What of the budget does not depend on the figures."""
    system_tokens: int
    ceiling: int
    figures: Figures = NOT_SETTLED
    """Live figures, which are known only when everything else is; only live sections may read them."""
    filler: str = ""
    """Spaces that make a settled figure exact; only live sections may read them."""
    loop: int = 0
    is_native: bool = False
    """Whether the model calls tools natively instead of with tags."""
    project: str = ""
    """The section with the instructions of the project."""
    entries: tuple[Entry, ...] = ()
    """Entries of the schemes that plugins use, as the packet shows them, in the order of blocks."""
    kept: dict[str, Any] = field(default_factory=dict)
    """Cache of what plugins last rendered for the run, by tag; part of the run's rows, filled while packets are built.
    """

    @property
    def live(self) -> tuple[str, ...]:
        """Tags of the sections that show the live figures: the prompt does in the first packet of its loop."""
        parts = self.prompt.prompt if self.prompt else None
        return ("prompt", "budget") if parts and parts.figures is None else ("budget",)


class Section(Struct, frozen=True):
    """One tag of the user message, which no entry can have. A lower priority comes earlier."""

    tag: str
    priority: int

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """Its text in pieces, each with its final newline; empty if there is nothing to show.

        Packets are delta-encoded: what stays the same from turn to turn should be in pieces of its own.
        """
        raise NotImplementedError


class BlockSection(Section, frozen=True):
    """A section with one text for each of some blocks, in the order in which the run first saw them.

    The active prompt is in none of these: it has its own section.
    """

    def render(self, draft: PacketDraft) -> Sequence[str]:
        return block_section(self.tag, draft.index.texts(self.tag))


SECTIONS_PACKAGE: Final = "turnwright_assembler.sections"


def text_of(name: str) -> str:
    """A text for the model, from the file next to the sections."""
    return files(SECTIONS_PACKAGE).joinpath(f"{name}.md").read_text(encoding="utf-8").strip()


def block_section(name: str, texts: Iterable[str]) -> Sequence[str]:
    """`<name>`, the blocks, `</name>`; empty if there are none."""
    pieces = [f"<{name}>\n", *texts]
    if len(pieces) == 1:
        return ()
    pieces.append(f"</{name}>\n")
    return pieces
