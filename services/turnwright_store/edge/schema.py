"""Brings a database to the schema that this code needs.

An empty database gets the tables at head. Alembic is only imported for an older one, because its import takes longer
than the rest of the start. Schemas expand before they contract: a database of a later schema says in `min_code` which
level of code still works on it, for rolling upgrades.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from turnwright_store.ports import POSTGRESQL, SQLITE

if TYPE_CHECKING:
    import sqlalchemy

MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"

UNRELEASED: Final = (*(f"r{number:04}" for number in range(1, 26)), "r0028")
"""Revisions of before the first release; only the code of their time can migrate them."""

REVISIONS: Final = ("r0026",)
"""Every schema revision, oldest first; this code works with the last one."""

CODE: Final = 4
"""The compatibility level of this code. A schema that needs newer code sets `min_code` in `meta` to a higher one."""

MIGRATION_LOCK: Final = 0x7475726E77726967
"""Key of the advisory lock for migrations: the first replica migrates, the others wait and find it done."""


class SchemaTooNewError(OSError):
    """The database was written by a newer version; `revision` is its schema revision."""

    def __init__(self, revision: str, min_code: str) -> None:
        needs = f" and needs code of level {min_code}" if min_code else ""
        super().__init__(
            f"The database has the schema {revision}{needs}; this version knows {REVISIONS[-1]} at most and is of "
            f"level {CODE}: start the version that wrote it, or a newer one"
        )
        self.revision = revision


class SchemaForeignError(OSError):
    """The database belongs to another program, and is left alone."""

    def __init__(self, holds: str) -> None:
        super().__init__(f"The database is another program's: it holds {holds}. Name another one with --db")


class SchemaUnreleasedError(OSError):
    """The database was made before the first release, and is left alone."""

    def __init__(self, revision: str) -> None:
        super().__init__(unreleased_advice(revision))


def unreleased_advice(revision: str) -> str:
    """Advice for a database that no released version has made."""
    return (
        f"The database has the schema {revision} of a version before the first release, which this version does not "
        "read. From r0005 on, start the commit b3a92d5d7 of Turnwright on it once, which brings it up to date. Or "
        "begin with a new database: move the file away, or name another one with --db; what the old one holds can be "
        "read with the version that wrote it"
    )


class DriverConnection(Protocol):
    """A driver's connection: both drivers execute a statement and fetch its rows in the same way."""

    def execute(self, statement: Any, /) -> Any:
        """A cursor with the statement's result."""


class _DialectSql(Struct, frozen=True):
    """Statements that differ between databases."""

    find: str
    """Returns a row if there is a schema."""
    find_meta: str
    """Returns a row if there is this program's table with the required code level."""
    begin: str
    """Begins the transaction of a migration, excluding other migrations."""


_SQL: Final = {
    SQLITE: _DialectSql(
        "SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'",
        "SELECT 1 FROM sqlite_master WHERE name = 'meta'",
        "BEGIN IMMEDIATE",
    ),
    POSTGRESQL: _DialectSql(
        "SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL",
        "SELECT 1 WHERE to_regclass('meta') IS NOT NULL",
        "BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0; "
        f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})",
    ),
}


def upgrade_to_head(raw: DriverConnection, core: sqlalchemy.Connection) -> None:
    """Migrate if necessary, all or nothing.

    Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError, and then changes nothing.
    """
    dialect = core.dialect.name
    if not is_behind(raw, dialect):
        return
    raw.execute(_SQL[dialect].begin)
    # Alembic would end a transaction that it considers its own.
    with core.begin():
        # Another replica may have been faster.
        if not is_behind(raw, dialect):
            return
        if current_revision(raw, dialect):
            migrate(core)
            return
        if dialect == SQLITE:
            _refuse_foreign(raw)
        create_schema(core)


def create_schema(core: sqlalchemy.Connection) -> None:
    """Create everything in an empty database, inside the caller's transaction."""
    from turnwright_store.sql.create_tables import create_tables  # noqa: PLC0415 - loads all tables

    create_tables(core)
    # In the form in which Alembic creates it.
    core.exec_driver_sql(
        "CREATE TABLE IF NOT EXISTS alembic_version "
        "(version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
    )
    core.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{REVISIONS[-1]}')")  # noqa: S608 - a constant


def _refuse_foreign(raw: DriverConnection) -> None:
    """Raise SchemaForeignError for a non-empty file that was never the store's."""
    found = raw.execute("SELECT name FROM sqlite_master").fetchone()
    if found and not raw.execute(_SQL[SQLITE].find).fetchone():
        raise SchemaForeignError(f"{found[0]}, and no schema of the store")


def current_revision(raw: DriverConnection, dialect: str) -> str:
    if not raw.execute(_SQL[dialect].find).fetchone():
        return ""
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else ""


def is_behind(raw: DriverConnection, dialect: str) -> bool:
    """Whether a database needs a migration. Raises SchemaTooNewError, SchemaForeignError, SchemaUnreleasedError."""
    find_meta = _SQL[dialect].find_meta
    found = current_revision(raw, dialect)
    if found in UNRELEASED and raw.execute(find_meta).fetchone():
        raise SchemaUnreleasedError(found)
    if not found or found in REVISIONS:
        return found != REVISIONS[-1]
    if not raw.execute(find_meta).fetchone():
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
