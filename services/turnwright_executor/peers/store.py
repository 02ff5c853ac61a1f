"""The store's gRPC client: the ledger of runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

from msgspec.structs import replace
from turnwright.entries.v1 import entry_service_pb2, entry_service_pb2_grpc
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.plans.v1 import plan_service_pb2, plan_service_pb2_grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.rules.v1 import rule_service_pb2, rule_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.sessions.v1 import session_service_pb2, session_service_pb2_grpc
from turnwright.store.v1 import (
    lease_pb2,
    queue_pb2,
    read_pb2,
)
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright.types.v1 import rule_pb2, view_pb2
from turnwright_values.plans import PlanWriter
from turnwright_values.store import (
    ClaimRunResponse,
    GetLeaseResponse,
    RenewLeasesResponse,
    WatchChangesRequest,
    WatchChangesResponse,
)
from turnwright_values.types import (
    Cursor,
    Entry,
    FileConstraint,
    Model,
    QueuedCommand,
    RuleSet,
    Run,
    SearchHit,
    Turn,
    ViewFilter,
)

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import (
    ATTRIBUTES_BYTES_MAX,
    PAGE_SIZE_MAX,
    RECORD_BYTES_MAX,
)
from turnwright_core.plans.plan import Plan
from turnwright_core.schemes import Scheme
from turnwright_core.wire.codec import codec
from turnwright_core.wire.entries import cursor_from_pb, entry_from_pb, hit_from_pb
from turnwright_core.wire.plans import plan_from_pb, plan_to_pb
from turnwright_core.wire.runs import (
    claim_from_pb,
    constraint_from_pb,
    lease_from_pb,
    model_from_pb,
    queued_command_from_pb,
    renewal_from_pb,
    run_from_pb,
    turn_from_pb,
)
from turnwright_core.wire.times import span_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.packets import packet_from_parts
from turnwright_executor.peers.schemes import KnownSchemes
from turnwright_executor.peers.store_writes import StoreWrites
from turnwright_executor.ports.ledger import CreatedRun
from turnwright_executor.ports.packets import Packet
from turnwright_kit.identity.caller import Caller
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

WHOLE_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bodies and attributes of records that one call requests, in bytes."""

_log = get_logger("ledger")


_rules_from_pb = codec(RuleSet, rule_pb2.RuleSet)[1]
_written, _ = codec(PlanWriter, plan_service_pb2.PlanWriter)


class StoreLedger(StoreWrites):
    """Implements ports.Ledger. `owner` is new at each start of the executor, `own_address` is where others reach it."""

    def __init__(
        self, peer: Peer, owner: str, own_address: str, lease_ms: int = 0, schemes: KnownSchemes | None = None
    ) -> None:
        """Use this peer. `lease_ms` is the duration of leases to request; 0: the store's.

        Other clients of the store share `schemes`, the cache of registered schemes.
        """
        super().__init__(peer, schemes or KnownSchemes())
        self._entries = entry_service_pb2_grpc.EntryServiceStub(peer.channel)
        self._sessions = session_service_pb2_grpc.SessionServiceStub(peer.channel)
        self._turns = turn_service_pb2_grpc.TurnServiceStub(peer.channel)
        self._models = model_service_pb2_grpc.ModelServiceStub(peer.channel)
        self._plans = plan_service_pb2_grpc.PlanServiceStub(peer.channel)
        self._runs = run_service_pb2_grpc.RunServiceStub(peer.channel)
        self._owner: dict[str, Any] = {"owner": owner, "address": own_address, "lease_duration": span_to_pb(lease_ms)}

    def reached_at(self, own_address: str) -> None:
        self._owner["address"] = own_address

    def scheme(self, name: str) -> Scheme:
        return self._schemes.rules(name)

    async def create_run(
        self, request: queue_pb2.EnqueueLoopRequest, caller: Caller, like_run: str, claims: bool
    ) -> CreatedRun:
        new = queue_pb2.NewRun(like_run=like_run)
        if claims:
            version = self._schemes.version
            new.claim.CopyFrom(lease_pb2.ClaimRunRequest(schemes_version=version, **self._owner))
        request.new.CopyFrom(new)
        answer = await self._peer.call(self.stub.EnqueueLoop, request, caller=caller)
        claim = None
        # One that cannot be read is released by who claims the run again.
        with contextlib.suppress(TurnwrightError, ValueError):
            claim = claim_from_pb(answer.claim) if answer.HasField("claim") else None
        self._schemes.update(answer.claim)
        return CreatedRun(answer, claim)

    async def get_model(self, alias: str) -> Model | None:
        request = model_service_pb2.ListModelsRequest(page_size=PAGE_SIZE_MAX)
        async for model in self._peer.items(self._models.ListModels, request, lambda page: page.models):
            if model.alias == alias:
                return model_from_pb(model)
        return None

    async def claim(self, address: RunAddress) -> ClaimRunResponse:
        request = lease_pb2.ClaimRunRequest(
            project=address.project, run=address.run, schemes_version=self._schemes.version, **self._owner
        )
        answer = await self._call(self.stub.ClaimRun, request)
        self._schemes.update(answer)
        return (await self._readable([answer]))[0]

    async def claim_work(self, limit: int, workspaces: Sequence[str]) -> list[ClaimRunResponse]:
        request = lease_pb2.ClaimWorkRequest(
            limit=limit, workspace_ids=workspaces, schemes_version=self._schemes.version, **self._owner
        )
        answer = await self._call(self.stub.ClaimWork, request)
        self._schemes.update(answer)
        if answer.deliveries_due:
            self.deliveries_due.set()
        return await self._readable(answer.claims)

    async def _readable(self, granted: Sequence[lease_pb2.ClaimRunResponse]) -> list[ClaimRunResponse]:
        """The claims whose records can be read; the others are released. Raises the last error if none can."""
        claims: list[ClaimRunResponse] = []
        problem: Exception | None = None
        for claim in granted:
            try:
                readable = claim_from_pb(claim)
                records = await self._whole(RunAddress(claim.run.project, claim.run.run), readable.records)
                claims.append(replace(readable, records=records))
            except (TurnwrightError, ValueError) as error:  # the store's answer, or a value that there is not
                problem = error
                _log.warning("claim_decoding_failed", run=claim.run.run, exc_info=error)
                # Otherwise it would stay leased, and count as lost by an owner that died.
                with contextlib.suppress(TurnwrightError):
                    await self.release(RunAddress(claim.run.project, claim.run.run), claim.epoch)
        if problem and not claims:
            raise problem
        return claims

    async def _whole(self, address: RunAddress, records: Sequence[Entry]) -> tuple[Entry, ...]:
        """The records, including the content of those that did not fit into the claim."""
        found: dict[str, Entry] = {}
        asked: list[str] = []
        total = 0
        for record in records:
            if record.attributes_json:
                continue
            more = record.body_size_bytes + ATTRIBUTES_BYTES_MAX + RECORD_BYTES_MAX
            if asked and total + more > WHOLE_BYTES_MAX:
                found |= {entry.path: entry for entry in await self.get_entries(address, asked)}
                asked, total = [], 0
            asked.append(record.path)
            total += more
        if asked:
            found |= {entry.path: entry for entry in await self.get_entries(address, asked)}
        return tuple(found.get(record.path, record) for record in records)

    async def renew(self, leases: Sequence[tuple[RunAddress, int]], workspaces: Sequence[str]) -> RenewLeasesResponse:
        request = lease_pb2.RenewLeasesRequest(
            leases=[
                lease_pb2.Lease(project=address.project, run=address.run, epoch=epoch) for address, epoch in leases
            ],
            workspace_ids=workspaces,
            **self._owner,
        )
        answer = await self._call(self.stub.RenewLeases, request)
        return renewal_from_pb(answer)

    async def holding(self, address: RunAddress) -> GetLeaseResponse:
        request = lease_pb2.GetLeaseRequest(project=address.project, run=address.run)
        answer = await self._call(self.stub.GetLease, request)
        return lease_from_pb(answer)

    async def find_places(self, names: Sequence[str]) -> tuple[Sequence[str], str]:
        """Those of the names that are places of runs, and the identity of the deployment."""
        answer = await self._call(self.stub.FindPlaces, lease_pb2.FindPlacesRequest(names=names))
        return answer.names, answer.deployment

    async def release(self, address: RunAddress, epoch: int) -> None:
        request = lease_pb2.ReleaseRunRequest(project=address.project, run=address.run, epoch=epoch)
        await self._call(self.stub.ReleaseRun, request)

    async def read_packet(self, address: RunAddress, turn: int) -> Packet | None:
        request = turn_service_pb2.ReadPacketRequest(project=address.project, run=address.run, turn=turn)
        try:
            async with self._peer.stream(self._turns.ReadPacket, request, self._peer.timeout_s) as parts:
                packet = await packet_from_parts(parts)
        except TurnwrightError as error:
            if error.reason is Reason.TURN_NOT_FOUND:
                return None
            raise
        if packet is None:
            raise self._peer.cut_short("its last part")
        return packet

    async def get_entries(self, address: RunAddress, paths: Sequence[str]) -> list[Entry]:
        request = read_pb2.GetEntriesRequest(project=address.project, run=address.run, paths=paths)
        answer = await self._call(self.stub.GetEntries, request)
        return [entry_from_pb(entry) for entry in answer.entries]

    async def find_entries(
        self,
        address: RunAddress,
        pattern: str,
        body_pattern: str,
        limit: int,
        *,
        bodies: bool,
        files_only: bool = False,
    ) -> list[Entry]:
        request = entry_service_pb2.ListEntriesRequest(
            project=address.project,
            run=address.run,
            pattern=pattern,
            body_pattern=body_pattern,
            without_bodies=not bodies,
            schemes=[""] if files_only else [],
        )
        found: list[Entry] = []
        while True:
            request.page_size = min(limit - len(found), PAGE_SIZE_MAX)
            answer = await self._call(self._entries.ListEntries, request)
            for entry in map(entry_from_pb, answer.entries):
                is_cut = bodies and len(entry.body.encode()) < entry.body_size_bytes
                found += await self.get_entries(address, [entry.path]) if is_cut else [entry]
            request.page_token = answer.next_page_token
            if not request.page_token or len(found) >= limit:
                return found

    async def read_body(self, address: RunAddress, path: str, offset: int, bytes_max: int) -> str:
        request = entry_service_pb2.GetEntryRequest(
            project=address.project, run=address.run, path=path, body_offset=offset, body_bytes_max=bytes_max
        )
        return (await self._call(self._entries.GetEntry, request)).entry.body

    async def file_constraints(self, project: str) -> list[FileConstraint]:
        found: list[FileConstraint] = []
        projects = project_service_pb2_grpc.ProjectServiceStub(self._peer.channel)
        request = project_service_pb2.ListFileConstraintsRequest(project=project, page_size=PAGE_SIZE_MAX)
        while True:
            answer = await self._call(projects.ListFileConstraints, request)
            found += map(constraint_from_pb, answer.constraints)
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def read_timeline(
        self, address: RunAddress, body_bytes_max: int, whole_schemes: Sequence[str]
    ) -> tuple[list[Entry], Cursor]:
        request = read_pb2.ReadViewRequest(
            project=address.project,
            run=address.run,
            filter=view_pb2.VIEW_FILTER_TIMELINE,
            body_bytes_max=body_bytes_max,
            whole_schemes=whole_schemes,
        )
        entries: list[Entry] = []
        cursor = None
        async with self._peer.stream(self.stub.ReadView, request, self._peer.timeout_s) as parts:
            async for part in parts:
                entries.extend(entry_from_pb(entry) for entry in part.entries)
                if part.HasField("cursor"):
                    cursor = cursor_from_pb(part.cursor)
        if cursor is None:
            raise self._peer.cut_short("its cursor")
        return entries, cursor

    async def watch(
        self, address: RunAddress, after: Cursor, body_bytes_max: int, whole_schemes: tuple[str, ...]
    ) -> AsyncGenerator[WatchChangesResponse, None]:
        timeline = ViewFilter.TIMELINE
        call = WatchChangesRequest(address.project, address.run, after, timeline, body_bytes_max, whole_schemes, True)
        # No deadline: the stream lives as long as somebody watches the run; keepalive detects a dead peer.
        async with self._peer.stream(self._by_value.WatchChanges, call, None) as messages:
            async for changes in messages:
                yield replace(changes, entries=sorted(changes.entries, key=lambda entry: entry.revision))

    async def get_run(self, address: RunAddress) -> Run:
        request = run_service_pb2.GetRunRequest(
            project=address.project, run=address.run, run_only=True, schemes_version=self._schemes.version
        )
        answer = await self._call(self._runs.GetRun, request)
        self._schemes.update(answer)
        return run_from_pb(answer.run)

    async def get_run_and_rules(self, address: RunAddress) -> tuple[Run, RuleSet]:
        run = await self.get_run(address)
        rules = rule_service_pb2_grpc.RuleServiceStub(self._peer.channel)
        request = rule_service_pb2.ListRulesRequest(project=address.project, run=address.run)
        return run, _rules_from_pb((await self._call(rules.ListRules, request)).set)

    async def get_turns(self, address: RunAddress, numbers: Sequence[int]) -> list[Turn]:
        request = turn_service_pb2.ListTurnsRequest(project=address.project, run=address.run, numbers=numbers)
        return [turn_from_pb(turn) for turn in (await self._call(self._turns.ListTurns, request)).turns]

    async def list_commands(self, address: RunAddress) -> list[QueuedCommand]:
        request = session_service_pb2.ListCommandsRequest(project=address.project, run=address.run)
        return list(map(queued_command_from_pb, (await self._call(self._sessions.ListCommands, request)).commands))

    async def search(self, project: str, query: str, limit: int) -> Sequence[SearchHit]:
        request = entry_service_pb2.SearchEntriesRequest(project=project, query=query, limit=limit)
        answer = await self._call(self._entries.SearchEntries, request)
        return [hit_from_pb(hit) for hit in answer.hits]

    async def get_plan(self, address: RunAddress, plan_id: str, version: int = 0) -> Plan:
        request = plan_service_pb2.GetPlanRequest(
            project=address.project, run=address.run, plan_id=plan_id, version=version
        )
        return plan_from_pb((await self._call(self._plans.GetPlan, request)).plan)

    async def list_plans(self, address: RunAddress) -> list[Plan]:
        request = plan_service_pb2.ListPlansRequest(project=address.project, run=address.run)
        found: list[Plan] = []
        while True:
            answer = await self._call(self._plans.ListPlans, request)
            found += map(plan_from_pb, answer.plans)
            if not answer.next_page_token:
                return found
            request.page_token = answer.next_page_token

    async def set_plan(self, address: RunAddress, by: PlanWriter, plan: Plan, request_id: str) -> tuple[Plan, Cursor]:
        request = plan_service_pb2.SetPlanRequest(
            project=address.project,
            run=address.run,
            plan=plan_to_pb(plan),
            written_by=_written(by),
            request_id=request_id,
        )
        answer = await self._call(self._plans.SetPlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)

    async def update_plan(
        self, address: RunAddress, by: PlanWriter, plan_id: str, delta: str, request_id: str
    ) -> tuple[Plan, Cursor]:
        request = plan_service_pb2.UpdatePlanRequest(
            project=address.project,
            run=address.run,
            plan_id=plan_id,
            delta=delta,
            written_by=_written(by),
            request_id=request_id,
        )
        answer = await self._call(self._plans.UpdatePlan, request)
        return plan_from_pb(answer.plan), cursor_from_pb(answer.cursor)
