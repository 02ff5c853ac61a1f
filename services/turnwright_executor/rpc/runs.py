"""What the executor adds to RunService: a check of vendors, the end of work at the owner, its events, who answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from msgspec import Struct
from turnwright.runs.v1 import watch_runs_pb2 as watch_pb

from turnwright_core import __version__
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.vendors import CheckVendor
from turnwright_executor.runs.scheduler import Scheduler
from turnwright_executor.watching.hubs import Hubs
from turnwright_kit.peer import Around, StreamHandler, UnaryHandler


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
