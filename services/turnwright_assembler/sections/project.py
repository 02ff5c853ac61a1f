"""`<project-instructions>`: the project's AGENTS.md and CLAUDE.md, as they were when the loop began.

It comes before everything that changes from turn to turn, and has the same bytes during a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_values.types import Entry, Visibility

from turnwright_assembler.domain.envelope import element, ordered, well_formed
from turnwright_assembler.sections.contract import PacketDraft, Section

_ABOUT: Final = (
    "Conventions of this project, as files in it state them. Follow them where neither the prompt nor your own rules "
    "say otherwise."
)


def project_text(entry: Entry) -> str:
    """The text for `instructions://project`; empty if it is hidden or says nothing."""
    if entry.visibility is not Visibility.VISIBLE or not entry.body:
        return ""
    body = ordered(entry.path, well_formed(entry.body))
    return element("project-instructions", {}, f"{_ABOUT}\n{body}") + "\n"


def end_of_system(entry: Entry | None) -> str:
    """The end of a transcript's system message: the instructions of the project, if there are any."""
    text = project_text(entry) if entry else ""
    return f"\n\n{text.rstrip()}" if text else ""


class ProjectInstructionsSection(Section, frozen=True):
    """The instructions of the project; none if it has none, or they are off."""

    tag: str = "project-instructions"
    priority: int = 40

    def render(self, draft: PacketDraft) -> Sequence[str]:
        return (draft.project,) if draft.project else ()
