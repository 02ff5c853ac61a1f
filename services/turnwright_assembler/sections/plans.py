"""`<plans>`: what the run intends. Source: RP05, RP06; decision C46."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.sections.contract import PacketDraft, block_section


class PlansSection(Struct, frozen=True):
    """The latest version of every plan; its deltas stand in the log, so that these bytes stay."""

    tag: str = "plans"
    priority: int = 90
    is_live: bool = False

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """One block for each plan, in the order in which the run first saw them."""
        heads = (block.whole for block in draft.blocks if block.plan and not block.plan.sequence)
        return block_section("plans", heads)
