"""What the executor adds to GrantService and TokenService: a change holds here once its call returns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Around, UnaryHandler

HOLDS_S_MAX: Final = 5.0
"""Longest wait until the store has told this executor of a change, in seconds."""


def around_grants(policy: Policy) -> Mapping[str, Around]:
    """For the methods that change the policy."""

    async def change(forward: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await forward(request, context)
        await policy.until(lambda: policy.version >= answer.policy_version, HOLDS_S_MAX)
        return answer

    def around(_method: object, forward: Any) -> UnaryHandler:
        return partial(change, forward)

    return {"SetGrant": around, "DeleteGrant": around, "RevokeToken": around}
