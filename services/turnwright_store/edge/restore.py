"""Restores a backup into an empty database of either kind, all or nothing.

A restored database gets a new incarnation, so that cursors of the old one are refused. All leases are released, and all
epochs incremented, so that earlier owners are fenced out. Source: architecture 3 (revisions and the change feed), 11.
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

_SIDE_FILES: Final = ("-wal", "-journal")
"""SQLite would replay these into whatever database is next to them."""

_MAKE_ANOTHER: Final = "Make another backup, or use another one."


def restore(file: Path, database: str, report: ReportProgress) -> Report:
    """Fill an empty database, given by its path or URL, or change nothing. Raises BackupError, OSError."""
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
