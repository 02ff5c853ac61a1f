"""`<budget>`: the cost of the packet, placed last, where the model acts. Source: RU191, RU209, RU210, RU222; C11."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_assembler.domain.account import Account
from turnwright_assembler.sections.contract import PacketDraft, Section

_NAMES: Final = {"plan": "Plans", "event": "Events"}


class BudgetSection(Section, frozen=True):
    """Live figures, a table of visible entries by scheme, and lines of totals. Numbers, never warnings."""

    tag: str = "budget"
    priority: int = 175

    def is_live(self, _draft: PacketDraft) -> bool:
        return True

    def render(self, draft: PacketDraft) -> Sequence[str]:
        usage, free = draft.figures.usage, draft.figures.free
        text = (
            f'<budget tokenUsage="{usage}" tokensFree="{free}">\n{draft.budget_table}'
            f"tokenUsage {usage} / ceiling {draft.ceiling}. {free} tokens free.{draft.filler}\n</budget>\n"
        )
        return (text,)


def budget_table(account: Account, system_tokens: int, ceiling: int) -> str:
    """What of a budget does not depend on the figures of its packet."""

    def share(tokens: int) -> str:
        return f"{round(100 * tokens / max(1, ceiling))}%"

    lines = ["| scheme | visible | tokens | % |", "|---|---|---|---|"]
    lines += [f"| {line.scheme} | {line.visible} | {line.tokens} | {share(line.tokens)} |" for line in account.lines]
    totals = [(f"Summarized: {account.summarized} entries, ", account.summarized_tokens)]
    totals += [(f"{_NAMES[line.scheme]}: {line.visible} entries, ", line.tokens) for line in account.fixed]
    totals += [("System: ", system_tokens)]
    lines += ["", *[f"{what}{tokens} tokens ({share(tokens)} of budget)." for what, tokens in totals]]
    return "\n".join([*lines, f"Total: {account.visible} visible + {account.summarized} summarized entries; "])
