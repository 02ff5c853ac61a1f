"""Composes a packet: joins the sections, and settles the figures that count themselves.

`tokenUsage` is part of the text whose tokens it gives. It is increased until the text takes no more than it says; if
the last increase made another figure shorter, spaces at the end of the budget compensate. So the figures are exact to
the token, and the same input gives the same bytes. Source: RU180, RU183, RU208; decisions C15, C23.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.domain.blocks import Block, Figures
from turnwright_assembler.sections import BlockIndex, PacketDraft, indexed
from turnwright_assembler.sections.plugin_sections import (
    NO_ADDITIONS,
    PacketPlugins,
    PluginPacketFilter,
    RunPacketPlugins,
)
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import count_tokens, tokens_of

ROUNDS_MAX: Final = 16
"""Maximum number of rounds for settling the figures."""

PIECE_CHARS_MAX: Final = (CHUNK_BYTES - 64) // 4
"""Maximum length of a piece in code points: at four bytes each it fits into one part of an answer."""


class ComposedPacket(Struct, frozen=True):
    """A packet: the two messages in pieces, and their cost."""

    system: str
    pieces: tuple[str, ...]
    """The pieces of the user message."""
    figures: Figures
    prompt: Block | None
    tools: str = ""
    """Tool definitions for native calls; empty: none."""

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
    additions: RunPacketPlugins = NO_ADDITIONS,
    tools: str = "",
    index: BlockIndex | None = None,
    project: str = "",
) -> ComposedPacket:
    """Compose the packet of a loop's next turn, from blocks in order, with plugins' additions. Raises PLUGIN_FAILED.

    `index` is that of the blocks, if the caller has one; `project` the section with the project's instructions.
    """
    draft, plan = _drafted(blocks, system, loop, ceiling, divisor, additions, tools, index, project)
    return ComposedPacket(system, tuple(_pieces(draft, plan)), draft.figures, draft.prompt, tools)


def draft_of(
    blocks: tuple[Block, ...],
    system: str,
    loop: int,
    ceiling: int,
    divisor: int,
    additions: RunPacketPlugins = NO_ADDITIONS,
    tools: str = "",
    project: str = "",
) -> PacketDraft:
    """The input of the sections of the same packet, with final figures."""
    return _drafted(blocks, system, loop, ceiling, divisor, additions, tools, None, project)[0]


def _drafted(
    blocks: tuple[Block, ...],
    system: str,
    loop: int,
    ceiling: int,
    divisor: int,
    additions: RunPacketPlugins,
    tools: str,
    index: BlockIndex | None,
    project: str,
) -> tuple[PacketDraft, _Plan]:
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
        project=project,
    )
    plan = _plan(draft, additions.packet_plugins)
    return _settled(draft, plan, divisor), plan


class _Plan(Struct, frozen=True):
    """The steps of the user message, and their output if it does not depend on the figures; otherwise None."""

    packet_plugins: PacketPlugins
    fixed: tuple[Sequence[str] | None, ...]
    still: int
    """Code points of the fixed parts."""


def _plan(draft: PacketDraft, packet_plugins: PacketPlugins) -> _Plan:
    fixed = tuple(
        None if isinstance(step, PluginPacketFilter) or step.is_live else step.render(draft)
        for step in packet_plugins.steps
    )
    return _Plan(packet_plugins, fixed, sum(sum(map(len, pieces)) for pieces in fixed if pieces))


def _pieces(draft: PacketDraft, plan: _Plan) -> list[str]:
    """The pieces of all sections; live ones are rendered from this draft. The last one has no newline at its end."""
    pieces: list[str] = []
    for step, rendered in zip(plan.packet_plugins.steps, plan.fixed, strict=True):
        if isinstance(step, PluginPacketFilter):
            pieces = step.changed(pieces, draft)
        else:
            pieces += step.render(draft) if rendered is None else rendered
    pieces[-1] = pieces[-1].removesuffix("\n")
    return pieces


def _chars(draft: PacketDraft, plan: _Plan) -> int:
    """Code points of the message, without the newline at the end of the last section."""
    if plan.packet_plugins.has_filters:
        return sum(map(len, _pieces(draft, plan)))
    live = (step for step in plan.packet_plugins.steps if not isinstance(step, PluginPacketFilter) and step.is_live)
    return plan.still + sum(len(piece) for step in live for piece in step.render(draft)) - 1


def _settled(draft: PacketDraft, plan: _Plan, divisor: int) -> PacketDraft:
    """The draft with figures that match its own text."""
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
            Reason.PLUGIN_FAILED,
            message,
            plugin=" ".join(plan.packet_plugins.plugins),
            part="assembly.user",
            error_id="",
        )
    if needed < usage:
        draft = replace(draft, filler=" " * ((usage - draft.system_tokens) * divisor - chars))
    return draft
