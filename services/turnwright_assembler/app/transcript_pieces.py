"""The pieces of a transcript: its messages, each with the entry that it says and why it is in."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.app.packet_pieces import Reduction, files_words, reductions, system_pieces, tool_pieces
from turnwright_assembler.app.transcript import Transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.compression import SUMMARY
from turnwright_assembler.domain.explanation import FittingStep, Form, MessageOfPieces, Piece, PieceKind
from turnwright_assembler.sections.plugin_sections import PacketPlugins
from turnwright_assembler.sections.project import system_with
from turnwright_core.chat.run_message import MessageKind
from turnwright_core.chat.timeline import ERROR_TOOL, KNOWLEDGE_TOOL, REPO_TOOL
from turnwright_core.chat.transcript import PlacedMessage, Segment
from turnwright_core.entries import Entry, Visibility
from turnwright_core.instructions import PROJECT_PATH, SYSTEM_PATH
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.text import tokens_of

_KINDS: Final[Mapping[MessageKind, PieceKind]] = {
    MessageKind.PROMPT: PieceKind.PROMPT,
    MessageKind.STEERING: PieceKind.PROMPT,
    MessageKind.REPLY: PieceKind.REPLY,
    MessageKind.SUMMARY: PieceKind.SUMMARY,
    MessageKind.RESULT: PieceKind.RESULT,
    MessageKind.EVENT: PieceKind.EVENT,
    MessageKind.PLAN: PieceKind.PLAN,
}
_WHYS: Final = {
    PieceKind.PROMPT: "A user said it; a transcript has all that fits.",
    PieceKind.REPLY: "The model said it; a transcript has all that fits.",
    PieceKind.SUMMARY: "It stands for the messages that it lists.",
    PieceKind.RESULT: "A call needs its result.",
    PieceKind.EVENT: "Events stand where they happened.",
    PieceKind.PLAN: "Plans are never left out.",
    PieceKind.NOTICE: "The runtime tells it.",
}
_NOTICES: Final = {
    KNOWLEDGE_TOOL: "Found in the project by words of the prompt.",
    REPO_TOOL: "The files of the project when the run began.",
    ERROR_TOOL: "An error that belongs to no call.",
}
"""Why a notice is in, by the tool that it names."""
_AS_TEXT: Final = "What a command did, told as text: no call waits for it."
_LEFT_OUT: Final = "Left out so that the rest fits; its entry keeps it."
_SUMMARIZED: Final = "Left out: a summary stands for it."
_AROUND: Final = "It stands around what users say."
_SECOND: Final = "A call has one result."
_ARCHIVED: Final = "Archived, so that no model reads it."
_FORMS: Final = {Visibility.SUMMARIZED: Form.SUMMARIZED, Visibility.ARCHIVED: Form.STUB}


class _Shown(Struct, frozen=True):
    """How messages stand in a transcript, by path."""

    now: Mapping[str, Visibility]
    """Those that are evicted in this turn, or whole again."""
    reduced: Mapping[str, Reduction]
    healed: Mapping[str, str]
    divisor: int
    is_edited: bool

    def visibility(self, entry: Entry) -> Visibility:
        return self.now.get(entry.path, entry.visibility)


def explained_transcript(
    turn: int,
    made: Transcript,
    segments: Sequence[Segment],
    rows: TranscriptRows,
    packet_plugins: PacketPlugins,
    divisor: int,
) -> tuple[list[MessageOfPieces], tuple[FittingStep, ...]]:
    """The pieces by message, and the steps by which it was made to fit. It is sent whole."""
    system = rows.entries.get(SYSTEM_PATH)
    attributes = json.loads(system.attributes_json or "{}") if system else {}
    messages: list[MessageOfPieces] = []
    for role, parts in made.messages:
        text = "".join(part for part in parts if isinstance(part, str))
        if role == "system":
            messages.append((role, _system(text, attributes, packet_plugins, rows.entries.get(PROJECT_PATH))))
        elif role == "tools":
            messages.append((role, list(tool_pieces(text, attributes))))
        elif role == CONVERSATION:
            healed: dict[str, str] = {}
            for path, sentence in rows.conversation.repairs():
                healed[path] = f"{healed[path]} {sentence}" if path in healed else sentence
            now = dict.fromkeys(made.restored, Visibility.VISIBLE) | (made.evicted.shown if made.evicted else {})
            shown = _Shown(now, _reductions(made, rows, turn), healed, divisor, bool(made.edit_tokens))
            messages.append((role, list(_conversation(segments, rows, shown))))
    return messages, _steps(made)


def _system(
    text: str, attributes: Mapping[str, Any], packet_plugins: PacketPlugins, project: Entry | None
) -> list[Piece]:
    """The system message, which ends with the instructions of the project."""
    end = system_with("", project)
    if not project or not end:
        return system_pieces(text, attributes, packet_plugins)
    instructions = Piece(end, PieceKind.PROJECT_INSTRUCTIONS, "system", files_words(project), PROJECT_PATH)
    return [*system_pieces(text.removesuffix(end), attributes, packet_plugins), instructions]


def _conversation(segments: Sequence[Segment], rows: TranscriptRows, shown: _Shown) -> Iterator[Piece]:
    """What is said, with what is left out at the places where it would stand."""
    left = deque(rows.conversation.left_out(segments))
    for segment in segments:
        begin = min(part.position for part in segment.parts if part)
        while left and left[0].position < begin:
            yield _left_out(left.popleft(), rows, shown)
        yield from _pieces(segment, rows, shown)
    for one in left:
        yield _left_out(one, rows, shown)


def _left_out(one: PlacedMessage, rows: TranscriptRows, shown: _Shown) -> Piece:
    path = one.path
    kind = _KINDS.get(rows.kinds[path], PieceKind.NOTICE)
    reduced, healed = shown.reduced.get(path), shown.healed.get(path, "")
    whole = tokens_of(rows.chars_as(path, Visibility.VISIBLE), shown.divisor)
    why = _SECOND if healed else _ARCHIVED
    piece = Piece("", kind, one.message.role.value, why, path, Form.LEFT_OUT, whole_tokens=whole, healed=healed)
    if reduced is None:
        return piece
    why = _SUMMARIZED if reduced.step == SUMMARY else _LEFT_OUT
    return replace(piece, why=why, reduced_by=reduced.step, reduced_in_turn=reduced.turn)


def _pieces(segment: Segment, rows: TranscriptRows, shown: _Shown) -> Iterator[Piece]:
    # Not splitlines: a message may hold other characters that end lines.
    lines = [f"{line}\n" for line in "".join(segment.pieces).split("\n") if line]
    if not segment.is_reply:
        yield from _user_pieces(segment, lines[0], rows, shown)
        return
    for line in lines[: len(lines) - len(segment.parts)]:
        why = "Vendors refuse a reply that nothing of a user stands before."
        yield Piece(line, PieceKind.NOTICE, "user", why, healed="The user says that earlier messages were left out.")
    for line, part in zip(lines[-len(segment.parts) :], segment.parts, strict=True):
        if part is None:
            healed = "The call has no result: it is sent with one that says so."
            yield Piece(line, PieceKind.RESULT, "tool", _WHYS[PieceKind.RESULT], healed=healed)
        else:
            yield _piece(line, part.path, part.message.role.value, rows, shown)


def _user_pieces(segment: Segment, line: str, rows: TranscriptRows, shown: _Shown) -> Iterator[Piece]:
    """What users say one after the other: each with the part of the line that has its text.

    Of an edited transcript the text alone, which edits leave as it is, and apart from it what stands around it.
    """
    at = 0
    for index, part in enumerate(segment.parts):
        assert part is not None
        text = json.dumps(part.message.text, ensure_ascii=False)[1:-1]
        found = line.find(text, at)
        is_last = index == len(segment.parts) - 1
        if shown.is_edited and found > at:
            yield Piece(line[at:found], PieceKind.MARKUP, "user", _AROUND)
            at = found
        end = len(line) if found < 0 or (is_last and not shown.is_edited) else found + len(text)
        yield _piece(line[at:end], part.path, "user", rows, shown)
        at = end
    if at < len(line):
        yield Piece(line[at:], PieceKind.MARKUP, "user", _AROUND)


def _piece(text: str, path: str, role: str, rows: TranscriptRows, shown: _Shown) -> Piece:
    entry = rows.entries.get(path)
    if entry is None:
        return Piece(text, PieceKind.NOTICE, role, "The runtime asks for a summary.")
    kind = _KINDS.get(rows.kinds[path], PieceKind.NOTICE)
    form = _FORMS.get(shown.visibility(entry), Form.WHOLE) if kind is PieceKind.RESULT else Form.WHOLE
    why = _AS_TEXT if kind is PieceKind.RESULT and role == "user" else _WHYS[kind]
    if kind is PieceKind.NOTICE:
        why = _NOTICES.get(str(entry.attributes.get("tool")), why)
    piece = Piece(text, kind, role, why, path, form, healed=shown.healed.get(path, ""))
    if form is Form.WHOLE:
        return piece
    piece = replace(piece, whole_tokens=tokens_of(rows.chars_as(path, Visibility.VISIBLE), shown.divisor))
    reduced = shown.reduced.get(path)
    return replace(piece, reduced_by=reduced.step, reduced_in_turn=reduced.turn) if reduced else piece


def _reductions(made: Transcript, rows: TranscriptRows, turn: int) -> dict[str, Reduction]:
    """The stage that condensed or left out a message last, and its turn."""
    now = made.evicted.stage_of if made.evicted else {}
    return reductions(rows.reports) | {path: Reduction(stage, turn) for path, stage in now.items()}


def _steps(made: Transcript) -> tuple[FittingStep, ...]:
    stages = made.evicted.stages if made.evicted else {}
    steps = tuple(FittingStep(stage, tuple(paths)) for stage, paths in stages.items())
    return (FittingStep("restored", made.restored), *steps) if made.restored else steps
