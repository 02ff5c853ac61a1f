"""Explains packets: those that were sent, by assembling them again from the moment that they show, and the next one.

It reads by itself and keeps nothing: rows that turns go on with are not touched. Source: architecture 4 (replay).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

from msgspec import Struct, field

from turnwright_assembler.app.assemble import Assembler
from turnwright_assembler.app.packet import PacketMessages
from turnwright_assembler.app.packet_pieces import Reduction, packet_pieces, problems_in, reductions
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.app.transcript_pieces import explained_transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.blocks import summarized
from turnwright_assembler.domain.compression import Compression, compression_in
from turnwright_assembler.domain.explanation import (
    Explanation,
    FittingStep,
    MessageOfPieces,
    all_aligned,
    first_difference,
    in_cached_order,
    place,
    prefix_break,
    texts_of,
    totals,
    with_edits,
)
from turnwright_assembler.domain.ladder import STEPS, Rung
from turnwright_assembler.ports import PastMoment, RunReader, ViewPart
from turnwright_core.delta_encoding import Copied
from turnwright_core.entries import Cursor, Entry
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.instructions import INSTRUCTION_PATHS, PROJECT_PATH
from turnwright_core.owner_calls import AssembleCall
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import tokens_of
from turnwright_kit.threads import DaemonThreadPool

CALLS_MAX: Final = 16
"""Explanations that wait while one is made: each reads all of a run."""


T = TypeVar("T")

_NOT_AGAIN: Final = frozenset(
    {
        Reason.TURN_NOT_FOUND, Reason.PLUGIN_FAILED, Reason.CURSOR_FOREIGN, Reason.PROMPT_MESSAGE_UNKNOWN,
        Reason.PROMPT_TARGET_MISSING, Reason.PROMPT_SHAPE_REFUSED,
    }
)  # fmt: skip
"""Why a packet that was sent cannot be assembled again: its bytes are explained as far as they go."""


class ExplainRequest(Struct, frozen=True):
    """The packet to explain: what was requested to assemble it, and the moment that it shows; None: now, or unknown."""

    packet: AssembleCall
    at: PastMoment | None
    is_sent: bool
    """Whether it was sent, so that its stored bytes are explained."""
    before_turn: int
    """The turn whose packet it is compared with; 0: none."""
    new: tuple[Entry, ...] = ()
    """What the turn would write when it begins."""


class Reassembled(Struct, frozen=True):
    """A packet as it is assembled now: its messages in pieces, its digest, and what was done so that it fits."""

    messages: Sequence[MessageOfPieces]
    digest: str
    tokens: int
    ceiling: int
    cursor: Cursor | None
    steps: tuple[FittingStep, ...]
    gaps: tuple[str, ...] = ()
    """Notes for the caller."""


class _Read(Struct):
    """What was read of a run besides its rows. Mutable."""

    instructions: dict[str, Entry] = field(default_factory=dict)
    reports: list[Compression] = field(default_factory=list)

    def note(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            if entry.path in INSTRUCTION_PATHS:
                self.instructions[entry.path] = entry
            elif report := compression_in(entry):
                self.reports.append(report)


_Made = tuple[list[MessageOfPieces], tuple[FittingStep, ...], Sequence[tuple[str, Sequence[Copied | str]]], str, int]
"""A packet or a transcript that was assembled again: its pieces, steps, messages, digest and tokens."""


class Explainer:
    """Explains packets; reads, and never writes."""

    def __init__(self, reader: RunReader, assembler: Assembler) -> None:
        self._reader = reader
        self._assembler = assembler
        self._lock = asyncio.Lock()
        self._threads = DaemonThreadPool("explain", 1)
        self._calls = 0

    async def explain(self, ask: ExplainRequest) -> Explanation:
        """What a packet consists of, and why. Raises TURN_NOT_FOUND if nothing is known about it, TurnwrightError."""
        packet = ask.packet
        async with self._turn():
            sent = await self._reader.read_packet(packet.project, packet.run, packet.turn) if ask.is_sent else ()
            gaps: list[str] = []
            again = await self._again(ask, gaps)
            if not sent and again is None:
                message = f"Turn {packet.turn} of {packet.run} has no packet any more, and its moment is not recorded."
                raise fault(Reason.TURN_NOT_FOUND, message, run=packet.run, turn=packet.turn)
            if ask.is_sent and not sent:
                gaps.append("The packet is not stored: it was never sent. This is what is assembled from its moment.")
            before: PacketMessages = ()
            if ask.before_turn:
                before = await self._reader.read_packet(packet.project, packet.run, ask.before_turn)
                if not before:
                    gaps.append(f"The packet of turn {ask.before_turn} is not stored, so prefixes are not compared.")
            return await self._off_loop(self._explained, ask, sent, again, before, gaps)

    async def _off_loop(self, work: Callable[..., T], *given: object) -> T:
        """Work in a thread: a packet that is not cached is assembled from scratch, and must not block turns.

        With plugins it is a step as any other, with its deadline.
        """
        if self._assembler.packet_plugins.plugins:
            return await self._assembler.runner.run(work, *given)
        return await self._threads.run(work, *given)

    async def _again(self, ask: ExplainRequest, gaps: list[str]) -> Reassembled | None:
        """The packet assembled again; None if that is not possible: `gaps` then has the reason."""
        if ask.is_sent and ask.at is None:
            gaps.append("The moment that the packet shows is not recorded, so it cannot be assembled again.")
            return None
        try:
            return await self._assembled(ask)
        except TurnwrightError as error:
            if not ask.is_sent or error.reason not in _NOT_AGAIN:
                raise
            gaps.append(f"It cannot be assembled again: {error}")
            return None

    async def _assembled(self, ask: ExplainRequest) -> Reassembled:
        packet, run, read = ask.packet, self._assembler.runner.run, _Read()
        rows: RunRows | TranscriptRows = TranscriptRows()
        if not packet.transcript:
            rows = await run(RunRows, self._assembler.rules.token_divisor, self._assembler.packet_plugins)
        parts = self._reader.read_at(packet.project, packet.run, ask.at, messages=packet.transcript)
        async with aclosing(parts):
            async for part in parts:
                await run(rows.apply, part)
                read.note(part.entries)
        if rows.cursor is None:
            raise fault(Reason.SERVICE_UNAVAILABLE, "The store's answer ended early; retry.", service="store")
        await run(rows.apply, ViewPart(ask.new, (), None))
        read.note(ask.new)
        return await self._off_loop(self._reassembled, packet, rows, read)

    def _reassembled(self, packet: AssembleCall, rows: RunRows | TranscriptRows, read: _Read) -> Reassembled:
        if isinstance(rows, TranscriptRows):
            pieces, steps, sent, digest, tokens = self._transcript(packet, rows)
        else:
            pieces, steps, sent, digest, tokens = self._packet(packet, rows, read)
        if packet.edits:
            pieces = with_edits(texts_of(sent), pieces, packet.edits)
        problems = tuple(f"Not read as instructions: {one}" for one in problems_in(read.instructions.get(PROJECT_PATH)))
        ceiling = self._assembler.ceiling(packet)
        return Reassembled(pieces, digest, tokens, ceiling, rows.cursor, steps, problems)

    def _packet(self, packet: AssembleCall, rows: RunRows, read: _Read) -> _Made:
        folded, _, climbed, _ = self._assembler.fit(packet, rows)
        demoted = frozenset(climbed.demoted)
        whole = folded.blocks if folded else rows.ordered()
        blocks = tuple(summarized(block) if block.path in demoted else block for block in whole)
        touched = {block.path: block.turn for block in blocks}
        reports = sorted(read.reports, key=lambda report: (report.turn, STEPS[Rung.TURN] in report.stages))
        past = reductions(reports).items()
        reduced = {path: one for path, one in past if touched.get(path, one.turn + 1) <= one.turn}
        for step in climbed.steps:
            reduced |= {path: Reduction(STEPS[step.rung], packet.turn) for path in step.demoted if path in demoted}
        steps = [FittingStep(STEPS[step.rung], step.demoted, step.tokens, step.excess) for step in climbed.steps]
        if folded and folded.gone:
            steps.insert(0, FittingStep("fold", tuple(sorted(folded.gone))))
        composed = climbed.packet
        pieces = packet_pieces(composed, blocks, self._assembler.packet_plugins, read.instructions, reduced)
        sent, added = self._assembler.sent(packet, composed)
        tokens = composed.tokens + tokens_of(added, self._assembler.rules.token_divisor)
        return pieces, tuple(steps), sent, packet_digest(sent), tokens

    def _transcript(self, packet: AssembleCall, rows: TranscriptRows) -> _Made:
        made = self._assembler.fit_transcript(packet, rows)
        segments = self._assembler.fit_transcript(packet, rows, is_draft=True).segments
        plugins, divisor = self._assembler.packet_plugins, self._assembler.rules.token_divisor
        pieces, steps = explained_transcript(packet.turn, made, segments, rows, plugins, divisor)
        return pieces, steps, made.messages, made.digest, made.tokens + made.edit_tokens

    def _explained(
        self,
        ask: ExplainRequest,
        sent: PacketMessages,
        again: Reassembled | None,
        before: PacketMessages,
        gaps: list[str],
    ) -> Explanation:
        divisor = self._assembler.rules.token_divisor
        messages = again.messages if again else ()
        stored_digest = packet_digest(sent) if sent else ""
        if sent and (again is None or again.digest != stored_digest):
            if again:
                where = first_difference(texts_of(sent), messages)
                gaps.append(f"Assembled again it is another packet than the one that was sent, first at {where}.")
            messages = all_aligned(texts_of(sent), messages)
        placed = place(in_cached_order(messages), divisor)
        prefix = prefix_break(ask.before_turn, texts_of(before), placed, divisor) if before else None
        return Explanation(
            tokens=again.tokens if again and not sent else sum(one.tokens for one in placed),
            ceiling=again.ceiling if again else self._assembler.ceiling(ask.packet),
            bytes=sum(one.bytes for one in placed),
            digest=again.digest if again else "",
            stored_digest=stored_digest,
            cursor=again.cursor if again else None,
            kinds=totals(placed),
            steps=again.steps if again else (),
            prefix=prefix,
            pieces=placed,
            gaps=(*gaps, *(again.gaps if again else ())),
        )

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One explanation after the other. Raises QUEUE_FULL."""
        if self._calls > CALLS_MAX:
            message = "Too many packets are being explained at once; retry when one is done."
            raise fault(Reason.QUEUE_FULL, message, queue="explain", limit=CALLS_MAX)
        self._calls += 1
        try:
            async with self._lock:
                yield
        finally:
            self._calls -= 1
