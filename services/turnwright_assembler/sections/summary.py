"""`<summary>`: what is known to exist. Source: RU063, RU185."""

from __future__ import annotations

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.contract import BlockSection


class SummarySection(BlockSection, frozen=True):
    """Every data entry, condensed, in first-seen order: grows at its end, so that what stands above stays cached."""

    tag: str = "summary"
    priority: int = 50

    def shows(self, block: Block) -> str:
        return block.condensed if block.category == "data" else ""
