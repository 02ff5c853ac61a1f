"""The pieces of a packet of sections, each with the entry that it shows and why it is in."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.app.packet import ComposedPacket
from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.compression import Compression
from turnwright_assembler.domain.explanation import Form, MessageOfPieces, Piece, PieceKind
from turnwright_assembler.domain.folding import is_marker
from turnwright_assembler.sections import Section
from turnwright_assembler.sections.contract import BlockSection, PacketDraft
from turnwright_assembler.sections.plugin_sections import PacketPlugins, PluginPacketFilter, PluginSection
from turnwright_assembler.sections.system import NATIVE_TOOLS, system_parts
from turnwright_core.entries import Entry
from turnwright_core.instructions import PROJECT_PATH, SYSTEM_PATH

_SYSTEM_KINDS: Final = {
    "rules": (PieceKind.SYSTEM, "Rules of the runtime; the same in each turn of the loop."),
    "tool": (PieceKind.TOOL, "Documentation of a tool that the loop offers."),
    "persona": (PieceKind.PERSONA, "Persona of the run, or the built-in one."),
}
_RULES: Final = "Rules that stand at the end of each packet, where they are read last."
_FIGURES: Final = "Figures of this packet, by which the model decides what to summarize."


class Reduction(Struct, frozen=True):
    """The step that summarized an entry, and its turn."""

    step: str
    turn: int


Reductions = Mapping[str, Reduction]


def reductions(reports: Iterable[Compression]) -> dict[str, Reduction]:
    """The step that summarized or left out an entry last; `reports` are in the order of turns."""
    return {
        path: Reduction(stage, report.turn)
        for report in reports
        for stage, paths in report.stages.items()
        for path in paths
    }


def packet_pieces(
    packet: ComposedPacket,
    blocks: Sequence[Block],
    packet_plugins: PacketPlugins,
    instructions: Mapping[str, Entry],
    reduced: Reductions,
) -> list[MessageOfPieces]:
    """The pieces of a packet by message; joined they are its texts.

    `instructions` are the entries of the run's instructions, by path.
    """
    project = instructions.get(PROJECT_PATH)
    user = _UserPieces({block.path: block for block in blocks}, packet.draft, packet_plugins, reduced, project)
    attributes = instructions[SYSTEM_PATH].attributes if SYSTEM_PATH in instructions else {}
    return [
        ("system", system_pieces(packet.system, attributes, packet_plugins)),
        ("user", user.pieces()),
        ("tools", list(tool_pieces(packet.tools, attributes))),
    ]


def system_pieces(text: str, attributes: Mapping[str, Any], packet_plugins: PacketPlugins) -> list[Piece]:
    """The system message in its parts; one piece if plugins have changed it."""
    pieces = []
    for part in system_parts(dict(attributes)):
        kind, why = _SYSTEM_KINDS[part.kind]
        if part.text:
            pieces.append(Piece(part.text, kind, "system", why, part.name or SYSTEM_PATH))
    if "".join(piece.text for piece in pieces) == text:
        return pieces
    why = f"The system message as filters of plugins left it: {', '.join(packet_plugins.plugins)}."
    return [Piece(text, PieceKind.SYSTEM, "system", why, SYSTEM_PATH)]


def files_words(project: Entry) -> str:
    files = [file for file in project.attributes.get("files", ()) if not file.get("problem")]
    listed = (f"{file['path']} ({file['bytes']:,} bytes{_cut_words(file)})" for file in files)
    return f"Instructions of the project, read when the loop began: {', '.join(listed)}."


def _cut_words(file: Mapping[str, Any]) -> str:
    return f", the first {file['shown']:,} shown" if file["shown"] < file["bytes"] else ""


def problems_in(project: Entry | None) -> list[str]:
    """Why files of instructions were not read."""
    files = project.attributes.get("files", ()) if project else ()
    return [str(file["problem"]) for file in files if file.get("problem")]


def tool_pieces(text: str, attributes: Mapping[str, Any]) -> Iterable[Piece]:
    """The definitions of tools for native calls, one by one."""
    offered = attributes.get(NATIVE_TOOLS)
    if not text or not isinstance(offered, list):
        return
    texts = [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in offered]
    is_exact = text == f"[{','.join(texts)}]"
    why = "Definition of a tool that the loop offers for native calls."
    if not is_exact:
        yield Piece(text, PieceKind.TOOL, "tools", why)
        return
    for index, tool in enumerate(offered):
        end = "]" if index == len(offered) - 1 else ""
        name = str(tool.get("name", "")) if isinstance(tool, dict) else ""
        yield Piece(f"{',' if index else '['}{texts[index]}{end}", PieceKind.TOOL, "tools", why, name)


class _UserPieces:
    """Labels the pieces of the user message, step by step as it is composed."""

    def __init__(
        self,
        blocks: Mapping[str, Block],
        draft: PacketDraft,
        packet_plugins: PacketPlugins,
        reduced: Reductions,
        project: Entry | None,
    ) -> None:
        self._blocks = blocks
        self._draft = draft
        self._plugged = packet_plugins
        self._reduced = reduced
        self._project = project

    def pieces(self) -> list[Piece]:
        pieces: list[Piece] = []
        for step in self._plugged.steps:
            if isinstance(step, PluginPacketFilter):
                pieces = self._filtered(pieces, step)
            else:
                pieces += self._of_section(step)
        if pieces:
            pieces[-1] = replace(pieces[-1], text=pieces[-1].text.removesuffix("\n"))
        return pieces

    def _filtered(self, pieces: Sequence[Piece], step: PluginPacketFilter) -> list[Piece]:
        """The pieces that a filter returns; unchanged ones keep their labels."""
        known: defaultdict[str, deque[Piece]] = defaultdict(deque)
        for piece in pieces:
            known[piece.text].append(piece)
        why = f"The plugin {step.part.plugin} wrote it, in its filter {step.part.name}."
        new = Piece("", PieceKind.PLUGIN, step.part.name, why, step.part.plugin)
        changed = step.changed([piece.text for piece in pieces], self._draft)
        return [known[text].popleft() if known.get(text) else replace(new, text=text) for text in changed]

    def _of_section(self, step: Section) -> list[Piece]:
        texts = step.render(self._draft)
        if isinstance(step, BlockSection):
            paths = self._draft.index.paths(step.tag)
            return [
                self._of_block(text, step.tag, self._blocks[paths[index - 1]])
                if 0 < index <= len(paths)
                else _markup(text, step.tag)
                for index, text in enumerate(texts)
            ]
        if isinstance(step, PluginSection):
            why = f"Section <{step.tag}> of the plugin {step.part.plugin}."
            return [Piece(text, PieceKind.PLUGIN, step.tag, why, step.part.plugin) for text in texts]
        return [self._own(text, step.tag) for text in texts]

    def _own(self, text: str, tag: str) -> Piece:
        prompt = self._draft.prompt
        if tag == "prompt" and prompt:
            why = f"The task of loop {self._draft.loop}."
            return self._reduced_piece(Piece(text, PieceKind.PROMPT, tag, why, prompt.path, _form(prompt)))
        if tag == "budget":
            return Piece(text, PieceKind.BUDGET, tag, _FIGURES)
        if tag == "project-instructions" and self._project:
            return Piece(text, PieceKind.PROJECT_INSTRUCTIONS, tag, files_words(self._project), PROJECT_PATH)
        return Piece(text, PieceKind.INSTRUCTIONS, tag, _RULES)

    def _of_block(self, text: str, tag: str, block: Block) -> Piece:
        kind, form = _kind(block), _form(block)
        why = _WHY[tag](block)
        if tag == "summary":
            if block.is_visible:
                return Piece(text, kind, tag, why, block.path, Form.SUMMARIZED)
            form = Form.SUMMARIZED
        whole = 0 if form is Form.WHOLE else block.s_tokens + block.a_tokens
        return self._reduced_piece(Piece(text, kind, tag, why, block.path, form, whole_tokens=whole))

    def _reduced_piece(self, piece: Piece) -> Piece:
        reduced = self._reduced.get(piece.path) if piece.form is Form.SUMMARIZED else None
        return replace(piece, reduced_by=reduced.step, reduced_in_turn=reduced.turn) if reduced else piece


def _markup(text: str, tag: str) -> Piece:
    return Piece(text, PieceKind.MARKUP, tag, f"Tag of the section <{tag}>.")


def _kind(block: Block) -> PieceKind:
    if block.prompt:
        return PieceKind.PROMPT
    if block.plan:
        return PieceKind.PLAN
    if block.event:
        return PieceKind.EVENT
    if block.category == "unknown":
        return PieceKind.UNKNOWN
    if block.category == "logging":
        return PieceKind.RECORD
    return PieceKind.ENTRY if block.scheme else PieceKind.FILE


def _form(block: Block) -> Form:
    return Form.WHOLE if block.is_visible else Form.SUMMARIZED


def _touched(block: Block) -> str:
    return f"last touched in turn {block.turn}" if block.turn else "not touched by a turn"


def _of_summary(block: Block) -> str:
    if block.is_visible:
        return "Entries with data are listed here, condensed; this one stands whole in <visible>, too."
    return f"Summarized; {_touched(block)}. Its body is left out."


def _of_log(block: Block) -> str:
    if block.prompt:
        return "The task of an earlier loop."
    if block.plan:
        return f"What was added to the plan {block.plan.plan_id}; never summarized."
    if block.event:
        if is_marker(block):
            return "Stands for events that were archived."
        return f"An event of turn {block.turn}; kept until events are folded."
    return f"A record of turn {block.turn}; the log keeps what happened."


_WHY: Final[Mapping[str, Callable[[Block], str]]] = {
    "summary": _of_summary,
    "visible": lambda block: f"Visible; {_touched(block)}.",
    "plans": lambda block: (
        f"The latest version of the plan {block.plan.plan_id if block.plan else ''}; never summarized."
    ),
    "log": _of_log,
    "unknowns": lambda _: "A question that is still open.",
}
