"""What the executor adds to the services of the store that it mounts for clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from turnwright.catalogues.v1 import catalogue_service_pb2 as pb

from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Around, UnaryHandler
from turnwright_kit.refusals import Refusals


def around_audit(refusals: Refusals) -> Mapping[str, Around]:
    async def listing(forward: UnaryHandler, request: Any, context: Any) -> Any:
        answered = await forward(request, context)
        if request.refused:
            rows = [*refusals.rows(request.project), *answered.rows]
            del answered.rows[:]
            answered.rows.extend(sorted(rows, key=lambda row: row.time.ToNanoseconds(), reverse=True))
        return answered

    return {"ListAudit": lambda _, forward: partial(listing, forward)}


def around_catalogues(
    check: Callable[[str, pb.ToolServer], Awaitable[None]],
    log_out: Callable[[str, str], Awaitable[None]],
    forget: Callable[[str], None],
) -> Mapping[str, Around]:
    """For the methods that change servers. `check` raises INVALID_FIELD, `forget` is told whose have changed.

    `log_out` is for a server that is removed, by its project and its name.
    """

    async def change(forward: UnaryHandler, request: Any, context: Any) -> Any:
        if isinstance(request, pb.AddToolServerRequest):
            await check(request.project, request.server)
        else:
            # Who registers it again must not find somebody else's login.
            await log_out(request.project, request.name)
        changed = await forward(request, context)
        forget(request.project)
        return changed

    return dict.fromkeys(("AddToolServer", "RemoveToolServer"), lambda _, forward: partial(change, forward))


HOLDS_S_MAX: Final = 5.0
"""Longest wait until the store has told this executor of a change, in seconds."""


def around_grants(policy: Policy) -> Mapping[str, Around]:
    async def change(forward: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await forward(request, context)
        await policy.until(lambda: policy.version >= answer.policy_version, HOLDS_S_MAX)
        return answer

    return dict.fromkeys(("SetGrant", "DeleteGrant", "RevokeToken"), lambda _, forward: partial(change, forward))
