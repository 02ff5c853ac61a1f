"""Primitives by pattern."""

from __future__ import annotations

from functools import partial
from typing import Any

from turnwright.store.v1 import change_pb2
from turnwright_values.store import CopyEntry, MoveEntry, RemoveEntry, SetEntry
from turnwright_values.types import Tier, Visibility

from turnwright_core.checks import invalid
from turnwright_core.entries import EntryChange
from turnwright_core.errors import InvalidError, MissingError
from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire.codec import known
from turnwright_kit.auth import check_min_tier
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import primitives
from turnwright_store.app.list_entries import time_limit
from turnwright_store.app.primitives import ChangePlan, PatternChange
from turnwright_store.domain.locks import write_locks
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, address_of
from turnwright_store.rpc.ledger_servicer import durability_of


def change_of(request: change_pb2.ChangeEntriesRequest) -> PatternChange:
    """The change that a request asks for. Raises InvalidError."""
    visibility = known(Visibility, request.visibility, "visibility")
    change: EntryChange
    match request.operation:
        case change_pb2.ENTRY_OPERATION_PROMOTE:
            change = SetEntry(visibility=Visibility.VISIBLE)
        case change_pb2.ENTRY_OPERATION_REMOVE:
            change = RemoveEntry()
        case change_pb2.ENTRY_OPERATION_COPY:
            change = CopyEntry(request.to, visibility)
        case change_pb2.ENTRY_OPERATION_MOVE:
            change = MoveEntry(request.to, visibility)
        case _:
            raise invalid("operation", "The request has no operation: say PROMOTE, REMOVE, COPY or MOVE.")
    return PatternChange(change, request.pattern, request.body_pattern, known(Tier, request.writer, "writer"))


def _changed_entries(planned: ChangePlan) -> list[change_pb2.ChangedEntry]:
    return [
        change_pb2.ChangedEntry(path=one.path, to=one.to, body_size_bytes=one.body_size_bytes)
        for one in planned.matches
    ]


class ChangeRpcs(Calls):
    """ChangeEntries of ledger.proto."""

    async def ChangeEntries(
        self, request: change_pb2.ChangeEntriesRequest, _context: Any
    ) -> change_pb2.ChangeEntriesResponse:
        check_min_tier(current_caller(), Tier.MODEL, "ChangeEntries")
        change = change_of(request)
        primitives.check_change(change)
        find_plan = partial(self._plan, request, change)
        if request.manifest:
            planned = await find_plan()
            return self._answer(planned, planned.cursor)
        return await primitives.change_entries(find_plan, partial(self._write, request))

    async def _plan(self, request: change_pb2.ChangeEntriesRequest, change: PatternChange) -> ChangePlan:
        query = partial(
            primitives.plan_changes,
            rules=self._rules,
            address=address_of(request),
            change=change,
            check_time=time_limit(self._service.clock_s, self._rules.pattern_s_max),
        )
        try:
            return await self._database.read(query)
        except (InvalidError, MissingError) as refusal:
            if request.manifest or not (request.request_id or request.HasField("epoch")):
                raise
            # It may repeat a call that was answered; then nothing fits any more, and the answer is the same. Or it may
            # come from somebody who has lost the run. The transaction knows.
            return ChangePlan(change, refusal=refusal)

    async def _write(
        self, request: change_pb2.ChangeEntriesRequest, planned: ChangePlan
    ) -> change_pb2.ChangeEntriesResponse:
        address = address_of(request)
        epoch = request.epoch if request.HasField("epoch") else None

        def work(tx: Transaction, caller: Caller) -> change_pb2.ChangeEntriesResponse:
            return self._answer(planned, primitives.apply_changes(tx, self._rules, caller, address, epoch, planned))

        return await self._once(
            request,
            change_pb2.ChangeEntriesResponse,
            work,
            min_tier=Tier.MODEL,
            durability=durability_of(request.durability),
            locks=write_locks(self._rules, request.project, request.run, planned.paths),
        )

    def _answer(self, planned: ChangePlan, cursor: Any) -> change_pb2.ChangeEntriesResponse:
        return change_pb2.ChangeEntriesResponse(
            changed=_changed_entries(planned), cursor=entry_wire.cursor_to_pb(cursor)
        )
