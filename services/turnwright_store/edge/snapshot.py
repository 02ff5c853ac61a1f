"""What the migrations make of an empty SQLite file, as statements: a new database needs no Alembic then.

Nearly every database begins empty, and to load Alembic and to run it costs a third of a second. The statements are kept
in `migrations/sqlite.sql`, which `python -m turnwright_store.edge.snapshot` writes; its first line names the migrations
that it was made by, and it is not used with any others.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

MIGRATIONS: Final = Path(__file__).parent.parent / "migrations"
SNAPSHOT: Final = MIGRATIONS / "sqlite.sql"

_END: Final = "\n;\n"
_OBJECTS: Final = """
SELECT sql FROM sqlite_master m WHERE sql IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM sqlite_master v WHERE v.sql LIKE 'CREATE VIRTUAL%' AND m.name LIKE v.name || '\\_%' ESCAPE '\\'
  AND m.tbl_name IN (SELECT name FROM pragma_table_list WHERE type = 'shadow')
) AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid
"""


def statements(file: Path = SNAPSHOT) -> tuple[str, ...]:
    """The statements that make a new database; none where the snapshot was made by other migrations, or is missing."""
    try:
        head, _, body = file.read_text().partition("\n")
    except OSError:
        return ()
    return tuple(body.split(_END)[:-1]) if head == f"-- {fingerprint()}" else ()


def fingerprint() -> str:
    """Stands for all migrations as they are now."""
    digest = hashlib.sha256()
    for file in sorted((MIGRATIONS / "versions").glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def dumped(raw: sqlite3.Connection) -> Iterator[str]:
    """Statements that make a copy of a database: its objects in the order of their making, then all rows."""
    yield from (sql for (sql,) in raw.execute(_OBJECTS).fetchall())
    tables = raw.execute("SELECT name FROM pragma_table_list WHERE type = 'table' AND schema = 'main' ORDER BY name")
    for (table,) in tables.fetchall():
        if not table.startswith("sqlite_"):
            for row in raw.execute(f"SELECT * FROM {table}").fetchall():  # noqa: S608 - a name of our own schema
                yield f"INSERT INTO {table} VALUES ({', '.join(map(_literal, row))})"  # noqa: S608


def _literal(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def made() -> str:
    """The text of the snapshot for the migrations as they are now."""
    import sqlalchemy  # noqa: PLC0415 - for whoever develops

    from turnwright_store.edge.schema import migrate  # noqa: PLC0415

    raw = sqlite3.connect(":memory:", isolation_level=None)
    engine = sqlalchemy.create_engine("sqlite://", creator=lambda: raw, poolclass=sqlalchemy.StaticPool)
    with closing(raw):
        with engine.connect() as core, core.begin():
            migrate(core)
        body = "".join(statement + _END for statement in dumped(raw))
    return f"-- {fingerprint()}\n{body}"


if __name__ == "__main__":
    SNAPSHOT.write_text(made())
