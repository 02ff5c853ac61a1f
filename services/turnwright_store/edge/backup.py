"""Backup of a running or stopped store into one SQLite file, whichever database the store uses.

A running store is not disturbed: its lock is not taken, and readers do not block the writer. Everything acknowledged
before the backup began is in it, and every request is in it completely or not at all. Source: architecture 3, 11;
docs/adr/0006.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from sqlalchemy import Connection, insert, select, update

from turnwright_core.private_files import replacing_atomically
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
from turnwright_store.edge.schema import REVISIONS, upgrade_to_head
from turnwright_store.sql.tables import meta


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
