"""A new file of SQLite is made from a snapshot; it is what the migrations would make."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
import sqlalchemy

from turnwright_store.edge import snapshot
from turnwright_store.edge.schema import bring_to_head, migrate


def made_by(bring) -> list[str]:
    """Everything in a new database, as statements."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as raw:
        engine = sqlalchemy.create_engine("sqlite://", creator=lambda: raw, poolclass=sqlalchemy.StaticPool)
        with engine.connect() as core:
            bring(raw, core)
        return list(snapshot.dumped(raw))


def migrated(_raw, core) -> None:
    with core.begin():
        migrate(core)


def test_the_snapshot_is_what_the_migrations_make():
    assert snapshot.statements(), "run `python -m turnwright_store.edge.snapshot`"
    assert made_by(bring_to_head) == made_by(migrated)


@pytest.mark.parametrize("text", [f"-- {'0' * 64}\nCREATE TABLE wrong (x)\n;\n", "", None])
def test_a_snapshot_of_other_migrations_is_not_used(tmp_path, text):
    other = tmp_path / "sqlite.sql"
    if text is not None:
        other.write_text(text)
    assert snapshot.statements(other) == ()
