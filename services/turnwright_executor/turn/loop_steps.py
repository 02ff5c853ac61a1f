"""The steps of a loop around its turns: placement, begin, verdict, and the end from outside its turns.

Which step comes next is decided in machine.py. Whatever the next step needs is in the store before it.
Source: architecture 2, 11; rows RU005, RU007, RU127-RU142, RU199; decisions C3, C20, C27, C29, C36.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import (
    ClaimRunResponse,
    EndTurnRequest,
    EndTurnResponse,
    EntryWrite,
    LoopEnd,
    NextTurn,
    SetEntry,
)
from turnwright_values.types import Assembly, ReplyKind, RequestKind, Turn, TurnRequest, TurnResult, ViewFilter

from turnwright_core.errors import TurnwrightError
from turnwright_core.events import event_write
from turnwright_core.json_schema import answer_text
from turnwright_core.runs import ABORTED, COMPLETED, PROPOSED, RUNNING
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.endings import ABORT, Ending, budget_exhausted, crashed, ending_of, is_transient
from turnwright_executor.domain.footprint import QUIET_TOOLS
from turnwright_executor.domain.run_events import verdict_changed
from turnwright_executor.domain.verdict import REFUTED_OUTCOME, Verdict
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.publishing import Publisher
from turnwright_executor.tools.client_tools import check_names
from turnwright_executor.tools.files import compared
from turnwright_executor.turn import indeterminate
from turnwright_executor.turn.beginning import (
    LoopBeginning,
    begun_with,
    loop_beginning,
    model_of,
    output_reserve,
    turn_request,
    with_vendor_limits,
)
from turnwright_executor.turn.commands import tool_context
from turnwright_executor.turn.generation import SilenceAlarm
from turnwright_executor.turn.images import image_writes
from turnwright_executor.turn.judging import facts_of, judge, limits_of, tally_of
from turnwright_executor.turn.loop_scope import LoopScope, OpenTurn, Placement
from turnwright_executor.turn.machine import Action, Step, TurnState
from turnwright_executor.turn.model_call import ModelCallRecord, model_call_from_entry, with_edits
from turnwright_executor.turn.model_steps import ModelSteps, summary_writes
from turnwright_executor.turn.project_files import BATCH_WRITES, FileSync, in_batches
from turnwright_executor.turn.recording import ANSWER
from turnwright_executor.turn.records import record_write
from turnwright_executor.turn.settlement import settle
from turnwright_executor.turn.spend_meter import BudgetError
from turnwright_executor.turn.turn_budget import checked_budget, may_exceed
from turnwright_executor.turn.turn_line import bind_turn
from turnwright_executor.turn.unsaved import records_of
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_kit.logs import get_logger
from turnwright_kit.telemetry import turn_ended as end_turn_span

# Opening turns: the first one writes the loop's prompt and instructions, each one the files that changed on disk.
#
# A turn that follows another one is opened by the call that ends that one, which saves a call and a commit. If more has
# changed on disk than fits into that call, the turn is opened by a call of its own (BEGIN).
# Source: architecture 2, 12.1; rows RU074, RU165, RU195-RU199, RU204; decision C31.

SLOW_S: Final = 2.0
"""Seconds of looking at the project's files after which people are told, and then after twice as long each time."""

WITH_END_CHARS_MAX: Final = 256 * 1024
"""Maximum characters of paths and file texts that the end of the previous turn may carry."""


class TurnOpener:
    """Opens the turns of one loop, while one executor works on it."""

    def __init__(
        self,
        ledger: Ledger,
        address: RunAddress,
        claim: ClaimRunResponse,
        request: TurnRequest,
        files: FileSync | None,
        first: LoopBeginning | None,
        publisher: Publisher,
        slow_s: float = SLOW_S,
    ) -> None:
        """`request`: the settings of the turns. `files` is None if the loop works without files.

        `first`: what the first turn writes; None if it has begun. `slow_s`: see SLOW_S.
        """
        self._ledger = ledger
        self._address = address
        self._claim = claim
        self._request = request
        self._files = files
        self._first = first
        self._publisher = publisher
        self._slow_s = slow_s
        self.kind = RequestKind.PRIMARY
        """Of the turn that begins next."""
        self._changed: list[EntryWrite] | None = None
        """What changed on disk, from when it was found until it is written."""

    def limit_context(self, context_length: int) -> None:
        """Give the turns from the next one on a window of this many tokens."""
        reserve = output_reserve(self._request.output_reserve, context_length)
        self._request = replace(self._request, context_length=context_length, output_reserve=reserve)

    async def begin(self, view_filter: ViewFilter, rules_version: str) -> tuple[Turn, EndTurnResponse]:
        """Begin a turn with a call of its own. Raises TurnwrightError; OSError if the project cannot be read."""
        batches = list(in_batches(await self._changes()))
        for batch in batches[:-1]:
            await self._ledger.write(self._address, self._claim.epoch, batch)
        # One by one: each may be as long as a message holds.
        for image in self._first.images if self._first else ():
            await self._ledger.write(self._address, self._claim.epoch, [image])
        writes = batches[-1] if batches else []
        request = replace(self._request, kind=self.kind)
        if self._first:
            manifest = [self._files.manifest()] if self._files and self._claim.run.turn == 0 else []
            writes = [*writes, *manifest, *self._first.writes]
            request = replace(request, knowledge=self._first.knowledge)
        begin = EndTurnRequest(turn=0, next=NextTurn(request, writes), rules_version=rules_version)
        opened = await self._ledger.end_turn(self._address, self._claim.epoch, begin, view_filter)
        assert opened.next
        self.begun()
        return opened.next, opened

    async def turn_start(self) -> NextTurn | None:
        """How EndTurn opens the next turn; None if it must be begun separately. Raises OSError as `begin` does."""
        changes = await self._changes()
        is_small = not changes or (len(changes) <= BATCH_WRITES and _chars(changes) <= WITH_END_CHARS_MAX)
        return NextTurn(replace(self._request, kind=self.kind), changes) if is_small else None

    def add_file_writes(self, writes: Iterable[EntryWrite]) -> None:
        """The open turn has written these entries of project files, or will write them with its end."""
        if self._files:
            self._files.add_writes(writes)

    def rescan_files(self) -> None:
        """Some of the open turn's writes of project files were rejected: look at the files again."""
        if self._files:
            self._files.rescan()

    def begun(self) -> None:
        self._changed, self._first, self.kind = None, None, RequestKind.PRIMARY
        if self._files:
            self._files.written()

    async def _changes(self) -> list[EntryWrite]:
        if self._changed is None:
            self._changed = await self._read(self._files) if self._files else []
        return self._changed

    async def _read(self, files: FileSync) -> list[EntryWrite]:
        def report(_s: float) -> None:
            self._publisher.warn(f"Looking at the files of the project ({files.seen:,} so far) ...")

        alarm = SilenceAlarm(self._slow_s, report)
        try:
            return await files.writes()
        finally:
            alarm.stop()


def _chars(writes: Sequence[EntryWrite]) -> int:
    bodies = (write.change.body or "" for write in writes if isinstance(write.change, SetEntry))
    return sum(map(len, bodies)) + sum(len(write.path) for write in writes)


_log = get_logger("loop")


class LoopSteps:
    """Carries out the steps of one claimed loop."""

    def __init__(self, scope: LoopScope, place: Callable[[], Awaitable[Placement]]) -> None:
        """`place` finds the loop's directory on this host; it raises OSError if that is impossible."""
        self._scope = scope
        self._place = place
        self._opener: TurnOpener
        self._timer: asyncio.TimerHandle | None = None
        self._is_fresh = True
        self._is_placed = False
        """Whether the claim still says where the loop stands."""
        self.interrupt: Callable[[Ending], None] = lambda _: None
        """Ends the loop while a step of it is under way: the driver's."""
        model = ModelSteps(scope, self._limit_context)
        self._steps: Mapping[Action, Callable[[TurnState], Awaitable[None]]] = {
            Action.PLACE: self._prepare_loop,
            Action.BEGIN: self._begin,
            Action.ASSEMBLE: model.assemble,
            Action.GENERATE: model.generate,
            Action.RECORD: model.record,
            Action.JUDGE: self._judge,
        }

    async def perform(self, state: TurnState, step: Step) -> None:
        """Carry out one step, in turn with other runs.

        Raises TurnwrightError if a service fails, OSError, and BudgetError.
        """
        slot = self._scope.slot
        if step.action is Action.END:
            # Nothing is carried out for it.
            return await self._end(state)
        await slot.begin_step()
        try:
            if step.path and self._scope.commands:
                await self._scope.commands.perform(state, step)
            else:
                await self._steps[step.action](state)
        finally:
            slot.end_step()
        if step.action is Action.JUDGE:
            slot.yield_turn()
        return None

    async def save_on_stop(self, error: BaseException) -> None:
        """A step was stopped: keep how commands had ended by then."""
        if self._scope.commands:
            await self._scope.commands.save_on_stop(error)

    def ending_of(self, error: Exception) -> Ending | None:
        """How an error ends the loop; None if it is not the loop's fault, so another owner may continue."""
        if is_transient(error):
            return None
        if isinstance(error, TurnwrightError | OSError):
            return ending_of(error)
        if isinstance(error, BudgetError):
            return budget_exhausted(error.exhaustion)
        error_id = secrets.token_hex(8)
        _log.error("loop_crashed", run=self._scope.address.run, error_id=error_id, exc_info=error)
        return crashed(error_id)

    def close(self) -> None:
        """Nobody works on the loop any more."""
        if self._timer:
            self._timer.cancel()
        self._keep_time()
        end_turn_span({})

    def _keep_time(self) -> None:
        """Record in the draft how long the open turn was worked on, in case another step has to end it."""
        if not self._is_fresh:
            self._scope.unsaved.draft.work_ms = self._scope.spend_meter.work_ms

    # Begin ------------------------------------------------------------------------------------------------------

    async def _prepare_loop(self, state: TurnState) -> None:
        """Find the loop's directory, and resume the open turn if there is one."""
        scope = self._scope
        self._is_fresh = False
        services, claim, loop = scope.services, scope.claim, scope.loop
        given, temperature = claim.run.settings, services.settings.temperature
        scope.model = await with_vendor_limits(services, model_of(claim, loop), given.calls)
        begun = begun_with(claim, loop)
        await scope.equip(begun)
        services = scope.services
        check_names(loop.settings.client_tools, services.tools)
        scope.placement = place = await self._place()
        self._is_placed = True
        request = turn_request(given, scope.model, scope.tools, loop.settings, temperature, begun)
        request = replace(request, tools_version=services.snapshot.version)
        first = None
        if not scope.turns_ended and claim.open_turn is None:
            folder = place.workspace if place.files else None
            before = claim.turn_before.request.tools_version if claim.turn_before else ""
            first = await loop_beginning(services, scope.address, claim.run, loop, request, scope.tools, folder, before)
            images = await image_writes(services.ledger, scope.address, loop, place.workspace)
            first = replace(first, images=images)
        self._opener = TurnOpener(services.ledger, scope.address, claim, request, place.files, first, scope.publisher)
        if left := scope.spend_meter.time_left():
            ending = budget_exhausted(left[1])
            self._timer = asyncio.get_running_loop().call_later(left[0], lambda: self.interrupt(ending))
        if claim.open_turn:
            await self._resume_turn(state, claim.open_turn)
        state.is_placed = True

    async def _resume_turn(self, state: TurnState, turn: Turn) -> None:
        scope = self._scope
        if scope.unsaved.draft.turn != turn.number:
            scope.unsaved.begin_reply(turn.number)
        records = state.records.values()
        note = ModelCallRecord()
        if records:
            replies = await scope.services.ledger.get_entries(scope.address, [f"assistant://{turn.number}"])
            note = model_call_from_entry(replies[0]) if replies else note
            note = await with_edits(scope.services.ledger, scope.address, turn.number, note)
        scope.spend_meter.resume_turn(note.result)
        if scope.loop.status == PROPOSED and state.is_decided:
            await scope.services.ledger.write(scope.address, scope.claim.epoch, [], run_status=RUNNING)
        # A transcript also shows the reply and each result, whatever the tool.
        counted = () if turn.request.assembly is Assembly.TRANSCRIPT else QUIET_TOOLS
        is_left = any(record.state.is_settled and record.tool not in counted for record in records)
        scope.open = OpenTurn(turn, None, note, is_left=is_left)
        if records:
            scope.recorded(state, state.records, ())
        bind_turn(scope.address, turn)

    def _limit_context(self, context_length: int) -> None:
        self._opener.limit_context(context_length)

    async def _begin(self, state: TurnState) -> None:
        """Open the next turn with a call of its own."""
        scope = self._scope
        scope.spend_meter.begin_turn()
        # The view of a new run begins with its first turn.
        wanted = scope.view_changes.wanted if scope.claim.run.turn else scope.view_changes.kind
        turn, ack = await self._opener.begin(wanted, scope.grants.rules_version)
        scope.view_changes.add(ack.cursor, ack.view_change)
        scope.begun(state, turn, ack)

    # Verdict ------------------------------------------------------------------------------------------------------

    async def _judge(self, state: TurnState) -> None:
        """Run the voters and end the turn. The next one is opened in the same call, or later by BEGIN."""
        scope, open_turn = self._scope, self._scope.open
        assert scope.commands
        number, buffer = open_turn.turn.number, scope.commands.buffer
        await buffer.quiesce()
        scope.events.dispatched(number, state.records.values())
        await self._check_budget(state, buffer)
        summary = summary_writes(open_turn.packet, open_turn.reading.narration)
        while True:
            exhausted = scope.spend_meter.exhausted_by(open_turn.note.result)
            verdict = await self._verdict(state, exhausted)
            result = self._result(state, verdict, is_summary=bool(summary))
            loop_end = None if verdict.continue_ else LoopEnd(verdict.status, verdict.reason, verdict.summary)
            if loop_end and scope.placement.save:
                await scope.placement.save()
            self._opener.add_file_writes(buffer.file_writes)
            goes_on = loop_end is None and not exhausted
            next_turn = await self._next_turn(state, buffer) if goes_on else None
            wanted = scope.view_changes.wanted if goes_on else ViewFilter.UNSPECIFIED
            refuted = map(buffer.at_final_path, _refuted(state.records, verdict))
            writes = (*buffer.writes(), *refuted, *_overruled(number, verdict), *summary)
            try:
                with scope.lease.returning() as returned:
                    end = EndTurnRequest(
                        turn=number,
                        result=result,
                        writes=writes,
                        loop_end=loop_end,
                        next=next_turn,
                        release=loop_end is not None,
                        rules_version=scope.grants.rules_version,
                    )
                    ack = await scope.services.ledger.end_turn(scope.address, scope.claim.epoch, end, wanted)
                    if ack.released:
                        returned()
            except TurnwrightError as error:
                # A command whose write the store refuses has failed, and the verdict must know.
                if not await buffer.fail_refused_group(error):
                    raise
                self._opener.rescan_files()
                continue
            break
        scope.view_changes.add(ack.cursor, ack.view_change)
        scope.concluded(state, result, loop_end)
        if not scope.is_titled:
            scope.is_titled = True
            scope.services.titles.ask(scope.address, open_turn.turn, ack.cursor, scope.spend_meter)
        if ack.next:
            scope.spend_meter.begin_turn()
            self._opener.begun()
            scope.begun(state, ack.next, ack)

    def _result(self, state: TurnState, verdict: Verdict, *, is_summary: bool) -> TurnResult:
        """How the open turn ends, with what it cost."""
        open_turn = self._scope.open
        known = open_turn.note.result
        result = replace(
            known,
            status=verdict.status,
            reason=verdict.reason,
            strikes=verdict.strikes,
            kind=ReplyKind.SUMMARY if is_summary else known.kind,
            answer=self._answer(state, verdict),
            tally=open_turn.tally,
        )
        return self._scope.spend_meter.with_spend(result)

    async def _next_turn(self, state: TurnState, buffer: WriteBuffer) -> NextTurn | None:
        """How the end of this turn opens the next one; None if that is begun by a call of its own."""
        if not self._scope.open.is_compaction and await self._needs_summary(state, buffer):
            self._opener.kind = RequestKind.COMPACTION
        return await self._opener.turn_start()

    async def _check_budget(self, state: TurnState, buffer: WriteBuffer) -> None:
        """Demote the results of the turn if the next packet would not fit (RU142)."""
        scope = self._scope
        open_turn, note = scope.open, scope.open.note
        if open_turn.turn.request.assembly is Assembly.TRANSCRIPT:
            # Results stand in it as they are: whether the next one fits, it says itself.
            return
        if may_exceed(note, state.records.values(), buffer.footprint, is_left=open_turn.is_left):
            checked = await checked_budget(scope.services.packets, scope.address, open_turn.turn, note, buffer)
            buffer.add(*checked.effects)
            open_turn.is_demoted = bool(checked.effects)

    async def _needs_summary(self, state: TurnState, buffer: WriteBuffer) -> bool:
        """Whether the next turn should summarize: its transcript would lose replies. Looks only if it may not fit."""
        scope = self._scope
        open_turn, note = scope.open, scope.open.note
        if not scope.loop.settings.summaries or open_turn.turn.request.assembly is not Assembly.TRANSCRIPT:
            return False
        if not may_exceed(note, state.records.values(), buffer.footprint, is_left=open_turn.is_left):
            return False
        return (await checked_budget(scope.services.packets, scope.address, open_turn.turn, note, buffer)).summarize

    def _after_summary(self, exhausted: str) -> Verdict:
        """A summary ends no loop; a limit does."""
        scope = self._scope
        strikes = scope.recent[-1].strikes if scope.recent else 0
        if scope.turns_ended + 1 >= scope.services.settings.loop_turns_max:
            exhausted = exhausted or "loop_turns"
        if exhausted:
            return Verdict(False, ABORTED, exhausted, "", strikes)
        return Verdict(True, RUNNING, "summary", "", strikes)

    async def _verdict(self, state: TurnState, exhausted: str) -> Verdict:
        """`exhausted`: why no turn may follow this one."""
        scope = self._scope
        open_turn = scope.open
        if self._scope.open.is_compaction:
            return self._after_summary(exhausted)
        records = tuple(state.records.values())
        open_turn.tally = await tally_of(
            scope.recent,
            records,
            open_turn.note,
            open_turn.turn.request.tools,
            scope.services.tools,
            scope.placement.workspace,
        )
        facts = facts_of(
            scope.events.at(open_turn.turn.number),
            records,
            open_turn.note,
            open_turn.reading.narration,
            scope.recent,
            scope.turns_ended + 1,
            limits_of(scope.services.settings),
            exhausted,
            is_demoted=open_turn.is_demoted,
            is_answer_refused=any(warning.kind == ANSWER for warning in open_turn.reading.warnings),
            is_transcript=open_turn.turn.request.assembly is Assembly.TRANSCRIPT,
            tools=scope.services.tools,
            mode=scope.loop.settings.mode,
            tally=open_turn.tally,
        )
        return await judge(scope.services.hooks, facts)

    def _answer(self, state: TurnState, verdict: Verdict) -> str:
        scope = self._scope
        if scope.loop.settings.response_format is None or verdict.status != COMPLETED:
            return ""
        updates = [record.body for record in state.records.values() if record.tool == "update"]
        return answer_text(updates[-1] if updates else scope.open.reading.narration)

    # End from outside -------------------------------------------------------------------------------------------

    async def _end(self, state: TurnState) -> None:
        """End this loop from any state of its ledger. Does nothing if another loop has begun since."""
        scope = self._scope
        ending = state.ending
        if ending is None:
            raise AssertionError("a loop ends in some way")
        if ending is not ABORT:
            scope.unsaved.ending = ending
        self._keep_time()
        if scope.commands and scope.commands.buffer.holds_reply:
            # The ledger has to know the commands that are to be settled.
            await scope.commands.buffer.flush_on_stop()
        is_known = self._is_fresh and (scope.claim.abort_requested or ending is not ABORT)
        claim = scope.claim if is_known else await scope.lease.reclaim()
        is_same = claim.loop is not None and claim.loop.sequence == scope.loop.sequence
        if is_same and (claim.abort_requested or ending is not ABORT):
            compare = partial(self._compared, claim)
            refused = scope.refused_before(claim.open_turn) if claim.open_turn else ()
            # Whoever aborts waits for nothing: what is there is copied at the end of the next loop.
            if self._is_placed and scope.placement.save and ending is not ABORT:
                await scope.placement.save()
            end = await settle(scope.services.ledger, scope.address, claim, scope.unsaved, ending, compare, refused)
            scope.events.ended(claim.run.turn, end)
            for record in {**records_of(claim), **state.records}.values():
                scope.services.catalogue.give_up(scope.address, claim.epoch, record)
        state.is_over = True

    async def _compared(self, claim: ClaimRunResponse, record: CommandRecord) -> Done | None:
        """What became of a marked change of files, by what they hold. Raises TurnwrightError."""
        scope = self._scope
        try:
            place = await self._place()
        except OSError:
            return indeterminate.given_up(record)
        turn = claim.open_turn.number if claim.open_turn else claim.run.turn
        buffer = WriteBuffer(scope.services.ledger, scope.address, claim.epoch, turn, scope.loop.sequence)
        context = tool_context(scope.loop, turn, buffer, place.workspace, place.shell, scope.publisher)
        return await compared(record, replace(context, record_path=record.path))


def _overruled(turn: int, verdict: Verdict) -> list[EntryWrite]:
    """The event that a plugin changed the verdict."""
    if verdict.override is None:
        return []
    return [event_write(turn, verdict_changed(verdict.override, verdict.vote))]


def _refuted(records: dict[str, CommandRecord], verdict: Verdict) -> list[EntryWrite]:
    """The write that marks an update as refuted, because it claims success (RU140)."""
    record = records.get(verdict.update_override or "")
    if record is None:
        return []
    return [record_write(record.settled(failed(REFUTED_OUTCOME, record.body)))]
