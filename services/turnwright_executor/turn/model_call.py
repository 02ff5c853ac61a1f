"""The record of a turn's model call, stored with the reply, so that a turn that waits for a decision can end later.

It is stored in the attributes of `assistant://N` under `call`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace
from turnwright_values.types import Entry, ReplyKind, TurnResult

from turnwright_core.converters import converter
from turnwright_core.json_text import JsonObject
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tally import LostChange
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.packets import Packet
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.recording import ParsedReply
from turnwright_grammar.reply import Command

FINGERPRINT_CHARS: Final = 32

# What a model says about its work varies from turn to turn even while the work goes in circles.
_PROSE: Final = frozenset({"think", "update"})


def fingerprint(commands: Sequence[Command]) -> str:
    """Digest of a turn's commands with attributes and bodies, in order; an empty turn has one too.

    The order of attributes is ignored, and so is the text of think and update.
    """
    acts = [
        [command.name, sorted(command.attributes.items()), "" if command.name in _PROSE else command.body]
        for command in commands
    ]
    text = json.dumps(acts, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_CHARS]


CALL: Final = "call"


class ModelCallRecord(Struct, frozen=True):
    """What a turn's model call determines of the turn's result, and what else is known of it."""

    result: TurnResult = TurnResult(kind=ReplyKind.REPLY)
    """With what is charged for calls of the turn that were lost with their executors."""
    is_cut: bool = False
    """Whether the vendor cut the reply off."""
    render_version: str = ""
    """What rendered the packet."""
    model: str = ""
    """`vendor/model` that was called."""
    losses: int = 0
    """Parse errors of the reply."""
    commands: int = 0
    unread: int = 0
    """Commands among them that could not be read."""
    ignored: int = 0
    """As in ParsedReply."""
    room_chars: int | None = None
    """Code points that the turn may add and that certainly fit into the next packet; None: unknown."""
    is_edited: bool = False
    """Whether the packet has edits; they are stored with it, not here."""
    lost_changes: tuple[LostChange, ...] = ()
    """Changes among the commands that could not be read."""

    def to_json(self) -> JsonObject:
        noted: JsonObject = to_builtins(self)
        result: JsonObject = noted.pop("result")
        for name in ("edits", "kind"):
            result.pop(name, None)
        return result | noted


_record_of: Final = converter(ModelCallRecord)
_result_of: Final = converter(TurnResult)


def model_call_record(
    packet: Packet, draft: Draft, reading: ParsedReply, lost: tuple[int, float], room: int | None, model: str
) -> ModelCallRecord:
    """The record of a call that was just made; `lost` are tokens and US dollars of lost calls before it."""
    result = TurnResult(
        finish=draft.finish,
        usage=draft.usage,
        packet_digest=packet.report.digest,
        packet_tokens=packet.report.tokens,
        calibration=packet.rate.calibration,
        token_source=packet.rate.source,
        cursor=packet.report.cursor,
        first_delta_ms=draft.first_delta_ms,
        model_ms=draft.model_ms,
        fingerprint=fingerprint(reading.commands),
        vendor_model=draft.vendor_model,
        path=draft.path,
        dropped=draft.dropped,
        lost_tokens=lost[0],
        lost_cost_usd=lost[1],
        kind=ReplyKind.REPLY,
        compression=packet.report.compression,
        edits=packet.report.edits,
    )
    return ModelCallRecord(
        result,
        draft.is_cut,
        packet.report.render_version,
        model,
        len(reading.losses),
        len(reading.commands),
        reading.unread,
        reading.ignored,
        room,
        bool(packet.report.edits),
        reading.lost_changes,
    )


async def with_edits(ledger: Ledger, address: RunAddress, turn: int, note: ModelCallRecord) -> ModelCallRecord:
    """A record that was read from an entry, with the edits of its packet."""
    packet = await ledger.read_packet(address, turn) if note.is_edited else None
    return replace(note, result=replace(note.result, edits=packet.report.edits)) if packet else note


def model_call_from_entry(entry: Entry) -> ModelCallRecord:
    """The record stored with a reply; an empty one if there is none."""
    stored = entry.attributes.get(CALL) or {}
    return replace(_record_of(stored), result=replace(_result_of(stored), kind=ReplyKind.REPLY))
