"""The schema of the first release: see turnwright_store.sql.tables for what the tables mean.

Until a version is released it is made from the tables as they are. With the first release it is to be written out: a
released migration must not change when the code does.
"""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import CreateIndex, CreateTable

from turnwright_store.sql.tables import metadata, views

revision = "r0003"
down_revision = None
branch_labels = None
depends_on = None

FIXED: Final = (
    "id",
    "entry_id",
    "from_rev",
    "writer",
    "actor",
    "create_ms",
    "body_size_bytes",
    "attributes_bytes",
    "attributes",
)
"""What never changes of a version. Folding brings what was appended into its body; what it says stays the same."""

FORBIDDEN: Final = """NEW.status <> OLD.status AND NOT (
     (OLD.status = 100 AND NEW.status IN (102, 499))
  OR (OLD.status = 102 AND NEW.status IN (200, 202, 500, 499))
  OR (OLD.status = 202 AND NEW.status IN (102, 200, 499))
  OR (OLD.status = 200 AND NEW.status IN (102, 499))
  OR (OLD.status = 500 AND NEW.status IN (102, 499))
  OR (OLD.status = 499 AND NEW.status = 102))"""

IMMUTABLE: Final = f"CREATE TRIGGER version_immutable BEFORE UPDATE OF {', '.join(FIXED)} ON versions"

OWN: Final = {
    "sqlite": (
        f"""
        CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs WHEN {FORBIDDEN}
        BEGIN SELECT RAISE(ABORT, 'run status transition forbidden'); END
        """,
        f"{IMMUTABLE} BEGIN SELECT RAISE(ABORT, 'versions are immutable'); END",
        # The row's number is the id of the entry.
        """
        CREATE VIRTUAL TABLE search USING fts5 (path, body, scope_id UNINDEXED, scheme UNINDEXED, revision UNINDEXED,
        tokenize = 'unicode61 remove_diacritics 2')
        """,
    ),
    "postgresql": (
        """
        CREATE FUNCTION turnwright_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation'; END $$
        """,
        f"""
        CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs FOR EACH ROW WHEN ({FORBIDDEN})
        EXECUTE FUNCTION turnwright_refuse('run status transition forbidden')
        """,
        f"{IMMUTABLE} FOR EACH ROW EXECUTE FUNCTION turnwright_refuse('versions are immutable')",
        """
        CREATE TABLE search (
            entry_id BIGINT CONSTRAINT pk_search PRIMARY KEY,
            scope_id BIGINT NOT NULL,
            scheme TEXT COLLATE "C" NOT NULL,
            path TEXT COLLATE "C" NOT NULL,
            revision BIGINT NOT NULL,
            document tsvector NOT NULL
        )
        """,
        "CREATE INDEX ix_search_document ON search USING gin (document)",
    ),
}
"""What each database words in its own way."""


def upgrade() -> None:
    """Make all tables of an empty database."""
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        _narrow()
    for table in metadata.sorted_tables:
        op.execute(CreateTable(table))
        # A table keeps its indexes in a set: in any order.
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
    for statement in OWN[bind.dialect.name]:
        op.execute(statement)
    op.execute("INSERT INTO scopes (key) VALUES ('global')")
    op.execute("INSERT INTO meta (key, value) VALUES ('min_code', '3')")


def _narrow() -> None:
    """Have PostgreSQL keep in its indexes the rows alone that SQLite does."""
    for index in (index for table in metadata.tables.values() for index in table.indexes):
        where = index.dialect_options["sqlite"]["where"]
        if index.name == "ix_views_opened":
            # Of two indexes that fit, PostgreSQL would take this one for the other's question.
            where = sa.and_(where, views.c.from_rev > 0)
        if where is not None:
            index.dialect_options["postgresql"]["where"] = where
