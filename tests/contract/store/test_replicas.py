"""Two replicas of the store on one PostgreSQL: what one acknowledges, the other one knows."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
import pytest
import pytest_asyncio

from contract.store.harness import (
    POSTGRESQL_ONLY,
    SECRET,
    Client,
    Run,
    new_project,
    new_run,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError, UnavailableError
from turnwright_store.edge.postgres import ENTRY_IDS_AT_ONCE

# A file of SQLite belongs to one process.
pytestmark = [pytest.mark.asyncio, POSTGRESQL_ONLY]


CUT = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
"""Ends the connections of all others, and waits until they have gone."""


@dataclass
class Replicas:
    """Clients of two stores on one database, and the same run through each."""

    one: Client
    two: Client
    here: Run
    there: Run


@contextlib.asynccontextmanager
async def store(home, name, **settings):
    """A client of a replica."""
    server = await start_store(home, name, heartbeat_s=30.0, **settings)
    client = Client(server.address)
    try:
        yield client
    finally:
        await client.close()
        await server.stop()


async def same_run(one, two, alias="r1"):
    here = await working_run(one, await new_project(one), alias)
    return here, Run(two, here.project, here.alias, here.epoch)


@pytest_asyncio.fixture
async def replicas(tmp_path):
    """Watchers hear of changes by notifications alone: they do not look for themselves during a test."""
    async with store(tmp_path, "one", db_poll_s=60.0) as one, store(tmp_path, "two", db_poll_s=60.0) as two:
        yield Replicas(one, two, *await same_run(one, two))


async def test_a_write_is_seen_by_the_next_read_on_any_replica(replicas):
    for number in range(30):
        writer, reader = (replicas.here, replicas.there)[:: 1 if number % 2 else -1]
        await writer.write(set_("known://a", str(number)))
        assert (await reader.entry("known://a")).body == str(number)
        assert (await reader.view()).bodies["known://a"] == str(number)


async def test_concurrent_writers_to_one_run_keep_its_revisions_dense(replicas):
    """Each acknowledged write has a revision of its own, whichever replica it went through."""
    first = (await replicas.here.view()).cursor.run_revision + 1
    writes = [
        run.write(set_(f"known://{number}", name))
        for number in range(40)
        for name, run in (("here", replicas.here), ("there", replicas.there))
    ]
    answers = await asyncio.gather(*writes)
    assert sorted(answer.cursor.run_revision for answer in answers) == list(range(first, first + 80))
    assert len((await replicas.there.view()).paths) == 41


async def test_concurrent_writers_to_a_shared_project_keep_its_revisions_dense(replicas):
    """Two runs write files of their project, each through its own replica."""
    other = await working_run(replicas.two, replicas.here.project, "r2")
    first = (await replicas.here.view()).cursor.project_revision + 1
    writes = [run.write(set_(f"{number}.txt", run.alias)) for number in range(30) for run in (replicas.here, other)]
    answers = await asyncio.gather(*writes)
    assert sorted(answer.cursor.project_revision for answer in answers) == list(range(first, first + 60))
    bodies = [(await run.view()).bodies for run in (replicas.here, other)]
    shared = [{path: body for path, body in found.items() if "://" not in path} for found in bodies]
    assert shared[0] == shared[1]
    assert len(shared[0]) == 30


async def followed(watch, last):
    """The bodies that a watch tells of one entry, up to the last one."""
    found = []
    async for message in watch:
        found += [entry.body for entry in message.entries if entry.path == "known://a"]
        if found and found[-1] == last:
            return found
    raise AssertionError("the watch ended")


def assert_in_order(found, count):
    """What a watcher was told of an entry that was counted up: nothing twice, nothing out of order, the last one."""
    numbers = [int(body) for body in found]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == count - 1


async def test_a_watch_on_one_replica_sees_writes_through_the_other_once_and_in_order(replicas):
    watch = replicas.there.client.stream("WatchChanges", **replicas.there.address)
    following = asyncio.ensure_future(followed(watch, "59"))
    for number in range(60):
        await (replicas.here if number % 3 else replicas.there).write(set_("known://a", str(number)))
    assert_in_order(await following, 60)


async def test_each_change_is_reported_when_it_is_made_on_the_other_replica(replicas):
    """One at a time, a watcher is told each of them; without a notification this would take a minute each."""
    watch = aiter(replicas.there.client.stream("WatchChanges", **replicas.there.address))
    await anext(watch)
    for number in range(10):
        written = await replicas.here.write(set_("known://a", str(number)))
        message = await asyncio.wait_for(anext(watch), 60)
        assert [(entry.path, entry.body) for entry in message.entries] == [("known://a", str(number))]
        assert message.cursor.run_revision == written.cursor.run_revision


async def test_a_watch_misses_nothing_while_the_listening_is_cut(replicas, db):
    watch = replicas.there.client.stream("WatchChanges", **replicas.there.address)
    following = asyncio.ensure_future(followed(watch, "39"))
    with psycopg.connect(db, autocommit=True) as admin:
        for number in range(40):
            if number % 8 == 7:
                admin.execute(
                    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND query LIKE 'LISTEN%'"
                )
            await replicas.here.write(set_("known://a", str(number)))
    assert_in_order(await following, 40)


async def test_a_request_that_comes_to_both_replicas_is_worked_on_once(replicas):
    """Same request id, at the same moment: one run, one answer."""
    revision = (await replicas.here.view()).cursor.run_revision
    for number in range(10):
        one, two = await asyncio.gather(
            *(
                run.write(set_(f"known://{number}", "x"), request_id=f"q{number}")
                for run in (replicas.here, replicas.there)
            )
        )
        assert one == two
    assert (await replicas.here.view()).cursor.run_revision == revision + 10


async def test_one_of_two_executors_gets_a_run_that_both_claim(replicas):
    for number in range(8):
        here = await new_run(replicas.one, replicas.here.project, f"c{number}")
        there = Run(replicas.two, here.project, here.alias)
        await here.enqueue()
        ends = await asyncio.gather(here.claim("one"), there.claim("two"), return_exceptions=True)
        assert [end.reason for end in ends if isinstance(end, TurnwrightError)] == [Reason.LEASE_HELD]


async def test_prompts_through_both_replicas_queue_in_one_order(replicas):
    run = await new_run(replicas.one, replicas.here.project, "q")
    there = Run(replicas.two, run.project, run.alias)
    queued = await asyncio.gather(*(one.enqueue() for _ in range(20) for one in (run, there)))
    assert sorted(answer.loop.sequence for answer in queued) == list(range(1, 41))


async def test_a_project_that_both_replicas_make_is_made_once(replicas):
    calls = (
        client.call("InitProject", root="/srv/twin", workspace_id="ws-twin") for client in (replicas.one, replicas.two)
    )
    one, two = await asyncio.gather(*calls)
    assert one.project == two.project


async def test_a_lost_lease_is_lost_on_every_replica(replicas):
    await replicas.two.call("ReleaseRun", **replicas.there.address, epoch=replicas.there.epoch)
    await replicas.there.claim("another")
    with pytest.raises(TurnwrightError) as caught:
        await replicas.here.write(set_("known://a", "late"))
    assert caught.value.reason is Reason.LEASE_LOST
    assert await replicas.there.entry("known://a") is None


async def test_writes_go_on_when_all_connections_are_cut(replicas, db):
    """A caller whose commit was cut asks again under its request id, and nothing is done twice."""

    async def insist(run, path):
        while True:
            answer = (await asyncio.gather(run.write(set_(path, "x"), request_id=path), return_exceptions=True))[0]
            if not isinstance(answer, TurnwrightError):
                return answer.cursor.run_revision
            assert answer.reason is Reason.DATABASE_UNAVAILABLE

    async def write_all(run):
        return [await insist(run, f"known://{run.client is replicas.one}/{n}") for n in range(30)]

    first = (await replicas.here.view()).cursor.run_revision + 1
    writing = [asyncio.ensure_future(write_all(run)) for run in (replicas.here, replicas.there)]
    with psycopg.connect(db, autocommit=True) as admin:
        for _ in range(3):
            await asyncio.sleep(0.05)
            admin.execute(f"{CUT} AND state = 'idle'")
    revisions = [revision for found in await asyncio.gather(*writing) for revision in found]
    assert sorted(revisions) == list(range(first, first + 60))


async def test_numbers_of_entries_that_a_crashed_server_has_forgotten_are_not_used(replicas, db):
    """What a server gave in a transaction that it lost, it gives again; here it is made to forget."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'versions'::regclass"
    many = [set_(f"known://{number}", "x") for number in range(ENTRY_IDS_AT_ONCE)]
    blocking = psycopg.connect(db)
    with psycopg.connect(db, autocommit=True) as admin:
        before = admin.execute("SELECT last_value FROM entries_id_seq").fetchone()
        blocking.execute("LOCK TABLE versions IN EXCLUSIVE MODE")
        cut = asyncio.ensure_future(replicas.here.write(*many))
        while admin.execute(waiting).fetchone() == (0,):
            assert not cut.done()
            await asyncio.sleep(0.01)
        assert admin.execute("SELECT setval('entries_id_seq', %s)", before).fetchone() == before
        # The one that blocks stays: what waits for it must not be committed before it is cut.
        admin.execute(f"{CUT} AND pid <> {blocking.info.backend_pid}")
    blocking.close()
    with contextlib.suppress(UnavailableError):
        await cut
    for number, run in enumerate((replicas.there, replicas.here)):
        await run.write(*(set_(f"known://{number}/{one}", "x") for one in range(ENTRY_IDS_AT_ONCE)))
    assert len((await replicas.here.view()).paths) > 2 * ENTRY_IDS_AT_ONCE


class Line:
    """Stands between a store and its database, and may go silent: what was said stays unanswered."""

    def __init__(self, url):
        self.server = urlsplit(url)
        self.is_cut = False
        self._ends = []

    async def __aenter__(self):
        await self.listen(0)
        port = self._listening.sockets[0].getsockname()[1]
        who, _, _ = self.server.netloc.rpartition("@")
        self.url = self.server._replace(netloc=f"{who}@127.0.0.1:{port}").geturl()
        return self

    async def listen(self, port):
        self._listening = await asyncio.start_server(self._join, "127.0.0.1", port)

    def refuse(self):
        """Listen no more, and return the port."""
        port = self._listening.sockets[0].getsockname()[1]
        self._listening.close()
        return port

    async def __aexit__(self, *_):
        self._listening.close()
        for end in self._ends:
            end.close()

    async def _join(self, reader, writer):
        if self.is_cut:
            writer.close()
            return
        there, to = await asyncio.open_connection(self.server.hostname, self.server.port)
        self._ends += [writer, to]
        await asyncio.gather(self._carry(reader, to), self._carry(there, writer))

    async def _carry(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if not self.is_cut:
                    writer.write(data)
                    await writer.drain()
        writer.close()


async def test_a_database_that_goes_silent_is_noticed_and_found_again(tmp_path, db):
    """No answer and no end of the connection: without a deadline every call would wait for ever."""
    limits = {"db_connect_s": 1.0, "db_statement_s": 1.0, "db_lock_s": 1.0}
    async with Line(db) as line, store(tmp_path, "one", db=line.url, **limits) as client:
        run = await working_run(client, await new_project(client))
        line.is_cut = True
        calls = (run.write(set_("known://a", "x")), run.get(), run.view())
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [end.reason for end in ends] == [Reason.DATABASE_UNAVAILABLE] * 3
        line.is_cut = False
        await run.write(set_("known://a", "y"))
        assert (await run.entry("known://a")).body == "y"


# ---- Starts and ends


async def test_a_start_waits_for_a_database_that_does_not_answer_yet(tmp_path, db, capsys):
    async with Line(db) as line:
        port = line.refuse()
        starting = asyncio.ensure_future(start_store(tmp_path, db=line.url))
        while "database_awaited" not in capsys.readouterr().err:
            assert not starting.done()
            await asyncio.sleep(0.01)
        await line.listen(port)
        await (await starting).stop()


async def test_replicas_that_start_at_once_share_one_history(tmp_path, postgres, monkeypatch):
    """On an empty database: the schema, the schemes and the incarnation are made once."""
    url = postgres.create(empty=True)
    monkeypatch.setenv("TURNWRIGHT_DB", url)
    servers = await asyncio.gather(*(start_store(tmp_path, name) for name in ("one", "two", "three")))
    clients = [Client(server.address) for server in servers]
    here, there = await same_run(*clients[:2])
    cursors = [(await run.view()).cursor for run in (here, there)]
    assert cursors[0] == cursors[1]
    for client in clients:
        await client.close()
    for server in servers:
        await server.stop()
    postgres.drop(url)


def spawn(home, name):
    """A replica in a process of its own."""
    environment = {**os.environ, "TURNWRIGHT_HOME": str(home), "TURNWRIGHT_TOKEN": SECRET}
    environment["TURNWRIGHT_LISTEN"] = f"unix:{home}/{name}.sock"
    return subprocess.Popen([sys.executable, "-m", "turnwright_store"], env=environment, stderr=subprocess.DEVNULL)


async def serving(client):
    """Wait until it answers."""
    while isinstance(answer := (await asyncio.gather(client.call("ListModels"), return_exceptions=True))[0], Exception):
        assert answer.reason is Reason.SERVICE_UNAVAILABLE
        await asyncio.sleep(0.05)


async def test_a_replica_that_is_killed_among_its_writes_leaves_them_whole(tmp_path):
    """What it acknowledged is there, the rest is there whole or not at all, and the other replica goes on."""
    process = spawn(tmp_path, "two")
    two = Client(f"unix:{tmp_path}/two.sock")
    await serving(two)
    async with store(tmp_path, "one") as one:
        here, there = await same_run(one, two)
        first = (await here.view()).cursor.run_revision + 1
        acknowledged = set()
        told = asyncio.Event()

        async def until(count):
            while len(acknowledged) < count:
                told.clear()
                await told.wait()

        async def write(run, name):
            for number in range(1000):
                await run.write(*(set_(f"known://{name}/{number}/{part}", "x") for part in range(3)))
                acknowledged.add(f"{name}/{number}")
                told.set()

        through_two = [asyncio.ensure_future(write(there, f"two{n}")) for n in range(8)]
        through_one = asyncio.ensure_future(write(here, "one"))
        await until(60)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert all(
            isinstance(end, TurnwrightError) for end in await asyncio.gather(*through_two, return_exceptions=True)
        )
        await until(len(acknowledged) + 5)
        through_one.cancel()
        await asyncio.gather(through_one, return_exceptions=True)
        view = await here.view()
        parts = {}
        for entry in view.entries:
            if entry.path.startswith("known://"):
                write_name, _, part = entry.path.removeprefix("known://").rpartition("/")
                parts.setdefault(write_name, set()).add((part, entry.revision))
        assert acknowledged <= set(parts)
        assert all({part for part, _ in found} == {"0", "1", "2"} for found in parts.values())
        assert all(len({revision for _, revision in found}) == 1 for found in parts.values())
        assert sorted(next(iter(found))[1] for found in parts.values()) == list(
            range(first, view.cursor.run_revision + 1)
        )
    await two.close()
