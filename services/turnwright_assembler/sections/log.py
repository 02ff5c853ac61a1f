"""`<log>`: what happened, over all loops of the run. Source: RU188, RU194, RU195, RH05, RP06; C46, C47."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.sections.contract import PacketDraft, block_section


class LogSection(Struct, frozen=True):
    """Every record, event and delta of a plan, and the prompts of earlier loops, at their places in time."""

    tag: str = "log"
    priority: int = 100
    is_live: bool = False

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """One block for each of them, in the order of the timeline."""
        active = draft.prompt.path if draft.prompt else None
        return block_section(
            "log",
            (
                block.whole or block.condensed
                for block in draft.blocks
                if block.in_log or (block.prompt and block.path != active)
            ),
        )
