"""The watch of the policy: all of it now, and again after each change. The store follows it itself, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.types import Grant

from turnwright_core.batching import split_by_weight
from turnwright_core.errors import TurnwrightError
from turnwright_kit.identity.policy import CallerQuota, Policy
from turnwright_kit.logs import get_logger
from turnwright_store.ports import Database, Subscription
from turnwright_store.sql.grants import policy_scope, read_policy, read_policy_version

TRY_AGAIN_S: Final = 1.0
"""Seconds after which the store reads the policy again if it could not."""

_log = get_logger("policy")


class PolicyPart(Struct, frozen=True):
    """One message of a watch; a heartbeat without a version."""

    version: int = 0
    grants: Sequence[Grant] = ()
    revoked_token_ids: Sequence[str] = ()
    caller_quotas: Sequence[CallerQuota] = ()
    is_last: bool = False


class PolicyWatch(Struct):
    """What one watcher has been sent."""

    database: Database
    subscription: Subscription
    sent: int
    """The version that the watcher has."""
    has_begun: bool = False
    pause_s: float = 0.0

    def heartbeat(self) -> PolicyPart:
        return PolicyPart()

    async def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[PolicyPart]:  # noqa: ARG002 - as others
        """The policy, if it is another one than was sent last; first of all a heartbeat, if the watcher has it."""
        if not is_woken:
            return
        is_first, self.has_begun = not self.has_begun, True
        if await self.database.read(read_policy_version) == self.sent:
            if is_first:
                yield self.heartbeat()
            return
        now = await self.database.read(read_policy)
        self.sent = now.version
        for grants in split_by_weight(now.grants, lambda grant: len(f"{grant}".encode())):
            yield PolicyPart(now.version, grants)
        for revoked in split_by_weight(sorted(now.revoked_token_ids), len):
            yield PolicyPart(now.version, revoked_token_ids=revoked)
        for quotas in split_by_weight(now.caller_quotas, lambda quota: len(f"{quota}".encode())):
            yield PolicyPart(now.version, caller_quotas=quotas)
        yield PolicyPart(now.version, is_last=True)


async def watch_policy(database: Database, known_version: int) -> PolicyWatch:
    scope = await database.read(policy_scope)
    return PolicyWatch(database, database.subscribe((scope,)), known_version)


async def renew_policy(database: Database, policy: Policy) -> None:
    """Read the policy, if it is another one than is known."""
    if await database.read(read_policy_version) != policy.version:
        policy.replace(await database.read(read_policy))


async def follow_policy(database: Database, policy: Policy) -> None:
    """Keep a policy as the database has it, until the task is cancelled."""
    subscription = database.subscribe((await database.read(policy_scope),))
    try:
        while True:
            subscription.woken.clear()
            try:
                policy.replace(await database.read(read_policy))
            except TurnwrightError as error:
                _log.warning("policy_read_failed", reason=error.reason.name)
                await asyncio.sleep(TRY_AGAIN_S)
            else:
                await subscription.woken.wait()
    finally:
        subscription.close()
