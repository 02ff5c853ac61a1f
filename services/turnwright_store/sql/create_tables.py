"""Creates all tables of an empty database, with the triggers and the search index of each database."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, and_, text

from turnwright_core.runs import RUN_TRANSITIONS
from turnwright_store.ports import POSTGRESQL, SQLITE
from turnwright_store.sql.tables import metadata, views

_FIXED: Final = (
    "id",
    "entry_id",
    "from_rev",
    "writer",
    "actor",
    "create_ms",
    "body_size_bytes",
    "attributes_bytes",
    "attributes",
    "record",
)
"""Columns of a version that never change. Compaction merges appended text into its body, but not the content."""

_ALLOWED: Final = " OR ".join(
    f"(OLD.status = {source} AND NEW.status IN ({', '.join(map(str, sorted(targets)))}))"
    for source, targets in RUN_TRANSITIONS.items()
)
_FORBIDDEN: Final = f"NEW.status <> OLD.status AND NOT ({_ALLOWED})"

_IMMUTABLE: Final = f"CREATE TRIGGER version_immutable BEFORE UPDATE OF {', '.join(_FIXED)} ON versions"

# Contentless: sql.search explains how entries are removed. The row id is the id of the entry. The body is the first
# column, because the index stores the column number for words in any other.
_SEARCH_ON_SQLITE: Final = """
CREATE VIRTUAL TABLE search USING fts5 (body, path, content = '', tokenize = 'unicode61 remove_diacritics 2')
"""
# The indexed revision of each entry.
_INDEXED_ON_SQLITE: Final = """
CREATE TABLE search_documents (entry_id INTEGER PRIMARY KEY, revision INTEGER NOT NULL)
"""

_AUDIT_KEPT: Final = "CREATE TRIGGER audit_kept BEFORE UPDATE ON audit"
_AUDIT_REFUSAL: Final = "rows of the audit are never changed"

_OWN: Final = {
    SQLITE: (
        f"""
        CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs WHEN {_FORBIDDEN}
        BEGIN SELECT RAISE(ABORT, 'run status transition forbidden'); END
        """,
        f"{_IMMUTABLE} BEGIN SELECT RAISE(ABORT, 'versions are immutable'); END",
        f"{_AUDIT_KEPT} BEGIN SELECT RAISE(ABORT, '{_AUDIT_REFUSAL}'); END",
        _SEARCH_ON_SQLITE,
        # Bytes of a page of the index: as many as a page of the file can hold.
        "INSERT INTO search (search, rank) VALUES ('pgsz', 2000)",
        _INDEXED_ON_SQLITE,
    ),
    POSTGRESQL: (
        """
        CREATE FUNCTION turnwright_refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation'; END $$
        """,
        f"""
        CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs FOR EACH ROW WHEN ({_FORBIDDEN})
        EXECUTE FUNCTION turnwright_refuse('run status transition forbidden')
        """,
        f"{_IMMUTABLE} FOR EACH ROW EXECUTE FUNCTION turnwright_refuse('versions are immutable')",
        f"{_AUDIT_KEPT} FOR EACH ROW EXECUTE FUNCTION turnwright_refuse('{_AUDIT_REFUSAL}')",
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
        # Otherwise the index keeps the room of a list of 4 MiB; entries are indexed in the background anyway.
        "CREATE INDEX ix_search_document ON search USING gin (document) WITH (fastupdate = off)",
    ),
}

_FIRST_ROWS: Final = (
    "INSERT INTO scopes (key) VALUES ('global')",
    "INSERT INTO scopes (key, revision) VALUES ('policy', 1)",
    "INSERT INTO meta (key, value) VALUES ('min_code', '4')",
)


def create_tables(core: Connection) -> None:
    """Create everything that an empty database needs, inside the caller's transaction."""
    if core.dialect.name == POSTGRESQL:
        _make_indexes_partial()
    metadata.create_all(core, checkfirst=False)
    for statement in (*_OWN[core.dialect.name], *_FIRST_ROWS):
        core.execute(text(statement))


def _make_indexes_partial() -> None:
    """Create PostgreSQL's partial indexes like SQLite's.

    Declared with the tables, they would import PostgreSQL's dialect in every store.
    """
    for index in (index for table in metadata.tables.values() for index in table.indexes):
        where: Any = index.dialect_options[SQLITE]["where"]
        if index.name == "ix_views_opened":
            # If two indexes fit, PostgreSQL would use this one for queries meant for the other.
            where = and_(where, views.c.from_rev > 0)
        if where is not None:
            index.dialect_options[POSTGRESQL]["where"] = where
