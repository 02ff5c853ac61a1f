"""The record of a turn's model call, stored with the reply, so that a turn that waits for a decision can end later.

It is stored in the attributes of `assistant://N` under `call`.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct, field, to_builtins
from msgspec.structs import replace

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.entries import Cursor, Entry
from turnwright_core.runs import CompressionStrength, ReplyKind, TokenSource, TurnResult, Usage
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.fingerprint import fingerprint
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.packets import Packet
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.recording import ParsedReply

CALL: Final = "call"


class ModelCallRecord(Struct, frozen=True):
    """Packet, usage and durations of a turn's model call.

    `is_cut`: the vendor cut the reply off. `commands` counts those of the reply, `losses` its parse errors.
    `lost_tokens` and `lost_cost_usd` are charged for calls of the turn that were lost with their executors.
    `render_version` identifies what rendered the packet.
    """

    finish: str = ""
    is_cut: bool = False
    usage: Usage = field(default_factory=Usage)
    packet_digest: str = ""
    packet_tokens: int = 0
    calibration: float = 0.0
    token_source: TokenSource = TokenSource.UNSPECIFIED
    render_version: str = ""
    cursor: Cursor | None = None
    first_delta_ms: int = 0
    vendor_model: str = ""
    model: str = ""
    """`vendor/model` that was called."""
    dropped: tuple[str, ...] = ()
    model_ms: int = 0
    fingerprint: str = ""
    losses: int = 0
    commands: int = 0
    lost_tokens: int = 0
    lost_cost_usd: float = 0.0
    compression: CompressionStrength = CompressionStrength.UNSPECIFIED
    """How far the transcript was compressed."""
    room_chars: int | None = None
    """Code points that the turn may add and that certainly fit into the next packet; None: unknown."""
    edits: tuple[PromptEdit, ...] = ()
    """Those of the packet; they are stored with it."""
    is_edited: bool = False

    def to_json(self) -> dict[str, Any]:
        noted: dict[str, Any] = to_builtins(replace(self, edits=()))
        left_out = ("edits",) if self.is_edited else ("edits", "is_edited")
        return {name: value for name, value in noted.items() if name not in left_out}

    def result(self) -> TurnResult:
        """The part of a turn's result that the call determines."""
        return TurnResult(
            finish=self.finish,
            usage=self.usage,
            packet_digest=self.packet_digest,
            packet_tokens=self.packet_tokens,
            calibration=self.calibration,
            token_source=self.token_source,
            cursor=self.cursor,
            first_delta_ms=self.first_delta_ms,
            model_ms=self.model_ms,
            fingerprint=self.fingerprint,
            vendor_model=self.vendor_model,
            dropped=self.dropped,
            kind=ReplyKind.REPLY,
            compression=self.compression,
            edits=self.edits,
        )


def model_call_record(
    packet: Packet, draft: Draft, reading: ParsedReply, lost: tuple[int, float], room: int | None, model: str
) -> ModelCallRecord:
    """The record of a call that was just made; `lost` are tokens and US dollars of lost calls before it."""
    return ModelCallRecord(
        finish=draft.finish,
        is_cut=draft.is_cut,
        usage=draft.usage,
        packet_digest=packet.digest,
        packet_tokens=packet.tokens,
        calibration=packet.rate.calibration,
        token_source=packet.rate.source,
        render_version=packet.render_version,
        cursor=packet.cursor,
        first_delta_ms=draft.first_delta_ms,
        model_ms=draft.model_ms,
        fingerprint=fingerprint(reading.commands),
        vendor_model=draft.vendor_model,
        model=model,
        dropped=draft.dropped,
        losses=len(reading.losses),
        commands=len(reading.commands),
        lost_tokens=lost[0],
        lost_cost_usd=lost[1],
        compression=packet.compression,
        room_chars=room,
        edits=packet.edits,
        is_edited=bool(packet.edits),
    )


async def with_edits(ledger: Ledger, address: RunAddress, turn: int, note: ModelCallRecord) -> ModelCallRecord:
    """A record that was read from an entry, with the edits of its packet."""
    packet = await ledger.read_packet(address, turn) if note.is_edited else None
    return replace(note, edits=packet.edits) if packet else note


def model_call_from_entry(entry: Entry) -> ModelCallRecord:
    """The record stored with a reply; an empty one if there is none."""
    stored = dict(entry.attributes.get(CALL) or {})
    usage, cursor = stored.pop("usage", None), stored.pop("cursor", None)
    stored["dropped"] = tuple(stored.get("dropped") or ())
    stored["token_source"] = TokenSource(stored.get("token_source") or 0)
    stored["compression"] = CompressionStrength(stored.get("compression") or 0)
    note = ModelCallRecord(**stored)
    return replace(note, usage=Usage(**usage) if usage else Usage(), cursor=Cursor(**cursor) if cursor else None)
