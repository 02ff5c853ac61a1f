"""A store whose database file is damaged or gone says so, takes nothing, and serves again once a backup is in place."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from contract.test_health import NOT_SERVING, SERVING, checked, watched
from services import running
from turnwright_core.errors import Reason, UnavailableError
from turnwright_store.config import StoreSettings
from turnwright_store.edge.backup import back_up
from turnwright_store.edge.sqlite_codes import DatabaseUnusableError

pytestmark = pytest.mark.asyncio


def by_another_process(program: str, *arguments: Path) -> None:
    """A process that closes a file loses SQLite's locks on it: the damage is done by one that has none."""
    subprocess.run([sys.executable, "-c", f"import os, sys; files = sys.argv[1:]; {program}", *arguments], check=True)


def database_file(root: Path) -> Path:
    return StoreSettings(home=root / "home").database_file


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


def overwrite(file: Path, offset: int, count: int = 0) -> None:
    program = f"f = open(files[0], 'r+b'); f.seek({offset}); f.write(b'\\xa5' * ({count} or os.path.getsize(files[0]) - {offset}))"
    by_another_process(program, file)


DAMAGES = {
    "its header": lambda file: overwrite(file, 0, 100),
    "its first page": lambda file: overwrite(file, 100, 3000),
    "all of it": lambda file: overwrite(file, 0),
    "all but its first pages": lambda file: overwrite(file, 8 * 4096),
    "cut to nothing": lambda file: by_another_process("os.truncate(files[0], 0)", file),
    "cut in half": lambda file: by_another_process("os.truncate(files[0], os.path.getsize(files[0]) // 2)", file),
    "deleted": lambda file: file.unlink(),
    "replaced by a text": lambda file: (file.unlink(), file.write_text("not a database\n" * 500)),
    "replaced by a copy": lambda file: (shutil.copy(file, f"{file}.copy"), Path(f"{file}.copy").replace(file)),
    "its log deleted": lambda file: Path(f"{file}-wal").unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_damaged_database_is_not_served_from_until_a_backup_is_restored(tmp_path, damage):
    file = database_file(tmp_path)
    backup = tmp_path / "backup.db"
    async with running(tmp_path) as services:
        services.script('<update status="200">Done.</update>')
        await services.until(await services.act())
        await asyncio.to_thread(back_up, str(file), backup, lambda *_: None)
        # Otherwise the pages may still be sound in the log.
        by_another_process("import sqlite3; sqlite3.connect(files[0]).execute('PRAGMA wal_checkpoint(TRUNCATE)')", file)

        async with watched(services.addresses["store"]) as status:
            assert await status() == SERVING
            damage(file)
            assert await status() == NOT_SERVING
        assert await checked(services.addresses["store"], "liveness") == SERVING
        with pytest.raises(UnavailableError, match="restore a backup") as refused:
            await services.act(run="other")
        assert refused.value.reason is Reason.DATABASE_UNAVAILABLE

        await services.stop("store")
        for left in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
            left.unlink(missing_ok=True)
        backup.rename(file)
        await services.start("store")
        async with watched(services.addresses["executor"]) as status:
            while await status() != SERVING:
                pass
        assert (await services.until(await services.act(run="other"))).status == 200


async def test_nothing_is_acknowledged_that_a_deleted_file_would_have_to_keep(tmp_path):
    file = database_file(tmp_path)
    async with running(tmp_path) as services:
        file.rename(tmp_path / "away.db")
        with pytest.raises(UnavailableError, match="was deleted"):
            await services.act()
        # It is the same file: what was written to it is there.
        (tmp_path / "away.db").rename(file)
        async with watched(services.addresses["store"]) as status:
            while await status() != SERVING:
                pass
        services.script('<update status="200">Done.</update>')
        assert (await services.until(await services.act(run="after"))).status == 200


async def test_a_damaged_file_is_refused_at_the_start(tmp_path):
    async with running(tmp_path) as services:
        await services.stop("store")
        overwrite(database_file(tmp_path), 0)
        with pytest.raises(DatabaseUnusableError, match="restore a backup"):
            await services.start("store")
        database_file(tmp_path).unlink()
        await services.start("store")


async def test_damage_that_no_request_has_met_is_found(tmp_path):
    file = database_file(tmp_path)
    async with running(tmp_path) as services:
        await services.stop("store")
        with closing(sqlite3.connect(file)) as raw:
            (page,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = 'blocks'").fetchone()
            (page_bytes,) = raw.execute("PRAGMA page_size").fetchone()
        overwrite(file, (page - 1) * page_bytes, page_bytes)
        await services.start("store")
        async with watched(services.addresses["store"]) as status:
            told = [await status()]
            while NOT_SERVING not in told:
                told.append(await status())
        with pytest.raises(UnavailableError, match="is damaged"):
            await services.act()
