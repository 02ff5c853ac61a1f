"""`<budget>`: the cost of the packet, placed last, where the model acts. Source: RU191, RU209, RU210, RU222; C11."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from turnwright_assembler.domain.envelope import open_tag
from turnwright_assembler.sections.contract import PacketDraft

_NAMES: Final = {"plan": "Plans", "event": "Events"}


class BudgetSection(Struct, frozen=True):
    """Live figures, a table of visible entries by scheme, and lines of totals. Numbers, never warnings."""

    tag: str = "budget"
    priority: int = 175
    is_live: bool = True

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """The table and its totals; always present."""
        figures = {"tokenUsage": draft.figures.usage, "tokensFree": draft.figures.free}
        return ("\n".join([open_tag("budget", figures), *_lines(draft), "</budget>\n"]),)


def _lines(draft: PacketDraft) -> Iterator[str]:
    account = draft.account
    yield "| scheme | visible | tokens | % |"
    yield "|---|---|---|---|"
    for line in account.lines:
        yield f"| {line.scheme} | {line.visible} | {line.tokens} | {_share(line.tokens, draft)} |"
    yield ""
    yield (
        f"Summarized: {account.summarized} entries, {account.summarized_tokens} tokens "
        f"({_share(account.summarized_tokens, draft)} of budget)."
    )
    for line in account.fixed:
        name = _NAMES.get(line.scheme, line.scheme)
        yield f"{name}: {line.visible} entries, {line.tokens} tokens ({_share(line.tokens, draft)} of budget)."
    yield f"System: {draft.system_tokens} tokens ({_share(draft.system_tokens, draft)} of budget)."
    yield (
        f"Total: {account.visible} visible + {account.summarized} summarized entries; "
        f"tokenUsage {draft.figures.usage} / ceiling {draft.ceiling}. {draft.figures.free} tokens free.{draft.filler}"
    )


def _share(tokens: int, draft: PacketDraft) -> str:
    return f"{round(100 * tokens / max(1, draft.ceiling))}%"
