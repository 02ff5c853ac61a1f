"""Backup of a running or stopped store into one SQLite file, whichever database the store uses, and its restoration.

A running store is not disturbed: its lock is not taken, and readers do not block the writer. Everything acknowledged
before the backup began is in it, and every request is in it completely or not at all. Source: architecture 3, 11;
docs/adr/0006.
"""

from __future__ import annotations

import json
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy
from sqlalchemy import BigInteger, Connection, delete, insert, select, text, update

from turnwright_core.private_files import replacing_atomically
from turnwright_kit.home import ensure_home
from turnwright_store.app.open_store import INCARNATION
from turnwright_store.edge.database_copy import (
    MANIFEST,
    BackupError,
    Report,
    ReportProgress,
    clear_search_index,
    copy_file,
    copy_rows,
    count_rows,
    is_url,
    open_database_file,
    revision_of,
    snapshot_engine,
    too_new_advice,
    without_password,
    wrapping_database_errors,
)
from turnwright_store.edge.lock import FileLock
from turnwright_store.edge.schema import REVISIONS, create_schema, upgrade_to_head
from turnwright_store.sql.tables import executors, meta, metadata, runs


def back_up(database: str, file: Path, report: ReportProgress) -> Report:
    """Copy a database, given by its path or its URL, into a new file with mode 0600. Raises BackupError, OSError."""
    if file.exists():
        raise BackupError(f"{file} already exists: choose another name, or move it.")
    if not file.parent.is_dir():
        raise BackupError(f"There is no directory {file.parent}: create it, or choose another location.")
    with (
        wrapping_database_errors(f"The backup of {without_password(database)} failed"),
        replacing_atomically(file) as scratch,
    ):
        if is_url(database):
            _copy_server(database, scratch, report)
        else:
            _copy_store_file(Path(database), scratch, report)
        with open_database_file(scratch) as (raw, core):
            upgrade_to_head(raw, core)
            clear_search_index(raw)
            tables, incarnation = _seal(core)
    return Report(str(file), file.stat().st_size, incarnation, REVISIONS[-1], tables)


def _copy_store_file(source: Path, scratch: Path, report: ReportProgress) -> None:
    if not source.is_file():
        raise BackupError(f"There is no database at {source}: name the store's with --db.")
    with open_database_file(source, read_only=True) as (raw, core):
        _check_schema(_revision_of_file(core, source), str(source))
        copy_file(raw, scratch, report)


def _revision_of_file(core: Connection, source: Path) -> str:
    try:
        return revision_of(core)
    except sqlite3.DatabaseError as error:
        raise BackupError(f"{source} is not a readable database ({error}): name the store's with --db.") from None


def _check_schema(found: str, named: str) -> None:
    if not found:
        raise BackupError(f"{named} holds no store: name the store's database with --db.")
    if found not in REVISIONS:
        raise BackupError(too_new_advice(found))


def _copy_server(url: str, scratch: Path, report: ReportProgress) -> None:
    """Copy everything in one snapshot."""
    engine = snapshot_engine(url)
    with engine.connect() as source:
        source.execution_options(postgresql_readonly=True)
        found = revision_of(source)
        _check_schema(found, without_password(url))
        if found != REVISIONS[-1]:
            message = f"{without_password(url)} has the schema {found}, and this version reads {REVISIONS[-1]} only: "
            raise BackupError(message + "back it up with the version that runs on it, or start this version on it.")
        with open_database_file(scratch) as (raw, core):
            upgrade_to_head(raw, core)
            raw.execute("BEGIN")
            copy_rows(source, core, report)
            raw.execute("COMMIT")
    engine.dispose()


def _seal(core: Connection) -> tuple[dict[str, int], str]:
    """Store the row counts, for verification at restore."""
    tables = count_rows(core)
    manifest = {"key": MANIFEST, "value": json.dumps({"tables": tables})}
    if not core.execute(update(meta).where(meta.c.key == MANIFEST).values(value=manifest["value"])).rowcount:
        core.execute(insert(meta), manifest)
    incarnation = core.execute(select(meta.c.value).where(meta.c.key == INCARNATION)).scalar_one_or_none()
    return tables, str(incarnation or "")


_SIDE_FILES: Final = ("-wal", "-journal")
"""SQLite would replay these into whatever database is next to them."""

_MAKE_ANOTHER: Final = "Make another backup, or use another one."


def restore(file: Path, database: str, report: ReportProgress) -> Report:
    """Fill an empty database, given by its path or URL, or change nothing. Raises BackupError, OSError.

    It gets a new incarnation, so that cursors of the old one are refused. All leases are released, and all epochs
    incremented, so that earlier owners are fenced out. Source: architecture 3 (revisions and the change feed), 11.
    """
    with wrapping_database_errors(f"{file} could not be restored into {without_password(database)}"):
        _check(file, report)
        if is_url(database):
            tables, incarnation = _restore_server(file, database, report)
        else:
            tables, incarnation = _restore_file(file, Path(os.path.realpath(database)), report)
    return Report(without_password(database), file.stat().st_size, incarnation, REVISIONS[-1], tables)


def _check(file: Path, report: ReportProgress) -> None:
    """Verify that the file is intact, and a backup that this version can read. Raises BackupError."""
    if not file.is_file():
        raise BackupError(f"There is no backup at {file}.")
    report("looking through the backup")
    try:
        with open_database_file(file, read_only=True) as (raw, core):
            (found,) = raw.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                raise BackupError(f"{file} is damaged ({found}). {_MAKE_ANOTHER}")
            revision = revision_of(core)
            if revision and revision not in REVISIONS:
                raise BackupError(too_new_advice(revision))
            if not revision or _manifest(core) is None:
                raise BackupError(f"{file} is not a backup: make one with `turnwright store backup FILE`.")
    except sqlite3.DatabaseError as error:
        raise BackupError(f"{file} is damaged, or not a backup ({error}). {_MAKE_ANOTHER}") from None


def _manifest(core: Connection) -> Mapping[str, int] | None:
    """The row counts stored in the backup."""
    found = core.execute(select(meta.c.value).where(meta.c.key == MANIFEST)).scalar_one_or_none()
    return None if found is None else json.loads(found)["tables"]


def _restore_file(file: Path, target: Path, report: ReportProgress) -> tuple[dict[str, int], str]:
    ensure_home(target.parent)
    lock = FileLock(target)
    try:
        _check_free(target)
        with replacing_atomically(target) as scratch, _migrated_copy(file, scratch, report) as core:
            return _begin_new_history(core, _manifest(core))
    finally:
        lock.release()


def _check_free(target: Path) -> None:
    """Make sure that nothing is overwritten. Raises BackupError."""
    files = (target, *(target.with_name(target.name + suffix) for suffix in _SIDE_FILES))
    taken = [file for file in files if file.exists() and file.stat().st_size]
    if taken:
        names = ", ".join(map(str, taken))
        raise BackupError(f"The target holds data ({names}): move that away first, or name another place with --db.")


@contextmanager
def _migrated_copy(file: Path, scratch: Path, report: ReportProgress) -> Iterator[Connection]:
    """A copy of the backup, migrated to the head of the schema."""
    with open_database_file(file, read_only=True) as (raw, _):
        copy_file(raw, scratch, report)
    with open_database_file(scratch) as (raw, core):
        upgrade_to_head(raw, core)
        clear_search_index(raw)
        yield core


def _restore_server(file: Path, url: str, report: ReportProgress) -> tuple[dict[str, int], str]:
    engine = snapshot_engine(url)
    with tempfile.TemporaryDirectory(prefix="turnwright-") as folder, engine.begin() as target:
        _check_empty(target, url)
        with _migrated_copy(file, Path(folder) / "staged.db", report) as source:
            create_schema(target)
            copy_rows(source, target, report)
            _advance_sequences(target)
            done = _begin_new_history(target, _manifest(source))
    engine.dispose()
    return done


def _check_empty(target: Connection, url: str) -> None:
    found = sqlalchemy.inspect(target).get_table_names()
    if found:
        message = f"The target {without_password(url)} holds data ({len(found)} tables, among them {min(found)}): "
        raise BackupError(message + "make an empty database (createdb NAME) and give its URL with --db.")


def _advance_sequences(target: Connection) -> None:
    """Advance the key sequence of each table beyond existing rows."""
    for table in metadata.sorted_tables:
        key = table.c.get("id")
        if key is not None and key.autoincrement and isinstance(key.type, BigInteger):
            target.execute(
                text(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), coalesce(max(id), 1), "  # noqa: S608 - our own names
                    f"max(id) IS NOT NULL) FROM {table.name}"
                )
            )


def _begin_new_history(core: Connection, expected: Mapping[str, int] | None) -> tuple[dict[str, int], str]:
    """Start a new incarnation without owners. Raises BackupError if rows are missing."""
    tables = count_rows(core)
    for name, rows in (expected or {}).items():
        if tables.get(name) != rows:
            raise BackupError(
                f"The backup has {tables.get(name)} rows in {name}, and should have {rows}. {_MAKE_ANOTHER}"
            )
    incarnation = secrets.token_hex(8)
    core.execute(delete(meta).where(meta.c.key.in_((INCARNATION, MANIFEST))))
    core.execute(insert(meta), {"key": INCARNATION, "value": incarnation})
    core.execute(
        update(runs).values(lease_owner="", lease_address="", lease_expires_ms=0, lease_epoch=runs.c.lease_epoch + 1)
    )
    core.execute(delete(executors))
    return tables, incarnation
