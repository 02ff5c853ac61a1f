"""`<unknowns>`: open questions. Source: RU189."""

from __future__ import annotations

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.contract import BlockSection


class UnknownsSection(BlockSection, frozen=True):
    """Every unknown, as an `<unknown>` child."""

    tag: str = "unknowns"
    priority: int = 150

    def shows(self, block: Block) -> str:
        return block.text if block.category == "unknown" else ""
