"""Composes a packet: joins the sections, and settles the figures that count themselves.

`tokenUsage` is part of the text whose tokens it gives. It is increased until the text takes no more than it says; if
the last increase made another figure shorter, spaces at the end of the budget compensate. So the figures are exact to
the token, and the same input gives the same bytes. Source: RU180, RU183, RU208; decisions C15, C23.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_assembler.domain.blocks import Block, Figures
from turnwright_assembler.sections import BlockIndex, PacketDraft, Section, indexed
from turnwright_assembler.sections.built_in import budget_table
from turnwright_assembler.sections.plugin_sections import (
    NO_ADDITIONS,
    PacketPlugins,
    RunPacketPlugins,
)
from turnwright_core.delta_encoding import Copied, DeltaEncoder, common_run_length
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.packet_digest import MessageDigest, joined_digest, piece_digest
from turnwright_core.text import count_tokens, tokens_of

ROUNDS_MAX: Final = 16
"""Maximum number of rounds for settling the figures."""

PIECE_CHARS_MAX: Final = (CHUNK_BYTES - 64) // 4
"""Maximum length of a piece in code points: at four bytes each it fits into one part of an answer."""


PacketMessages = Sequence[tuple[str, Sequence[str]]]
"""Roles, each with the pieces of its message."""


MessagesDelta = tuple[tuple[str, tuple[Copied | str, ...]], ...]
"""Roles, each with the pieces of its message; copied pieces are those of another packet."""


class _SentMessage(Struct):
    """A message that was sent: its pieces with their digests. Mutable."""

    pieces: list[str] = field(default_factory=list)
    _digests: list[bytes] = field(default_factory=list)
    _digest: MessageDigest = field(default_factory=MessageDigest)

    def replace(self, pieces: Sequence[str], begin: int) -> tuple[Iterable[Copied | str], str]:
        """Send these pieces: as a delta of those before, whose first one has this index, with their digest."""
        # A slice of a list equals none of a tuple.
        same = common_run_length(list(pieces), self.pieces)
        new, known = pieces[same:], self._digests[same:]
        parts = DeltaEncoder(self.pieces[same:]).encode(new)
        del self.pieces[same:], self._digests[same:]
        self.pieces += new
        delta: list[Copied | str] = [Copied(begin, same)] if same else []
        for part in parts:
            if isinstance(part, str):
                self._digests.append(piece_digest(part))
                delta.append(part)
            else:
                self._digests += known[part.first : part.first + part.count]
                delta.append(Copied(begin + same + part.first, part.count))
        return delta, self._digest.digest(self._digests, same)


class SentPacket:
    """The packet that was sent last for a run. Mutable."""

    def __init__(self) -> None:
        self.digest = ""
        self._messages: dict[tuple[str, int], _SentMessage] = {}
        """By role, and the number of earlier ones of that role."""

    def replace(self, messages: PacketMessages, base_digest: str) -> MessagesDelta:
        """Send these messages: as a delta of those before if that is the named base, else whole."""
        is_delta = base_digest and base_digest == self.digest
        before, self._messages = self._messages, {}
        begins = dict(zip(before, accumulate((len(one.pieces) for one in before.values()), initial=0), strict=False))
        delta: list[tuple[str, tuple[Copied | str, ...]]] = []
        digests: list[tuple[str, str]] = []
        for role, pieces in messages:
            key = role, sum(other == role for other, _ in delta)
            message = self._messages[key] = before.get(key) or _SentMessage()
            parts, digest = message.replace(pieces, begins.get(key, 0))
            delta.append((role, tuple(parts if is_delta else pieces)))
            digests.append((role, digest))
        self.digest = joined_digest(digests)
        return tuple(delta)


class ComposedPacket(Struct, frozen=True):
    """A packet: the two messages in pieces, and their cost."""

    system: str
    pieces: tuple[str, ...]
    """The pieces of the user message."""
    draft: PacketDraft
    """What its sections were rendered from."""
    user_chars: int
    """Code points of the user message."""
    tools: str = ""
    """Tool definitions for native calls; empty: none."""

    @property
    def user(self) -> str:
        return "".join(self.pieces)

    @property
    def messages(self) -> PacketMessages:
        """Its messages, with no piece longer than PIECE_CHARS_MAX."""
        tools = [("tools", short_pieces((self.tools,)))] if self.tools else []
        return (("system", short_pieces((self.system,))), ("user", short_pieces(self.pieces)), *tools)

    @property
    def chars(self) -> int:
        """Code points of all messages."""
        return len(self.system) + len(self.tools) + self.user_chars

    @property
    def prompt(self) -> Block | None:
        return self.draft.prompt

    @property
    def figures(self) -> Figures:
        return self.draft.figures

    @property
    def tokens(self) -> int:
        return self.draft.figures.usage


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
    index = index or indexed(blocks)
    system_tokens = count_tokens(system, divisor) + count_tokens(tools, divisor)
    draft = PacketDraft(
        index=index,
        prompt=index.activate(loop),
        budget_table=budget_table(index.counts, system_tokens, ceiling),
        system_tokens=system_tokens,
        ceiling=ceiling,
        loop=loop,
        entries=additions.shown(blocks),
        kept=additions.kept,
        is_native=bool(tools),
        project=project,
    )
    steps = _Steps(draft, additions.packet_plugins)
    draft, chars = _settled(draft, steps, divisor)
    return ComposedPacket(system, tuple(steps.pieces(draft)), draft, chars, tools)


class _Steps:
    """The steps of a user message, with the pieces of those that do not show the figures."""

    def __init__(self, draft: PacketDraft, packet_plugins: PacketPlugins) -> None:
        self._steps = packet_plugins.steps
        self.plugins = packet_plugins.plugins
        self._sections = [step for step in self._steps if isinstance(step, Section)]
        self._has_filters = len(self._sections) < len(self._steps)
        live = draft.live
        self._live = [section for section in self._sections if section.tag in live]
        self._fixed = [
            None if self._has_filters or section.tag in live else section.render(draft) for section in self._sections
        ]
        self._fixed_chars = sum(map(len, chain.from_iterable(filter(None, self._fixed)))) - len("\n")

    def pieces(self, draft: PacketDraft) -> list[str]:
        """The pieces of all sections, those with figures as this draft has them. No newline is at the end."""
        pieces: list[str] = []
        if self._has_filters:
            for step in self._steps:
                pieces = [*pieces, *step.render(draft)] if isinstance(step, Section) else step.changed(pieces, draft)
        else:
            for section, fixed in zip(self._sections, self._fixed, strict=True):
                pieces += section.render(draft) if fixed is None else fixed
        pieces[-1] = pieces[-1].removesuffix("\n")
        return pieces

    def chars(self, draft: PacketDraft) -> int:
        if self._has_filters:
            return sum(map(len, self.pieces(draft)))
        return self._fixed_chars + sum([len(piece) for section in self._live for piece in section.render(draft)])


def _settled(draft: PacketDraft, steps: _Steps, divisor: int) -> tuple[PacketDraft, int]:
    """The draft with figures that match its own text, and the code points of that."""
    usage = 0
    for _ in range(ROUNDS_MAX):
        draft = replace(draft, figures=Figures(usage, max(0, draft.ceiling - usage)))
        chars = steps.chars(draft)
        needed = draft.system_tokens + tokens_of(chars, divisor)
        if needed <= usage:
            break
        usage = needed
    else:
        # Digits settle in a few rounds; only a filter can make text that grows with its own figures.
        message = "The filters of plugins make a packet that grows with its own figures: no packet is made."
        raise fault(Reason.PLUGIN_FAILED, message, plugin=" ".join(steps.plugins), part="assembly.user", error_id="")
    if needed < usage:
        draft = replace(draft, filler=" " * ((usage - draft.system_tokens) * divisor - chars))
        chars = steps.chars(draft)
    return draft, chars
