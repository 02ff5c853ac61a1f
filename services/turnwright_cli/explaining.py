"""`explain` and `replay`: why a packet is as it is, and whether stored turns are still assembled to the same bytes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, to_builtins
from rich.console import Console
from turnwright.types.v1 import explanation_pb2 as pb

from turnwright_cli.exit_codes import DIFFERENT, DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, console, put, show_lines, show_table, write_line
from turnwright_cli.packet_picture import (
    FORMS,
    PIECES_SHOWN,
    budget_words,
    change_words,
    heading,
    picture,
    scaled,
    words_of,
)
from turnwright_cli.plain import safe_line
from turnwright_cli.run_list import open_run
from turnwright_cli.status_line import StatusLine
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import EXPLAINED_PIECES_MAX

WIDTH_MIN: Final = 20


async def explain(call: Invocation, *, run: str, turn: int, following: bool, full: bool) -> int:
    if following and turn:
        raise usage("--next previews the turn that comes next: leave out TURN.")
    async with open_run(call, run, "assembler", reads=not following) as (client, project, found):
        run = found.run
        if following:
            explanation = await client.preview_packet(project, run, EXPLAINED_PIECES_MAX)
        else:
            explanation = await client.explain_packet(project, run, turn, EXPLAINED_PIECES_MAX)
    if call.as_json:
        return show_lines([explanation])
    out = console()
    if not out.is_terminal:
        _show_plain(run, explanation)
        return DONE
    width = max(WIDTH_MIN, out.width)
    most = len(explanation.pieces) if full else PIECES_SHOWN
    for line in picture(run, explanation, width, pieces_max=most, styled=not out.no_color, full=full):
        put(out, line)
    return DONE


def _show_plain(run: str, explanation: pb.PacketExplanation) -> None:
    explanation = scaled(explanation)
    for sentence in (heading(run, explanation), budget_words(explanation), *change_words(explanation)):
        write_line(safe_line(sentence))
    by_size = sorted(explanation.pieces, key=lambda piece: (-piece.tokens, -piece.whole_tokens, piece.begin))
    show_table(_PIECES, by_size)


_PIECES: Final[Sequence[Column[pb.ExplainedPiece]]] = (
    Column("tokens", lambda piece: str(piece.tokens)),
    Column("kind", lambda piece: words_of(piece.kind).name),
    Column("section", lambda piece: piece.section),
    Column("path", lambda piece: piece.path),
    Column("form", lambda piece: FORMS.get(piece.form, "whole")),
    Column("reduced by", lambda piece: piece.reduced_by),
    Column("in turn", lambda piece: str(piece.reduced_in_turn or "")),
    Column("begin", lambda piece: str(piece.begin)),
    Column("bytes", lambda piece: str(piece.bytes)),
    Column("why", lambda piece: piece.why),
    Column("whole", lambda piece: str(piece.whole_tokens or "")),
    Column("healed", lambda piece: piece.healed),
)


class ReplayCounts(Struct):
    """How many turns were compared. Mutable: counted turn by turn, nothing else is kept of them."""

    turns: int
    compared: int = 0
    equal: int = 0
    different: int = 0
    not_stored: int = 0

    def progress(self) -> str:
        return f"turn {self.compared + 1} of {self.turns}"

    def count(self, explanation: pb.PacketExplanation | None) -> bool:
        """Count a turn; returns whether its packet is the same."""
        same = explanation is not None and bool(explanation.digest) and explanation.digest == explanation.stored_digest
        self.compared += 1
        self.equal += same
        self.not_stored += explanation is None
        self.different += explanation is not None and not same
        return same


async def replay(call: Invocation, *, run: str) -> int:
    async with open_run(call, run, "assembler", reads=True) as (client, project, found):
        run = found.run
        counts = ReplayCounts(found.turn)
        status = StatusLine(Console(file=sys.stderr))
        try:
            for turn in range(1, counts.turns + 1):
                status.counting(counts.progress)
                explanation = await _explained(client, project, run, turn)
                if not counts.count(explanation):
                    status.clear()
                    _show_turn(turn, explanation, as_json=call.as_json)
        finally:
            status.clear()
    if call.as_json:
        write_line(json.dumps(to_builtins(counts)))
    else:
        write_line(_counted(run, counts))
    return DIFFERENT if counts.different else DONE


def _counted(run: str, counts: ReplayCounts) -> str:
    left_out = f", {counts.not_stored} without a stored packet" if counts.not_stored else ""
    same = f"{counts.equal} of {counts.turns} packets are the same"
    return f"{safe_line(run)}: {same}, {counts.different} differ{left_out}."


async def _explained(client: Client, project: str, run: str, turn: int) -> pb.PacketExplanation | None:
    """A turn without its pieces; None if nothing of its packet is stored."""
    try:
        return await client.explain_packet(project, run, turn, 0)
    except TurnwrightError as error:
        if error.reason is not Reason.TURN_NOT_FOUND:
            raise
        return None


def _show_turn(turn: int, explanation: pb.PacketExplanation | None, *, as_json: bool) -> None:
    gaps = list(explanation.gaps) if explanation else ["No packet of it is stored."]
    if as_json:
        digests = {"digest": explanation.digest, "stored_digest": explanation.stored_digest} if explanation else {}
        write_line(json.dumps({"turn": turn, **digests, "why": gaps}))
    else:
        write_line(f"turn {turn}: {' '.join(map(safe_line, gaps))}")
