"""What the executor adds to the services of the store that it mounts for clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor
from msgspec import Struct
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb
from turnwright.runs.v1 import watch_runs_pb2 as watch_pb

from turnwright_core import __version__
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.models import CheckVendor
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Around, StreamHandler, UnaryHandler
from turnwright_kit.refusals import Refusals


def around_audit(refusals: Refusals) -> Mapping[str, Around]:
    def listing(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            answered = await forward(request, context)
            if request.refused:
                rows = [*refusals.rows(request.project), *answered.rows]
                del answered.rows[:]
                answered.rows.extend(sorted(rows, key=lambda row: row.time.ToNanoseconds(), reverse=True))
            return answered

        return answer

    return {"ListAudit": listing}


def around_catalogues(
    check: Callable[[str, pb.ToolServer], Awaitable[None]],
    log_out: Callable[[str, str], Awaitable[None]],
    forget: Callable[[str], None],
) -> Mapping[str, Around]:
    """For the methods that change servers. `check` raises INVALID_FIELD, `forget` is told whose have changed.

    `log_out` is for a server that is removed, by its project and its name.
    """

    def change(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            if isinstance(request, pb.AddToolServerRequest):
                await check(request.project, request.server)
            else:
                # Who registers it again must not find somebody else's login.
                await log_out(request.project, request.name)
            changed = await forward(request, context)
            forget(request.project)
            return changed

        return answer

    return {"AddToolServer": change, "RemoveToolServer": change}


HOLDS_S_MAX: Final = 5.0
"""Longest wait until the store has told this executor of a change, in seconds."""


def around_grants(policy: Policy) -> Mapping[str, Around]:
    async def change(forward: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await forward(request, context)
        await policy.until(lambda: policy.version >= answer.policy_version, HOLDS_S_MAX)
        return answer

    def around(_method: object, forward: Any) -> UnaryHandler:
        return partial(change, forward)

    return {"SetGrant": around, "DeleteGrant": around, "RevokeToken": around}


def around_models(check_vendor: CheckVendor) -> Mapping[str, Around]:
    def change(_method: MethodDescriptor, forward: UnaryHandler) -> UnaryHandler:
        async def answer(request: Any, context: Any) -> Any:
            await check_vendor(request.model.vendor_model, "model.vendor_model")
            return await forward(request, context)

        return answer

    return {"SetModel": change}


class ClientRuns(Struct, frozen=True):
    """The runs that clients create, change and end."""

    hubs: Hubs
    scheduler: Scheduler
    check_vendor: CheckVendor
    to_owner: Around
    """The call reaches the owner of the run, if that is another executor."""

    def around(self) -> Mapping[str, Around]:
        """Handlers by method."""
        return {
            "CreateRun": lambda _, inner: partial(self._configured, inner, lambda request: request.settings.model),
            "ConfigureRun": lambda _, inner: partial(self._configured, inner, lambda request: request.patch.model),
            "InjectMessage": lambda _, inner: partial(self.hubs.answer, inner),
            "AbortRun": lambda method, inner: self.to_owner(method, partial(self._aborted, inner)),
            "WatchRuns": lambda _, inner: partial(self._greeted, inner),
        }

    async def _configured(self, inner: UnaryHandler, model_of: Callable[[Any], str], request: Any, context: Any) -> Any:
        await self.check_vendor(model_of(request), "settings.model")
        return await inner(request, context)

    async def _aborted(self, inner: UnaryHandler, request: Any, context: Any) -> Any:
        answer = await self.hubs.answer(inner, request, context)
        if request.loop in (0, answer.run.loop.sequence):
            self.scheduler.abort(RunAddress(request.project, request.run), answer.run.loop.sequence)
        return answer

    async def _greeted(
        self, inner: StreamHandler, request: Any, context: Any
    ) -> AsyncGenerator[watch_pb.WatchRunsResponse]:
        greeting = watch_pb.WatchRunsResponse(hello=watch_pb.Hello(version=__version__))
        greeting.time.GetCurrentTime()
        yield greeting
        async with aclosing(inner(request, context)) as messages:
            async for message in messages:
                yield message
