"""Forks, leases of executors, packets, folding of streamed bodies, full-text search.

`min_code` is the level of code that this schema needs: the first code knows neither removed runs nor stored lengths.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0002"
down_revision = "r0001"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
PROSE = sa.Text().with_variant(sa.LargeBinary(), "postgresql")

FIXED = (
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

VIEWS = """
CREATE TABLE views (
    id INTEGER NOT NULL,
    run_id INTEGER NOT NULL,
    entry_id INTEGER NOT NULL,
    path TEXT NOT NULL,
    from_rev BIGINT NOT NULL,
    to_rev BIGINT,
    version_rev BIGINT,
    chunk_bytes BIGINT DEFAULT 0 NOT NULL,
    visibility BIGINT NOT NULL,
    state BIGINT NOT NULL,
    outcome TEXT DEFAULT '' NOT NULL,
    turn BIGINT DEFAULT 0 NOT NULL,
    loop BIGINT DEFAULT 0 NOT NULL,
    position BIGINT NOT NULL,
    write_count BIGINT NOT NULL,
    create_ms BIGINT NOT NULL,
    CONSTRAINT ck_views_outcome CHECK (outcome = '' OR state IN (5, 6)),
    CONSTRAINT ck_views_state CHECK (state BETWEEN 1 AND 6),
    CONSTRAINT ck_views_interval CHECK (to_rev > from_rev),
    CONSTRAINT ck_views_visibility CHECK (visibility BETWEEN 1 AND 3),
    CONSTRAINT pk_views PRIMARY KEY (id)
)
"""
VIEW_INDEXES = (
    "CREATE INDEX ix_views_closed ON views (run_id, to_rev) WHERE to_rev IS NOT NULL",
    "CREATE INDEX ix_views_opened ON views (run_id, from_rev) WHERE to_rev IS NULL",
    "CREATE INDEX ix_views_proposed ON views (run_id, turn) WHERE to_rev IS NULL AND state = 2",
    "CREATE UNIQUE INDEX uq_views_current ON views (run_id, path) WHERE to_rev IS NULL",
)
VIEWS_WAITING = "CREATE INDEX ix_views_waiting ON views (create_ms, id) WHERE to_rev IS NULL AND state = 2"
VIEWS_STREAMING = "CREATE INDEX ix_views_streaming ON views (create_ms, id) WHERE to_rev IS NULL AND state = 3"
VIEWS_PAST = "CREATE INDEX ix_views_past ON views (run_id, path, to_rev) WHERE to_rev <> 0"
UNCHECKED = (
    ("views", "run_id"),
    ("views", "entry_id"),
    ("entries", "scope_id"),
    ("chunks", "entry_id"),
)
"""References that PostgreSQL would check by a statement for each row."""

NARROWED = {
    "ix_views_opened": "views (run_id, from_rev) WHERE to_rev IS NULL AND from_rev > 0",
}
"""Indexes that PostgreSQL takes for one question only."""

KEYS_OF_VERSIONS = """
UPDATE versions SET id = entry_id * 4294967296 + from_rev, stored_bytes = body_size_bytes,
    hash = decode(convert_from(hash, 'UTF8'), 'hex')
"""
VERSIONS_AGAIN = """
INSERT INTO versions
SELECT entry_id * 4294967296 + from_rev, entry_id, from_rev, writer, actor, create_ms, hash, body_size_bytes,
    body_size_bytes,
    attributes_bytes, attributes, body
FROM versions_before ORDER BY entry_id, from_rev
"""

VERSIONS = """
CREATE TABLE versions (
    id INTEGER NOT NULL,
    entry_id INTEGER NOT NULL,
    from_rev BIGINT NOT NULL,
    writer BIGINT NOT NULL,
    actor TEXT NOT NULL,
    create_ms BIGINT NOT NULL,
    hash TEXT NOT NULL,
    body_size_bytes BIGINT NOT NULL,
    stored_bytes BIGINT DEFAULT 0 NOT NULL,
    attributes_bytes BIGINT NOT NULL,
    attributes TEXT NOT NULL,
    body TEXT NOT NULL,
    CONSTRAINT pk_versions PRIMARY KEY (id),
    CONSTRAINT ck_versions_key CHECK (id = entry_id * 4294967296 + from_rev),
    CONSTRAINT ck_versions_from_rev CHECK (from_rev BETWEEN 0 AND 4294967295),
    CONSTRAINT ck_versions_writer CHECK (writer BETWEEN 1 AND 4),
    CONSTRAINT ck_versions_attributes_json CHECK (attributes IS NULL OR json_valid(attributes))
)
"""
VERSION_CHECKS = {
    "key": "id = entry_id * 4294967296 + from_rev",
    "from_rev": "from_rev BETWEEN 0 AND 4294967295",
}
CHANGED = "CREATE INDEX ix_entries_changed ON entries (scope_id, shared_rev) WHERE shared_rev > 0"


def upgrade() -> None:
    """Add what is new."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    _runs()
    _turns()
    _entries()
    _versions(is_sqlite=is_sqlite)
    _views(is_sqlite=is_sqlite)
    op.execute(VIEWS_WAITING)
    op.execute(VIEWS_STREAMING)
    op.execute(VIEWS_PAST)
    _packets()
    _search(is_sqlite=is_sqlite)
    op.execute("INSERT INTO meta (key, value) VALUES ('min_code', '2')")


ENDED_AT = """
UPDATE turns SET {column} = (
    SELECT coalesce(max(versions.from_rev), 0) FROM versions JOIN entries ON entries.id = versions.entry_id
    WHERE versions.create_ms <= turns.end_ms AND entries.scope_id = ({scope})
) WHERE end_ms > 0
"""
"""What was written until the end of a turn: the first schema did not keep the revisions of shared scopes there."""

PROJECT_SCOPE = (
    "SELECT projects.scope_id FROM projects JOIN runs ON runs.project_id = projects.id WHERE runs.id = turns.run_id"
)
GLOBAL_SCOPE = "SELECT scopes.id FROM scopes WHERE scopes.key = 'global'"


def _turns() -> None:
    for column, scope in (("end_project_rev", PROJECT_SCOPE), ("end_global_rev", GLOBAL_SCOPE)):
        op.add_column("turns", sa.Column(column, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
        op.execute(ENDED_AT.format(column=column, scope=scope))
    for column in ("packet_digest", "fingerprint"):
        op.add_column("turns", sa.Column(column, sa.LargeBinary()))


NEXT_LOOPS = """
UPDATE runs SET next_loop = coalesce(CASE
    WHEN loop_active > 0 THEN (
        SELECT loops.id FROM loops
        WHERE loops.run_id = runs.id AND loops.sequence = runs.loop_active AND (
            loops.status <> 202 OR runs.abort_requested OR NOT EXISTS (
                SELECT 1 FROM views
                WHERE views.run_id = runs.id AND views.turn = runs.turn_open AND views.to_rev IS NULL
                AND views.state = 2
            )
        )
    )
    WHEN loops_queued > 0 THEN (SELECT min(loops.id) FROM loops WHERE loops.run_id = runs.id AND loops.status = 100)
END, 0)
"""


def _runs() -> None:
    op.add_column("projects", sa.Column("config_path", TEXT, server_default="", nullable=False))
    op.add_column("runs", sa.Column("forked_from_run", TEXT, server_default="", nullable=False))
    op.add_column("runs", sa.Column("budget", TEXT, server_default="", nullable=False))
    op.add_column("runs", sa.Column("yolo", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    for name in ("forked_from_turn", "lineage", "removed_ms", "lost_turn", "losses", "next_loop"):
        op.add_column("runs", sa.Column(name, sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    for name in ("lineage", "removed_ms"):
        where = sa.text(f"{name} <> 0")
        op.create_index(
            f"ix_runs_{name.removesuffix('_ms')}", "runs", [name], sqlite_where=where, postgresql_where=where
        )
    where = sa.text("lease_owner != ''")
    op.create_index("ix_runs_claimed", "runs", ["lease_owner"], sqlite_where=where, postgresql_where=where)
    op.execute(NEXT_LOOPS)
    op.execute("CREATE INDEX ix_runs_waiting ON runs (project_id, next_loop) WHERE next_loop <> 0")
    op.add_column("idempotency", sa.Column("run", TEXT, server_default="", nullable=False))
    json_check = {
        "sqlite": "workspaces IS NULL OR json_valid(workspaces)",
        "postgresql": "workspaces IS NULL OR workspaces::json IS NOT NULL",
    }[op.get_bind().dialect.name]
    op.create_table(
        "executors",
        sa.Column("owner", TEXT, nullable=False),
        sa.Column("address", TEXT, server_default="", nullable=False),
        sa.Column("workspaces", TEXT, server_default="[]", nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(json_check, name=op.f("ck_executors_workspaces_json")),
        sa.PrimaryKeyConstraint("owner", name="pk_executors"),
    )


def _entries() -> None:
    """What changed is looked for in shared scopes alone: the others keep no index of it."""
    op.execute("DROP INDEX ix_entries_changed")
    op.execute(
        "ALTER TABLE entries ADD COLUMN shared_rev BIGINT "
        "CONSTRAINT ck_entries_shared_rev CHECK (shared_rev = head_rev)"
    )
    op.execute("UPDATE entries SET shared_rev = head_rev WHERE scope_id NOT IN (SELECT scope_id FROM runs)")
    op.execute(CHANGED)


def _versions(*, is_sqlite: bool) -> None:
    """Versions are found by a key that is made of entry and revision."""
    immutable = f"CREATE TRIGGER version_immutable BEFORE UPDATE OF {', '.join(FIXED)} ON versions "
    if is_sqlite:
        _versions_anew()
        op.execute(immutable + "BEGIN SELECT RAISE(ABORT, 'versions are immutable'); END")
        return
    op.execute("DROP TRIGGER version_immutable ON versions")
    op.add_column("versions", sa.Column("stored_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.drop_constraint("fk_versions_entry_id", "versions", type_="foreignkey")
    op.drop_constraint("uq_versions_entry_id_from_rev", "versions", type_="unique")
    op.execute("ALTER TABLE versions ALTER COLUMN id DROP DEFAULT")
    op.execute("DROP SEQUENCE versions_id_seq")
    # Digests were kept as the bytes of their hexadecimal text here. As text on SQLite: that one tells by its type.
    op.execute(KEYS_OF_VERSIONS)
    for name, condition in VERSION_CHECKS.items():
        op.create_check_constraint(op.f(f"ck_versions_{name}"), "versions", condition)
    op.execute(immutable + "FOR EACH ROW EXECUTE FUNCTION turnwright_refuse('versions are immutable')")


def _versions_anew() -> None:
    op.execute("DROP TRIGGER version_immutable")
    op.execute("ALTER TABLE versions RENAME TO versions_before")
    op.execute(VERSIONS)
    op.execute(VERSIONS_AGAIN)
    op.execute("DROP TABLE versions_before")


def _views(*, is_sqlite: bool) -> None:
    """Take away the foreign keys: views have no index to check the removal of a run or an entry with."""
    if not is_sqlite:
        for table, column in UNCHECKED:
            op.drop_constraint(f"fk_{table}_{column}", table, type_="foreignkey")
        for index, said in NARROWED.items():
            op.execute(f"DROP INDEX {index}")
            op.execute(f"CREATE INDEX {index} ON {said}")
        return
    op.execute("ALTER TABLE views RENAME TO views_before")
    for index in ("ix_views_closed", "ix_views_opened", "ix_views_proposed", "uq_views_current"):
        op.execute(f"DROP INDEX {index}")
    op.execute(VIEWS)
    op.execute(
        "INSERT INTO views SELECT id, run_id, entry_id, path, from_rev, to_rev, version_rev, chunk_bytes, visibility, "
        "state, outcome, turn, loop, position, write_count, create_ms FROM views_before"
    )
    op.execute("DROP TABLE views_before")
    for index in VIEW_INDEXES:
        op.execute(index)


def _packets() -> None:
    op.create_table(
        "blocks",
        sa.Column("id", KEY, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("version_id", KEY, nullable=True),
        sa.Column("body_size_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("text", PROSE, nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_blocks_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_blocks"),
        sa.UniqueConstraint("project_id", "digest", name="uq_blocks_project_id_digest"),
    )
    op.execute("CREATE INDEX ix_blocks_version ON blocks (version_id) WHERE version_id IS NOT NULL")
    op.create_table(
        "packets",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("base_turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("depth", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("length", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("layout", PROSE, nullable=False),
        sa.Column("note", PROSE, server_default="", nullable=False),
        sa.Column("calls", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_packets_run_id"),
        sa.PrimaryKeyConstraint("run_id", "turn", name="pk_packets"),
    )


def _search(*, is_sqlite: bool) -> None:
    op.create_table(
        "search_marks",
        sa.Column("scope_id", KEY, autoincrement=False, nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_search_marks_scope_id"),
        sa.PrimaryKeyConstraint("scope_id", name="pk_search_marks"),
    )
    if is_sqlite:
        # The row's number is the id of the entry.
        op.execute(
            "CREATE VIRTUAL TABLE search USING fts5 (path, body, scope_id UNINDEXED, scheme UNINDEXED, "
            "revision UNINDEXED, tokenize = 'unicode61 remove_diacritics 2')"
        )
        return
    op.execute(
        """
        CREATE TABLE search (
            entry_id BIGINT CONSTRAINT pk_search PRIMARY KEY,
            scope_id BIGINT NOT NULL,
            scheme TEXT COLLATE "C" NOT NULL,
            path TEXT COLLATE "C" NOT NULL,
            revision BIGINT NOT NULL,
            document tsvector NOT NULL
        )
        """
    )
    op.execute("CREATE INDEX ix_search_document ON search USING gin (document)")
