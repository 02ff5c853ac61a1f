"""The steps of a turn up to its records: assemble the packet, call the model, RECORD the reply.

Source: architecture 2, 11; rows RU128-RU131, RU142, RU199, RU224; decisions C16, C36.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile, zip_longest
from typing import Final

from msgspec import to_builtins
from msgspec.structs import replace
from turnwright_values.replies import TakenBack, ToolCall
from turnwright_values.store import EndTurnRequest, EntryWrite, LoopEnd, SetEntry, WriteEntriesResponse
from turnwright_values.types import CallStyle, RunPath, State, Tier, TurnResult, Visibility

from turnwright_core.chat.deltas import AppendContent
from turnwright_core.chat.message import Image
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.chat.timeline import CALLS, COMMANDS, PROSE, SUMMARIZES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.json_text import JsonObject
from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, CALL_ID_CHARS_MAX, NAME_CHARS_MAX
from turnwright_core.runs import RUNNING
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import TOO_LONG
from turnwright_executor.domain.records import error_path
from turnwright_executor.domain.tokens import TOKEN_CHARS_MAX, TokenRate, calibration_of, ratio_of
from turnwright_executor.ports.packets import Packet, StoredPacket
from turnwright_executor.ports.publishing import StreamEnded, StreamGrew
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.images import edits_of, read_images, with_images_named
from turnwright_executor.turn.loop_scope import LoopScope, in_turn
from turnwright_executor.turn.machine import TurnState
from turnwright_executor.turn.model_call import CALL, ModelCallRecord, model_call_record
from turnwright_executor.turn.recording import (
    TOO_LARGE,
    ParsedReply,
    RecordingGate,
    answer_checked,
    loss_writes,
    lost_call_id,
    new_records,
    read_aside,
)
from turnwright_executor.turn.records import error_write, moved_calls, new_record_write, refused_notes
from turnwright_executor.turn.turn_budget import (
    after_refusal,
    overflow_reason,
    refusal_note,
    reported_window,
    room_left,
)

# What is stored of a reply besides its commands: text and reasoning as entries, all else as attributes.
#
# A call is stored once, in the record of its command; the reply names that record's path. Data that only the vendor can
# read (signatures, blocks of thinking and of its own tools) is stored unchanged, to be sent back to it.
# Source: rows RU128, RU153; decisions C40, C41.

CALLS_BYTES_MAX: Final = ATTRIBUTES_BYTES_MAX // 4
"""Maximum size of the list of calls with ids, signatures and arguments, in bytes of JSON; longer ones are truncated."""

CALLS_CHARS_MAX: Final = ATTRIBUTES_BYTES_MAX // 8
"""Maximum length of the arguments of truncated calls together, in code points."""

VENDORS_BYTES_MAX: Final = ATTRIBUTES_BYTES_MAX // 2
"""Maximum size of data for the vendor, in bytes of JSON."""


def reply_writes(
    turn: int,
    draft: Draft,
    reading: ParsedReply,
    note: ModelCallRecord,
    records: Sequence[CommandRecord],
    summarizes: Sequence[str] = (),
) -> list[EntryWrite]:
    """The raw reply and its reasoning, as audit entries. `summarizes` are the messages that it replaces."""
    attributes = {
        SUMMARIZES: list(summarizes),
        CALL: note.to_json(),
        "finish": draft.finish,
        CALLS: _calls(turn, reading, records),
        PROSE: reading.prose,
        COMMANDS: _tagged(reading, records) if reading.prose is not None else [],
        "warnings": [{"kind": warning.kind, "message": warning.message} for warning in reading.warnings],
        **_of_vendor(draft),
    }
    path = f"assistant://{turn}"
    writes = [_audit(path, draft.text, {key: value for key, value in attributes.items() if value})]
    if draft.reasoning:
        writes.append(_audit(f"reasoning://{turn}", draft.thoughts, {}))
    return writes


def _tagged(reading: ParsedReply, records: Sequence[CommandRecord]) -> list[str]:
    return [record.path for record, call in zip_longest(records, reading.calls) if record and call is None]


def _calls(turn: int, reading: ParsedReply, records: Sequence[CommandRecord]) -> list[JsonObject]:
    """The calls in order, with their records' paths. Calls without a record, or with an empty one, stay as received."""
    if not (reading.lost_calls or any(reading.calls)):
        return []
    chars = CALLS_CHARS_MAX // max(1, len(reading.lost_calls) + len(records))
    for chars_kept in (ATTRIBUTES_BYTES_MAX, chars):
        kept = [
            (call.index, _recorded(record, call, chars_kept))
            for record, call in zip(records, reading.calls, strict=False)
            if call is not None
        ]
        kept += [
            (lost.call.index, _lost(lost_call_id(turn, reading, index), lost.call, chars_kept))
            for index, lost in enumerate(reading.lost_calls)
        ]
        calls = [one for _, one in sorted(kept, key=lambda one: one[0])]
        if len(to_attributes_json({CALLS: calls}).encode()) <= CALLS_BYTES_MAX:
            break
    return calls


def _recorded(record: CommandRecord, call: ToolCall, chars: int) -> JsonObject:
    fields = {"path": record.path, **_ids(record.call_id, call, chars)}
    return fields | _written(call, chars) if record.outcome == TOO_LARGE.outcome else fields


def _lost(call_id: str, call: ToolCall, chars: int) -> JsonObject:
    return {**_ids(call_id, call, chars), **_written(call, chars)}


def _ids(call_id: str, call: ToolCall, chars: int) -> JsonObject:
    vendor_id = call.id if len(call.id) <= min(chars, CALL_ID_CHARS_MAX) else ""
    signature = call.signature if len(call.signature) <= chars else ""
    fields: JsonObject = {"call_id": call_id, "id": vendor_id, "signature": signature}
    fields = {name: value for name, value in fields.items() if value}
    return fields if call.block is None else {**fields, "block": call.block}


def _written(call: ToolCall, chars: int) -> JsonObject:
    fields: JsonObject = {"name": call.name[:NAME_CHARS_MAX], "arguments": call.arguments[:chars]}
    return fields | ({"chars": len(call.arguments)} if len(call.arguments) > chars else {})


def _of_vendor(draft: Draft) -> JsonObject:
    """What the vendor returned besides the text, as far as it fits, and the names of what does not."""
    message = draft.message()
    data = {
        "thinking": to_builtins(message.thinking),
        "server_blocks": to_builtins(message.server_blocks),
        "citations": list(message.citations),
        # A text: how deep an object is nested is the vendor's business.
        "extra": message.extra,
    }
    kept: JsonObject = {}
    for name, value in data.items():
        if value and len(to_attributes_json({**kept, name: value}).encode()) <= VENDORS_BYTES_MAX:
            kept[name] = value
    left_out = [name for name, value in data.items() if value and name not in kept]
    left_out += [f"extra.{name[:NAME_CHARS_MAX]}" for name in draft.refused]
    return kept | ({"left_out": left_out} if left_out else {})


def _audit(path: str, body: str, attributes: dict[str, object]) -> EntryWrite:
    change = SetEntry(body=body, attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(path, change, writer=Tier.SYSTEM)


REFUSALS_MAX: Final = 3
"""Turns in a row whose packets a vendor may find too long before the loop ends."""


class ModelSteps:
    """Carries out the steps around a model call."""

    def __init__(self, scope: LoopScope, narrow: Callable[[int], None]) -> None:
        """`narrow` gives the turns from the next one on a window of this many tokens."""
        self._scope = scope
        self._narrow = narrow
        self._edits = edits_of(scope.loop)
        self._stored_packet: StoredPacket | None = None
        self._read_images: tuple[str, Sequence[Image]] | None = None
        """Of the packet with this digest."""

    async def assemble(self, state: TurnState) -> None:
        """Get the packet: the stored one if the turn was resumed, else a newly assembled and stored one.

        Never assembled twice: the model may have been answering the first packet when its reply was lost.
        """
        scope, open_turn, ledger = self._scope, self._scope.open, self._scope.services.ledger
        number, draft, epoch = open_turn.turn.number, scope.unsaved.draft, scope.claim.epoch
        if open_turn.at_least is None and (stored := await ledger.read_packet(scope.address, number)):
            lost = scope.claim.turn_calls - draft.unmade_calls - draft.is_whole
            scope.spend_meter.reserve(stored.expected_tokens, max(0, lost))
            if not draft.is_whole:
                await ledger.call_again(scope.address, epoch, number, scope.spend_meter.reserved)
            if self._scope.open.is_compaction:
                # What it replaces follows from the same entries again.
                again = await self._assembled(stored.rate)
                report = replace(
                    stored.report,
                    after_reply=again.report.after_reply,
                    replaced_chars=again.report.replaced_chars,
                )
                stored = replace(stored, report=report)
            open_turn.packet = stored
            state.is_assembled = True
            return
        base = self._stored_packet
        rate = scope.token_rate()
        packet = await (self._assembled(rate) if rate.source else self._first_packet())
        if packet.report.overflow:
            await self._overflow(state, packet)
            return
        scope.spend_meter.reserve(packet.expected_tokens)
        reserved, kind = scope.spend_meter.reserved, scope.view_changes.kind
        ack = await ledger.write_packet(scope.address, epoch, number, packet, base.turn if base else 0, kind, reserved)
        scope.view_changes.begin(packet.report.cursor)
        scope.view_changes.add(ack.cursor, ack.view_change)
        open_turn.packet, self._stored_packet = packet, StoredPacket.of(number, packet)
        if open_turn.at_least:
            await scope.publisher.caught_up(open_turn.at_least)
        state.is_assembled = True

    async def _assembled(self, rate: TokenRate, edits: Sequence[PromptEdit] | None = None, window: int = 0) -> Packet:
        """The packet with these edits, or else those of the loop (none for a summary) and of plugins.

        `window` is the length of the context window in tokens; 0: the turn's.
        """
        scope, open_turn = self._scope, self._scope.open
        own = () if self._scope.open.is_compaction else self._edits
        turn = open_turn.turn
        turn = replace(turn, request=replace(turn.request, context_length=window)) if window else turn
        return await scope.services.packets.assemble(
            scope.address, turn, open_turn.at_least, rate, self._stored_packet, scope.view_changes.all(),
            own if edits is None else edits,
            plugins=edits is None,
            prefill=scope.model.capabilities.prefill is True,
        )  # fmt: skip

    async def _first_packet(self) -> Packet:
        """The packet of a turn before which no vendor has counted any, made to fit by a count of its tokens."""
        scope = self._scope
        # Nothing gives way that may fit: what is left out cannot be counted.
        packet = await self._assembled(TokenRate(scope.services.settings.token_divisor / TOKEN_CHARS_MAX))
        images = await self._images(packet)
        report = packet.report
        by_vendor = await scope.services.models.count_tokens(scope.model, packet.messages, images, report.ceiling)
        rate = TokenRate(ratio_of(by_vendor[0], report.tokens), by_vendor[1]) if by_vendor else TokenRate()
        counted = replace(packet, rate=rate)
        changes = [effect.change for effect in report.effects]
        hides = any(isinstance(one, SetEntry) and one.visibility is not Visibility.UNSPECIFIED for one in changes)
        if report.overflow or hides or counted.expected_tokens > report.ceiling:
            return await self._assembled(rate, report.edits)
        return counted

    async def _images(self, packet: Packet) -> Sequence[Image]:
        if self._read_images is None or self._read_images[0] != packet.report.digest:
            read = await read_images(
                self._scope.services.ledger, self._scope.address, self._scope.loop, packet.messages
            )
            self._read_images = packet.report.digest, read
        return self._read_images[1]

    async def _overflow(self, state: TurnState, packet: Packet) -> None:
        """The packet cannot be made to fit: the loop ends."""
        scope, number = self._scope, self._scope.open.turn.number
        result = self._too_long(packet, TOO_LONG.status)
        end = LoopEnd(TOO_LONG.status, overflow_reason(packet))
        ledger = scope.services.ledger
        await ledger.end_turn(
            scope.address,
            scope.claim.epoch,
            EndTurnRequest(turn=number, result=result, writes=packet.report.effects, loop_end=end),
        )
        scope.concluded(state, result, end)

    async def generate(self, state: TurnState) -> None:
        scope, turn = self._scope, self._scope.open.turn
        images = await self._images(self._packet)
        # Commands start in the root.
        root = scope.placement.root
        try:
            await scope.services.generation.run(
                scope.publisher,
                turn,
                scope.model,
                self._packet.messages,
                scope.turns_ended,
                partial(scope.unsaved.begin_reply, turn.number, RunPath(root, root)),
                self._again,
                scope.slot.sleep,
                images,
                refused=scope.refused_before(turn),
                limits_cost=scope.spend_meter.limits_cost,
            )
        except TurnwrightError as error:
            if error.reason is not Reason.CONTEXT_EXCEEDED or not await self._shortened(state, error):
                raise with_images_named(error, scope.loop) from None
            return
        scope.spend_meter.charge_reply(scope.unsaved.draft)
        scope.events.replied(turn.number, scope.unsaved.draft)
        state.is_replied = True

    async def _shortened(self, state: TurnState, error: TurnwrightError) -> bool:
        """End a turn whose packet its vendor found too long; the next one is assembled for what the vendor told.

        False: no shorter packet can be made, or enough of them were refused.
        """
        scope, packet = self._scope, self._packet
        number, length = scope.open.turn.number, scope.open.turn.request.context_length
        refused = takewhile(lambda result: result.error == TOO_LONG.outcome, reversed(scope.recent))
        window, rate = after_refusal(packet, length, error.metadata)
        if len(list(refused)) >= REFUSALS_MAX:
            return False
        shorter = await self._assembled(rate, packet.report.edits, window)
        if shorter.report.overflow or shorter.report.tokens >= packet.report.tokens:
            return False
        strikes = scope.recent[-1].strikes if scope.recent else 0
        reported = reported_window(error, scope.model, scope.address.run, number)
        result = replace(self._too_long(replace(packet, rate=rate), RUNNING), reported_window=reported)
        result = scope.spend_meter.with_spend(replace(result, strikes=strikes))
        # For people: the model has not seen the packet.
        note = error_write(error_path(number, TOO_LONG.word, ()), TOO_LONG.outcome, refusal_note(error, reported))
        note = replace(note, change=replace(note.change, visibility=Visibility.ARCHIVED))
        ended = EndTurnRequest(turn=number, result=result, writes=[note])
        ack = await scope.services.ledger.end_turn(scope.address, scope.claim.epoch, ended)
        scope.view_changes.add(ack.cursor, None)
        scope.concluded(state, result)
        self._narrow(window)
        return True

    def _too_long(self, packet: Packet, status: int) -> TurnResult:
        return TurnResult(
            error=TOO_LONG.outcome, status=status, reason=TOO_LONG.word, packet_digest=packet.report.digest,
            packet_tokens=packet.report.tokens, calibration=packet.rate.calibration, token_source=packet.rate.source,
            cursor=packet.report.cursor, compression=packet.report.compression, edits=packet.report.edits,
            dropped=self._scope.refused_before(self._scope.open.turn),
        )  # fmt: skip

    @property
    def _packet(self) -> Packet:
        packet = self._scope.open.packet
        if packet is None:
            raise AssertionError("a packet is assembled before it is sent")
        return packet

    async def _again(self) -> None:
        """Account for a lost call that is about to be repeated. Raises BudgetError, TurnwrightError."""
        scope = self._scope
        scope.spend_meter.lose_call(scope.unsaved.draft)
        number, reserved = scope.open.turn.number, scope.spend_meter.reserved
        await scope.services.ledger.call_again(scope.address, scope.claim.epoch, number, reserved)

    async def record(self, state: TurnState) -> None:
        """Make the reply and its commands durable.

        If all commands are pure, this is left to the write buffer, which writes them with their results (C58).
        """
        scope, open_turn, draft = self._scope, self._scope.open, self._scope.unsaved.draft
        turn, packet, services = open_turn.turn, self._packet, scope.services
        open_turn.reading = reading = await self._read(draft)
        if reading.parts:
            scope.publisher.stream(turn.number, StreamGrew(None, reading.parts))
        scope.publisher.stream(turn.number, StreamEnded(draft.finish, draft.usage))
        lost = loss_writes(turn.number, reading)
        room = room_left(packet, calibration_of(draft.usage, packet.report.tokens) or packet.rate.calibration, lost)
        open_turn.note = model_call_record(
            packet, draft, reading, scope.spend_meter.lost, room, turn.request.vendor_model
        )
        mode = scope.loop.settings.mode
        at = scope.events.at(turn.number)
        gate = RecordingGate(services.hooks, services.tools, at, mode, scope.tools, services.targets)
        records = await new_records(gate, reading)
        summary = summary_writes(packet, reading.narration)
        replied = reply_writes(turn.number, draft, reading, open_turn.note, records, _archived(summary))
        if open_turn.is_compaction and not summary:
            # What is no summary stands for nothing: it is kept, and not sent again.
            replied[0] = replace(replied[0], change=replace(replied[0].change, visibility=Visibility.ARCHIVED))
        writes = [*replied, *lost, *refused_notes(turn.number, draft.dropped, scope.refused_before(turn))]
        if {record.effect_class for record in records} - {EffectClass.PURE}:
            written = [in_turn(write, turn) for write in (*writes, *map(new_record_write, records))]
            records, writes = await self._written(records, written), []
        scope.events.recorded(turn.number, records)
        scope.recorded(state, {record.path: record for record in records}, writes)

    async def _read(self, draft: Draft) -> ParsedReply:
        """The commands of the reply, and the text around them."""
        scope = self._scope
        is_native = scope.open.turn.request.calls is CallStyle.NATIVE
        commands_max = scope.services.settings.turn_commands_max
        read = await read_aside(draft, commands_max, scope.services.tools, is_native=is_native)
        if scope.open.is_compaction:
            # A summary is text: it calls nothing, and is no answer.
            whole = () if read.prose is None else (TakenBack(len(read.narration), 0), AppendContent(draft.text))
            return ParsedReply(narration=draft.text, parts=(*read.parts, *whole))
        return await answer_checked(read, scope.loop.settings.response_format)

    async def _written(self, records: list[CommandRecord], writes: list[EntryWrite]) -> list[CommandRecord]:
        """The records with the paths that the store has assigned."""
        ack = await self._write(writes)
        stored = zip(records, ack.paths[-len(records) :], strict=True)
        renamed = {record.path: path for record, path in stored if record.path != path}
        if renamed:
            await self._write([moved_calls(writes[0], renamed)])
        return [replace(record, path=renamed.get(record.path, record.path)) for record in records]

    async def _write(self, writes: list[EntryWrite]) -> WriteEntriesResponse:
        scope = self._scope
        changes = scope.view_changes
        ack = await scope.services.ledger.write(
            scope.address, scope.claim.epoch, writes, full=True, view_filter=changes.wanted
        )
        changes.add(ack.cursor, ack.view_change)
        return ack


def summary_writes(packet: Packet | None, text: str) -> Sequence[EntryWrite]:
    """The writes by which a reply replaces messages; none unless it is a summary, and shorter than what it replaces."""
    if packet is None or not text.strip() or len(text) >= packet.report.replaced_chars:
        return ()
    return packet.report.after_reply


def _archived(writes: Sequence[EntryWrite]) -> list[str]:
    """The paths of the messages that a summary replaces."""
    changes = ((write.path, write.change) for write in writes)
    return [
        path for path, change in changes if isinstance(change, SetEntry) and change.visibility is Visibility.ARCHIVED
    ]
