"""Following the runs of a project: a snapshot, every change, heartbeats, two replicas. Rows RU242, RU246."""

import asyncio

import aiosqlite
import pytest
import pytest_asyncio
from turnwright.types.v1 import entry_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    POSTGRESQL_ONLY,
    PROPOSED,
    SQLITE_ONLY,
    Client,
    as_tier,
    new_project,
    new_run,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import DeniedError, MissingError, TurnwrightError

pytestmark = pytest.mark.asyncio


class RunList:
    """What a watcher knows of a project's runs."""

    def __init__(self, client: Client, project: str) -> None:
        self.runs: dict[str, tuple[int, int]] = {}
        self.revisions: dict[str, list[int]] = {}
        self.held: set[str] = set()
        self.heartbeats = 0
        self.ready = asyncio.Event()
        self.task = asyncio.create_task(self._follow(client, project))
        self._news = asyncio.Event()

    async def _follow(self, client: Client, project: str) -> None:
        async for message in client.stream("WatchRuns", project=project):
            for alias in message.changed.removed:
                del self.runs[alias]
            for one in (*message.snapshot.runs, *message.changed.runs):
                self.runs[one.run.run] = one.run.status, one.proposals
                self.revisions.setdefault(one.run.run, []).append(one.run.revision)
                (self.held.add if one.run.held else self.held.discard)(one.run.run)
            self.heartbeats += message.HasField("heartbeat")
            if message.snapshot.last:
                self.ready.set()
            self._news.set()

    async def expect(self, fits) -> None:
        """Fails when it does not come to fit."""
        async with asyncio.timeout(60):
            while not fits(self):
                self._news.clear()
                await self._news.wait()

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest_asyncio.fixture
async def board(client, project):
    made = RunList(client, project)
    yield made
    await made.close()


async def test_the_first_thing_told_is_a_snapshot_of_all_runs(client, project):
    for number in range(105):
        await new_run(client, project, f"r{number}")
    board = RunList(client, project)
    await board.ready.wait()
    assert board.runs == {f"r{number}": (100, 0) for number in range(105)}
    await board.close()


async def test_every_run_that_changes_is_reported_with_its_proposals(client, project, board):
    await board.ready.wait()
    run = await working_run(client, project, "r")
    other = await new_run(client, project, "other")
    await run.begin()
    await run.write(set_("log://turn_1/set/a", "x", state=PROPOSED), run_status=202)
    await board.expect(lambda board: board.runs == {"r": (202, 1), "other": (100, 0)})
    await run.write(set_("log://turn_1/set/a", state=entry_pb2.STATE_RESOLVED), run_status=102)
    await run.end(1, loop=(200, "update", "done"))
    await board.expect(lambda board: board.runs == {"r": (200, 0), "other": (100, 0)})
    assert all(revisions == sorted(set(revisions)) for revisions in board.revisions.values())
    assert (await other.get()).revision == board.revisions["other"][-1]


async def test_a_running_run_is_reported_as_held_for_as_long_as_its_lease(client, project, board):
    await board.ready.wait()
    run = await working_run(client, project, "r")
    await run.begin()
    await board.expect(lambda board: board.runs == {"r": (102, 0)} and board.held == {"r"})
    await client.call("ReleaseRun", **run.address, epoch=run.epoch)
    await board.expect(lambda board: not board.held)
    await run.claim("another")
    await board.expect(lambda board: board.held == {"r"})
    late = RunList(client, project)
    await late.ready.wait()
    assert (late.runs, late.held) == ({"r": (102, 0)}, {"r"})
    await late.close()


async def test_proposals_are_counted_though_nothing_else_of_the_run_changes(client, project, board):
    run = await working_run(client, project, "r")
    await run.begin()
    await run.write(*(set_(f"log://turn_1/set/{name}", "x", state=PROPOSED) for name in "abc"), run_status=202)
    await board.expect(lambda board: board.runs == {"r": (202, 3)})
    await client.call("ResolveProposal", **run.address, path="log://turn_1/set/a", reject={})
    await board.expect(lambda board: board.runs == {"r": (202, 2)})
    await run.write(set_("log://turn_1/set/b", state=entry_pb2.STATE_CANCELLED))
    await board.expect(lambda board: board.runs == {"r": (202, 1)})


@SQLITE_ONLY
@pytest.mark.parametrize("whose", ["demo", "other"])
async def test_a_run_is_reported_though_its_rows_have_the_numbers_of_one_that_is_gone(tmp_path, whose):
    """SQLite gives the numbers of deleted rows again; what a watcher knows of the old run says nothing of the new."""
    server = await start_store(tmp_path, purge_after_s=0, purge_every_s=0.02)
    client = Client(server.address)
    project = await new_project(client)
    gone = await new_run(client, project if whose == "demo" else await new_project(client, "other"), "gone")
    board = RunList(client, project)
    await board.ready.wait()
    await client.call("ConfigureRun", **gone.address, patch=settings_pb2.RunSettingsPatch(yolo=True))
    await client.call("DeleteRun", **gone.address)
    async with aiosqlite.connect(f"file:{tmp_path}/turnwright.db?mode=ro", uri=True) as rows:
        for _ in range(3000):
            async with rows.execute("SELECT count(*) FROM runs") as found:
                if await found.fetchone() == (0,):
                    break
            await asyncio.sleep(0.02)
    await new_run(client, project, "next")
    await board.expect(lambda board: board.runs == {"next": (100, 0)})
    await board.close()
    await client.close()
    await server.stop()


async def test_a_run_that_was_removed_or_renamed_is_reported(client, project, board):
    await new_run(client, project, "gone")
    await new_run(client, project, "old")
    await board.expect(lambda board: board.runs == {"gone": (100, 0), "old": (100, 0)})
    await client.call("DeleteRun", project=project, run="gone")
    await client.call("RenameRun", project=project, run="old", new_run="new")
    await board.expect(lambda board: board.runs == {"new": (100, 0)})


async def test_runs_of_another_project_are_not_reported(client, project, board):
    await board.ready.wait()
    other = await new_project(client, "other")
    await new_run(client, other, "theirs")
    await new_run(client, project, "ours")
    await board.expect(lambda board: "ours" in board.runs)
    assert list(board.runs) == ["ours"]


async def test_silence_is_reported_by_heartbeats(project, board):
    await board.expect(lambda board: board.heartbeats >= 2)
    assert board.runs == {}


async def test_long_texts_are_cut(client, project):
    run = await new_run(client, project, "r")
    await run.enqueue("ü" * 5000)
    stream = client.stream("WatchRuns", project=project)
    message = await anext(stream)
    assert message.snapshot.runs[0].run.loop.prompt == "ü" * 1024
    await stream.aclose()


async def test_an_unknown_project_and_a_model_are_refused(server, client):
    with pytest.raises(MissingError):
        await anext(client.stream("WatchRuns", project="none"))
    model = as_tier(server.address, Tier.MODEL)
    with pytest.raises(DeniedError):
        await anext(model.stream("WatchRuns", project="none"))
    await model.close()


async def test_a_stopping_store_ends_its_watches(tmp_path, db):
    server = await start_store(tmp_path, "leaving")
    client = Client(server.address)
    project = await new_project(client)
    stream = client.stream("WatchRuns", project=project)
    await anext(stream)
    stopping = asyncio.create_task(server.stop())
    with pytest.raises(TurnwrightError):
        await anext(stream)
    await stopping
    await client.close()


@POSTGRESQL_ONLY
async def test_a_watcher_of_one_replica_hears_of_what_the_other_one_wrote(tmp_path, db):
    """Only PostgreSQL has replicas. Both write at once, and the watchers of both end at the same board."""
    servers = [await start_store(tmp_path, name) for name in ("one", "two")]
    clients = [Client(server.address) for server in servers]
    project = await new_project(clients[0])
    boards = [RunList(client, project) for client in clients]

    async def work(client: Client, name: str) -> None:
        for number in range(5):
            run = await working_run(client, project, f"{name}{number}")
            await run.begin()
            await run.end(1, loop=(200, "update", "done"))

    await asyncio.gather(*(work(client, name) for client, name in zip(clients, "ab", strict=True)))
    wanted = {f"{name}{number}": (200, 0) for name in "ab" for number in range(5)}
    for board in boards:
        await board.expect(lambda board: board.runs == wanted)
        await board.close()
    for client, server in zip(clients, servers, strict=True):
        await client.close()
        await server.stop()


async def test_a_watcher_misses_nothing_while_many_runs_change_at_once(client, project, board):
    async def work(number: int) -> None:
        settings = settings_pb2.RunSettings(model="fast")
        alias = f"r{number}"
        await client.call("CreateRun", project=project, run=alias, settings=settings)
        await client.call("ConfigureRun", project=project, run=alias, patch=settings_pb2.RunSettingsPatch(yolo=True))

    await asyncio.gather(*(work(number) for number in range(40)))
    listed = (await client.call("ListRuns", project=project)).runs
    final = {run.run: run.revision for run in listed}
    await board.expect(lambda board: {alias: told[-1] for alias, told in board.revisions.items()} == final)
    assert len(final) == 40
