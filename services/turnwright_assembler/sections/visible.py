"""`<visible>`: what is being worked with. Source: RU063, RU186."""

from __future__ import annotations

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.contract import BlockSection


class VisibleSection(BlockSection, frozen=True):
    """Every visible data entry with its whole body, in first-seen order."""

    tag: str = "visible"
    priority: int = 75

    def shows(self, block: Block) -> str:
        return block.whole if block.category == "data" and block.is_visible else ""
