"""Following the runs of a project: a snapshot, every change, heartbeats, cursors, two replicas. Rows RU242, RU246, RT02."""

import asyncio
import contextlib
import sqlite3

import aiosqlite
import pytest
import pytest_asyncio
from msgspec.structs import replace
from turnwright.types.v1 import entry_pb2, settings_pb2

from contract.store.harness import (
    POSTGRESQL_ONLY,
    PROPOSED,
    SQLITE_ONLY,
    Client,
    new_project,
    new_run,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import InvalidError, MissingError, TurnwrightError
from turnwright_store.domain.runs_cursor import CURSOR_KEPT_MS, decode_runs_cursor, encode_runs_cursor

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
            for alias in message.changed.deleted:
                del self.runs[alias]
            for one in (*message.snapshot.runs, *message.changed.created, *message.changed.updated):
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


async def test_an_unknown_project_is_refused(client):
    with pytest.raises(MissingError):
        await anext(client.stream("WatchRuns", project="none"))


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


class Told:
    """What a watch tells from a cursor on, until it has told everything of its first moment."""

    def __init__(self) -> None:
        self.snapshot: list[str] = []
        self.created: list[str] = []
        self.updated: list[str] = []
        self.deleted: list[str] = []
        self.cursor = ""

    def told(self) -> tuple[list[str], list[str], list[str], list[str]]:
        return sorted(self.snapshot), sorted(self.created), sorted(self.updated), sorted(self.deleted)


async def told_after(client: Client, project: str, cursor: str = "") -> Told:
    """A connection that lasts until its first moment is told; the next one goes on after its cursor."""
    told = Told()
    async with contextlib.aclosing(client.stream("WatchRuns", project=project, after=cursor)) as messages:
        async for message in messages:
            told.snapshot += [one.run.run for one in message.snapshot.runs]
            told.created += [one.run.run for one in message.changed.created]
            told.updated += [one.run.run for one in message.changed.updated]
            told.deleted += message.changed.deleted
            told.cursor = message.cursor
            if told.cursor:
                break
    return told


async def change_runs(client: Client, project: str) -> None:
    """Create `new`, change `changed`, delete `gone`, rename `old` to `renamed`, put another run in the place of `again`."""
    await new_run(client, project, "new")
    for yolo in (True, False, True):
        patch = settings_pb2.RunSettingsPatch(yolo=yolo)
        await client.call("ConfigureRun", project=project, run="changed", patch=patch)
    await client.call("DeleteRun", project=project, run="gone")
    await client.call("RenameRun", project=project, run="old", new_run="renamed")
    await client.call("DeleteRun", project=project, run="again")
    await new_run(client, project, "again")


RUNS = ("again", "changed", "gone", "old", "still")


@pytest.mark.parametrize("from_list", [False, True])
async def test_a_watch_goes_on_after_its_cursor(client, project, from_list):
    """What was created, changed or deleted meanwhile is told once, each as that, and nothing else."""
    for alias in RUNS:
        await new_run(client, project, alias)
    if from_list:
        cursor = (await client.call("ListRuns", project=project)).cursor
    else:
        first = await told_after(client, project)
        assert first.told() == (list(RUNS), [], [], [])
        cursor = first.cursor
    await change_runs(client, project)
    missed = await told_after(client, project, cursor)
    assert missed.told() == ([], ["again", "new", "renamed"], ["changed"], ["gone", "old"])
    assert (await told_after(client, project, missed.cursor)).told() == ([], [], [], [])
    assert (await told_after(client, project, cursor)).told() == missed.told()


async def test_a_watch_that_lasts_tells_what_one_with_a_cursor_does(client, project):
    for alias in RUNS:
        await new_run(client, project, alias)
    told: dict[str, set[str]] = {"created": set(), "updated": set(), "deleted": set()}
    wanted = {"created": {"again", "new", "renamed"}, "updated": {"changed"}, "deleted": {"gone", "old"}}
    stream = client.stream("WatchRuns", project=project)
    assert (await anext(stream)).snapshot.last
    await change_runs(client, project)
    async with asyncio.timeout(60):
        while not all(told[kind] >= wanted[kind] for kind in wanted):
            message = await anext(stream)
            told["created"] |= {one.run.run for one in message.changed.created}
            told["updated"] |= {one.run.run for one in message.changed.updated}
            told["deleted"] |= set(message.changed.deleted)
    await stream.aclose()
    # Each change may have been told alone: `again` was gone for a while, and a run that is new may have changed.
    assert told["deleted"] - wanted["deleted"] <= {"again"}
    assert told["updated"] - wanted["updated"] <= {"new", "renamed", "again"}
    assert told["created"] == wanted["created"]


async def test_a_cursor_tells_of_proposals_and_leases(client, project):
    """Both change without a write of the run's own row."""
    run = await working_run(client, project, "r")
    await run.begin()
    await run.write(*(set_(f"log://turn_1/set/{name}", "x", state=PROPOSED) for name in "ab"), run_status=202)
    before = await told_after(client, project)
    await client.call("ResolveProposal", **run.address, path="log://turn_1/set/a", reject={})
    after = await told_after(client, project, before.cursor)
    assert after.told() == ([], [], ["r"], [])
    await client.call("ResolveProposal", **run.address, path="log://turn_1/set/b", reject={})
    running = await working_run(client, project, "running")
    await running.begin()
    cursor = (await told_after(client, project, after.cursor)).cursor
    assert (await told_after(client, project, cursor)).told() == ([], [], ["running"], [])


@SQLITE_ONLY
async def test_an_old_cursor_tells_what_was_written_since(client, project, tmp_path):
    """Runs are made older in the file; the database plays no part in what follows from their times."""
    for alias in ("fresh", "quiet", "changed"):
        await new_run(client, project, alias)
    waiting = await working_run(client, project, "waiting")
    await waiting.begin()
    await waiting.write(*(set_(f"log://turn_1/set/{name}", "x", state=PROPOSED) for name in "ab"), run_status=202)
    cursor = decode_runs_cursor((await told_after(client, project)).cursor, 1)
    with contextlib.closing(sqlite3.connect(tmp_path / "turnwright.db", timeout=60)) as file, file:
        hours = "create_ms = create_ms - 7200000, update_ms = update_ms - 7200000"
        file.execute(f"UPDATE runs SET {hours} WHERE alias != 'fresh'")
    patch = settings_pb2.RunSettingsPatch(yolo=True)
    await client.call("ConfigureRun", project=project, run="changed", patch=patch)
    await client.call("ResolveProposal", **waiting.address, path="log://turn_1/set/a", reject={})
    hour_ago = replace(cursor, at_ms=cursor.at_ms - 3600_000, known={})
    missed = await told_after(client, project, encode_runs_cursor(hour_ago))
    assert missed.told() == ([], ["fresh"], ["changed", "waiting"], [])


@SQLITE_ONLY
async def test_after_a_cursor_that_tells_nothing_any_more_comes_a_snapshot(client, project):
    """It is too old, of a time to come, or of the history before a backup was restored."""
    await new_run(client, project, "r")
    cursor = decode_runs_cursor((await told_after(client, project)).cursor, 1)
    for other in (
        replace(cursor, at_ms=cursor.at_ms - CURSOR_KEPT_MS),
        replace(cursor, at_ms=cursor.at_ms + 3600_000),
        replace(cursor, incarnation="another"),
    ):
        assert (await told_after(client, project, encode_runs_cursor(other))).told() == (["r"], [], [], [])


@SQLITE_ONLY
@pytest.mark.parametrize("after", ["x", "eHg=", "W10=", "é", "x" * 20_000])
async def test_what_is_no_cursor_is_refused(client, project, after):
    with pytest.raises(InvalidError, match="after"):
        await told_after(client, project, after)


@SQLITE_ONLY
async def test_a_cursor_of_another_project_is_refused(client, project):
    cursor = (await told_after(client, await new_project(client, "other"))).cursor
    with pytest.raises(InvalidError, match="of this project"):
        await told_after(client, project, cursor)


async def test_an_alias_that_names_another_run_since_a_cursor_is_told(client, project):
    # Both have the same revision.
    await new_run(client, project, "green")
    await new_run(client, project, "blue")
    cursor = (await told_after(client, project)).cursor
    await client.call("DeleteRun", project=project, run="green")
    await client.call("RenameRun", project=project, run="blue", new_run="green")
    told = await told_after(client, project, cursor)
    assert (told.created, told.updated, told.deleted) == (["green"], [], ["blue"])


@SQLITE_ONLY
async def test_more_runs_than_a_cursor_knows_are_told_again_and_none_is_missed(client, project):
    for number in range(103):
        await new_run(client, project, f"r{number}")
    first = await told_after(client, project)
    assert len(first.cursor) < 8 * 1024
    await new_run(client, project, "new")
    again = await told_after(client, project, first.cursor)
    assert "new" in again.created
    assert len(again.created) <= 4
