"""A watch of a run in a task of its own, for tests that do something meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

from turnwright_client import RunView


def kind(event) -> str:
    return event.WhichOneof("event")


class Watcher:
    """A watch of the run `r` in a task of its own, which keeps everything that it is sent."""

    def __init__(self, services, cursor=None) -> None:
        self.events = []
        self._services = services
        self._cursor = cursor
        self._came = asyncio.Condition()

    async def __aenter__(self):
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        async with contextlib.aclosing(self._services.client.watch(self._services.project, "r", self._cursor)) as told:
            async for event in told:
                async with self._came:
                    self.events.append(event)
                    self._came.notify_all()

    async def until(self, condition):
        """The first event that fits."""
        async with self._came, asyncio.timeout(60):
            await self._came.wait_for(lambda: self._task.done() or any(map(condition, self.events)))
        return next(filter(condition, self.events))

    def told(self, name: str) -> list:
        return [getattr(event, name) for event in self.events if kind(event) == name]

    def view(self) -> RunView:
        return RunView().apply_all(self.events)


async def snapshot(services) -> RunView:
    view = RunView()
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            view.apply(event)
            if event.snapshot.last:
                return view
    raise AssertionError("the watch ended")


async def command(services, command_id: str = "", **kind):
    return await services.client.submit(services.project, "r", command_id, **kind)
