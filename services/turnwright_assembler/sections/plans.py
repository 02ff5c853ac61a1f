"""`<plans>`: what the run intends to do. Source: RP05, RP06; decision C46."""

from __future__ import annotations

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.contract import BlockSection


class PlansSection(BlockSection, frozen=True):
    """The latest version of every plan; its deltas are in the log, so that these bytes do not change."""

    tag: str = "plans"
    priority: int = 90

    def shows(self, block: Block) -> str:
        return block.whole if block.plan and not block.plan.sequence else ""
