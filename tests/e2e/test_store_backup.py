"""Backup and restore by the command line: consistent under load, all or nothing, from one database to the other."""

import asyncio
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import Tier

from contract.store.harness import Client, append, new_project, new_run, set_, start_store, working_run
from e2e.cli_process import Bench
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.edge.backup import back_up, restore
from turnwright_store.edge.database_copy import BackupError, open_database_file, snapshot_engine
from turnwright_store.sql.tables import executors, meta, metadata, runs, search_marks


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backup.db"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a backup."""
    home = tmp_path_factory.mktemp("whole")
    asyncio.run(filled(home, turns=1))
    back_up(str(home / "turnwright.db"), home / "backup.db", lambda _text: None)
    return (home / "backup.db").read_bytes()


async def filled(home, turns=2):
    """A stopped store with a run that has history: its project, and its view."""
    running = await start_store(home)
    client = Client(running.address)
    run = await working_run(client, await new_project(client), "r1")
    for number in range(1, turns + 1):
        await run.begin(set_("prompt://{turn}", "hello\0" + "x" * 3000))
        await run.write(set_(f"sh://turn_{number}/a_1", "a", state=3), append(f"sh://turn_{number}/a_1", "ü" * 500))
        await run.write(set_("shared.txt", f"{number}"), set_("known://a", f"{number}", '{"n": 1}'))
        record = command_record_pb2.CommandRecord(tool="sh", ordinal=0, key="x" * 500 * number)
        await run.write(
            set_(f"log://turn_{number}/sh/a", record=record.SerializeToString(), writer=Tier.SYSTEM, state=4)
        )
        await run.end(number, status=102)
    await run.enqueue("the next task", no_web=True)
    view = await run.view()
    await client.close()
    await running.stop()
    return run, view


def database_of(bench):
    return bench.home / "turnwright.db"


def backed_up(bench, file, *arguments):
    done = bench.run("store", "backup", str(file), "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows_of(core):
    """All rows that are neither the incarnation, nor leases, nor marks of the index."""
    rows = {}
    for table in metadata.sorted_tables:
        if table in (meta, executors, search_marks):
            continue
        columns = [c for c in table.c if not (table is runs and c.name.startswith("lease_"))]
        rows[table.name] = sorted(map(repr, core.execute(table.select().with_only_columns(*columns))))
    return rows


def file_rows(path):
    with open_database_file(path, read_only=True) as (raw, core):
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        return rows_of(core)


def server_rows(url):
    engine = snapshot_engine(url)
    with engine.connect() as core:
        rows = rows_of(core)
    engine.dispose()
    return rows


@pytest.mark.asyncio
async def test_a_backup_under_load_holds_everything_acknowledged_before_it_and_opens_clean(bench, file):
    running = await start_store(bench.home)
    client = Client(running.address)
    project = await new_project(client)
    owned = [await new_run(client, project, f"r{n}") for n in range(3)]
    acknowledged = {run.alias: 0 for run in owned}
    stopped, under_way = asyncio.Event(), asyncio.Event()

    async def write_on(run):
        while not stopped.is_set():
            number = acknowledged[run.alias] + 1
            writes = [set_(f"known://{number}/{part}", "x" * 200) for part in range(3)]
            await client.call("WriteEntries", **run.address, writes=writes)
            acknowledged[run.alias] = number
            if min(acknowledged.values()) >= 20:
                under_way.set()

    writers = [asyncio.create_task(write_on(run)) for run in owned]
    await under_way.wait()
    before = dict(acknowledged)
    report = await asyncio.to_thread(backed_up, bench, file)
    during = dict(acknowledged)
    stopped.set()
    await asyncio.gather(*writers)
    await client.close()
    await running.stop()

    with closing(sqlite3.connect(file)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        of_run = "SELECT v.path FROM views v JOIN runs r ON r.id = v.run_id WHERE r.alias = ?"
        found = {run.alias: {path for (path,) in raw.execute(of_run, (run.alias,))} for run in owned}
    for alias, paths in found.items():
        last = len(paths) // 3
        assert before[alias] <= last
        assert paths == {f"known://{number}/{part}" for number in range(1, last + 1) for part in range(3)}
    assert all(during[alias] > before[alias] for alias in before), "writers went on meanwhile"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (report["file"], report["size_bytes"]) == (str(file), file.stat().st_size)
    assert report["tables"]["runs"] == 3


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["file", "server"])
async def test_a_restored_run_goes_on_and_its_old_cursors_and_fences_are_refused(request, bench, file, kind):
    run, view = await filled(bench.home)
    backed_up(bench, file)
    at = bench.root / "elsewhere" / "other.db" if kind == "file" else request.getfixturevalue("empty_postgres_url")

    restored = bench.run("store", "restore", str(file), "--db", str(at), "--json")

    assert restored.returncode == 0, restored.stderr
    running = await start_store(bench.root, db=str(at))
    run.client = Client(running.address)
    again = await run.view()
    assert (again.entries, again.cursor.run_revision) == (view.entries, view.cursor.run_revision)
    assert again.cursor.incarnation == json.loads(restored.stdout)["incarnation"] != view.cursor.incarnation
    with pytest.raises(TurnwrightError) as foreign:
        await run.view(after=view.cursor)
    assert foreign.value.reason is Reason.CURSOR_FOREIGN
    with pytest.raises(TurnwrightError) as stale:
        await run.begin()
    assert stale.value.reason is Reason.LEASE_LOST
    claimed = await run.claim()
    assert (claimed.loop.sequence, claimed.run.loops_queued) == (1, 1)
    begun = await run.begin(set_("prompt://{turn}", "on"))
    await run.end(begun.next.number, status=200, loop=(200, "update", "done"))
    assert (await run.claim()).loop.prompt == "the next task"
    await run.client.close()
    await running.stop()


@pytest.mark.asyncio
async def test_a_backup_moves_a_store_to_postgresql_and_back_with_equal_rows(bench, file, empty_postgres_url):
    await filled(bench.home)
    backed_up(bench, file)
    there, back = bench.root / "there.db", bench.root / "back.db"

    moved = bench.run("store", "restore", str(file), "--db", empty_postgres_url)
    backed_up(bench, there, "--db", empty_postgres_url)
    returned = bench.run("store", "restore", str(there), "--db", str(back))

    assert (moved.returncode, returned.returncode) == (0, 0), moved.stderr + returned.stderr
    original = file_rows(database_of(bench))
    assert server_rows(empty_postgres_url) == original
    assert file_rows(back) == original


@pytest.mark.asyncio
async def test_after_a_restore_postgresql_gives_out_keys_that_no_row_has(bench, file, empty_postgres_url):
    await filled(bench.home)
    backed_up(bench, file)
    bench.run("store", "restore", str(file), "--db", empty_postgres_url)
    with psycopg.connect(empty_postgres_url) as connection:
        for name in ("scopes", "entries", "views", "loops", "blocks"):
            (top,) = connection.execute(f"SELECT coalesce(max(id), 0) FROM {name}").fetchone()
            (key,) = connection.execute(f"SELECT nextval(pg_get_serial_sequence('{name}', 'id'))").fetchone()
            assert key == top + 1, name


def test_a_database_that_is_not_utf_8_answers_in_text(empty_postgres_url, monkeypatch):
    """One of a server without a locale is SQL_ASCII, and drivers return its texts as bytes unless they are told otherwise."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    with snapshot_engine(empty_postgres_url).connect() as connection:
        assert connection.exec_driver_sql("SELECT 'ü'").scalar() == "ü"


@pytest.mark.asyncio
async def test_a_target_that_holds_data_is_refused_and_left_alone(bench, file, empty_postgres_url):
    await filled(bench.home, turns=1)
    backed_up(bench, file)
    original = file_rows(database_of(bench))
    bench.run("store", "restore", str(file), "--db", empty_postgres_url)

    own = bench.run("store", "restore", str(file))
    other = bench.run("store", "restore", str(file), "--db", empty_postgres_url)

    assert (own.returncode, other.returncode) == (5, 5)
    assert "holds data" in own.stderr
    assert "move that away first" in own.stderr
    assert "createdb NAME" in other.stderr
    assert (file_rows(database_of(bench)), server_rows(empty_postgres_url)) == (original, original)


@pytest.mark.asyncio
async def test_nothing_is_restored_under_a_store_that_runs(bench, file):
    running = await start_store(bench.home)
    backed_up(bench, file)
    refused = bench.run("store", "restore", str(file))
    await running.stop()
    assert refused.returncode == 5
    assert "in use by another process" in refused.stderr


@pytest.mark.asyncio
async def test_a_log_that_was_left_beside_a_missing_database_is_not_played_into_the_restored_one(bench, file):
    await filled(bench.home, turns=1)
    backed_up(bench, file)
    target = bench.root / "other.db"
    (bench.root / "other.db-wal").write_bytes(b"pages of another history")
    refused = bench.run("store", "restore", str(file), "--db", str(target))
    assert (refused.returncode, target.exists()) == (5, False)
    assert "other.db-wal" in refused.stderr


def test_a_link_to_another_disk_is_followed(tmp_path, file, whole):
    file.write_bytes(whole)
    (tmp_path / "disk").mkdir()
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "disk" / "real.db")

    restore(file, str(link), lambda _text: None)

    assert link.is_symlink()
    assert file_rows(tmp_path / "disk" / "real.db") == file_rows(file)


def damaged(file, whole, damage):
    file.write_bytes(whole)
    match damage:
        case "cut short":
            file.write_bytes(whole[: len(whole) // 2])
        case "garbage inside":
            middle = len(whole) // 2
            file.write_bytes(
                whole[:middle] + bytes(255 - byte for byte in whole[middle : middle + 8192]) + whole[middle + 8192 :]
            )
        case "garbage":
            file.write_bytes(b"no database at all" * 1000)
        case "empty":
            file.write_bytes(b"")
        case "a row less":
            with closing(sqlite3.connect(file)) as raw, raw:
                raw.execute("DELETE FROM views WHERE id = (SELECT max(id) FROM views)")
        case "newer":
            with closing(sqlite3.connect(file)) as raw, raw:
                raw.execute("UPDATE alembic_version SET version_num = 'r9999'")
        case "not a backup":
            with closing(sqlite3.connect(file)) as raw, raw:
                raw.execute("DELETE FROM meta WHERE key = 'backup'")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("cut short", "damaged"),
        ("garbage inside", "damaged"),
        ("garbage", "damaged, or not a backup"),
        ("empty", "not a backup"),
        ("a row less", "rows in views, and should have"),
        ("newer", "r9999"),
        ("not a backup", "turnwright store backup FILE"),
    ],
)
def test_a_file_that_is_no_whole_backup_is_refused_and_leaves_nothing(tmp_path, file, whole, damage, told):
    damaged(file, whole, damage)
    target = tmp_path / "new" / "other.db"

    with pytest.raises(BackupError) as refused:
        restore(file, str(target), lambda _text: None)

    assert told in str(refused.value)
    left = list(target.parent.iterdir()) if target.parent.exists() else []
    assert [path.name for path in left if path.name != "other.db.lock"] == []


@pytest.mark.parametrize(
    ("database", "file", "told"),
    [
        ("no.db", "new.db", "There is no database at no.db"),
        ("taken.db", "no/new.db", "There is no directory no"),
        ("taken.db", "taken.db", "taken.db already exists"),
        ("taken.db", "new.db", "not a readable database"),
        ("postgresql://u:secret@127.0.0.1:1/x", "new.db", "u:***@127.0.0.1:1/x failed"),
    ],
)
def test_what_cannot_be_backed_up_is_said_in_a_sentence(tmp_path, monkeypatch, database, file, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.db").write_text("somebody's notes" * 100)
    with pytest.raises(BackupError) as refused:
        back_up(database, Path(file), lambda _text: None)
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.db"]


def test_a_refusal_is_one_sentence_and_an_exit_code(bench, file):
    refused = bench.run("store", "restore", str(file))
    assert (refused.returncode, refused.stdout) == (5, "")
    assert refused.stderr == f"turnwright: There is no backup at {file}.\n"


def test_store_without_a_verb_is_a_usage_error(bench):
    assert bench.run("store").returncode == 2
