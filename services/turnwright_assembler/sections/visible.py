"""`<visible>`: what is being worked with. Source: RU063, RU186."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.sections.contract import PacketDraft, block_section


class VisibleSection(Struct, frozen=True):
    """Every visible data entry with its whole body, in first-seen order."""

    tag: str = "visible"
    priority: int = 75
    is_live: bool = False

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """One block for each visible data entry."""
        chosen = (block.whole for block in draft.blocks if block.category == "data" and block.is_visible)
        return block_section("visible", chosen)
