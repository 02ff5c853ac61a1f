"""Rpcs of the queue and its leases: claims, renewals, releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from msgspec.structs import replace
from turnwright.store.v1 import lease_pb2
from turnwright_values.store import Durability, Lease, LeaseState

from turnwright_core.checks import check_count
from turnwright_core.wire import runs as wire
from turnwright_core.wire.runs import claim_to_pb, lease_to_pb
from turnwright_core.wire.times import span_from_pb, span_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app import leases as app
from turnwright_store.app.leases import Claimant
from turnwright_store.app.open_store import DEPLOYMENT
from turnwright_store.app.store_rules import newer_schemes
from turnwright_store.app.webhooks import deliveries_due
from turnwright_store.domain.locks import REGISTRY_LOCK, run_lock
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.rpc.calls import Calls, Fields, address_of, mutation, run_locks
from turnwright_store.sql.runs import find_places
from turnwright_store.sql.scopes import find_meta

PLACES_MAX: Final = 1000
"""Places that a call asks about."""

LEASES_PER_WRITE: Final = 500
"""Leases that one transaction renews: it locks each of their runs, and databases have room for some thousand locks."""


def claimant_of(rules: StoreRules, request: Any) -> Claimant:
    """Who claims or renews. Raises INVALID_FIELD."""
    return app.claimant(rules, request.owner, request.address, span_from_pb(request.lease_duration))


class LeaseRpcs(Calls):
    """Rpcs of the queue and its leases: claims, renewals, releases."""

    async def ClaimRun(self, request: lease_pb2.ClaimRunRequest, _context: Any) -> lease_pb2.ClaimRunResponse:
        work = partial(
            app.claim_run,
            rules=self._rules,
            address=address_of(request),
            who=claimant_of(self._rules, request),
        )
        locks = run_locks(request)
        claim = await self._database.write(work, Durability.NORMAL, locks)
        schemes = newer_schemes(self._rules, request.schemes_version)
        return claim_to_pb(replace(claim, schemes=schemes))

    async def ClaimWork(self, request: lease_pb2.ClaimWorkRequest, _context: Any) -> lease_pb2.ClaimWorkResponse:
        who = claimant_of(self._rules, request)
        find = partial(
            app.find_work,
            rules=self._rules,
            workspaces=request.workspace_ids,
            limit=request.limit,
        )
        # Who looks for work mostly finds none: that costs a read, and no turn of the writer.
        candidates, are_due = await self._database.read(
            lambda connection: (find(connection), deliveries_due(connection))
        )
        if not candidates:
            return lease_pb2.ClaimWorkResponse(deliveries_due=are_due)
        work = partial(app.claim_work, rules=self._rules, candidates=candidates, limit=request.limit, who=who)
        claims = await self._database.write(work, Durability.NORMAL, ())
        schemes = newer_schemes(self._rules, request.schemes_version)
        return lease_pb2.ClaimWorkResponse(claims=map(claim_to_pb, claims), schemes=schemes, deliveries_due=are_due)

    async def ListWork(self, request: lease_pb2.ListWorkRequest, _context: Any) -> lease_pb2.ListWorkResponse:
        query = partial(
            app.list_work,
            rules=self._rules,
            workspaces=request.workspace_ids,
            size=request.page_size,
            with_held=request.with_held,
        )
        return lease_pb2.ListWorkResponse(runs=map(wire.run_to_pb, await self._database.read(query)))

    async def RenewLeases(self, request: lease_pb2.RenewLeasesRequest, _context: Any) -> lease_pb2.RenewLeasesResponse:
        who = claimant_of(self._rules, request)
        check_count("leases", len(request.leases), app.LEASES_MAX)
        app.check_workspaces(request.workspace_ids)
        states: list[LeaseState] = []
        first, *others = _parts([Lease(one.project, one.run, one.epoch) for one in request.leases])
        work = partial(app.register_and_renew, who=who, workspaces=request.workspace_ids, leases=first)
        states += await self._database.write(work, Durability.NORMAL, {REGISTRY_LOCK, *_locks(first)})
        for part in others:
            work = partial(app.renew_leases, who=who, leases=part)
            states += await self._database.write(work, Durability.NORMAL, _locks(part))
        return lease_pb2.RenewLeasesResponse(
            states=[
                lease_pb2.LeaseState(lease=lease, held=state.held, abort_requested=state.abort_requested)
                for lease, state in zip(request.leases, states, strict=True)
            ],
            lease_duration=span_to_pb(who.lease_ms),
        )

    async def GetLease(self, request: lease_pb2.GetLeaseRequest, _context: Any) -> lease_pb2.GetLeaseResponse:
        query = partial(app.get_lease, address=address_of(request))
        return lease_to_pb(await self._database.read(query))

    async def FindPlaces(self, request: lease_pb2.FindPlacesRequest, _context: Any) -> lease_pb2.FindPlacesResponse:
        check_count("names", len(request.names), PLACES_MAX)
        names, deployment = await self._database.read(
            lambda connection: (find_places(connection, request.names), find_meta(connection, DEPLOYMENT))
        )
        return lease_pb2.FindPlacesResponse(names=names, deployment=deployment or "")

    @mutation(locks=run_locks, durability=Durability.NORMAL)
    def ReleaseRun(self, request: lease_pb2.ReleaseRunRequest, tx: Transaction, _caller: Caller) -> Fields:
        app.release_run(tx, address_of(request), request.epoch)
        return {}


def _locks(leases: Sequence[Lease]) -> set[str]:
    return {run_lock(lease.project, lease.run) for lease in leases}


def _parts(leases: Sequence[Lease]) -> Iterator[Sequence[Lease]]:
    for start in range(0, max(len(leases), 1), LEASES_PER_WRITE):
        yield leases[start : start + LEASES_PER_WRITE]
