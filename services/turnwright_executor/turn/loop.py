"""One loop, from the ledger to its end or to a decision that somebody has to make.

A turn is told in the order of its steps: begin, assemble, generate, record, dispatch, verdict. Everything that a step
leaves behind is in the store before the next one needs it, so a loop that was left anywhere is taken up by reading
its ledger: an open turn without records asks the model again, one with records goes on dispatching them.
Source: architecture 2, 11; rows RU005, RU007, RU127-RU142, RU199; decisions C3, C20, C27, C29, C36.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum

from turnwright_core.entries import Cursor, Entry, EntryWrite, State
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import PROPOSED, RUNNING, Loop, LoopEnd, Turn, TurnResult, Usage
from turnwright_core.values import frozen, mutable
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.fingerprint import fingerprint
from turnwright_executor.domain.footprint import QUIET_TOOLS
from turnwright_executor.domain.tokens import calibration_of
from turnwright_executor.domain.toolset import resolve_tools
from turnwright_executor.domain.verdict import REFUTED_OUTCOME, Verdict
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.ports.address import RunAddress
from turnwright_executor.ports.ledger import Claim, Ledger
from turnwright_executor.ports.packets import Packet, Packets, StoredPacket
from turnwright_executor.tools.contract import Done, Tool, failed
from turnwright_executor.tools.ports import Shell, Workspace
from turnwright_executor.turn.accepting import Proposals
from turnwright_executor.turn.dispatch import DispatchScope, Progress, dispatch, named_paths
from turnwright_executor.turn.generation import Draft, Generation, empty
from turnwright_executor.turn.hook_events import HookEvents
from turnwright_executor.turn.judging import facts_of, judge, limits_of
from turnwright_executor.turn.model_call import ModelCallRecord, note_from_entry, note_of
from turnwright_executor.turn.opener import TurnOpener
from turnwright_executor.turn.opening import begun_with, instructions_write, model_of, turn_request
from turnwright_executor.turn.project_files import FileSync
from turnwright_executor.turn.recording import (
    Gate,
    Reading,
    loss_writes,
    new_records,
    read_aside,
    record_writes,
    reply_writes,
)
from turnwright_executor.turn.records import Record, is_command, record_from_entry, record_write
from turnwright_executor.turn.spend_meter import SpendMeter
from turnwright_executor.turn.turn_budget import demote_turn, may_exceed, overflow_reason, room_left
from turnwright_executor.turn.write_buffer import PATHS_AHEAD_MAX, WriteBuffer
from turnwright_executor.watching.hub import RunHub


class LoopOutcome(Enum):
    """Why a driver let go of its loop."""

    ENDED = "ended"
    PARKED = "parked"


@frozen
class Services:
    """What every loop uses."""

    ledger: Ledger
    packets: Packets
    generation: Generation
    tools: Mapping[str, Tool]
    tool_docs: Mapping[str, str]
    tool_docs_brief: Mapping[str, str]
    """What models with a small window read about tools."""
    settings: ExecutorSettings
    hooks: Hooks


@frozen
class Place:
    """Where a loop works: its events, and the project on this host. `files` is None without the project's files."""

    hub: RunHub
    workspace: Workspace
    shell: Shell
    files: FileSync | None


@mutable
class _OpenTurn:
    """A turn between its begin and its verdict."""

    turn: Turn
    at_least: Cursor | None
    records: list[Record]
    note: ModelCallRecord
    reading: Reading
    unwritten: list[EntryWrite]
    is_left: bool = False
    """Whether an earlier owner carried out commands of which this one does not know what they brought."""
    is_demoted: bool = False
    """Whether what it brought did not fit and was summarized."""
    ahead: dict[str, Entry | None] = field(default_factory=dict)
    """What was read with the records: entries that the commands name, None for those that are not there."""


class LoopDriver:
    """Drives one claimed loop."""

    def __init__(
        self,
        services: Services,
        address: RunAddress,
        claim: Claim,
        loop: Loop,
        place: Place,
        draft: Draft,
        confirm: Callable[[], Awaitable[None]],
        came: dict[str, Done],
    ) -> None:
        """Take up what the ledger says of the loop. `draft` is filled while a reply streams.

        `confirm` makes sure of the lease before an effect on the world; it raises LEASE_LOST. A draft that is whole and
        of the open turn is its reply: the store could not take it yet. `came` is what came of outside effects of the
        open turn here, told to the store or not.
        """
        self.draft = draft
        self._confirm = confirm
        self._came = came
        self._services = services
        self._address = address
        self._claim = claim
        self._loop = loop
        self._place = place
        self._model = model_of(claim, loop)
        self._tools = resolve_tools(loop.settings, services.hooks.offers, services.settings.unconfigured_tools)
        self._recent = [turn.result for turn in claim.recent_turns if turn.result]
        self._turns_ended = loop.turns
        self._stored_packet: StoredPacket | None = None
        self._announcer = HookEvents(services.hooks, address, loop)
        self._spending = SpendMeter(services.ledger, address, claim.run, loop, time.monotonic)
        begun = begun_with(claim, loop)
        request = turn_request(claim.run, self._model, self._tools, services.settings.temperature, begun)
        is_brief = request.context_length < services.settings.brief_below
        docs = services.tool_docs_brief if is_brief else services.tool_docs
        instructions = instructions_write(claim.run, {name: docs[name] for name in self._tools}, is_brief=is_brief)
        self._beginning = TurnOpener(services.ledger, address, claim, loop, request, instructions, place.files)

    async def drive(self) -> LoopOutcome:
        """Turn after turn, until the loop ends or waits.

        Raises TurnwrightError when a service fails, OSError, and BudgetError when a budget is spent.
        """
        async with self._spending.opened(self.draft):
            return await self._turns()

    async def _turns(self) -> LoopOutcome:
        open_turn = await self._claimed_turn()
        while True:
            if open_turn is None:
                open_turn = await self._begin()
            if not open_turn.records and not await self._reply(open_turn):
                return LoopOutcome.ENDED
            room = self._room(open_turn)
            async with room.pending.kept():
                if await dispatch(room, open_turn.records) is Progress.PARKED:
                    return LoopOutcome.PARKED
                self._announcer.dispatched(open_turn.turn.number, open_turn.records)
                await self._check_budget(open_turn, room.pending)
                concluded = await self._conclude(open_turn, room.pending)
            if isinstance(concluded, LoopEnd):
                return LoopOutcome.ENDED
            open_turn = concluded

    # Begin ------------------------------------------------------------------------------------------------------

    async def _claimed_turn(self) -> _OpenTurn | None:
        """The turn that an earlier owner, or this one before a decision, left open."""
        turn = self._claim.open_turn
        if turn is None:
            return None
        if self.draft.turn != turn.number:
            empty(self.draft, turn.number)
        entries = [entry for entry in self._claim.records if is_command(entry)]
        note = ModelCallRecord()
        if entries:
            replies = await self._services.ledger.get_entries(self._address, [f"assistant://{turn.number}"])
            note = note_from_entry(replies[0]) if replies else note
        self._spending.resume_turn(note.model_ms, note.lost_tokens, note.lost_cost_usd)
        records = [record_from_entry(entry) for entry in entries]
        if self._loop.status == PROPOSED and not any(record.state is State.PROPOSED for record in records):
            await self._services.ledger.write(self._address, self._claim.epoch, [], run_status=RUNNING)
        is_left = any(record.state.is_settled and record.tool not in QUIET_TOOLS for record in records)
        return _OpenTurn(turn, None, records, note, Reading(), [], is_left=is_left)

    async def _begin(self) -> _OpenTurn:
        """Open the next turn by itself."""
        self._spending.begin_turn()
        turn, cursor = await self._beginning.begin(is_first=not self._turns_ended)
        return self._begun(turn, cursor)

    def _begun(self, turn: Turn, cursor: Cursor) -> _OpenTurn:
        empty(self.draft, turn.number)
        self._came.clear()
        self._announcer.begun(turn.number, first=not self._turns_ended)
        return _OpenTurn(turn, cursor, [], ModelCallRecord(), Reading(), [])

    # Reply ------------------------------------------------------------------------------------------------------

    async def _reply(self, open_turn: _OpenTurn) -> bool:
        """Assemble, ask the model, RECORD. False when the packet does not fit and the loop has ended."""
        turn = open_turn.turn
        packet = await self._packet(open_turn)
        if packet.overflow:
            await self._overflow(open_turn, packet)
            return False
        if open_turn.at_least:
            await self._place.hub.caught_up(open_turn.at_least)
        if not self.draft.is_whole:
            await self._ask(turn, packet)
        reading = await read_aside(self.draft, self._services.settings.max_commands, self._services.tools)
        open_turn.reading = reading
        mark, losses = fingerprint(reading.commands), len(reading.losses)
        calibration = self._calibration_now(self.draft.usage, packet.tokens)
        room = room_left(packet, calibration, loss_writes(turn.number, reading))
        open_turn.note = note_of(packet, self.draft, mark, losses, self._spending.lost, len(reading.commands), room)
        await self._record(open_turn)
        return True

    async def _ask(self, turn: Turn, packet: Packet) -> None:
        await self._services.generation.run(
            self._place.hub, turn, self._model, packet.messages, self._turns_ended, self.draft, self._again
        )
        self._spending.reply(self.draft)
        self._announcer.replied(turn.number, self.draft)

    async def _again(self) -> None:
        """A call is lost and shall be made again. Raises BudgetError, TurnwrightError."""
        self._spending.lose_call()
        await self._services.ledger.call_again(self._address, self._claim.epoch, self.draft.turn)

    async def _packet(self, open_turn: _OpenTurn) -> Packet:
        """What the model reads: what is stored of a turn that was left, else what is assembled and stored now.

        Never assembled again: a model that was sent one packet may have been answering it when its reply was lost.
        """
        ledger, turn = self._services.ledger, open_turn.turn
        if open_turn.at_least is None and (stored := await ledger.read_packet(self._address, turn.number)):
            lost = self._claim.turn_calls - self.draft.unmade_calls - self.draft.is_whole
            self._spending.reserve(stored.tokens, self._calibration(), max(0, lost))
            if not self.draft.is_whole:
                await ledger.call_again(self._address, self._claim.epoch, turn.number)
            return stored
        calibration, base = self._calibration(), self._stored_packet
        packet = await self._services.packets.assemble(self._address, turn, open_turn.at_least, calibration, base)
        if not packet.overflow:
            self._spending.reserve(packet.tokens, calibration)
            base_turn = base.turn if base else 0
            await ledger.write_packet(self._address, self._claim.epoch, turn.number, packet, base_turn)
            self._stored_packet = StoredPacket.of(turn.number, packet)
        return packet

    async def _record(self, open_turn: _OpenTurn) -> None:
        """Make the reply and its commands durable. A reply without commands is written with the verdict."""
        number, reading = open_turn.turn.number, open_turn.reading
        services, mode = self._services, self._loop.settings.mode
        gate = Gate(services.hooks, services.tools, self._announcer.at(number), mode, self._tools)
        open_turn.records = await new_records(gate, reading)
        writes = [*reply_writes(number, self.draft, reading, open_turn.note), *loss_writes(number, reading)]
        writes = [_in_turn(write, open_turn.turn) for write in (*writes, *record_writes(open_turn.records))]
        if not open_turn.records:
            open_turn.unwritten = writes
            return
        paths = named_paths(open_turn.records)[:PATHS_AHEAD_MAX]
        ack = await self._services.ledger.write(self._address, self._claim.epoch, writes, full=True, read_paths=paths)
        if ack.read is not None:
            open_turn.ahead = dict.fromkeys(paths) | {entry.path: entry for entry in ack.read}
        for record, path in zip(open_turn.records, ack.paths[-len(open_turn.records) :], strict=True):
            record.path = path
        self._announcer.recorded(number, open_turn.records)

    def _calibration(self) -> float:
        """Reported over estimated tokens of the previous turn (C16); 0 when unknown."""
        last = self._recent[-1] if self._recent else None
        return calibration_of(last.usage, last.packet_tokens) if last else 0.0

    def _calibration_now(self, usage: Usage, tokens: int) -> float:
        """Reported over estimated tokens of this turn's call; those of the turn before where nobody told them."""
        return calibration_of(usage, tokens) or self._calibration()

    async def _overflow(self, open_turn: _OpenTurn, packet: Packet) -> None:
        result = TurnResult(
            error="context_exceeded:413", status=413, reason="context_exceeded", packet_digest=packet.digest,
            packet_tokens=packet.tokens, cursor=packet.cursor,
        )  # fmt: skip
        end = LoopEnd(413, overflow_reason(packet, self._calibration()))
        await self._services.ledger.end_turn(
            self._address, self._claim.epoch, open_turn.turn.number, result, packet.effects, end
        )
        self._announcer.concluded(open_turn.turn.number, result, end)

    # Verdict ------------------------------------------------------------------------------------------------------

    def _room(self, open_turn: _OpenTurn) -> DispatchScope:
        turn = open_turn.turn.number
        pending = WriteBuffer(self._services.ledger, self._address, self._claim.epoch, turn, self._loop.sequence)
        pending.add(*open_turn.unwritten)
        pending.know(open_turn.ahead)
        return DispatchScope(
            turn=turn,
            loop=self._loop,
            hub=self._place.hub,
            pending=pending,
            workspace=self._place.workspace,
            shell=self._place.shell,
            tools=self._services.tools,
            proposals=Proposals(self._services.hooks, self._announcer.at(turn), self._loop.settings.yolo),
            epoch=self._claim.epoch,
            confirm=self._confirm,
            asks_indeterminate=self._services.settings.indeterminate == "ask",
            came=self._came,
        )

    async def _check_budget(self, open_turn: _OpenTurn, pending: WriteBuffer) -> None:
        """Turn demotion where what the turn brought does not fit (RU142)."""
        note = open_turn.note
        if may_exceed(note, open_turn.records, pending.footprint, is_left=open_turn.is_left):
            calibration = self._calibration_now(note.usage, note.packet_tokens)
            packets, turn = self._services.packets, open_turn.turn
            open_turn.is_demoted = await demote_turn(packets, self._address, turn, calibration, pending)

    async def _conclude(self, open_turn: _OpenTurn, pending: WriteBuffer) -> LoopEnd | _OpenTurn | None:
        """Give the verdict and end the turn.

        The loop's end, or the turn that was opened with the end of this one; None where it is to begin by itself.
        """
        while True:
            verdict = await self._judge(open_turn)
            result = replace(
                open_turn.note.result(), status=verdict.status, reason=verdict.reason, strikes=verdict.strikes
            )
            result = self._spending.charged(result)
            loop_end = None if verdict.continue_ else LoopEnd(verdict.status, verdict.reason, verdict.summary)
            self._beginning.mirrored(pending.mirrored)
            goes_on = loop_end is None and not self._spending.exhausted_by(result)
            next_turn = await self._beginning.with_end() if goes_on else None
            writes = (*pending.writes(), *_refuted(open_turn.records, verdict))
            try:
                opened, ack = await self._services.ledger.end_turn(
                    self._address, self._claim.epoch, open_turn.turn.number, result, writes, loop_end, next_turn
                )
            except TurnwrightError as error:
                # A command whose write the store refuses has failed, and the verdict has to hear of it.
                if not pending.blame(error):
                    raise
                self._beginning.doubt()
                continue
            self._concluded(open_turn.turn.number, result, loop_end)
            if opened is None:
                return loop_end
            self._spending.begin_turn()
            self._beginning.begun()
            return self._begun(opened, ack.cursor)

    def _concluded(self, turn: int, result: TurnResult, loop_end: LoopEnd | None) -> None:
        self._recent.append(result)
        self._spending.end_turn(result)
        self._turns_ended += 1
        self._announcer.concluded(turn, result, loop_end)

    async def _judge(self, open_turn: _OpenTurn) -> Verdict:
        facts = facts_of(
            self._announcer.at(open_turn.turn.number),
            open_turn.records,
            open_turn.note,
            open_turn.reading.narration,
            self._recent,
            self._turns_ended + 1,
            limits_of(self._services.settings),
            self._spending.exhausted_by(open_turn.note.result()),
            is_demoted=open_turn.is_demoted,
        )
        return await judge(self._services.hooks, facts)


def _refuted(records: Sequence[Record], verdict: Verdict) -> list[EntryWrite]:
    """The write that refutes an update which claims to be done (RU140)."""
    refuted = [record for record in records if record.path == verdict.update_override]
    for record in refuted:
        record.settle(failed(REFUTED_OUTCOME, record.body))
    return [record_write(record) for record in refuted]


def _in_turn(write: EntryWrite, turn: Turn) -> EntryWrite:
    return replace(write, turn=turn.number, loop=turn.loop)
