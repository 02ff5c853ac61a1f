"""The store's process is killed at random points and at exact ones, under concurrent writers, again and again.

What was acknowledged is there; what was not is absent or whole; revisions are dense; every run can be gone on with;
a watcher that comes back with its last cursor misses nothing and is told nothing twice. Architecture 3, 11.
"""

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio
from turnwright.types.v1 import settings_pb2

from contract.store.harness import Client, Run, act, new_project, new_run, set_
from crash.workers import AWAY, Claimer, Forker, Owner, Watcher, Writer
from draws import SEED
from turnwright_core.errors import Reason, TurnwrightError

VICTIM = Path(__file__).with_name("victim.py")
RUNS = 3

POINTS = (
    "reply WriteEntries 7",
    "reply EnqueueLoop 1",
    "reply ClaimRun 1",
    "reply EndTurn 1",
    "reply EndTurn 2",
    "reply ForkRun 2",
    "reply SetPlan 1",
    "reply ClaimWork 2",
    "statement INSERT INTO views 9",
    "statement INSERT INTO versions 12",
    "statement INSERT INTO chunks 3",
    "statement INSERT INTO idempotency 4",
    "statement INSERT INTO loops 1",
    "statement UPDATE scopes 25",
    "statement UPDATE runs 5",
    "statement UPDATE versions 1",
    "statement DELETE FROM chunks 1",
)
"""Between commit and reply; inside the transaction of a batch; inside the folding of streamed bodies."""


class Store:
    """A store whose process is killed, and started again."""

    def __init__(self, home, db):
        self.home = home
        self.db = db
        self.address = f"unix:{home}/store.sock"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWRIGHT_", "OPENAI_"))}
        ours = {"TURNWRIGHT_HOME": str(home), "TURNWRIGHT_TOKEN": "s3cret", "TURNWRIGHT_LISTEN": self.address}
        ours |= {"TURNWRIGHT_DB": db, "TURNWRIGHT_LOG_LEVEL": "error"}
        self.told = (home / "told").open("w+")
        self.lives = subprocess.Popen(
            [sys.executable, str(VICTIM)],
            env={**inherited, **ours},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.told,
            text=True,
        )
        self.process = 0

    def start(self, point=""):
        self.lives.stdin.write(point + "\n")
        self.lives.stdin.flush()
        self.process = int(self.lives.stdout.readline())

    async def serving(self, client):
        """Wait until it answers."""
        async with asyncio.timeout(60):
            while True:
                try:
                    return await client.call("ListModels")
                except TurnwrightError as error:
                    if error.reason not in AWAY:
                        raise
                await asyncio.sleep(0.01)

    async def ended(self, within_s):
        """Let it come to its point, and bring its end about after so many seconds."""
        os.kill(self.process, signal.SIGUSR1)
        waiting = asyncio.ensure_future(asyncio.to_thread(self.lives.stdout.readline))
        await asyncio.wait([waiting], timeout=within_s)
        if not waiting.done():
            # It may come to its point, and so to its end, in this very moment.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
        self._is_over(await waiting)

    def kill(self):
        if self.process:
            # One that has ended by itself has said why.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process, signal.SIGKILL)
            self._is_over(self.lives.stdout.readline())

    def _is_over(self, code):
        self.process = 0
        self.told.seek(0)
        assert (int(code), self.told.read()) == (-signal.SIGKILL, "")

    def close(self):
        self.kill()
        self.lives.communicate()
        self.told.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request, tmp_path):
    one = Store(tmp_path, "" if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield one
    one.close()


class History:
    """Workers on some runs of one project, and what all of them know together."""

    def __init__(self, store, client, seed):
        self.store = store
        self.client = client
        self.dice = random.Random(seed)
        self.writers, self.owners, self.watchers, self.following = [], [], [], []
        self.forker = self.claimer = None

    async def begin(self):
        project = await new_project(self.client)
        for number in range(RUNS):
            run = await new_run(self.client, project, f"r{number}")
            self.owners.append(Owner(run, self._dice()))
            self.writers += [Writer(run, f"r{number}w{place}", self._dice()) for place in range(2)]
            self.watchers.append(Watcher(run, (await run.view()).cursor))
        quiet = await new_run(self.client, project, "quiet")
        writes = [set_(f"known://{number}", "x" * number) for number in range(30)]
        await self.client.call("WriteEntries", **quiet.address, writes=writes)
        self.forker = Forker(quiet, (await quiet.view()).bodies)
        claimed = await new_project(self.client, "claimed")
        runs = [await new_run(self.client, claimed, f"c{number}") for number in range(RUNS)]
        self.claimer = Claimer(runs, "ws-claimed")
        self.following = [asyncio.create_task(watcher.follow()) for watcher in self.watchers]

    def _dice(self):
        return random.Random(self.dice.random())

    @property
    def workers(self):
        return [*self.writers, *self.owners, self.forker, self.claimer]

    @property
    def turns(self):
        return sum(owner.known.turns for owner in self.owners)

    async def work_until_away(self, stop):
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.until_away(stop))

    async def settle(self):
        """Everything acknowledged is there, everything else whole or absent, and revisions are dense."""
        for owner in self.owners:
            bodies = (await owner.run.view()).bodies
            mine = [writer for writer in self.writers if writer.run is owner.run]
            for writer in mine:
                await writer.settle(bodies)
            await owner.settle()
            made = 1
            committed = made + owner.committed + sum(writer.committed for writer in mine)
            assert (await owner.run.view()).cursor.run_revision == committed
        await self.forker.settle(await self.aliases())
        await self.claimer.settle()
        for task in self.following:
            assert not task.done(), task.result()

    async def aliases(self):
        """Of all runs of the project."""
        found, token = set(), ""
        while True:
            page = await self.client.call("ListRuns", project=self.forker.run.project, page_size=1000, page_token=token)
            found |= {run.run for run in page.runs}
            token = page.next_page_token
            if not token:
                return found

    async def finish(self):
        """No run is stuck, and the watchers know what a reader of everything knows."""
        await self.claimer.finish()
        for owner, watcher in zip(self.owners, self.watchers, strict=True):
            await owner.finish()
            view = await owner.run.view()
            await watcher.caught_up(view)
            assert {p: (e.revision, e.body) for p, e in watcher.entries.items()} == {
                e.path: (e.revision, e.body) for e in view.entries
            }

    async def stop(self):
        for task in self.following:
            task.cancel()
        await asyncio.gather(*self.following, return_exceptions=True)


@pytest_asyncio.fixture
async def history(request, store):
    seed = getattr(request, "param", SEED)
    client = Client(store.address)
    store.start()
    await store.serving(client)
    one = History(store, client, seed)
    await one.begin()
    yield one
    await one.stop()
    await client.close()


async def kill_again_and_again(store, history, kills, turns=0):
    """So often at least, and until the runs have had so many turns."""
    points = list(POINTS)
    history.dice.shuffle(points)
    number = 0
    while number < kills or history.turns < turns:
        within_s = 0.05 + 0.4 * history.dice.random()
        killed = asyncio.create_task(store.ended(0.8 if number % 4 else within_s))
        try:
            await history.work_until_away(asyncio.Event())
        finally:
            await killed
        store.start(points[number % len(points)] if (number + 1) % 4 else "")
        await store.serving(history.client)
        await history.settle()
        number += 1
    await history.finish()
    print(f"{number} kills, {history.turns} turns")


def check_file(store):
    """The file is sound, as SQLite sees it."""
    with closing(sqlite3.connect(store.home / "turnwright.db")) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)], indirect=True)
@pytest.mark.asyncio
@pytest.mark.timeout(180)
async def test_what_was_acknowledged_survives_20_kills(store, history):
    await kill_again_and_again(store, history, 20)
    if not store.db:
        check_file(store)


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1800)
async def test_what_was_acknowledged_survives_200_kills_in_1000_turns(store, history):
    await kill_again_and_again(store, history, 200, turns=1000)
    if not store.db:
        check_file(store)


REPEATED = {
    "CreateRun": ({"settings": settings_pb2.RunSettings(model="fast")}, {"run": "other"}),
    "EnqueueLoop": ({"run": "r", "prompt": "once", "settings": act()}, {"prompt": "another"}),
    "WriteEntries": ({"run": "r", "writes": [set_("known://a", "once")]}, {"writes": [set_("known://a", "another")]}),
    "ForkRun": ({"run": "r"}, {"new_run": "other"}),
}


@pytest.mark.parametrize("rpc", REPEATED)
@pytest.mark.asyncio
async def test_a_command_that_was_carried_out_but_not_answered_is_answered_when_it_is_repeated(store, rpc):
    """Killed between commit and reply: the work is done once, and the id is not free for other work."""
    client = Client(store.address)
    fields, other = REPEATED[rpc]
    store.start(f"reply {rpc} 1")
    await store.serving(client)
    project = await new_project(client)
    await new_run(client, project, "r")
    fields = {"project": project, "request_id": "id", **fields}
    killed = asyncio.create_task(store.ended(20))
    # The signal that begins the counting is there before the call is.
    await asyncio.sleep(0.1)
    with pytest.raises(TurnwrightError) as unanswered:
        await client.call(rpc, **fields)
    assert unanswered.value.reason in AWAY
    await killed
    store.start()
    await store.serving(client)

    async def everything():
        runs = (await client.call("ListRuns", project=project)).runs
        return [(run, (await Run(client, project, run.run).view()).entries) for run in runs]

    before = await everything()
    answers = [await client.call(rpc, **fields) for _ in range(2)]
    assert answers[0] == answers[1]
    assert await everything() == before
    with pytest.raises(TurnwrightError) as reused:
        await client.call(rpc, **{**fields, **other})
    assert reused.value.reason is Reason.REQUEST_ID_REUSED
    assert await everything() == before
    await client.close()


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.asyncio
async def test_a_connection_that_postgresql_ends_loses_nothing(store, history):
    """The store's process lives on; what it was writing is told to be unavailable, or is written again."""
    for _ in range(3):
        stop = asyncio.Event()
        working = asyncio.create_task(history.work_until_away(stop))
        await asyncio.sleep(0.3)
        with psycopg.connect(store.db, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await asyncio.sleep(0.3)
        stop.set()
        await working
        await store.serving(history.client)
        await history.settle()
    await history.finish()
