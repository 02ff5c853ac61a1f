"""Where a packet comes from: its messages in pieces, each with what it is, whose entry it shows, and why it is in."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from turnwright.types.v1 import explanation_pb2 as pb
from turnwright_values.types import Entry, MessageKind, Visibility

from turnwright_assembler.app.packet import ComposedPacket
from turnwright_assembler.app.transcript import Transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.compression import Compression
from turnwright_assembler.domain.envelope import well_formed
from turnwright_assembler.domain.folding import is_marker
from turnwright_assembler.sections import PacketDraft, Section
from turnwright_assembler.sections.built_in import end_of_system
from turnwright_assembler.sections.contract import BlockSection
from turnwright_assembler.sections.plugin_sections import PacketPlugins, PluginPacketFilter, PluginSection
from turnwright_assembler.sections.system import NATIVE_TOOLS, system_parts
from turnwright_core.chat.message import Text
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.chat.timeline import ERROR_TOOL, KNOWLEDGE_TOOL, REPO_TOOL
from turnwright_core.chat.transcript import PlacedMessage, Segment
from turnwright_core.instructions import PROJECT_PATH, SYSTEM_PATH
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.text import tokens_of

SEARCHED_CHARS: Final = 64 * 1024
"""Code points of a text in which the next piece is searched for."""

_WHOLE: Final = pb.PIECE_FORM_WHOLE
_SUMMARIZED: Final = pb.PIECE_FORM_SUMMARIZED
_SYSTEM_KINDS: Final = {
    "rules": (pb.PIECE_KIND_SYSTEM, "Rules of the runtime; the same in each turn of the loop."),
    "tool": (pb.PIECE_KIND_TOOL, "Documentation of a tool that the loop offers."),
    "persona": (pb.PIECE_KIND_PERSONA, "Persona of the run, or the built-in one."),
}
_NATIVE: Final = "Definition of a tool that the loop offers for native calls."
_RULES: Final = "Rules that stand at the end of each packet, where they are read last."
_FIGURES: Final = "Figures of this packet, by which the model decides what to summarize."
_MESSAGES: Final[Mapping[MessageKind, tuple[pb.PieceKind.ValueType, str]]] = {
    MessageKind.PROMPT: (pb.PIECE_KIND_PROMPT, "A user said it; a transcript has all that fits."),
    MessageKind.STEERING: (pb.PIECE_KIND_PROMPT, "A user said it; a transcript has all that fits."),
    MessageKind.REPLY: (pb.PIECE_KIND_REPLY, "The model said it; a transcript has all that fits."),
    MessageKind.SUMMARY: (pb.PIECE_KIND_SUMMARY, "It stands for the messages that it lists."),
    MessageKind.RESULT: (pb.PIECE_KIND_RESULT, "A call needs its result."),
    MessageKind.EVENT: (pb.PIECE_KIND_EVENT, "Events stand where they happened."),
    MessageKind.PLAN: (pb.PIECE_KIND_PLAN, "Plans are never left out."),
}
_NOTICE: Final = (pb.PIECE_KIND_NOTICE, "The runtime tells it.")
_NOTICES: Final = {
    KNOWLEDGE_TOOL: "Found in the project by words of the prompt.",
    REPO_TOOL: "The files of the project when the run began.",
    ERROR_TOOL: "An error that belongs to no call.",
}
"""Why a notice is in, by the tool that it names."""
_FORMS: Final = {Visibility.SUMMARIZED: _SUMMARIZED, Visibility.ARCHIVED: pb.PIECE_FORM_STUB}


class Piece(NamedTuple):
    """A piece of a message. Where it stands is known when all are."""

    text: str
    origin: pb.ExplainedPiece


Pieces = list[tuple[str, list[Piece]]]
"""Roles, each with the pieces of its message."""

STEP_KINDS: Final = {
    name.removeprefix("PACKET_STEP_KIND_").lower(): number for name, number in pb.PacketStepKind.items()
}
"""Steps by their words, which events and error entries have; those of plugins are none of these."""

Reductions = Mapping[str, JsonMapping]
"""The step that summarized an entry, or left it out, and its turn: fields of its piece, by path."""


def _piece(
    text: str,
    kind: pb.PieceKind.ValueType,
    section: str,
    why: str,
    path: str = "",
    form: pb.PieceForm.ValueType = _WHOLE,
    **more: Any,
) -> Piece:
    return Piece(text, pb.ExplainedPiece(path=path, kind=kind, section=section, form=form, why=why, **more))


def reductions(reports: Iterable[Compression]) -> dict[str, JsonMapping]:
    """The last step of each entry; `reports` are in the order of turns."""
    return {
        path: {"reduced_by": STEP_KINDS.get(stage, pb.PACKET_STEP_KIND_UNSPECIFIED), "reduced_in_turn": report.turn}
        for report in reports
        for stage, paths in report.stages.items()
        for path in paths
    }


def aligned(
    text: str, pieces: Iterable[Piece], other: Callable[[str], pb.ExplainedPiece], within: int = SEARCHED_CHARS
) -> list[Piece]:
    """The pieces that occur in a text, in its order, at most so far apart. What lies between is of `other` origin."""
    found: list[Piece] = []
    at = 0
    for piece in pieces:
        begin = text.find(piece.text, at, at + within + len(piece.text))
        if begin < 0:
            continue
        if begin > at:
            found.append(Piece(text[at:begin], other(text[at:begin])))
        found.append(piece)
        at = begin + len(piece.text)
    if at < len(text):
        found.append(Piece(text[at:], other(text[at:])))
    return found


def all_aligned(
    messages: Iterable[tuple[str, str]], pieces: Pieces, other: Callable[[str, str], pb.ExplainedPiece]
) -> Pieces:
    """The same for messages: roles with texts, each in the pieces of that role."""
    left: defaultdict[str, deque[list[Piece]]] = defaultdict(deque)
    for role, parts in pieces:
        left[role].append(parts)
    return [
        (role, aligned(text, left[role].popleft() if left[role] else (), partial(other, role)))
        for role, text in messages
    ]


def of_edits(edits: Sequence[PromptEdit], role: str, text: str) -> pb.ExplainedPiece:
    found = [
        f"edits[{index}] ({edit.verb.value}{f' of the plugin {edit.plugin}' if edit.plugin else ''})"
        for index, edit in enumerate(edits)
        if any(
            isinstance(part, Text) and (part.text in text or json.dumps(part.text, ensure_ascii=False)[1:-1] in text)
            for part in edit.parts
        )
    ]
    return _piece("", pb.PIECE_KIND_EDIT, role, f"Added by {', '.join(found) or 'edits of the prompt'}.").origin


def of_nothing_known(role: str, _text: str) -> pb.ExplainedPiece:
    """The origin of a text that was sent and is not assembled today."""
    why = "It was sent; assembled again from the same moment, the packet does not contain it."
    return _piece("", pb.PIECE_KIND_UNEXPLAINED, role, why).origin


# ---- The messages of both


def _system_pieces(
    text: str, entries: Mapping[str, Entry], packet_plugins: PacketPlugins, project: Entry | None = None
) -> list[Piece]:
    """The system message in its parts; `project` are the instructions with which that of a transcript ends."""
    pieces = []
    for part in system_parts(_attributes(entries)):
        kind, why = _SYSTEM_KINDS[part.kind]
        if part.text:
            pieces.append(_piece(part.text, kind, "system", why, part.name or SYSTEM_PATH))
    if project and (end := end_of_system(project)):
        pieces.append(_project_piece(end, "system", project))
    why = f"The system message as filters of plugins left it: {', '.join(packet_plugins.plugins)}."
    return aligned(text, pieces, lambda _: _piece("", pb.PIECE_KIND_SYSTEM, "system", why, SYSTEM_PATH).origin)


def _tool_pieces(text: str, entries: Mapping[str, Entry]) -> list[Piece]:
    """The definitions of tools for native calls, one by one."""
    offered = _attributes(entries).get(NATIVE_TOOLS)
    pieces = []
    for index, tool in enumerate(offered if isinstance(offered, list) else ()):
        name = str(tool.get("name", "")) if isinstance(tool, dict) else ""
        definition = json.dumps(tool, ensure_ascii=False, separators=(",", ":"))
        pieces.append(_piece(f"{',' if index else '['}{definition}", pb.PIECE_KIND_TOOL, "tools", _NATIVE, name))
    if pieces:
        pieces[-1] = pieces[-1]._replace(text=f"{pieces[-1].text}]")
    return aligned(text, pieces, lambda _: _piece("", pb.PIECE_KIND_TOOL, "tools", _NATIVE).origin)


def _attributes(entries: Mapping[str, Entry]) -> JsonObject:
    return entries[SYSTEM_PATH].attributes if SYSTEM_PATH in entries else {}


def _project_piece(text: str, section: str, project: Entry) -> Piece:
    files = [file for file in project.attributes.get("files", ()) if not file.get("problem")]
    listed = [
        f"{file['path']} ({file['bytes']:,} bytes"
        + (f", the first {file['shown']:,} shown)" if file["shown"] < file["bytes"] else ")")
        for file in files
    ]
    why = f"Instructions of the project, read when the loop began: {', '.join(listed)}."
    return _piece(text, pb.PIECE_KIND_PROJECT_INSTRUCTIONS, section, why, PROJECT_PATH)


# ---- Packets of sections


def packet_pieces(
    packet: ComposedPacket,
    blocks: Iterable[Block],
    packet_plugins: PacketPlugins,
    entries: Mapping[str, Entry],
    reduced: Reductions,
) -> Pieces:
    """The pieces of a packet of these blocks, made of these entries; joined they are its texts."""
    by_path = {block.path: block for block in blocks}
    user: list[Piece] = []
    for step in packet_plugins.steps:
        if isinstance(step, PluginPacketFilter):
            user = _filtered(user, step, packet.draft)
        else:
            user += _section_pieces(step, packet.draft, by_path, entries.get(PROJECT_PATH), reduced)
    if user:
        user[-1] = user[-1]._replace(text=user[-1].text.removesuffix("\n"))
    return [
        ("system", _system_pieces(packet.system, entries, packet_plugins)),
        ("user", user),
        ("tools", _tool_pieces(packet.tools, entries)),
    ]


def _filtered(pieces: Sequence[Piece], step: PluginPacketFilter, draft: PacketDraft) -> list[Piece]:
    """The pieces that a filter returns; unchanged ones are what they were."""
    known: defaultdict[str, deque[Piece]] = defaultdict(deque)
    for piece in pieces:
        known[piece.text].append(piece)
    why = f"The plugin {step.part.plugin} wrote it, in its filter {step.part.name}."
    return [
        known[text].popleft()
        if known.get(text)
        else _piece(text, pb.PIECE_KIND_PLUGIN, step.part.name, why, step.part.plugin)
        for text in step.changed([piece.text for piece in pieces], draft)
    ]


def _section_pieces(
    step: Section, draft: PacketDraft, blocks: Mapping[str, Block], project: Entry | None, reduced: Reductions
) -> list[Piece]:
    texts, tag = step.render(draft), step.tag
    if isinstance(step, BlockSection):
        shown = [blocks[path] for path in draft.index.paths(tag)]
        made = [_block_piece(text, tag, one, reduced) for text, one in zip(texts[1:-1], shown, strict=True)]
        tags = [
            _piece(text, pb.PIECE_KIND_MARKUP, tag, f"Tag of the section <{tag}>.") for text in texts[:: len(made) + 1]
        ]
        return [*tags[:1], *made, *tags[1:]]
    if isinstance(step, PluginSection):
        why = f"Section <{tag}> of the plugin {step.part.plugin}."
        return [_piece(text, pb.PIECE_KIND_PLUGIN, tag, why, step.part.plugin) for text in texts]
    if tag == "prompt" and draft.prompt:
        prompt = draft.prompt
        more = {} if prompt.is_visible else reduced.get(prompt.path, {})
        form, why = _WHOLE if prompt.is_visible else _SUMMARIZED, f"The task of loop {draft.loop}."
        return [_piece(text, pb.PIECE_KIND_PROMPT, tag, why, prompt.path, form, **more) for text in texts]
    if tag == "project-instructions" and project:
        return [_project_piece(text, tag, project) for text in texts]
    if tag == "budget":
        return [_piece(text, pb.PIECE_KIND_BUDGET, tag, _FIGURES) for text in texts]
    return [_piece(text, pb.PIECE_KIND_INSTRUCTIONS, tag, _RULES) for text in texts]


def _block_piece(text: str, tag: str, block: Block, reduced: Reductions) -> Piece:
    kind, why = _of_block(tag, block)
    form = _WHOLE if block.is_visible and tag != "summary" else _SUMMARIZED
    more = {}
    if not block.is_visible:
        more = {"whole_tokens": block.s_tokens + block.a_tokens, **reduced.get(block.path, {})}
    return _piece(text, kind, tag, why, block.path, form, **more)


def _of_block(tag: str, block: Block) -> tuple[pb.PieceKind.ValueType, str]:
    """What a block is, and why it is in this section."""
    kind = pb.PIECE_KIND_ENTRY if block.scheme else pb.PIECE_KIND_FILE
    touched = f"last touched in turn {block.turn}" if block.turn else "not touched by a turn"
    match tag:
        case "log":
            return _of_log(block)
        case "plans":
            plan_id = block.plan.plan_id if block.plan else ""
            return pb.PIECE_KIND_PLAN, f"The latest version of the plan {plan_id}; never summarized."
        case "unknowns":
            return pb.PIECE_KIND_UNKNOWN, "A question that is still open."
        case "visible":
            return kind, f"Visible; {touched}."
    why = "Entries with data are listed here, condensed; this one stands whole in <visible>, too."
    return kind, why if block.is_visible else f"Summarized; {touched}. Its body is left out."


def _of_log(block: Block) -> tuple[pb.PieceKind.ValueType, str]:
    if block.prompt:
        return pb.PIECE_KIND_PROMPT, "The task of an earlier loop."
    if block.plan:
        return pb.PIECE_KIND_PLAN, f"What was added to the plan {block.plan.plan_id}; never summarized."
    if is_marker(block):
        return pb.PIECE_KIND_EVENT, "Stands for events that were archived."
    if block.event:
        return pb.PIECE_KIND_EVENT, f"An event of turn {block.turn}; kept until events are folded."
    return pb.PIECE_KIND_RECORD, f"A record of turn {block.turn}; the log keeps what happened."


# ---- Transcripts


def transcript_pieces(
    turn: int, made: Transcript, rows: TranscriptRows, packet_plugins: PacketPlugins, divisor: int
) -> Pieces:
    """The pieces of a transcript of these rows before edits; it is sent whole."""
    messages: Pieces = []
    for role, parts in made.messages:
        text = "".join(part for part in parts if isinstance(part, str))
        if role == "system":
            pieces = _system_pieces(text, rows.entries, packet_plugins, rows.entries.get(PROJECT_PATH))
        elif role == "tools":
            pieces = _tool_pieces(text, rows.entries)
        else:
            pieces = list(_Conversation(turn, made, rows, divisor).pieces())
        messages.append((role, pieces))
    return messages


class _Conversation:
    """What is said in a transcript, with what is left out at the places where it would stand."""

    def __init__(self, turn: int, made: Transcript, rows: TranscriptRows, divisor: int) -> None:
        self._rows, self._divisor, self._segments = rows, divisor, made.segments
        self._is_edited = bool(made.edit_tokens)
        stages, evicted = (made.evicted.stages, made.evicted.shown) if made.evicted else ({}, {})
        self._now = dict.fromkeys(made.restored, Visibility.VISIBLE) | evicted
        self._reduced = reductions([*rows.reports, Compression(turn, stages)])
        self._healed: dict[str, str] = {}
        for path, sentence in rows.conversation.repairs():
            self._healed[path] = f"{self._healed.get(path, '')} {sentence}".strip()

    def pieces(self) -> Iterator[Piece]:
        left = deque(self._rows.conversation.left_out(self._segments))
        for segment in self._segments:
            begin = min(part.position for part in segment.parts if part)
            while left and left[0].position < begin:
                yield self._left_out(left.popleft())
            yield from self._of_reply(segment) if segment.is_reply else self._of_users(segment)
        yield from map(self._left_out, left)

    def _left_out(self, one: PlacedMessage) -> Piece:
        kind, _ = _MESSAGES.get(self._rows.kinds[one.path], _NOTICE)
        healed, more = self._healed.get(one.path, ""), self._reduced.get(one.path, {})
        why = "A call has one result." if healed else "Archived, so that no model reads it."
        if more:
            why = "Left out so that the rest fits; its entry keeps it."
        if more.get("reduced_by") == pb.PACKET_STEP_KIND_SUMMARY:
            why = "Left out: a summary stands for it."
        return _piece(
            "", kind, one.message.role.value, why, one.path, pb.PIECE_FORM_LEFT_OUT,
            healed=healed, whole_tokens=self._whole_tokens(one.path), **more,
        )  # fmt: skip

    def _whole_tokens(self, path: str) -> int:
        return tokens_of(self._rows.chars_as(path, Visibility.VISIBLE), self._divisor)

    def _of_reply(self, segment: Segment) -> Iterator[Piece]:
        # Not splitlines: a message may hold other characters that end lines.
        lines = [f"{line}\n" for line in "".join(segment.pieces).split("\n") if line]
        first = len(lines) - len(segment.parts)
        for line in lines[:first]:
            why = "Vendors refuse a reply that nothing of a user stands before."
            healed = "The user says that earlier messages were left out."
            yield _piece(line, pb.PIECE_KIND_NOTICE, "user", why, healed=healed)
        for line, part in zip(lines[first:], segment.parts, strict=True):
            if part:
                yield self._of_message(line, part.path, part.message.role.value)
            else:
                kind, why = _MESSAGES[MessageKind.RESULT]
                healed = "The call has no result: it is sent with one that says so."
                yield _piece(line, kind, "tool", why, healed=healed)

    def _of_users(self, segment: Segment) -> list[Piece]:
        """What users say one after the other: each text with what stands before it, unless edits may come between."""
        line, messages = "".join(segment.pieces), list[Piece]()
        for part in segment.parts:
            assert part
            texts = [one.text for one in part.message.parts if isinstance(one, Text)] or [""]
            escaped = [well_formed(json.dumps(text, ensure_ascii=False)[1:-1]) for text in texts]
            messages += [self._of_message(text, part.path, "user") for text in escaped]
        around = _piece("", pb.PIECE_KIND_MARKUP, "user", "It stands around what users say.").origin
        # Images may stand between two texts.
        found = aligned(line, messages, lambda _: around, len(line))
        pieces, before = list[Piece](), ""
        for piece in found:
            if piece.origin is around:
                before += piece.text
            else:
                pieces.append(piece._replace(text=before + piece.text))
                before = ""
        if self._is_edited or not pieces:
            return found
        return [*pieces[:-1], pieces[-1]._replace(text=pieces[-1].text + before)]

    def _of_message(self, text: str, path: str, role: str) -> Piece:
        entry = self._rows.entries.get(path)
        if entry is None:
            return _piece(text, pb.PIECE_KIND_NOTICE, role, "The runtime asks for a summary.")
        kind, why = _MESSAGES.get(self._rows.kinds[path], _NOTICE)
        form, more = _WHOLE, {}
        if kind == pb.PIECE_KIND_RESULT:
            form = _FORMS.get(self._now.get(path, entry.visibility), _WHOLE)
            why = "What a command did, told as text: no call waits for it." if role == "user" else why
        elif kind == pb.PIECE_KIND_NOTICE:
            why = _NOTICES.get(str(entry.attributes.get("tool")), why)
        if form != _WHOLE:
            more = {"whole_tokens": self._whole_tokens(path), **self._reduced.get(path, {})}
        return _piece(text, kind, role, why, path, form, healed=self._healed.get(path, ""), **more)
