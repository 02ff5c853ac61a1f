"""WatchRuns: the runs of a project as they change, across restarts. Rows RU241, RU242, RU246, RT02."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.runs.v1 import watch_runs_pb2
from turnwright.types.v1 import budget_pb2

from services import running
from turnwright_client import RunList
from turnwright_core import __version__
from turnwright_core.errors import MissingError

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'


class Watcher:
    """Folds a project's messages as they come."""

    def __init__(self, services) -> None:
        self.run_list = RunList()
        self.messages: list[watch_runs_pb2.WatchRunsResponse] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._follow(services.client.watch_runs(services.project)))

    async def _follow(self, stream) -> None:
        async with contextlib.aclosing(stream) as messages:
            async for message in messages:
                self.messages.append(message)
                self.run_list.apply(message)
                self._news.set()

    def kinds(self) -> list[str]:
        return [message.WhichOneof("event") for message in self.messages]

    def states(self) -> dict[str, tuple[int, int]]:
        return {alias: (one.run.status, one.proposals) for alias, one in self.run_list.runs.items()}

    async def expect(self, fits) -> None:
        """Fails when it does not come to fit."""
        async with asyncio.timeout(60):
            while not (self.run_list.is_complete and fits(self)):
                self._news.clear()
                waiting = asyncio.ensure_future(self._news.wait())
                await asyncio.wait((waiting, self._task), return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                if self._task.done():
                    self._task.result()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@contextlib.asynccontextmanager
async def watching(services):
    watcher = Watcher(services)
    try:
        yield watcher
    finally:
        await watcher.close()


async def test_a_watch_begins_with_hello_and_a_snapshot(services) -> None:
    services.script(DONE)
    await services.until(await services.act())
    async with watching(services) as watcher:
        await watcher.expect(lambda watcher: watcher.states() == {"r": (200, 0)})
        hello, snapshot = watcher.messages[:2]
    assert hello.hello.version == __version__
    assert (snapshot.snapshot.part, snapshot.snapshot.last) == (0, True)


async def test_runs_of_a_project_are_reported_as_they_move(services) -> None:
    services.script('<set path="a.txt">new</set>' + DONE, DONE)
    async with watching(services) as watcher:
        await watcher.expect(lambda watcher: watcher.states() == {})
        queued = await services.act(yolo=False)
        await watcher.expect(lambda watcher: watcher.states() == {"r": (202, 1)})
        await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
        await services.until(queued)
        await watcher.expect(lambda watcher: watcher.states() == {"r": (200, 0)})
        await services.client.fork_run(services.project, "r", new_run="side")
        await services.client.rename_run(services.project, "r", "main")
        await watcher.expect(lambda watcher: watcher.states() == {"main": (200, 0), "side": (100, 0)})


async def test_a_budget_that_is_spent_is_reported_with_the_loop(services) -> None:
    services.script('<update status="102">Going on.</update>', DONE)
    async with watching(services) as watcher:
        await services.until(await services.act(budget=budget_pb2.Budget(turns_max=1)))
        await watcher.expect(lambda watcher: watcher.states() == {"r": (499, 0)})
        loop = watcher.run_list.runs["r"].run.loop
    assert loop.reason.startswith("budget_exhausted:turns: ")


async def test_silence_is_reported_by_heartbeats(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, event_heartbeat_s=0.05) as services, watching(services) as watcher:
        await watcher.expect(lambda watcher: watcher.kinds().count("heartbeat") >= 2)
        assert [kind for kind in watcher.kinds() if kind != "heartbeat"] == ["hello", "snapshot"]


async def test_an_unknown_project_is_said(services) -> None:
    stream = services.client.watch_runs("none")
    assert (await anext(stream)).HasField("hello")
    with pytest.raises(MissingError):
        await anext(stream)


async def test_a_watch_survives_a_restart_of_the_store(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services, watching(services) as watcher:
        services.script(DONE, DONE)
        await services.until(await services.act(run="before"))
        await watcher.expect(lambda watcher: "before" in watcher.run_list.runs)
        await services.restart("store")
        await services.until(await services.act(run="after"))
        await watcher.expect(lambda watcher: watcher.states() == {"before": (200, 0), "after": (200, 0)})
        assert (watcher.kinds().count("hello"), watcher.kinds().count("snapshot")) == (1, 1)


async def test_a_watch_survives_a_restart_of_the_executor(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services, watching(services) as watcher:
        services.script(DONE, DONE)
        await services.until(await services.act(run="before"))
        await watcher.expect(lambda watcher: "before" in watcher.run_list.runs)
        await services.restart("executor")
        await services.until(await services.act(run="after"))
        await watcher.expect(lambda watcher: watcher.states() == {"before": (200, 0), "after": (200, 0)})
        assert (watcher.kinds().count("hello"), watcher.kinds().count("snapshot")) == (2, 1)


async def test_a_client_goes_on_where_it_was(services) -> None:
    services.script(DONE)
    await services.until(await services.act(run="before"))
    async with contextlib.aclosing(services.client.watch_runs(services.project)) as messages:
        cursor = [message.cursor async for message in take_until_cursor(messages)][-1]
    await services.client.delete_run(services.project, "before")
    async with contextlib.aclosing(services.client.watch_runs(services.project, cursor)) as messages:
        told = [message async for message in take_until_cursor(messages)]
    assert [message.WhichOneof("event") for message in told] == ["hello", "changed"]
    assert list(told[1].changed.deleted) == ["before"]


async def take_until_cursor(messages):
    async for message in messages:
        yield message
        if message.cursor:
            return


async def test_many_watchers_see_the_same(services) -> None:
    services.script(*[DONE] * 3)
    async with contextlib.AsyncExitStack() as stack:
        watchers = [await stack.enter_async_context(watching(services)) for _ in range(5)]
        for number in range(3):
            await services.until(await services.act(run=f"r{number}"))
        wanted = {f"r{number}": (200, 0) for number in range(3)}
        for watcher in watchers:
            await watcher.expect(lambda watcher: watcher.states() == wanted)
        assert all(watcher.states() == wanted for watcher in watchers)


async def test_a_board_forgets_what_a_new_snapshot_does_not_have() -> None:
    run_list = RunList()
    snapshot = watch_runs_pb2.RunsSnapshot(last=True)
    snapshot.runs.add().run.run = "old"
    run_list.apply(watch_runs_pb2.WatchRunsResponse(snapshot=snapshot))
    run_list.apply(watch_runs_pb2.WatchRunsResponse(snapshot=watch_runs_pb2.RunsSnapshot(last=True)))
    assert (run_list.runs, run_list.is_complete) == ({}, True)
