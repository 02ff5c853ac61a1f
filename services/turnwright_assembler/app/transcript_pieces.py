"""The pieces of a transcript: its messages, each with the entry that it says and why it is in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from turnwright_assembler.app.packet_pieces import system_pieces, tool_pieces
from turnwright_assembler.app.transcript import Transcript
from turnwright_assembler.domain.explanation import FittingStep, Piece, PieceKind
from turnwright_assembler.sections.plugin_sections import PacketPlugins
from turnwright_assembler.sections.system import SYSTEM_PATH
from turnwright_core.chat.message import Role
from turnwright_core.chat.transcript import CONVERSATION, decoded
from turnwright_core.entries import Entry, SetEntry, Visibility

_KINDS: Final = {Role.USER: PieceKind.PROMPT, Role.ASSISTANT: PieceKind.REPLY, Role.TOOL: PieceKind.RESULT}
_STEPS: Final = {Visibility.SUMMARIZED: "stub", Visibility.ARCHIVED: "drop"}


def explained_transcript(
    told: Transcript, entries: Mapping[str, Entry], packet_plugins: PacketPlugins
) -> tuple[dict[str, list[Piece]], tuple[FittingStep, ...]]:
    """The pieces by role, and the steps by which it was made to fit."""
    attributes = json.loads(entries[SYSTEM_PATH].attributes_json or "{}") if SYSTEM_PATH in entries else {}
    pieces: dict[str, list[Piece]] = {}
    for role, parts in told.messages:
        text = "".join(parts)
        if role == "system":
            pieces[role] = system_pieces(text, attributes, packet_plugins)
        elif role == "tools":
            pieces[role] = list(tool_pieces(text, attributes))
        elif role == CONVERSATION:
            pieces[role] = [_message(line) for line in text.splitlines(keepends=True)]
    return pieces, _steps(told)


def _message(line: str) -> Piece:
    role = decoded(line)[0].role
    why = "A message of the run; a transcript has all that fit."
    return Piece(line, _KINDS.get(role, PieceKind.NOTICE), role.value, why)


def _steps(told: Transcript) -> tuple[FittingStep, ...]:
    paths: dict[str, list[str]] = {}
    for effect in told.effects:
        if isinstance(effect.change, SetEntry) and effect.change.visibility in _STEPS:
            paths.setdefault(_STEPS[effect.change.visibility], []).append(effect.path)
    return tuple(FittingStep(name, tuple(of)) for name, of in paths.items())
