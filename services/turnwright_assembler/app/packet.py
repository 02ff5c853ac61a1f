"""One packet: the sections joined, and the figures settled that are part of what they count.

`tokenUsage` stands in the text whose tokens it gives. It is raised until the text takes no more than it says; where
the last rise made another figure shorter, spaces at the end of the budget make up for it. So the figures are true to
the token, and the same input gives the same bytes.
Source: RU180, RU183, RU208; decisions C15, C23.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256

from turnwright_assembler.domain.account import account_for
from turnwright_assembler.domain.blocks import Block, Figures, active_prompt
from turnwright_assembler.sections import SECTIONS, Draft
from turnwright_core.text import count_tokens, tokens_of

_JOINT = "\n"


@dataclass(frozen=True, slots=True)
class Packet:
    """What a model reads: the two messages, and what they cost."""

    system: str
    user: str
    figures: Figures
    prompt: Block | None

    @property
    def tokens(self) -> int:
        """Estimated tokens of both messages."""
        return self.figures.usage

    def digest(self) -> str:
        """SHA-256 over roles, lengths and texts, in hexadecimal."""
        digest = sha256()
        for role, text in (("system", self.system), ("user", self.user)):
            content = text.encode()
            digest.update(f"{role}:{len(content)}\n".encode())
            digest.update(content)
        return digest.hexdigest()


def compose(blocks: tuple[Block, ...], system: str, loop: int, ceiling: int, divisor: int) -> Packet:
    """The packet of a loop's next turn, from blocks in their order."""
    draft = Draft(
        blocks=blocks,
        prompt=active_prompt(blocks, loop),
        account=account_for(blocks),
        system_tokens=count_tokens(system, divisor),
        ceiling=ceiling,
    )
    fixed = [None if section.is_live else section.render(draft) for section in SECTIONS]
    draft = _settled(draft, fixed, divisor)
    return Packet(system, _JOINT.join(_texts(draft, fixed)), draft.figures, draft.prompt)


def _texts(draft: Draft, fixed: list[str | None]) -> list[str]:
    """The sections that have something to say; live ones are rendered from this draft."""
    both = (section.render(draft) if text is None else text for section, text in zip(SECTIONS, fixed, strict=True))
    return [text for text in both if text]


def _settled(draft: Draft, fixed: list[str | None], divisor: int) -> Draft:
    """The draft with figures that its own text bears out."""
    usage = 0
    while True:
        draft = replace(draft, figures=Figures(usage, max(0, draft.ceiling - usage)))
        texts = _texts(draft, fixed)
        chars = sum(map(len, texts)) + len(_JOINT) * (len(texts) - 1)
        needed = draft.system_tokens + tokens_of(chars, divisor)
        if needed <= usage:
            break
        usage = needed
    if needed < usage:
        draft = replace(draft, filler=" " * ((usage - draft.system_tokens) * divisor - chars))
    return draft
