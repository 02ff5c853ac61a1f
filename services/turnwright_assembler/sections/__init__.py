"""The sections of the user message, one file each, with the texts for the model next to them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.sections.block_index import BlockIndex
from turnwright_assembler.sections.budget import BudgetSection
from turnwright_assembler.sections.contract import BlockSection, PacketDraft, Section
from turnwright_assembler.sections.instructions import InstructionsSection
from turnwright_assembler.sections.log import LogSection
from turnwright_assembler.sections.plans import PlansSection
from turnwright_assembler.sections.project import ProjectInstructionsSection
from turnwright_assembler.sections.prompt import PromptSection
from turnwright_assembler.sections.summary import SummarySection
from turnwright_assembler.sections.unknowns import UnknownsSection
from turnwright_assembler.sections.visible import VisibleSection

__all__ = ["SECTIONS", "BlockIndex", "PacketDraft", "Section", "indexed"]

_ALL: Final[tuple[Section, ...]] = (
    PromptSection(),
    ProjectInstructionsSection(),
    SummarySection(),
    VisibleSection(),
    PlansSection(),
    LogSection(),
    UnknownsSection(),
    InstructionsSection(),
    BudgetSection(),
)

SECTIONS: Final = tuple(sorted(_ALL, key=lambda section: section.priority))
"""Every section in the order of the packet: prompt 30 to budget 175 (RU183)."""


_OF_BLOCKS: Final = tuple(section for section in SECTIONS if isinstance(section, BlockSection))


def indexed(blocks: Iterable[Block]) -> BlockIndex:
    return BlockIndex(_OF_BLOCKS, blocks)
