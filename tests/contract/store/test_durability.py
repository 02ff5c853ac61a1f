"""What survives: the death of the process, a second process, group commit, a full queue."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys

import aiosqlite
import pytest

from contract.store.harness import SQLITE_ONLY, Client, Run, append, new_project, set_, start_store, working_run
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.edge.lock import DatabaseInUseError

pytestmark = pytest.mark.asyncio


def spawn(home):
    """A store in a process of its own."""
    environment = {**os.environ, "TURNWRIGHT_HOME": str(home), "TURNWRIGHT_TOKEN": "s3cret"}
    environment["TURNWRIGHT_LISTEN"] = f"unix:{home}/store.sock"
    return subprocess.Popen([sys.executable, "-m", "turnwright_store"], env=environment, stderr=subprocess.PIPE)


async def reachable(home):
    """A client of it, once it answers."""
    client = Client(f"unix:{home}/store.sock")
    for _ in range(1200):
        answer = (await asyncio.gather(client.call("ListModels"), return_exceptions=True))[0]
        if not isinstance(answer, TurnwrightError):
            return client
        assert answer.reason is Reason.SERVICE_UNAVAILABLE
        await asyncio.sleep(0.05)
    raise AssertionError("the store does not answer")


async def test_what_was_acknowledged_survives_a_kill(tmp_path, db):
    """Architecture 3: both classes survive the death of the process; the claim, the turn and the writes are there."""
    process = spawn(tmp_path)
    client = await reachable(tmp_path)
    run = await working_run(client, await new_project(client), "r1")
    await run.begin(set_("prompt://{turn}", "x"))
    writers = [run.write(set_(f"known://{number}", "x"), durability=number % 2 + 1) for number in range(30)]
    acknowledged = await asyncio.gather(*writers)
    await run.write(set_("sh://turn_1/x_1", "a", state=3), append("sh://turn_1/x_1", "b"))
    await run.write(append("sh://turn_1/x_1", "c"))
    before = await run.view()
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    await client.close()
    (tmp_path / "store.sock").unlink(missing_ok=True)

    server = await start_store(tmp_path)
    again = Run(Client(server.address), run.project, run.alias, run.epoch)
    assert (await again.view()) == before
    assert len(acknowledged) == 30
    claimed = await again.claim()
    assert (claimed.epoch, claimed.open_turn.number) == (run.epoch + 1, 1)
    if not db:
        raw = sqlite3.connect(tmp_path / "turnwright.db")
        assert raw.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        raw.close()
    await again.client.close()
    await server.stop()


@SQLITE_ONLY
async def test_a_second_process_is_told_who_has_the_database(tmp_path, server):
    with pytest.raises(DatabaseInUseError, match="in use by another process") as caught:
        await start_store(tmp_path)
    assert caught.value.path == tmp_path / "turnwright.db"
    process = spawn(tmp_path)
    assert process.wait(60) != 0
    assert b"turnwright.db is in use by another process" in process.stderr.read()
    process.stderr.close()


@SQLITE_ONLY
@pytest.mark.parametrize("name", ["link.db", "file:link.db", ":memory:"])
async def test_a_link_to_a_database_is_the_database_with_its_lock_and_its_log(tmp_path, name):
    """Whatever the link is called: a name is a path, and no word of SQLite's."""
    (tmp_path / "disk").mkdir()
    file, link = tmp_path / "disk" / "real.db", tmp_path / name
    link.symlink_to(file)
    server = await start_store(tmp_path, db=str(link))
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r1")
    with pytest.raises(DatabaseInUseError, match=r"real\.db is in use"):
        await start_store(tmp_path, "second", db=str(file))
    seen = await run.view()
    await client.close()
    await server.stop()

    server = await start_store(tmp_path, db=str(file))
    run.client = Client(server.address)
    assert await run.view() == seen
    await run.client.close()
    await server.stop()


@SQLITE_ONLY
async def test_the_files_are_their_owners_own(tmp_path):
    home = tmp_path / "home"
    server = await start_store(home)
    modes = {file.name: file.stat().st_mode & 0o777 for file in home.glob("turnwright.db*")}
    await server.stop()
    assert home.stat().st_mode & 0o777 == 0o700
    assert modes == dict.fromkeys(
        ("turnwright.db", "turnwright.db-shm", "turnwright.db-wal", "turnwright.db.lock"), 0o600
    )


@SQLITE_ONLY
async def test_the_file_can_be_read_by_others_while_it_is_written(tmp_path, run):
    """A report or a copy needs no rpc; what it sees is whole."""
    async with aiosqlite.connect(f"file:{tmp_path}/turnwright.db?mode=ro", uri=True) as other:
        for number in range(20):
            await run.write(*(set_(f"known://{number}_{place}", "x") for place in range(5)))
            async with other.execute("SELECT count(*) FROM entries WHERE scheme = 'known'") as rows:
                assert await rows.fetchone() == (5 * (number + 1),)


@SQLITE_ONLY
async def test_the_lock_is_free_after_a_stop(tmp_path):
    for _ in range(2):
        server = await start_store(tmp_path)
        await server.stop()
    assert (tmp_path / "turnwright.db.lock").exists()


async def test_the_incarnation_stays_with_the_database(tmp_path):
    cursors = []
    for _ in range(2):
        server = await start_store(tmp_path)
        client = Client(server.address)
        run = await working_run(client, await new_project(client))
        cursors.append((await run.view()).cursor.incarnation)
        await client.close()
        await server.stop()
    assert cursors[0] == cursors[1] != ""


async def test_one_guilty_request_among_many_fails_alone(run):
    """Group commit: who fails is undone to the savepoint, everybody else commits."""
    good = [run.write(set_(f"known://{number}", "x")) for number in range(49)]
    guilty = run.write(set_("known://guilty", "x"), append("known://none", "x"))
    answers = await asyncio.gather(*good[:25], guilty, *good[25:], return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert [error.reason for error in failed] == [Reason.ENTRY_NOT_FOUND]
    revisions = sorted(answer.revisions[0] for answer in answers if not isinstance(answer, BaseException))
    assert revisions == list(range(revisions[0], revisions[0] + 49))
    paths = set((await run.view()).paths)
    assert paths == {"run://r1", *(f"known://{number}" for number in range(49))}


async def test_revisions_are_dense(run):
    start = (await run.view()).cursor.run_revision
    for number in range(1, 4):
        with pytest.raises(TurnwrightError):
            await run.write(append("known://none", "x"))
        assert (await run.write(set_("known://a", str(number)))).cursor.run_revision == start + number


async def test_a_stop_finishes_what_was_taken_on(tmp_path):
    server = await start_store(tmp_path)
    client = Client(server.address)
    run = await working_run(client, await new_project(client))
    writes = [asyncio.ensure_future(run.write(set_(f"known://{number}", "x"))) for number in range(50)]
    await writes[0]
    await server.stop()
    done = await asyncio.gather(*writes, return_exceptions=True)
    await client.close()
    server = await start_store(tmp_path)
    client = Client(server.address)
    paths = (await Run(client, run.project, run.alias).view()).paths
    acknowledged = {f"known://{n}" for n, answer in enumerate(done) if not isinstance(answer, BaseException)}
    assert acknowledged <= set(paths)
    await client.close()
    await server.stop()
