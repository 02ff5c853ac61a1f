"""The sections of the user message, with the texts for the model next to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.built_in import (
    BLOCK_SECTIONS,
    BudgetSection,
    InstructionsSection,
    ProjectInstructionsSection,
    PromptSection,
)
from turnwright_assembler.sections.contract import BlockIndex, PacketDraft, Section

__all__ = ["SECTIONS", "BlockIndex", "PacketDraft", "Section", "indexed"]

_ALL: Final[tuple[Section, ...]] = (
    PromptSection(),
    ProjectInstructionsSection(),
    *BLOCK_SECTIONS,
    InstructionsSection(),
    BudgetSection(),
)

SECTIONS: Final = tuple(sorted(_ALL, key=lambda section: section.priority))
"""Every section in the order of the packet: prompt 30 to budget 175 (RU183)."""


def indexed(blocks: Iterable[Block]) -> BlockIndex:
    return BlockIndex((section.tag for section in BLOCK_SECTIONS), blocks)
