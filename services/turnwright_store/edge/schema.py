"""Brings a database to the schema that this code needs.

The revision is read with two statements. An empty database gets the tables as they are at head, and the revision of
that; Alembic is imported only for one that is older, because its import costs more than everything else at the start.
Schemas expand before they contract: a database of a later schema says in `min_code` which level of code still
works on it, so that replicas can be replaced one after the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

import sqlalchemy
from msgspec import Struct

from turnwright_store.sql.creation import create
from turnwright_store.sql.dialect import POSTGRESQL, SQLITE

MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"

UNRELEASED: Final = ("r0001", "r0002", "r0003")
"""Revisions before the first release, which changed in place: nobody can tell what a database of one of them holds."""

REVISIONS: Final = ("r0004",)
"""Every revision of the schema, oldest first; the last one is what this code works on."""

CODE: Final = 3
"""The level of this code. A schema that code of this level cannot work on sets `min_code` in `meta` to a higher one."""

MIGRATION_LOCK: Final = 0x7475726E77726967
"""Key of the advisory lock under which replicas migrate: the first one does, the others wait and find it done."""


class SchemaTooNewError(OSError):
    """The database was written by a newer version of the code; `revision` is its schema's."""

    def __init__(self, revision: str, min_code: str) -> None:
        needs = f" and needs code of level {min_code}" if min_code else ""
        super().__init__(
            f"The database has the schema {revision}{needs}; this version knows {REVISIONS[-1]} at most and is of "
            f"level {CODE}: start the version that wrote it, or a newer one"
        )
        self.revision = revision


class SchemaForeignError(OSError):
    """The database belongs to another program, and is left as it is."""

    def __init__(self, holds: str) -> None:
        super().__init__(f"The database is another program's: it holds {holds}. Name another one with --db")


class SchemaUnreleasedError(OSError):
    """The database was made before the first release, and is left as it is."""

    def __init__(self, revision: str) -> None:
        super().__init__(made_before_release(revision))


def made_before_release(revision: str) -> str:
    """What to do about a database that no released version has made."""
    return (
        f"The database has the schema {revision} of a version before the first release, which this version does not "
        "read. Begin with a new database: move the file away, or name another one with --db; what the old one holds "
        "can be read with the version that wrote it"
    )


class Raw(Protocol):
    """A driver's connection: both drivers execute a statement and fetch its rows alike."""

    def execute(self, statement: Any, /) -> Any:
        """A cursor with the statement's result."""


class _Words(Struct, frozen=True):
    """What each database says in its own way."""

    find: str
    """Has a row where there is a schema."""
    find_meta: str
    """Has a row where there is the table of this program that says which code the schema needs."""
    begin: str
    """Begins the transaction of a migration, in which nobody else migrates."""


_WORDS: Final = {
    SQLITE: _Words(
        "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'",
        "SELECT 1 FROM sqlite_master WHERE name = 'meta'",
        "BEGIN IMMEDIATE",
    ),
    POSTGRESQL: _Words(
        "SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL",
        "SELECT 1 WHERE to_regclass('meta') IS NOT NULL",
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; "
        f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})",
    ),
}


def bring_to_head(raw: Raw, core: sqlalchemy.Connection) -> None:
    """Migrate where needed, all or nothing.

    Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError, and changes nothing then.
    """
    words = _WORDS[core.dialect.name]
    if not _is_behind(raw, words):
        return
    raw.execute(words.begin)
    # Alembic ends a transaction that it finds nobody responsible for; this one is ended here, as SQLAlchemy sees it.
    with core.begin():
        # Another replica may have been quicker.
        if not _is_behind(raw, words):
            return
        if _revision(raw, words):
            migrate(core)
            return
        if core.dialect.name == SQLITE:
            _refuse_foreign(raw, words)
        make(core)


def make(core: sqlalchemy.Connection) -> None:
    """Make everything in an empty database, inside the caller's transaction."""
    create(core)
    # As Alembic makes it.
    core.execute(
        sqlalchemy.text(
            "CREATE TABLE IF NOT EXISTS alembic_version "
            "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
        )
    )
    core.execute(sqlalchemy.text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": REVISIONS[-1]})


def _refuse_foreign(raw: Raw, words: _Words) -> None:
    """Raise SchemaForeignError for a file that holds anything, and was never the store's."""
    found = raw.execute("SELECT name FROM sqlite_master").fetchone()
    if found and not raw.execute(words.find).fetchone():
        raise SchemaForeignError(f"{found[0]}, and no schema of the store")


def current_revision(raw: Raw, dialect: str) -> str:
    return _revision(raw, _WORDS[dialect])


def _revision(raw: Raw, words: _Words) -> str:
    if not raw.execute(words.find).fetchone():
        return ""
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def _is_behind(raw: Raw, words: _Words) -> bool:
    """Whether there is something to migrate. Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError."""
    found = _revision(raw, words)
    if found in UNRELEASED and raw.execute(words.find_meta).fetchone():
        raise SchemaUnreleasedError(found)
    if not found or found in REVISIONS:
        return found != REVISIONS[-1]
    if not raw.execute(words.find_meta).fetchone():
        raise SchemaForeignError(f"a schema {found!r} that is not the store's")
    row = raw.execute("SELECT value FROM meta WHERE key = 'min_code'").fetchone()
    if row is None or int(row[0]) > CODE:
        raise SchemaTooNewError(found, row[0] if row else "")
    return False


def migrate(core: sqlalchemy.Connection, revision: str = "head") -> None:
    """Run the migrations that are missing up to a revision, inside the caller's transaction."""
    from alembic import command  # noqa: PLC0415 - see the top of the module
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = core
    command.upgrade(config, revision)
