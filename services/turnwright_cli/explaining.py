"""`explain` and `replay`: why a packet is as it is, and whether stored turns are still assembled to the same bytes."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct
from rich.console import Console
from rich.text import Text
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright.types.v1 import settings_pb2

from turnwright_cli.exit_codes import DIFFERENT, DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, console, enum_word, put, show_lines, show_table, write_line
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
    Column("reduced by", lambda piece: enum_word(pb.PacketStepKind.DESCRIPTOR, piece.reduced_by)),
    Column("in turn", lambda piece: str(piece.reduced_in_turn or "")),
    Column("begin", lambda piece: str(piece.begin)),
    Column("bytes", lambda piece: str(piece.bytes)),
    Column("why", lambda piece: piece.why),
    Column("whole", lambda piece: str(piece.whole_tokens or "")),
    Column("healed", lambda piece: piece.healed),
)


async def replay(call: Invocation, *, run: str) -> int:
    async with open_run(call, run, "assembler", reads=True) as (client, project, found):
        run = found.run
        counts = {"turns": found.turn, "compared": 0, "equal": 0, "different": 0, "not_stored": 0}
        status = StatusLine(Console(file=sys.stderr))
        try:
            for turn in range(1, found.turn + 1):
                status.counting(lambda: f"turn {counts['compared'] + 1} of {counts['turns']}")
                explanation = await _explained(client, project, run, turn)
                kind = "different" if explanation else "not_stored"
                if explanation and explanation.digest and explanation.digest == explanation.stored_digest:
                    kind = "equal"
                counts["compared"] += 1
                counts[kind] += 1
                if kind != "equal":
                    status.clear()
                    _show_turn(turn, explanation, as_json=call.as_json)
        finally:
            status.clear()
    if call.as_json:
        write_line(json.dumps(counts))
    else:
        left_out = f", {counts['not_stored']} without a stored packet" if counts["not_stored"] else ""
        same = f"{counts['equal']} of {counts['turns']} packets are the same"
        write_line(f"{safe_line(run)}: {same}, {counts['different']} differ{left_out}.")
    return DIFFERENT if counts["different"] else DONE


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


# A packet as a picture for a terminal: bars, totals, what was done so that it fits, and its pieces by size.
#
# Three bars: what of the context window is used, what kinds of pieces the packet consists of, and how much of it is a
# prefix of the packet before. Each kind has a letter, so that the picture needs no colours. Lines fit any width from 20
# columns.

PIECES_SHOWN: Final = 15
"""Pieces in the picture, the largest ones, and as many that are left out."""

HEALED_SHOWN: Final = 5
"""Pieces that were healed, as far as sentences name them."""

_TOKENS_MAX: Final = 2**32 - 1

NARROW: Final = 50
"""Columns below which bars have no labels, and totals stand one below the other."""

_LABELS: Final = ("window", "kinds", "same")
_LABEL_COLUMNS: Final = max(map(len, _LABELS)) + 2
_INDENT: Final = "  "


class KindWords(Struct, frozen=True):
    """How a kind is shown: its letter, its name, its colour."""

    letter: str
    name: str
    color: str


KINDS: Final = {
    pb.PIECE_KIND_SYSTEM: KindWords("S", "rules", "blue"),
    pb.PIECE_KIND_TOOL: KindWords("T", "tools", "cyan"),
    pb.PIECE_KIND_PERSONA: KindWords("P", "persona", "bright_blue"),
    pb.PIECE_KIND_PROJECT_INSTRUCTIONS: KindWords("A", "project instructions", "bright_cyan"),
    pb.PIECE_KIND_PROMPT: KindWords("Q", "prompts", "yellow"),
    pb.PIECE_KIND_FILE: KindWords("F", "files", "green"),
    pb.PIECE_KIND_ENTRY: KindWords("E", "entries", "bright_green"),
    pb.PIECE_KIND_RECORD: KindWords("L", "log", "magenta"),
    pb.PIECE_KIND_EVENT: KindWords("V", "events", "bright_magenta"),
    pb.PIECE_KIND_PLAN: KindWords("N", "plans", "bright_yellow"),
    pb.PIECE_KIND_UNKNOWN: KindWords("U", "unknowns", "red"),
    pb.PIECE_KIND_INSTRUCTIONS: KindWords("I", "instructions", "blue"),
    pb.PIECE_KIND_BUDGET: KindWords("B", "budget", "white"),
    pb.PIECE_KIND_PLUGIN: KindWords("X", "plugins", "bright_red"),
    pb.PIECE_KIND_MARKUP: KindWords("M", "tags", "white"),
    pb.PIECE_KIND_REPLY: KindWords("R", "replies", "green"),
    pb.PIECE_KIND_RESULT: KindWords("O", "results", "magenta"),
    pb.PIECE_KIND_SUMMARY: KindWords("Y", "summaries", "bright_yellow"),
    pb.PIECE_KIND_NOTICE: KindWords("W", "notices", "white"),
    pb.PIECE_KIND_EDIT: KindWords("D", "edits", "red"),
    pb.PIECE_KIND_UNEXPLAINED: KindWords("?", "unexplained", "bright_black"),
}
_OTHER: Final = KindWords("?", "others", "white")
"""A kind of a later release."""

FORMS: Final[Mapping[int, str]] = {
    pb.PIECE_FORM_SUMMARIZED: "summarized",
    pb.PIECE_FORM_STUB: "left out, with a note",
    pb.PIECE_FORM_LEFT_OUT: "left out",
}


def words_of(kind: pb.PieceKind.ValueType) -> KindWords:
    return KINDS.get(kind, _OTHER)


def picture(
    run: str, explanation: pb.PacketExplanation, width: int, *, pieces_max: int, styled: bool, full: bool = False
) -> Iterator[Text]:
    """The lines of the picture; `styled` adds colours, `full` a row for each tool."""
    explanation = scaled(explanation)
    for sentence in (heading(run, explanation), budget_words(explanation)):
        yield from _lines(sentence, width)
    yield Text()
    yield from _bars(explanation, width, styled)
    yield from _legend(explanation, width, styled)
    yield Text()
    for sentence in change_words(explanation):
        yield from _lines(sentence, width, hanging=True)
    yield Text()
    rows = list(explanation.pieces) if full else _grouped(explanation.pieces)
    by_size = sorted(rows, key=lambda piece: (-piece.tokens, -piece.whole_tokens, piece.begin))
    shown = [piece for piece in by_size if piece.form != pb.PIECE_FORM_LEFT_OUT][:pieces_max]
    gone = [piece for piece in by_size if piece.form == pb.PIECE_FORM_LEFT_OUT][:pieces_max]
    for piece in (*shown, *gone):
        yield from _piece(piece, explanation.tokens, width, styled)
    more = len(rows) - len(shown) - len(gone) + explanation.pieces_left_out
    if more > 0:
        yield from _lines(f"... and {more:,} smaller pieces: --full shows them.", width)


def heading(run: str, explanation: pb.PacketExplanation) -> str:
    kind = enum_word(settings_pb2.Assembly.DESCRIPTOR, explanation.assembly)
    what = f"preview of a {kind}" if explanation.preview else kind
    turn = f"turn {explanation.turn} of loop {explanation.loop}"
    return f"{safe_line(run)}: {turn}, {what} for {safe_line(explanation.model)}"


def budget_words(explanation: pb.PacketExplanation) -> str:
    window = f"window {explanation.context_length:,}, reserve {explanation.context_length - explanation.ceiling:,}"
    if explanation.calibration:
        return f"{explanation.tokens:,} of {explanation.ceiling:,} tokens (vendor's count); {window}"
    return f"{explanation.tokens:,} tokens of at most {explanation.ceiling:,}; {window}"


def scaled(explanation: pb.PacketExplanation) -> pb.PacketExplanation:
    """With all sizes in the tokens that are compared with the ceiling: the vendor's, as far as its count is known.

    Sums are rounded, not their parts, so that what adds up before still does. Steps are in these tokens already.
    """
    copy = pb.PacketExplanation()
    copy.CopyFrom(explanation)
    if not (rate := explanation.calibration):
        return copy
    copy.tokens = _times(copy.tokens, rate)
    if copy.HasField("prefix"):
        copy.prefix.tokens = _times(copy.prefix.tokens, rate)
    place = {total.kind: index for index, total in enumerate(copy.kinds)}
    _scale(copy.kinds, rate)
    _scale(sorted(copy.pieces, key=lambda piece: place.get(piece.kind, len(place))), rate)
    return copy


def _scale(parts: Iterable[pb.KindTotal | pb.ExplainedPiece], rate: float) -> None:
    end = 0
    for part in parts:
        if isinstance(part, pb.ExplainedPiece):
            part.whole_tokens = _times(part.whole_tokens, rate)
        begin, end = end, end + part.tokens
        part.tokens = _times(end, rate) - _times(begin, rate)


def _times(tokens: int, rate: float) -> int:
    return min(round(tokens * rate), _TOKENS_MAX)


def _grouped(pieces: Sequence[pb.ExplainedPiece]) -> list[pb.ExplainedPiece]:
    """The documentation of several tools as one piece."""
    tools, others = list[pb.ExplainedPiece](), list[pb.ExplainedPiece]()
    for one in pieces:
        is_tool = one.kind == pb.PIECE_KIND_TOOL and one.form != pb.PIECE_FORM_LEFT_OUT
        (tools if is_tool else others).append(one)
    if len(tools) < 2:
        return list(pieces)
    group = pb.ExplainedPiece(
        path=f"{len(tools)} tools",
        kind=pb.PIECE_KIND_TOOL,
        section=tools[0].section,
        tokens=sum(one.tokens for one in tools),
        why="Documentation of the tools that the loop offers: --full shows each.",
    )
    return [group, *others]


def prefix_words(explanation: pb.PacketExplanation) -> list[str]:
    if not explanation.HasField("prefix"):
        return []
    prefix = explanation.prefix
    share = f"{prefix.tokens:,} tokens ({_percent(prefix.tokens, explanation.tokens)}) are the same as in turn"
    if prefix.kind == pb.PIECE_KIND_UNSPECIFIED:
        return [f"{share} {prefix.before_turn}; nothing in it differs."]
    where = safe_line(prefix.path) or words_of(prefix.kind).name
    section = safe_line(prefix.section)
    return [f"{share} {prefix.before_turn}. At byte {prefix.bytes:,} it begins to differ: {where} in {section}."]


def step_words(explanation: pb.PacketExplanation) -> list[str]:
    found = []
    for step in explanation.steps:
        if step.kind == pb.PACKET_STEP_KIND_OVERFLOW:
            left = f"would leave {step.tokens:,} tokens, {step.excess:,} too many"
            found.append(f"Step overflow: summarizing {step.entries:,} entries {left}; they stay as they are.")
            continue
        before = f", as {step.tokens:,} tokens were {step.excess:,} too many" if step.excess else ""
        entries = f"{step.entries:,} {'entry' if step.entries == 1 else 'entries'}"
        name = enum_word(pb.PacketStepKind.DESCRIPTOR, step.kind) or "of a later release"
        found.append(f"Step {name}: {entries}{before}.")
    return found


def change_words(explanation: pb.PacketExplanation) -> list[str]:
    """Where it differs from the packet before, what was done to it, and what is not known."""
    return [
        *([safe_line(explanation.window_reason)] if explanation.window_reason else []),
        *prefix_words(explanation),
        *step_words(explanation),
        *_saved_words(explanation),
        *_healed_words(explanation),
        *explanation.gaps,
    ]


def _saved_words(explanation: pb.PacketExplanation) -> list[str]:
    """How much smaller the packet is than it would be if everything in it were whole."""
    less = [piece for piece in explanation.pieces if piece.whole_tokens > piece.tokens]
    gone = sum(piece.form == pb.PIECE_FORM_LEFT_OUT for piece in less)
    saved = sum(piece.whole_tokens - piece.tokens for piece in less)
    counted = f"Pieces shortened: {len(less) - gone:,}, left out: {gone:,}"
    return [f"{counted}; whole they would take {saved:,} tokens more."] if less else []


def _healed_words(explanation: pb.PacketExplanation) -> list[str]:
    healed = [piece for piece in explanation.pieces if piece.healed]
    named = ((safe_line(piece.path) or words_of(piece.kind).name, piece.healed) for piece in healed[:HEALED_SHOWN])
    lines = [f"Healed {name}: {sentence}" for name, sentence in named]
    more = len(healed) - len(lines)
    return [*lines, f"Healed besides: {more:,}."] if more else lines


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / max(1, whole))} %"


def _lines(text: str, width: int, *, hanging: bool = False, indent: str = "") -> Iterator[Text]:
    more = f"{indent}{_INDENT}" if hanging else indent
    for line in textwrap.wrap(safe_line(text), max(10, width), initial_indent=indent, subsequent_indent=more) or [""]:
        yield Text(line)


def _bars(explanation: pb.PacketExplanation, width: int, styled: bool) -> Iterator[Text]:
    has_labels = width >= NARROW
    cells = width - (_LABEL_COLUMNS if has_labels else 0)
    bars = [_window_bar(explanation, cells), _kinds_bar(explanation, cells, styled)]
    if explanation.HasField("prefix"):
        bars.append(_same_bar(explanation, cells))
    for label, bar in zip(_LABELS, bars, strict=False):
        yield Text(label.ljust(_LABEL_COLUMNS) if has_labels else "").append_text(bar)


def _window_bar(explanation: pb.PacketExplanation, cells: int) -> Text:
    expected = explanation.tokens
    window = max(1, explanation.context_length, expected)
    used, ceiling = (round(tokens * cells / window) for tokens in (expected, max(expected, explanation.ceiling)))
    return Text("#" * used + "." * (ceiling - used) + "/" * (cells - ceiling))


def _kinds_bar(explanation: pb.PacketExplanation, cells: int, styled: bool) -> Text:
    first = {piece.kind: index for index, piece in reversed(list(enumerate(explanation.pieces)))}
    totals = sorted(explanation.kinds, key=lambda total: first.get(total.kind, len(first)))
    whole = max(1, sum(total.tokens for total in totals))
    ends = accumulate(total.tokens for total in totals)
    bar, begin = Text(), 0
    for total, end in zip(totals, ends, strict=True):
        at = round(end * cells / whole)
        words = words_of(total.kind)
        bar.append(words.letter * (at - begin), style=_style(words, styled))
        begin = at
    return bar


def _same_bar(explanation: pb.PacketExplanation, cells: int) -> Text:
    """The prefix that is the same as in the packet before, on the scale of the kinds."""
    same = min(cells, round(explanation.prefix.tokens * cells / max(1, explanation.tokens)))
    return Text("=" * same + ("^" if same < cells else ""))


def _legend(explanation: pb.PacketExplanation, width: int, styled: bool) -> Iterator[Text]:
    line = Text()
    for total in explanation.kinds:
        words = words_of(total.kind)
        text = f" {words.name} {total.tokens:,} ({_percent(total.tokens, explanation.tokens)})"
        if line and len(line) + 4 + len(text) > width:
            yield line
            line = Text()
        if len(text) >= width:
            text, *more = _folded(text, width - 1, _INDENT)
            yield Text(words.letter, style=_style(words, styled)).append(text)
            yield from map(Text, more)
            continue
        line.append("   " if line else "").append(words.letter, style=_style(words, styled)).append(text)
    if line:
        yield line


def _style(words: KindWords, styled: bool) -> str:
    return f"reverse {words.color}" if styled else ""


def _piece(piece: pb.ExplainedPiece, whole: int, width: int, styled: bool) -> Iterator[Text]:
    words = words_of(piece.kind)
    tokens = f"{piece.tokens:>7,}  " if width >= NARROW else f"{piece.tokens:,} "
    indent = " " * (len(tokens) + 2) if width >= NARROW else _INDENT
    name = safe_line(piece.path) or words.name
    first, *more = _folded(f"{tokens}{words.letter} {name}", width, indent)
    line = Text(first)
    line.stylize(_style(words, styled), len(tokens), len(tokens) + 1)
    yield line
    yield from map(Text, more)
    healed = f" {piece.healed}" if piece.healed else ""
    step = enum_word(pb.PacketStepKind.DESCRIPTOR, piece.reduced_by)
    reduced = f" By the step {step} in turn {piece.reduced_in_turn}." if step else ""
    why = f"{_percent(piece.tokens, whole)}{_where(piece)}. {piece.why}{healed}{reduced}"
    yield from _lines(why, width, indent=indent)


def _where(piece: pb.ExplainedPiece) -> str:
    section = f" in {safe_line(piece.section)}" if piece.section else ""
    whole = f" (whole: {piece.whole_tokens:,})" if piece.whole_tokens else ""
    return f"{section}, {FORMS[piece.form]}{whole}" if piece.form in FORMS else section


def _folded(text: str, width: int, indent: str) -> Sequence[str]:
    """The text in lines of at most `width` characters: paths have no spaces to wrap at."""
    lines, rest = [text[:width]], text[width:]
    room = max(4, width - len(indent))
    return [*lines, *(f"{indent}{rest[at : at + room]}" for at in range(0, len(rest), room))]
