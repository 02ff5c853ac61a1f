"""`<log>`: what happened, over all loops of the run. Source: RU188, RU194, RU195, RH05, RP06; C46, C47."""

from __future__ import annotations

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.contract import BlockSection


class LogSection(BlockSection, frozen=True):
    """Every record, event and delta of a plan, and the prompts of earlier loops, at their places in time."""

    tag: str = "log"
    priority: int = 100

    def shows(self, block: Block) -> str:
        return block.text if block.in_log or block.prompt else ""
