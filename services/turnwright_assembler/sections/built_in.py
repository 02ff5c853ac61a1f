"""The sections of the user message that are texts of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_values.types import Entry, Visibility

from turnwright_assembler.domain.account import EntryCounts
from turnwright_assembler.domain.envelope import element, ordered, well_formed
from turnwright_assembler.sections.contract import BlockSection, PacketDraft, Section, text_of


class PromptSection(Section, frozen=True):
    """The active prompt, with the figures of the loop's first packet: byte-equal through the loop."""

    tag: str = "prompt"
    priority: int = 30

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """Nothing when the model archived its prompt: it must see that the task is gone."""
        if draft.prompt is None or draft.prompt.prompt is None:
            return ()
        parts = draft.prompt.prompt
        figures = parts.figures or draft.figures
        shown: dict[str, str | int] = {
            "tokenUsage": figures.usage,
            "tokensFree": figures.free,
            "path": draft.prompt.path,
            "mode": parts.mode,
        }
        return (element("prompt", shown, parts.whole if draft.prompt.is_visible else parts.condensed) + "\n",)


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


BLOCK_SECTIONS: Final = (
    # Every data entry, condensed, in first-seen order: grows at its end, so that what stands above stays cached.
    BlockSection("summary", 50),
    # Every visible data entry with its whole body.
    BlockSection("visible", 75),
    # The latest version of every plan; its deltas are in the log, so that these bytes do not change.
    BlockSection("plans", 90),
    # What happened, over all loops: records, events and deltas of plans, and earlier prompts, at their places in time.
    BlockSection("log", 100),
    BlockSection("unknowns", 150),
)


_TEXT: Final = f"<instructions>\n{text_of('instructions-user')}\n</instructions>\n"
_NATIVE: Final = f"<instructions>\n{text_of('instructions-user-native')}\n</instructions>\n"


class InstructionsSection(Section, frozen=True):
    """The text of instructions-user.md, or instructions-user-native.md."""

    tag: str = "instructions"
    priority: int = 165

    def render(self, draft: PacketDraft) -> Sequence[str]:
        return (_NATIVE if draft.is_native else _TEXT,)


_NAMES: Final = {"plan": "Plans", "event": "Events"}


class BudgetSection(Section, frozen=True):
    """Live figures, a table of visible entries by scheme, and lines of totals. Numbers, never warnings."""

    tag: str = "budget"
    priority: int = 175

    def render(self, draft: PacketDraft) -> Sequence[str]:
        usage, free = draft.figures.usage, draft.figures.free
        text = (
            f'<budget tokenUsage="{usage}" tokensFree="{free}">\n{draft.budget_table}'
            f"tokenUsage {usage} / ceiling {draft.ceiling}. {free} tokens free.{draft.filler}\n</budget>\n"
        )
        return (text,)


def budget_table(counts: EntryCounts, system_tokens: int, ceiling: int) -> str:
    """What of a budget does not depend on the figures of its packet: schemes, the largest first, and totals."""

    def cost(tokens: int) -> str:
        return f"{tokens} tokens ({round(100 * tokens / max(1, ceiling))}% of budget)."

    visible = sorted(counts.visible.items(), key=lambda line: (-line[1][1], line[0]))
    schemes = [
        f"| {scheme} | {number} | {tokens} | {round(100 * tokens / max(1, ceiling))}% |"
        for scheme, (number, tokens) in visible
        if number
    ]
    summarized, summarized_tokens = counts.summarized
    fixed = counts.fixed.items()
    return "\n".join(
        [
            "| scheme | visible | tokens | % |",
            "|---|---|---|---|",
            *schemes,
            "",
            f"Summarized: {summarized} entries, {cost(summarized_tokens)}",
            *[f"{_NAMES[scheme]}: {number} entries, {cost(tokens)}" for scheme, (number, tokens) in fixed if number],
            f"System: {cost(system_tokens)}",
            f"Total: {sum([line[0] for line in counts.visible.values()])} visible + {summarized} summarized entries; ",
        ]
    )
