"""`<instructions>`: the rules that must be read last, the same bytes every turn. Source: RU190."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_assembler.sections.contract import PacketDraft, Section, text_of

_TEXT: Final = f"<instructions>\n{text_of('instructions-user')}\n</instructions>\n"
_NATIVE: Final = f"<instructions>\n{text_of('instructions-user-native')}\n</instructions>\n"


class InstructionsSection(Section, frozen=True):
    """The text of instructions-user.md, or instructions-user-native.md."""

    tag: str = "instructions"
    priority: int = 165

    def render(self, draft: PacketDraft) -> Sequence[str]:
        return (_NATIVE if draft.is_native else _TEXT,)
