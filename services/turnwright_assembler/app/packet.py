"""One packet: the sections joined, and the figures settled that are part of what they count.

`tokenUsage` stands in the text whose tokens it gives. It is raised until the text takes no more than it says; where
the last rise made another figure shorter, spaces at the end of the budget make up for it. So the figures are true to
the token, and the same input gives the same bytes.
Source: RU180, RU183, RU208; decisions C15, C23.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.domain.blocks import Block, Figures
from turnwright_assembler.sections import BlockIndex, PacketDraft, indexed
from turnwright_assembler.sections.plugged import NO_ADDITIONS, Additions, Plugged, PluggedFilter
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import count_tokens, tokens_of

ROUNDS_MAX: Final = 16
"""Rounds in which the figures of a packet settle."""

PIECE_CHARS_MAX: Final = (CHUNK_BYTES - 64) // 4
"""Code points of a piece: four bytes each at most, so that one fits into a part of an answer whatever its text."""


class ComposedPacket(Struct, frozen=True):
    """What a model reads: the two messages in pieces, and what they cost."""

    system: str
    pieces: tuple[str, ...]
    """Of the user message."""
    figures: Figures
    prompt: Block | None
    tools: str = ""
    """What the model is offered for native calls; empty: nothing."""

    @property
    def user(self) -> str:
        """The user message."""
        return "".join(self.pieces)

    @property
    def messages(self) -> tuple[tuple[str, Sequence[str]], ...]:
        """Roles, each with the pieces of its message, none longer than PIECE_CHARS_MAX."""
        tools = [("tools", short_pieces((self.tools,)))] if self.tools else []
        return (("system", short_pieces((self.system,))), ("user", short_pieces(self.pieces)), *tools)

    @property
    def chars(self) -> int:
        """Code points of all messages."""
        return len(self.system) + len(self.tools) + sum(map(len, self.pieces))

    @property
    def tokens(self) -> int:
        """Estimated tokens of all messages."""
        return self.figures.usage

    def digest(self) -> str:
        """SHA-256 over roles, lengths and texts, in hexadecimal."""
        tools = [("tools", (self.tools,))] if self.tools else []
        return packet_digest((("system", (self.system,)), ("user", self.pieces), *tools))


def short_pieces(pieces: Sequence[str]) -> Sequence[str]:
    """The pieces, none longer than PIECE_CHARS_MAX."""
    if max(map(len, pieces), default=0) <= PIECE_CHARS_MAX:
        return pieces
    return [
        piece[begin : begin + PIECE_CHARS_MAX] for piece in pieces for begin in range(0, len(piece), PIECE_CHARS_MAX)
    ]


def compose(
    blocks: tuple[Block, ...],
    system: str,
    loop: int,
    ceiling: int,
    divisor: int,
    additions: Additions = NO_ADDITIONS,
    tools: str = "",
    index: BlockIndex | None = None,
) -> ComposedPacket:
    """The packet of a loop's next turn, from blocks in their order, with what plugins add. Raises PLUGIN_FAILED.

    `index` is that of the blocks, where somebody has it.
    """
    index = index or indexed(blocks)
    draft = PacketDraft(
        index=index,
        prompt=index.activate(loop),
        account=index.account(),
        system_tokens=count_tokens(system, divisor) + count_tokens(tools, divisor),
        ceiling=ceiling,
        loop=loop,
        entries=additions.shown(blocks),
        kept=additions.kept,
        is_native=bool(tools),
    )
    plan = _plan(draft, additions.plugged)
    draft = _settled(draft, plan, divisor)
    return ComposedPacket(system, tuple(_pieces(draft, plan)), draft.figures, draft.prompt, tools)


class _Plan(Struct, frozen=True):
    """The steps of the user message, and what each of them gives whatever the figures are; None: it depends."""

    plugged: Plugged
    fixed: tuple[Sequence[str] | None, ...]
    still: int
    """Code points of what is fixed."""


def _plan(draft: PacketDraft, plugged: Plugged) -> _Plan:
    fixed = tuple(
        None if isinstance(step, PluggedFilter) or step.is_live else step.render(draft) for step in plugged.steps
    )
    return _Plan(plugged, fixed, sum(sum(map(len, pieces)) for pieces in fixed if pieces))


def _pieces(draft: PacketDraft, plan: _Plan) -> list[str]:
    """The pieces of all sections; live ones are rendered from this draft. Nothing ends the last one."""
    pieces: list[str] = []
    for step, rendered in zip(plan.plugged.steps, plan.fixed, strict=True):
        if isinstance(step, PluggedFilter):
            pieces = step.changed(pieces, draft)
        else:
            pieces += step.render(draft) if rendered is None else rendered
    pieces[-1] = pieces[-1].removesuffix("\n")
    return pieces


def _chars(draft: PacketDraft, plan: _Plan) -> int:
    """Code points of the message, without the newline at the end of the last section."""
    if plan.plugged.has_filters:
        return sum(map(len, _pieces(draft, plan)))
    live = (step for step in plan.plugged.steps if not isinstance(step, PluggedFilter) and step.is_live)
    return plan.still + sum(len(piece) for step in live for piece in step.render(draft)) - 1


def _settled(draft: PacketDraft, plan: _Plan, divisor: int) -> PacketDraft:
    """The draft with figures that its own text bears out."""
    usage = 0
    for _ in range(ROUNDS_MAX):
        draft = replace(draft, figures=Figures(usage, max(0, draft.ceiling - usage)))
        chars = _chars(draft, plan)
        needed = draft.system_tokens + tokens_of(chars, divisor)
        if needed <= usage:
            break
        usage = needed
    else:
        # Digits settle in a few rounds; only a filter can make text that grows with its own figures.
        message = "The filters of plugins make a packet that grows with its own figures: no packet is made."
        raise fault(
            Reason.PLUGIN_FAILED, message, plugin=" ".join(plan.plugged.plugins), part="assembly.user", error_id=""
        )
    if needed < usage:
        draft = replace(draft, filler=" " * ((usage - draft.system_tokens) * divisor - chars))
    return draft
