"""`<summary>`: what is known to exist. Source: RU063, RU185."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.sections.contract import PacketDraft, block_section


class SummarySection(Struct, frozen=True):
    """Every data entry, condensed, in first-seen order: grows at its end, so that what stands above stays cached."""

    tag: str = "summary"
    priority: int = 50
    is_live: bool = False

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """One block for each data entry, visible or summarized."""
        return block_section("summary", (block.condensed for block in draft.blocks if block.category == "data"))
