"""`<unknowns>`: open questions. Source: RU189."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.sections.contract import PacketDraft, block_section


class UnknownsSection(Struct, frozen=True):
    """Every unknown, as an `<unknown>` child."""

    tag: str = "unknowns"
    priority: int = 150
    is_live: bool = False

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """One child for each entry."""
        return block_section("unknowns", (block.text for block in draft.blocks if block.category == "unknown"))
