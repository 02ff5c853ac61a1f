"""`<prompt>`: the task of the loop, first in every packet. Source: RU184, RU187, RU195; decision C23."""

from __future__ import annotations

from collections.abc import Sequence

from turnwright_assembler.domain.envelope import element
from turnwright_assembler.sections.contract import PacketDraft, Section


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
