"""The sections of the user message, one file each, and the texts that the model reads beside them."""

from __future__ import annotations

from typing import Final

from turnwright_assembler.sections.budget import BudgetSection
from turnwright_assembler.sections.contract import PacketDraft, Section
from turnwright_assembler.sections.instructions import InstructionsSection
from turnwright_assembler.sections.log import LogSection
from turnwright_assembler.sections.plans import PlansSection
from turnwright_assembler.sections.prompt import PromptSection
from turnwright_assembler.sections.summary import SummarySection
from turnwright_assembler.sections.unknowns import UnknownsSection
from turnwright_assembler.sections.visible import VisibleSection

__all__ = ["SECTIONS", "PacketDraft", "Section"]

_ALL: Final[tuple[Section, ...]] = (
    PromptSection(),
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
