"""Explains packets: those that were sent, by assembling them again from the moment that they show, and the next one.

The bytes are those of the stored packet, and composing them again says where each piece comes from. If both are equal,
each piece explains its bytes. If not, as after an upgrade, the pieces are searched for in the stored packet, and the
text between them is left unexplained. It reads by itself and keeps nothing: rows that turns go on with are not touched.
Source: architecture 4 (replay).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from os.path import commonprefix
from typing import Final, TypeVar

from msgspec import Struct
from turnwright.assembler.v1.assembler_service_pb2 import ExplainRequest
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright_values.assembler import AssembleRequest
from turnwright_values.types import Cursor, Entry

from turnwright_assembler.app.assemble import Assembler
from turnwright_assembler.app.packet import PacketMessages
from turnwright_assembler.app.provenance import (
    STEP_KINDS,
    Piece,
    Pieces,
    all_aligned,
    of_edits,
    of_nothing_known,
    packet_pieces,
    reductions,
    transcript_pieces,
)
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.blocks import summarized
from turnwright_assembler.domain.compression import compression_in
from turnwright_assembler.domain.ladder import STEPS, Rung
from turnwright_assembler.ports import RunReader, ViewPart
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.instructions import PROJECT_PATH
from turnwright_core.limits import PAGE_BYTES_MAX
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import tokens_of
from turnwright_core.wire.entries import cursor_to_pb
from turnwright_kit.threads import DaemonThreadPool

CALLS_MAX: Final = 16
"""Explanations that wait while one is made: each reads all of a run."""

STEP_PATHS_MAX: Final = 100
"""Paths that a step lists."""

_PIECE_BYTES: Final = 4
"""Overhead of a piece on the wire, besides its fields."""

_ORDER: Final = {"tools": 0, "system": 1}
"""Messages in the order in which vendors cache them; the others follow as they are."""

_NOT_AGAIN: Final = frozenset(
    {
        Reason.TURN_NOT_FOUND, Reason.PLUGIN_FAILED, Reason.CURSOR_FOREIGN, Reason.PROMPT_MESSAGE_UNKNOWN,
        Reason.PROMPT_TARGET_MISSING, Reason.PROMPT_SHAPE_REFUSED,
    }
)  # fmt: skip
"""Why a packet that was sent cannot be assembled again: its bytes are explained as far as they go."""

T = TypeVar("T")
M = TypeVar("M")


class Reassembled(Struct, frozen=True):
    """A packet as it is assembled now, in its pieces, with what was done so that it fits."""

    messages: Pieces
    steps: Sequence[pb.PacketStep]
    sent: PacketMessages
    """As it would be sent."""
    tokens: int
    cursor: Cursor | None
    gaps: Sequence[str]
    """What the caller should know."""


class Explainer:
    """Explains packets; reads, and never writes."""

    def __init__(self, reader: RunReader, assembler: Assembler) -> None:
        self._reader = reader
        self._assembler = assembler
        self._lock = asyncio.Lock()
        self._threads = DaemonThreadPool("explain", 1)
        self._calls = 0

    async def explain(
        self, request: ExplainRequest, packet: AssembleRequest, new: Sequence[Entry] = ()
    ) -> pb.PacketExplanation:
        """What a packet consists of, and why; `new` is what its turn would write when it begins.

        Raises TURN_NOT_FOUND if nothing is known about it, TurnwrightError.
        """
        async with self._turn():
            read, gaps = partial(self._reader.read_packet, packet.project, packet.run), list[str]()
            sent = await read(packet.turn) if request.sent else ()
            again = await self._again(request, packet, new, gaps)
            if not sent and again is None:
                message = f"Turn {packet.turn} of {packet.run} has no packet any more, and its moment is not recorded."
                raise fault(Reason.TURN_NOT_FOUND, message, run=packet.run, turn=packet.turn)
            if request.sent and not sent:
                gaps.append("The packet is not stored: it was never sent. This is what is assembled from its moment.")
            before = await read(request.before_turn) if request.before_turn else ()
            if request.before_turn and not before:
                gaps.append(f"The packet of turn {request.before_turn} is not stored, so prefixes are not compared.")
            return await self._off_loop(self._explained, request, packet, sent, again, before, gaps)

    async def _off_loop(self, work: Callable[..., T], *given: object) -> T:
        """Work in a thread: a packet that is not cached is assembled from scratch, and must not block turns.

        With plugins it is a step as any other, with its deadline.
        """
        if self._assembler.packet_plugins.plugins:
            return await self._assembler.runner.run(work, *given)
        return await self._threads.run(work, *given)

    async def _again(
        self, request: ExplainRequest, packet: AssembleRequest, new: Sequence[Entry], gaps: list[str]
    ) -> Reassembled | None:
        """The packet assembled again; None if that is not possible: `gaps` then has the reason."""
        if request.sent and not request.HasField("at"):
            gaps.append("The moment that the packet shows is not recorded, so it cannot be assembled again.")
            return None
        rows: RunRows | TranscriptRows = TranscriptRows()
        run, entries = self._assembler.runner.run, dict[str, Entry]()
        try:
            if not packet.transcript:
                rows = await run(RunRows, self._assembler.rules.token_divisor, self._assembler.packet_plugins)
            at = request.at if request.HasField("at") else None
            async with aclosing(
                self._reader.read_at(packet.project, packet.run, at, messages=packet.transcript)
            ) as parts:
                async for part in parts:
                    await run(rows.apply, part)
                    entries |= {entry.path: entry for entry in part.entries}
            if rows.cursor is None:
                raise fault(Reason.SERVICE_UNAVAILABLE, "The store's answer ended early; retry.", service="store")
            await run(rows.apply, ViewPart(tuple(new), (), None))
            entries |= {entry.path: entry for entry in new}
            return await self._off_loop(self._composed, packet, rows, entries)
        except TurnwrightError as error:
            if not request.sent or error.reason not in _NOT_AGAIN:
                raise
            gaps.append(f"It cannot be assembled again: {error.message}")
            return None

    def _composed(
        self, packet: AssembleRequest, rows: RunRows | TranscriptRows, entries: dict[str, Entry]
    ) -> Reassembled:
        if isinstance(rows, TranscriptRows):
            pieces, steps, sent, tokens = self._transcript(packet, rows)
        else:
            pieces, steps, sent, tokens = self._packet(packet, rows, entries)
        if packet.edits:
            pieces = all_aligned(_texts(sent), pieces, partial(of_edits, packet.edits))
        files = entries[PROJECT_PATH].attributes.get("files", ()) if PROJECT_PATH in entries else ()
        gaps = [f"Not read as instructions: {file['problem']}" for file in files if file.get("problem")]
        return Reassembled(pieces, steps, sent, tokens, rows.cursor, gaps)

    def _packet(
        self, packet: AssembleRequest, rows: RunRows, entries: dict[str, Entry]
    ) -> tuple[Pieces, list[pb.PacketStep], PacketMessages, int]:
        folded, _, climbed, _ = self._assembler.fit(packet, rows)
        demoted = frozenset(climbed.demoted)
        blocks = [
            summarized(block) if block.path in demoted else block
            for block in (folded.blocks if folded else rows.ordered())
        ]
        touched = {block.path: block.turn for block in blocks}
        reports = [report for entry in entries.values() if (report := compression_in(entry))]
        past = reductions(sorted(reports, key=lambda report: (report.turn, STEPS[Rung.TURN] in report.stages)))
        reduced = {path: one for path, one in past.items() if touched.get(path, 0) <= one["reduced_in_turn"]}
        steps = [_step("fold", sorted(folded.gone))] if folded and folded.gone else []
        for step in climbed.steps:
            steps.append(_step(STEPS[step.rung], step.demoted, step.tokens, step.excess))
            one = {"reduced_by": STEP_KINDS[STEPS[step.rung]], "reduced_in_turn": packet.turn}
            reduced |= {path: one for path in step.demoted if path in demoted}
        pieces = packet_pieces(climbed.packet, blocks, self._assembler.packet_plugins, entries, reduced)
        sent, added = self._assembler.sent(packet, climbed.packet)
        return pieces, steps, sent, climbed.packet.tokens + tokens_of(added, self._assembler.rules.token_divisor)

    def _transcript(
        self, packet: AssembleRequest, rows: TranscriptRows
    ) -> tuple[Pieces, list[pb.PacketStep], PacketMessages, int]:
        made = self._assembler.fit_transcript(packet, rows)
        plugins, divisor = self._assembler.packet_plugins, self._assembler.rules.token_divisor
        steps = [_step("restored", made.restored)] if made.restored else []
        steps += [_step(stage, paths) for stage, paths in (made.evicted.stages if made.evicted else {}).items()]
        pieces = transcript_pieces(packet.turn, made, rows, plugins, divisor)
        sent = [(role, [part for part in parts if isinstance(part, str)]) for role, parts in made.messages]
        return pieces, steps, sent, made.tokens + made.edit_tokens

    def _explained(
        self,
        request: ExplainRequest,
        packet: AssembleRequest,
        sent: PacketMessages,
        again: Reassembled | None,
        before: PacketMessages,
        gaps: list[str],
    ) -> pb.PacketExplanation:
        divisor = self._assembler.rules.token_divisor
        messages = again.messages if again else []
        digest, stored_digest = (packet_digest(one) if one else "" for one in (again.sent if again else (), sent))
        if sent and digest != stored_digest:
            if again:
                common, origin = _common(messages, sent)
                texts = "".join(text for _, text in _texts(sent)).encode()
                end = "its end" if len(common) < len(texts) else "the borders of its messages"
                where = (origin.path or f"<{origin.section}>") if origin else end
                gaps.append(f"Assembled again it is another packet than the one that was sent, first at {where}.")
            messages = all_aligned(_texts(sent), messages, of_nothing_known)
        placed = place(messages, divisor)
        kept = _largest(placed, request.pieces_max)
        shown = [placed[index] for index in kept]
        return pb.PacketExplanation(
            tokens=again.tokens if again and not sent else sum(one.tokens for one in placed),
            ceiling=self._assembler.ceiling(packet),
            bytes=sum(one.bytes for one in placed),
            digest=digest,
            stored_digest=stored_digest,
            render_version=self._assembler.packet_plugins.render_version,
            cursor=cursor_to_pb(again.cursor) if again and again.cursor else None,
            kinds=_totals(placed),
            steps=again.steps if again else (),
            prefix=_prefix_break(request.before_turn, messages, before, divisor) if before else None,
            pieces=shown,
            pieces_left_out=len(placed) - len(kept),
            tokens_left_out=sum(one.tokens for one in placed) - sum(one.tokens for one in shown),
            gaps=[*gaps, *(again.gaps if again else ())],
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


def _step(word: str, paths: Sequence[str], tokens: int = 0, excess: int = 0) -> pb.PacketStep:
    return pb.PacketStep(
        kind=STEP_KINDS[word],
        entries=len(paths),
        tokens=tokens,
        excess=excess,
        paths=paths[:STEP_PATHS_MAX],
    )


def _texts(messages: PacketMessages) -> list[tuple[str, str]]:
    return [(role, "".join(pieces)) for role, pieces in messages]


def _in_cached_order(messages: Iterable[tuple[str, M]]) -> list[M]:
    return [content for _, content in sorted(messages, key=lambda message: _ORDER.get(message[0], len(_ORDER)))]


def place(messages: Pieces, divisor: int) -> list[pb.ExplainedPiece]:
    """The pieces at their places, in the order of caching. Tokens of a message's pieces add up to its own."""
    placed: list[pb.ExplainedPiece] = []
    begin = 0
    for pieces in _in_cached_order(messages):
        chars = 0
        for piece in pieces:
            before, chars = tokens_of(chars, divisor), chars + len(piece.text)
            size, tokens = len(piece.text.encode()), tokens_of(chars, divisor) - before
            one = pb.ExplainedPiece(begin=begin, bytes=size, tokens=tokens)
            one.MergeFrom(piece.origin)
            placed.append(one)
            begin += size
    return placed


def _common(messages: Pieces, other: PacketMessages) -> tuple[bytes, pb.ExplainedPiece | None]:
    """What both packets begin with, and where the piece after that comes from, if there is one."""
    pieces: list[Piece] = [piece for pieces in _in_cached_order(messages) for piece in pieces]
    ours = "".join([piece.text for piece in pieces]).encode()
    theirs = "".join(_in_cached_order(_texts(other))).encode()
    length = len(commonprefix([ours, theirs]))  # noqa: RUF071 - bytes, and no paths
    end = 0
    for piece in pieces:
        end += len(piece.text.encode())
        if end > length:
            return ours[:length], piece.origin
    return ours[:length], None


def _prefix_break(before_turn: int, messages: Pieces, before: PacketMessages, divisor: int) -> pb.PrefixBreak:
    """Where these pieces leave the packet of an earlier turn."""
    common, origin = _common(messages, before)
    tokens = tokens_of(len(common.decode(errors="ignore")), divisor)
    found = pb.PrefixBreak(before_turn=before_turn, bytes=len(common), tokens=tokens)
    if origin:
        found.path, found.kind, found.section = origin.path, origin.kind, origin.section
    return found


def _totals(pieces: Iterable[pb.ExplainedPiece]) -> list[pb.KindTotal]:
    """By kind, the one with the most tokens first."""
    tokens: defaultdict[pb.PieceKind.ValueType, list[int]] = defaultdict(list)
    for one in pieces:
        tokens[one.kind].append(one.tokens)
    found = [pb.KindTotal(kind=kind, pieces=len(each), tokens=sum(each)) for kind, each in tokens.items()]
    return sorted(found, key=lambda total: (-total.tokens, total.kind))


def _largest(pieces: Sequence[pb.ExplainedPiece], most: int) -> list[int]:
    """The places of the largest pieces that an answer may have: at most `most`, and PAGE_BYTES_MAX bytes."""
    kept: list[int] = []
    room = PAGE_BYTES_MAX
    for index in sorted(range(len(pieces)), key=lambda index: (-pieces[index].tokens, index))[:most]:
        room -= pieces[index].ByteSize() + _PIECE_BYTES
        if room < 0:
            break
        kept.append(index)
    return sorted(kept)
