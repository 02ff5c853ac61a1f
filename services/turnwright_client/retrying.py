"""Calls that are repeated where they cannot be done twice: under their request id, or because they only read.

A call that a proxy or a lost connection ended may or may not have been carried out. Repeated under the same
`request_id` it is done once, and the first answer comes again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Any, Final

import grpc

from turnwright_client.watch import WatchPolicy
from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.errors import is_of_transport
from turnwright_core.kit.peer import Peer

RETRIES_MAX: Final = 4
"""Repeats of one call; the last one comes about two seconds after the first."""

PASSING: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})
"""Errors after which the same call may be answered: by the same service in a moment, or by another one at once."""

_HARMLESS: Final = ("Get", "List", "Discover", "InitProject", "AddModel")
"""What the names of requests begin with that change nothing, or nothing when they come again."""


class RepeatingPeer(Peer):
    """The connection of a client to an executor."""

    def __init__(self, address: str, token: str, timeout_s: float, policy: WatchPolicy) -> None:
        """As a Peer of the tier client; repeats wait as the policy says."""
        super().__init__("executor", address, token, timeout_s, Tier.CLIENT)
        self._policy = policy
        self._has_answered = False

    async def call(self, method: Any, request: Any, timeout_s: float | None = None, caller: Any = None) -> Any:
        """One answer, within the deadline of all tries together. Raises TurnwrightError."""
        end_s = time.monotonic() + (timeout_s or self.timeout_s)
        retries = min(self._policy.retries_max, RETRIES_MAX) if _make_repeatable(request) else 0
        failures = 0
        while True:
            left_s = end_s - time.monotonic()
            try:
                answer = await super().call(method, request, left_s, caller)
            except TurnwrightError as error:
                failures += 1
                pause_s = self._policy.pause_s(failures)
                is_passing = error.reason in PASSING or is_of_transport(error)
                if not is_passing or failures > retries or left_s <= pause_s or self._is_nowhere():
                    raise
            else:
                self._has_answered = True
                return answer
            await asyncio.sleep(pause_s)

    def _is_nowhere(self) -> bool:
        """Whether nobody has ever listened there: then the address is wrong, and waiting does not help."""
        failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return not self._has_answered and self.channel.get_state() is failing


def _make_repeatable(request: Any) -> bool:
    """Whether a request may be sent twice; one that is known by its request id gets one."""
    identified = request.task if "task" in request.DESCRIPTOR.fields_by_name else request
    if "request_id" in identified.DESCRIPTOR.fields_by_name:
        identified.request_id = identified.request_id or secrets.token_hex(16)
        return True
    return bool(request.DESCRIPTOR.name.startswith(_HARMLESS))
