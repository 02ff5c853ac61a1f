"""Safe retries: calls with a request id, and calls that only read.

A call that failed because of a proxy or a lost connection may or may not have been carried out. Retried with the same
`request_id` it is carried out once, and the first answer is returned.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from importlib import import_module
from typing import Any, Final

import grpc
from google.protobuf.descriptor_pb2 import MethodOptions
from google.protobuf.message import Message
from turnwright_values.types import Tier

from turnwright_client.watch import WatchPolicy
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.errors import is_of_transport
from turnwright_core.rpc.headers import RECEIVES_ALL, call_metadata
from turnwright_core.rpc.remote_service import RemoteService, Request, Response

_REPEATABLE: Final = (MethodOptions.NO_SIDE_EFFECTS, MethodOptions.IDEMPOTENT)


def may_be_repeated(method: str, request: object) -> bool:
    """Whether a call is idempotent: by its request id, or by the `idempotency_level` of the rpc in the protos.

    `method` is the path of the rpc, as gRPC sends it.
    """
    if getattr(request, "request_id", ""):
        return True
    service, _, name = method[1:].rpartition("/")
    package, _, kind = service.rpartition(".")
    file = re.sub(r"\B(?=[A-Z])", "_", kind).lower()
    try:
        # Only now: stubs need no descriptors of services.
        descriptor: Any = import_module(f"{package}.{file}_pb2").DESCRIPTOR
    except ImportError:
        return False
    rpc = descriptor.services_by_name[kind].methods_by_name[name]
    return rpc.GetOptions().idempotency_level in _REPEATABLE


_EXECUTOR: Final = "turnwright.executor.v1.ExecutorService"

RETRIES_MAX: Final = 4
"""Retries of one call; the last one starts about two seconds after the first."""

PASSING: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})
"""Transient errors: the same call may succeed in a moment, or at once at another replica."""


class RetryingPeer(RemoteService[None]):
    """The connection of a client to an executor."""

    def __init__(
        self,
        address: str,
        token: str,
        timeout_s: float,
        policy: WatchPolicy,
        channel: grpc.aio.Channel,
    ) -> None:
        """With the tier client; pauses between retries follow the policy. Raises UNAUTHENTICATED: no such token."""
        super().__init__("executor", address, channel, timeout_s, (*call_metadata(token, Tier.CLIENT), RECEIVES_ALL))
        self._policy = policy
        self._has_answered = False

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None = None,
        caller: None = None,
    ) -> Response:
        """Call with retries, within one deadline for all attempts. Raises TurnwrightError."""
        end_s = time.monotonic() + (timeout_s or self.timeout_s)
        retries = min(self._policy.retries_max, RETRIES_MAX) if _make_idempotent(request) else 0
        failures = 0
        while True:
            left_s = end_s - time.monotonic()
            try:
                answer = await super().call(method, request, left_s, caller)
            except TurnwrightError as error:
                failures += 1
                pause_s = self._policy.pause_s(failures)
                is_passing = error.reason in PASSING or is_of_transport(error)
                if not is_passing or failures > retries or left_s <= pause_s or self._never_answered():
                    raise
            else:
                self._has_answered = True
                return answer
            await asyncio.sleep(pause_s)

    def _never_answered(self) -> bool:
        """Whether the address has never answered: then it is probably wrong, and waiting does not help."""
        failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return not self._has_answered and self.channel.get_state() is failing


def _make_idempotent(request: object) -> bool:
    """Whether a request is safe to retry; adds a request id if the message has one."""
    assert isinstance(request, Message)
    identified = getattr(request, "task", request)
    for name in ("request_id", "command_id"):
        if name in identified.DESCRIPTOR.fields_by_name:
            setattr(identified, name, getattr(identified, name) or secrets.token_hex(16))
            return True
    # The requests of other services stand beside them, in one file.
    service = next((one.full_name for one in request.DESCRIPTOR.file.services_by_name.values()), _EXECUTOR)
    return may_be_repeated(f"/{service}/{request.DESCRIPTOR.name.removesuffix('Request')}", request)
