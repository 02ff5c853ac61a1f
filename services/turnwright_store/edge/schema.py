"""Brings a database file to the schema that this code needs.

The revision of the file is read with one statement; Alembic is imported only when there is something to migrate,
because its import costs more than everything else at the start.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

import sqlalchemy

REVISIONS: Final = ("r0001", "r0002")
"""Every revision of the schema, oldest first; the last one is what this code works on."""

MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"


class SchemaTooNewError(RuntimeError):
    """The database was written by a newer version of the code; `revision` is its schema's."""

    def __init__(self, revision: str) -> None:
        super().__init__(
            f"The database has the schema {revision}, and this version knows {REVISIONS[-1]} at most: "
            "start the version that wrote it, or a newer one"
        )
        self.revision = revision


def bring_to_head(raw: sqlite3.Connection, core: sqlalchemy.Connection) -> None:
    """Migrate where needed, all or nothing. Raises SchemaTooNewError and changes nothing then."""
    found = current_revision(raw)
    if found == REVISIONS[-1]:
        return
    if found and found not in REVISIONS:
        raise SchemaTooNewError(found)
    raw.execute("BEGIN IMMEDIATE")
    # Alembic ends a transaction that it finds nobody responsible for; this one is ended here, as SQLAlchemy sees it.
    with core.begin():
        migrate(core)


def current_revision(raw: sqlite3.Connection) -> str:
    """The revision of the file's schema; empty for a new file."""
    if not raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
        return ""
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def migrate(core: sqlalchemy.Connection) -> None:
    """Run the migrations that are missing, inside the caller's transaction."""
    from alembic import command  # noqa: PLC0415 - see the top of the module
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = core
    command.upgrade(config, "head")
