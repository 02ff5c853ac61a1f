"""`<budget>`: the cost of the packet, placed last, where the model acts. Source: RU191, RU209, RU210, RU222; C11."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_assembler.domain.account import EntryCounts
from turnwright_assembler.sections.contract import PacketDraft, Section

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
