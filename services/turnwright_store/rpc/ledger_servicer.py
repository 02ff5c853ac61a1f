"""Work, turns and decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

from turnwright.store.v1 import ledger_pb2, queue_pb2
from turnwright.types.v1 import view_pb2

from turnwright_core.checks import invalid
from turnwright_core.entries import EntryWrite, Tier
from turnwright_core.kit.auth import Caller, current_caller
from turnwright_core.runs import LoopEnd
from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire import runs as wire
from turnwright_store.app import commands, ledger, steering
from turnwright_store.app.project_files import adopt_files
from turnwright_store.app.view_change import ViewChange
from turnwright_store.domain.locks import packets_lock, paths_of, run_lock, write_locks
from turnwright_store.ports import Durability, Transaction
from turnwright_store.rpc.calls import (
    Calls,
    address_of,
    copies,
    is_small,
    mutation,
    project_locks,
    run_locks,
    writes_of,
)
from turnwright_store.rpc.history_servicer import packet_of

FILES_A_MESSAGE: Final = 500
"""Paths of files, of any length that is allowed, that fit a message with their hashes."""


def durability_of(value: int) -> Durability:
    """The durability that a request asks for; NORMAL where it does not say."""
    try:
        return Durability(value or Durability.NORMAL)
    except ValueError:
        raise invalid("durability", f"{value} is not a durability.") from None


def _queue_locks(request: Any) -> set[str]:
    """What an enqueued loop locks: an alias that is made must be free in the whole project."""
    return run_locks(request) if request.run else project_locks(request)


class LedgerRpcs(Calls):
    """Rpcs of ledger.proto that clients and owners write with."""

    def _locks(self, request: Any, writes: Sequence[EntryWrite]) -> set[str]:
        return write_locks(self._rules, request.project, request.run, paths_of(writes))

    @mutation(locks=_queue_locks, starts=lambda answer: answer.run.run, inline=True)
    def EnqueueLoop(
        self, request: queue_pb2.EnqueueLoopRequest, tx: Transaction, caller: Caller
    ) -> queue_pb2.EnqueueLoopResponse:
        settings = wire.loop_settings_from_pb(request.settings)
        run_settings = wire.run_settings_from_pb(request.run_settings)
        address = address_of(request)
        done = commands.enqueue_loop(tx, self._rules, caller, address, request.prompt, settings, run_settings)
        return queue_pb2.EnqueueLoopResponse(
            run=wire.run_to_pb(done.run),
            loop=wire.loop_to_pb(done.loop),
            created=done.created,
            cursor=entry_wire.cursor_to_pb(done.cursor),
        )

    @mutation(locks=run_locks, inline=True)
    def RequestAbort(
        self, request: queue_pb2.RequestAbortRequest, tx: Transaction, caller: Caller
    ) -> queue_pb2.RequestAbortResponse:
        run, cursor = commands.request_abort(tx, self._rules, caller, address_of(request))
        return queue_pb2.RequestAbortResponse(run=wire.run_to_pb(run), cursor=entry_wire.cursor_to_pb(cursor))

    async def BeginTurn(self, request: ledger_pb2.BeginTurnRequest, _context: Any) -> ledger_pb2.BeginTurnResponse:
        writes = writes_of(request.writes)
        work = partial(
            ledger.begin_turn,
            rules=self._rules,
            caller=current_caller(),
            address=address_of(request),
            epoch=request.fence.epoch,
            new=ledger.TurnStart(wire.turn_request_from_pb(request.request), writes),
        )
        locks = self._locks(request, writes)
        begun = await self._database.write(work, Durability.NORMAL, locks, inline=is_small(request))
        return ledger_pb2.BeginTurnResponse(
            turn=wire.turn_to_pb(begun.turn),
            cursor=entry_wire.cursor_to_pb(begun.cursor),
            abort_requested=begun.abort_requested,
            schemes=self._service.newer_schemes(self._rules, request.schemes_version),
        )

    async def AdoptFiles(
        self, request: ledger_pb2.AdoptFilesRequest, _context: Any
    ) -> AsyncIterator[ledger_pb2.AdoptFilesResponse]:
        work = partial(
            adopt_files,
            rules=self._rules,
            caller=current_caller(),
            address=address_of(request),
            epoch=request.fence.epoch,
            like_run=request.like_run,
        )
        # The views of the other run must stay as they are between two looks at them.
        locks = {*run_locks(request), run_lock(request.project, request.like_run)}
        files = await self._database.write(work, Durability.NORMAL, locks)
        for place in range(0, len(files) or 1, FILES_A_MESSAGE):
            part = files[place : place + FILES_A_MESSAGE]
            yield ledger_pb2.AdoptFilesResponse(
                paths=(path for path, _ in part),
                hashes=(digest for _, digest in part),
                last=place + FILES_A_MESSAGE >= len(files),
            )

    async def WriteEntries(
        self, request: ledger_pb2.WriteEntriesRequest, _context: Any
    ) -> ledger_pb2.WriteEntriesResponse:
        epoch = request.fence.epoch if request.HasField("fence") else None
        writes = writes_of(request.writes)
        locks = self._locks(request, writes)
        packet = packet_of(request.packet) if request.HasField("packet") else None
        if packet:
            locks.add(packets_lock(request.project))
        _check_owners(request)

        def work(tx: Transaction, caller: Caller) -> ledger_pb2.WriteEntriesResponse:
            tx.tells_view = request.tell_view
            done = steering.write_entries(
                tx, self._rules, caller, address_of(request), epoch, writes, request.run_status, packet
            )
            return ledger_pb2.WriteEntriesResponse(
                revisions=done.revisions,
                paths=done.paths,
                cursor=entry_wire.cursor_to_pb(done.run.cursor(self._rules.incarnation)),
                abort_requested=done.run.abort_requested,
                view_change=self._told(done.view_change),
            )

        durability = durability_of(request.durability)
        return await self._once(
            request,
            ledger_pb2.WriteEntriesResponse,
            work,
            floor=Tier.MODEL,
            durability=durability,
            locks=locks,
            inline=not copies(writes),
        )

    async def EndTurn(self, request: ledger_pb2.EndTurnRequest, _context: Any) -> ledger_pb2.EndTurnResponse:
        end, caller = _end_of(request), current_caller()

        def work(tx: Transaction) -> ledger.Ended:
            tx.tells_view = request.tell_view
            return ledger.end_turn(tx, self._rules, caller, address_of(request), request.fence.epoch, end)

        locks = self._locks(request, [*end.writes, *(end.next.writes if end.next else ())])
        ended = await self._database.write(work, Durability.FULL, locks, inline=is_small(request))
        return ledger_pb2.EndTurnResponse(
            run=wire.run_to_pb(ended.run),
            loop=wire.loop_to_pb(ended.loop),
            cursor=entry_wire.cursor_to_pb(ended.cursor),
            abort_requested=ended.abort_requested,
            next=wire.turn_to_pb(ended.next) if ended.next else None,
            schemes=self._service.newer_schemes(self._rules, request.schemes_version) if ended.next else None,
            view_change=self._told(ended.view_change),
            released=ended.released,
        )

    def _told(self, change: ViewChange | None) -> view_pb2.ViewChange | None:
        if change is None:
            return None
        return view_pb2.ViewChange(
            before=entry_wire.cursor_to_pb(change.before),
            after=entry_wire.cursor_to_pb(change.after),
            entries=map(entry_wire.entry_to_pb, change.entries),
            removed_paths=change.removed,
            schemes_version=self._service.schemes_version(self._rules),
        )


def _check_owners(request: ledger_pb2.WriteEntriesRequest) -> None:
    """Refuse to tell of the view beside a write that is no owner's: its answer would be kept for a repetition."""
    if request.tell_view and (request.request_id or not request.HasField("fence")):
        raise invalid("tell_view", "tell_view needs the fence and no request_id; without them read the view by itself.")


def _end_of(request: ledger_pb2.EndTurnRequest) -> ledger.TurnEnd:
    end, new = request.loop_end, request.next
    return ledger.TurnEnd(
        number=request.turn,
        result=wire.turn_result_from_pb(request.result) if request.HasField("result") else None,
        writes=writes_of(request.writes),
        loop_end=LoopEnd(end.status, end.reason, end.summary) if request.HasField("loop_end") else None,
        next=ledger.TurnStart(wire.turn_request_from_pb(new.request), writes_of(new.writes))
        if request.HasField("next")
        else None,
        release=request.release,
    )
