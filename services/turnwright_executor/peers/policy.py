"""Follows the policy of the store, so that this executor can decide who may do what without asking."""

from __future__ import annotations

import asyncio

from turnwright.store.v1 import policy_pb2 as pb
from turnwright.store.v1 import store_service_pb2_grpc
from turnwright.types.v1 import grant_pb2
from turnwright_values.types import Grant

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.codec import codec
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_kit.identity.policy import Policy, PolicySnapshot
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

_, _grant_from_pb = codec(Grant, grant_pb2.Grant)
_log = get_logger("policy")


async def follow_policy(store: Peer, policy: Policy) -> None:
    """Keep a policy as the store has it, until the task is cancelled. While the store is away it stays as it was."""
    rows: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(store.channel)
    pauses = FEED_BACKOFF.pauses()
    while True:
        try:
            async with store.stream(rows.WatchPolicy, pb.WatchPolicyRequest(), None) as parts:
                grants: list[Grant] = []
                revoked: list[str] = []
                async for part in parts:
                    grants += map(_grant_from_pb, part.grants)
                    revoked += part.revoked_token_ids
                    if part.last:
                        policy.replace(PolicySnapshot(part.version, grants, frozenset(revoked)))
                        grants, revoked, pauses = [], [], FEED_BACKOFF.pauses()
        except TurnwrightError as error:
            _log.info("policy_watch_failed", reason=error.reason.name)
        await asyncio.sleep(next(pauses))
