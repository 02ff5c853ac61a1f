"""Work, turns and decisions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace
from turnwright.store.v1 import agents_pb2, ledger_pb2, queue_pb2
from turnwright_values.store import (
    ClaimRunResponse,
    Durability,
    EndTurnRequest,
    EndTurnResponse,
    WriteEntriesRequest,
    WriteEntriesResponse,
)

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.wire import entries as entry_wire
from turnwright_core.wire import runs as wire
from turnwright_core.wire.owner_calls import WRITE_ENTRIES
from turnwright_core.wire.runs import (
    agent_to_pb,
    claim_to_pb,
    start_agent_from_pb,
    started_to_pb,
    title_call_from_pb,
    wait_agents_from_pb,
)
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_store.app import agents, commands, control, leases, ledger
from turnwright_store.app.agent_ends import settle_agents
from turnwright_store.app.forks import adopt_at_once, adopt_files
from turnwright_store.app.store_rules import newer_schemes
from turnwright_store.app.write_entries import write_entries
from turnwright_store.domain.locks import packets_lock, paths_of, project_lock, run_lock, write_locks
from turnwright_store.domain.packets import check_packet
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import (
    Calls,
    Fields,
    address_of,
    mutation,
    project_locks,
    run_locks,
)
from turnwright_store.rpc.lease_servicer import claimant_of

FILES_A_MESSAGE: Final = 500
"""Paths of files, of any length that is allowed, that fit a message with their hashes."""


def _durability_of(value: int) -> Durability:
    """The durability that a request asks for; NORMAL where it does not say."""
    try:
        return Durability(value or Durability.NORMAL)
    except ValueError:
        raise invalid("durability", f"{value} is not a durability.") from None


def _files_to_pb(files: Sequence[tuple[str, str]], *, is_last: bool) -> ledger_pb2.AdoptFilesResponse:
    paths, hashes = (path for path, _ in files), (digest for _, digest in files)
    return ledger_pb2.AdoptFilesResponse(paths=paths, hashes=hashes, last=is_last)


def _queue_locks(request: Any) -> set[str]:
    """A generated alias must be unique in the project, and what is adopted from another run must stay as it is."""
    locks = run_locks(request) if request.run else project_locks(request)
    return locks | {run_lock(request.project, request.new.like_run)} if request.new.like_run else locks


class LedgerRpcs(Calls):
    """Rpcs of ledger.proto that clients and owners write with."""

    async def EnqueueLoop(self, request: queue_pb2.EnqueueLoopRequest, _context: Any) -> queue_pb2.EnqueueLoopResponse:
        new = request.new if request.HasField("new") else None
        who = claimant_of(self._rules, new.claim) if new and new.HasField("claim") else None
        claim: ClaimRunResponse | None = None
        if new and not (current_caller().is_trusted or current_caller().by):
            raise fault(Reason.RIGHT_MISSING, "Only services set `new` of a loop.", right="service", project="")

        def work(tx: Transaction, caller: Caller) -> queue_pb2.EnqueueLoopResponse:
            nonlocal claim
            claim = None
            settings = wire.loop_settings_from_pb(request.settings)
            run_settings = wire.run_settings_from_pb(request.run_settings)
            address, is_new = address_of(request), new is not None
            done = commands.enqueue_loop(
                tx, self._rules, caller, address, request.prompt, settings, run_settings, is_new=is_new, claimant=who
            )
            if who:
                claim = leases.claim_of(tx, self._rules, done.row, who.lease_ms, done.model)
                if new and new.like_run and not (claim.file_constraints or claim.file_constraints_left_out):
                    claim = replace(claim, files=adopt_at_once(tx, self._rules, done.row, new.like_run))
            return queue_pb2.EnqueueLoopResponse(
                run=wire.run_to_pb(done.run),
                loop=wire.loop_to_pb(done.loop),
                created=done.created,
                cursor=entry_wire.cursor_to_pb(done.cursor),
            )

        answer = await self._once(
            request,
            queue_pb2.EnqueueLoopResponse,
            work,
            locks=_queue_locks(request) | self._quota_locks,
            starts=lambda answer: answer.run.run,
        )
        # A repeated call gets no claim: it may not hold any more.
        if claim:
            schemes = newer_schemes(self._rules, request.new.claim.schemes_version)
            answer.claim.CopyFrom(claim_to_pb(replace(claim, schemes=schemes)))
        return answer

    async def AdoptFiles(
        self, request: ledger_pb2.AdoptFilesRequest, _context: Any
    ) -> AsyncIterator[ledger_pb2.AdoptFilesResponse]:
        work = partial(
            adopt_files,
            rules=self._rules,
            address=address_of(request),
            epoch=request.epoch,
            like_run=request.like_run,
        )
        # The views of the other run must stay as they are between two looks at them.
        locks = {*run_locks(request), run_lock(request.project, request.like_run)}
        files = await self._database.write(work, Durability.NORMAL, locks)
        for index in range(0, len(files) or 1, FILES_A_MESSAGE):
            part = files[index : index + FILES_A_MESSAGE]
            yield _files_to_pb(part, is_last=index + FILES_A_MESSAGE >= len(files))

    async def WriteEntries(self, call: WriteEntriesRequest, _context: Any) -> WriteEntriesResponse:
        if call.view_filter and (call.epoch is None or call.request_id):
            raise invalid(
                "view_filter",
                "view_filter needs the owner's epoch and no request_id; without them read the view by itself.",
            )
        rules = self._rules
        packet = call.packet
        locks = write_locks(rules, call.project, call.run, paths_of(call.writes))
        if packet:
            check_packet(packet)
            locks |= {packets_lock(call.project), *self._quota_locks}
        elif current_caller().is_answered_for or any(write.granted_tool for write in call.writes):
            locks |= self._quota_locks

        durability = _durability_of(call.durability)
        if not call.request_id:
            return await self._audited(
                call, current_caller(), lambda tx, by: write_entries(tx, rules, by, call), durability, locks
            )
        answer = await self._once(
            WRITE_ENTRIES.request_to_pb(call),
            ledger_pb2.WriteEntriesResponse,
            lambda tx, caller: WRITE_ENTRIES.answer_to_pb(write_entries(tx, rules, caller, call)),
            durability=durability,
            locks=locks,
        )
        written: WriteEntriesResponse = WRITE_ENTRIES.answer_from_pb(answer)
        return written

    @mutation(locks=run_locks)
    def WriteTitle(self, request: ledger_pb2.WriteTitleRequest, tx: Transaction, _caller: Caller) -> Fields:
        model = control.write_title(tx, address_of(request), title_call_from_pb(request.call))
        return {"model": wire.model_to_pb(model)} if model else {}

    async def StartAgent(self, request: agents_pb2.StartAgentRequest, _context: Any) -> agents_pb2.StartAgentResponse:
        asked = start_agent_from_pb(request)
        return await self._once(
            request,
            agents_pb2.StartAgentResponse,
            lambda tx, caller: started_to_pb(agents.start_agent(tx, self._rules, caller, asked)),
            locks={project_lock(request.project), *run_locks(request), *self._quota_locks},
        )

    @mutation(locks=run_locks)
    def WaitAgents(self, request: agents_pb2.WaitAgentsRequest, tx: Transaction, _caller: Caller) -> Fields:
        answer = agents.wait_agents(tx, wait_agents_from_pb(request))
        return {
            "agents": [agent_to_pb(one) for one in answer.agents],
            "spent": wire.spend_to_pb(answer.spent),
            "loop_spent": wire.spend_to_pb(answer.loop_spent),
        }

    async def SettleAgents(
        self, request: agents_pb2.SettleAgentsRequest, _context: Any
    ) -> agents_pb2.SettleAgentsResponse:
        woken = await settle_agents(self._database, lambda: self._rules, request.project, request.run)
        return agents_pb2.SettleAgentsResponse(runs=woken)

    async def EndTurn(self, call: EndTurnRequest, _context: Any) -> EndTurnResponse:
        caller, rules = current_caller(), self._rules
        writes = [*call.writes, *call.next.writes] if call.next else call.writes
        return await self._database.write(
            partial(ledger.end_turn, rules=rules, caller=caller, end=call),
            Durability.FULL if call.turn or call.loop_end else Durability.NORMAL,
            write_locks(rules, call.project, call.run, paths_of(writes)) | self._quota_locks,
        )
