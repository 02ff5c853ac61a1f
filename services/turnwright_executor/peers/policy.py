"""Follows the policy of the store, so that this executor can decide who may do what without asking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing

from turnwright.store.v1 import policy_pb2 as pb
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright.types.v1 import grant_pb2
from turnwright_values.types import Grant

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.codec import codec
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_kit.identity.policy import RENEWED_S_MAX, CallerQuota, Policy, PolicySnapshot
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

_, _grant_from_pb = codec(Grant, grant_pb2.Grant)
_log = get_logger("policy")


async def follow_policy(store: Peer, policy: Policy) -> None:
    """Keep a policy as the store has it, until the task is cancelled. While the store is away it stays as it was."""
    pauses = FEED_BACKOFF.pauses()
    while True:
        try:
            async with _watch(store, 0, None) as parts:
                async for snapshot in _snapshots(parts):
                    if snapshot:
                        policy.replace(snapshot)
                        pauses = FEED_BACKOFF.pauses()
        except TurnwrightError as error:
            _log.info("policy_watch_failed", reason=error.reason.name)
        await asyncio.sleep(next(pauses))


async def renew_policy(store: Peer, policy: Policy) -> None:
    """Ask the store whether a policy is as it is there, and replace it if not. Raises TurnwrightError."""
    async with _watch(store, policy.version, RENEWED_S_MAX) as parts, aclosing(_snapshots(parts)) as snapshots:
        async for snapshot in snapshots:
            if snapshot:
                policy.replace(snapshot)
            return


def _watch(
    store: Peer, known_version: int, timeout_s: float | None
) -> aclosing[AsyncGenerator[pb.WatchPolicyResponse]]:
    rows: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(store.channel)
    return store.stream(rows.WatchPolicy, pb.WatchPolicyRequest(known_version=known_version), timeout_s)


async def _snapshots(parts: AsyncIterable[pb.WatchPolicyResponse]) -> AsyncGenerator[PolicySnapshot | None]:
    """The policies of a watch; None for each heartbeat."""
    grants: list[Grant] = []
    revoked: list[str] = []
    quotas: list[CallerQuota] = []
    async for part in parts:
        if not part.version:
            yield None
        grants += map(_grant_from_pb, part.grants)
        revoked += part.revoked_token_ids
        quotas += map(_quota_from_pb, part.caller_quotas)
        if part.last:
            yield PolicySnapshot(part.version, grants, frozenset(revoked), quotas)
            grants, revoked, quotas = [], [], []


def _quota_from_pb(quota: pb.CallerQuota) -> CallerQuota:
    given = {name: getattr(quota, name) for name in ("calls", "unsent_bytes") if quota.HasField(name)}
    return CallerQuota(quota.subject, quota.project, **given)
