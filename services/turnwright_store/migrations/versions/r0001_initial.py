"""The first schema: see turnwright_store.sql.tables for what the tables mean.

Names and conditions are written out here, because a migration must not change when the code does.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "r0001"
down_revision = None
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
PROSE = sa.Text().with_variant(sa.LargeBinary(), "postgresql")
"""Text of any code points, NUL among them, which PostgreSQL's text cannot hold."""

FORBIDDEN = """NEW.status <> OLD.status AND NOT (
     (OLD.status = 100 AND NEW.status IN (102, 499))
  OR (OLD.status = 102 AND NEW.status IN (200, 202, 500, 499))
  OR (OLD.status = 202 AND NEW.status IN (102, 200, 499))
  OR (OLD.status = 200 AND NEW.status IN (102, 499))
  OR (OLD.status = 500 AND NEW.status IN (102, 499))
  OR (OLD.status = 499 AND NEW.status = 102))"""

TRIGGERS = {
    "sqlite": (
        f"""
        CREATE TRIGGER run_transition BEFORE UPDATE OF status ON runs WHEN {FORBIDDEN}
        BEGIN SELECT RAISE(ABORT, 'run status transition forbidden'); END
        """,
        """
        CREATE TRIGGER version_immutable BEFORE UPDATE ON versions
        BEGIN SELECT RAISE(ABORT, 'versions are immutable'); END
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
        """
        CREATE TRIGGER version_immutable BEFORE UPDATE ON versions FOR EACH ROW
        EXECUTE FUNCTION turnwright_refuse('versions are immutable')
        """,
    ),
}
"""Each database words its triggers in its own way."""


def upgrade() -> None:
    """Make all tables of an empty database."""
    _registry()
    _ledger()
    _entries()
    op.execute("INSERT INTO scopes (key) VALUES ('global')")
    for statement in TRIGGERS[op.get_bind().dialect.name]:
        op.execute(statement)


def _json(column: str, name: str) -> sa.CheckConstraint:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    condition = (
        f"{column} IS NULL OR json_valid({column})" if is_sqlite else f"{column} IS NULL OR {column}::json IS NOT NULL"
    )
    return sa.CheckConstraint(condition, name=op.f(name))


def _registry() -> None:
    op.create_table(
        "meta",
        sa.Column("key", TEXT, nullable=False),
        sa.Column("value", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("key", name="pk_meta"),
    )
    op.create_table(
        "scopes",
        sa.Column("id", KEY, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("positions", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_scopes"),
        sa.UniqueConstraint("key", name="uq_scopes_key"),
    )
    op.create_table(
        "projects",
        sa.Column("id", KEY, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("name", TEXT, nullable=False),
        sa.Column("root", TEXT, nullable=False),
        sa.Column("workspace_id", TEXT, nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_projects_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_projects"),
        sa.UniqueConstraint("name", name="uq_projects_name"),
        sa.UniqueConstraint("workspace_id", name="uq_projects_workspace_id"),
    )
    op.create_table(
        "models",
        sa.Column("alias", TEXT, nullable=False),
        sa.Column("vendor_model", TEXT, nullable=False),
        sa.Column("context_length", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.CheckConstraint("context_length >= 0", name=op.f("ck_models_context_length")),
        sa.PrimaryKeyConstraint("alias", name="pk_models"),
    )
    op.create_table(
        "schemes",
        sa.Column("name", TEXT, nullable=False),
        sa.Column("category", TEXT, nullable=False),
        sa.Column("default_scope", TEXT, nullable=False),
        sa.Column("writable_by", TEXT, nullable=False),
        sa.Column("model_visible", sa.Boolean(), nullable=False),
        sa.CheckConstraint("default_scope IN ('run', 'project', 'global')", name=op.f("ck_schemes_default_scope")),
        _json("writable_by", "ck_schemes_writable_by_json"),
        sa.PrimaryKeyConstraint("name", name="pk_schemes"),
    )
    op.create_table(
        "file_constraints",
        sa.Column("id", KEY, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("pattern", TEXT, nullable=False),
        sa.Column("kind", TEXT, server_default="add", nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('add', 'readonly', 'ignore')", name=op.f("ck_file_constraints_kind")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_file_constraints_project_id"),
        sa.PrimaryKeyConstraint("id", name="pk_file_constraints"),
        sa.UniqueConstraint("project_id", "pattern", name="uq_file_constraints_project_id_pattern"),
    )


def _ledger() -> None:
    op.create_table(
        "runs",
        sa.Column("id", KEY, nullable=False),
        sa.Column("project_id", KEY, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("alias", TEXT, nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("temperature", sa.Float(), nullable=True),
        sa.Column("persona", PROSE, nullable=True),
        sa.Column("context_limit", sa.BigInteger(), nullable=True),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turn_open", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("loops", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("loop_active", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("loops_queued", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("summary", PROSE, server_default="", nullable=False),
        sa.Column("abort_requested", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("lease_owner", TEXT, server_default="", nullable=False),
        sa.Column("lease_address", TEXT, server_default="", nullable=False),
        sa.Column("lease_epoch", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("lease_expires_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.Column("update_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("context_limit >= 1024", name=op.f("ck_runs_context_limit")),
        sa.CheckConstraint("loops_queued >= 0", name=op.f("ck_runs_loops_queued")),
        sa.CheckConstraint("status IN (100, 102, 200, 202, 499, 500)", name=op.f("ck_runs_status")),
        sa.CheckConstraint("temperature BETWEEN 0 AND 2", name=op.f("ck_runs_temperature")),
        sa.ForeignKeyConstraint(["project_id"], ["projects.id"], name="fk_runs_project_id"),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_runs_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("project_id", "alias", name="uq_runs_project_id_alias"),
        sa.UniqueConstraint("scope_id", name="uq_runs_scope_id"),
    )
    op.create_index("ix_runs_latest", "runs", ["project_id", "update_ms", "id"], unique=False)
    op.create_table(
        "loops",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("settings", TEXT, nullable=False),
        sa.Column("prompt", PROSE, nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("reason", PROSE, server_default="", nullable=False),
        sa.Column("summary", PROSE, server_default="", nullable=False),
        sa.Column("first_turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("turns", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cached_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("completion_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("total_tokens", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        _json("settings", "ck_loops_settings_json"),
        sa.CheckConstraint("status IN (100, 102, 202, 200, 204, 413, 422, 499, 500)", name=op.f("ck_loops_status")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_loops_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_loops"),
        sa.UniqueConstraint("run_id", "sequence", name="uq_loops_run_id_sequence"),
    )
    op.create_index("ix_loops_changed", "loops", ["run_id", "revision"], unique=False)
    op.create_index(
        "ix_loops_open",
        "loops",
        ["run_id", "id"],
        unique=False,
        sqlite_where=sa.text("status IN (100, 102, 202)"),
        postgresql_where=sa.text("status IN (100, 102, 202)"),
    )
    op.create_index(
        "uq_loops_active",
        "loops",
        ["run_id"],
        unique=True,
        sqlite_where=sa.text("status IN (102, 202)"),
        postgresql_where=sa.text("status IN (102, 202)"),
    )
    op.create_table(
        "turns",
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("loop", sa.BigInteger(), nullable=False),
        sa.Column("request", TEXT, nullable=False),
        sa.Column("result", TEXT, nullable=True),
        sa.Column("begin_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        _json("request", "ck_turns_request_json"),
        _json("result", "ck_turns_result_json"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_turns_run_id"),
        sa.PrimaryKeyConstraint("run_id", "number", name="pk_turns"),
    )
    op.create_index("ix_turns_changed", "turns", ["run_id", "revision"], unique=False)
    op.create_index(
        "uq_turns_open",
        "turns",
        ["run_id"],
        unique=True,
        sqlite_where=sa.text("end_ms = 0"),
        postgresql_where=sa.text("end_ms = 0"),
    )
    op.create_table(
        "idempotency",
        sa.Column("project", TEXT, nullable=False),
        sa.Column("principal", TEXT, nullable=False),
        sa.Column("method", TEXT, nullable=False),
        sa.Column("request_id", TEXT, nullable=False),
        sa.Column("digest", TEXT, nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("project", "principal", "method", "request_id", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_age", "idempotency", ["create_ms"], unique=False)


def _entries() -> None:
    op.create_table(
        "entries",
        sa.Column("id", KEY, nullable=False),
        sa.Column("scope_id", KEY, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("scheme", TEXT, nullable=False),
        sa.Column("head_rev", sa.BigInteger(), nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("length(path) BETWEEN 1 AND 2048", name=op.f("ck_entries_path")),
        sa.ForeignKeyConstraint(["scope_id"], ["scopes.id"], name="fk_entries_scope_id"),
        sa.PrimaryKeyConstraint("id", name="pk_entries"),
        sa.UniqueConstraint("scope_id", "path", name="uq_entries_scope_id_path"),
    )
    op.create_index("ix_entries_changed", "entries", ["scope_id", "head_rev"], unique=False)
    op.create_table(
        "versions",
        sa.Column("id", KEY, nullable=False),
        sa.Column("entry_id", KEY, nullable=False),
        sa.Column("from_rev", sa.BigInteger(), nullable=False),
        sa.Column("writer", sa.BigInteger(), nullable=False),
        sa.Column("actor", TEXT, nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.Column("hash", PROSE, nullable=False),
        sa.Column("body_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("attributes_bytes", sa.BigInteger(), nullable=False),
        sa.Column("attributes", TEXT, nullable=False),
        sa.Column("body", PROSE, nullable=False),
        _json("attributes", "ck_versions_attributes_json"),
        sa.CheckConstraint("writer BETWEEN 1 AND 4", name=op.f("ck_versions_writer")),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name="fk_versions_entry_id"),
        sa.PrimaryKeyConstraint("id", name="pk_versions"),
        sa.UniqueConstraint("entry_id", "from_rev", name="uq_versions_entry_id_from_rev"),
    )
    op.create_table(
        "views",
        sa.Column("id", KEY, nullable=False),
        sa.Column("run_id", KEY, nullable=False),
        sa.Column("entry_id", KEY, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("from_rev", sa.BigInteger(), nullable=False),
        sa.Column("to_rev", sa.BigInteger(), nullable=True),
        sa.Column("version_rev", sa.BigInteger(), nullable=True),
        sa.Column("chunk_bytes", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("visibility", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.BigInteger(), nullable=False),
        sa.Column("outcome", TEXT, server_default="", nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("loop", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("write_count", sa.BigInteger(), nullable=False),
        sa.Column("create_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("outcome = '' OR state IN (5, 6)", name=op.f("ck_views_outcome")),
        sa.CheckConstraint("state BETWEEN 1 AND 6", name=op.f("ck_views_state")),
        sa.CheckConstraint("to_rev > from_rev", name=op.f("ck_views_interval")),
        sa.CheckConstraint("visibility BETWEEN 1 AND 3", name=op.f("ck_views_visibility")),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name="fk_views_entry_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_views_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_views"),
    )
    op.create_index(
        "ix_views_closed",
        "views",
        ["run_id", "to_rev"],
        unique=False,
        sqlite_where=sa.text("to_rev IS NOT NULL"),
        postgresql_where=sa.text("to_rev IS NOT NULL"),
    )
    op.create_index(
        "ix_views_opened",
        "views",
        ["run_id", "from_rev"],
        unique=False,
        sqlite_where=sa.text("to_rev IS NULL"),
        postgresql_where=sa.text("to_rev IS NULL"),
    )
    op.create_index(
        "ix_views_proposed",
        "views",
        ["run_id", "turn"],
        unique=False,
        sqlite_where=sa.text("to_rev IS NULL AND state = 2"),
        postgresql_where=sa.text("to_rev IS NULL AND state = 2"),
    )
    op.create_index(
        "uq_views_current",
        "views",
        ["run_id", "path"],
        unique=True,
        sqlite_where=sa.text("to_rev IS NULL"),
        postgresql_where=sa.text("to_rev IS NULL"),
    )
    op.create_table(
        "chunks",
        sa.Column("entry_id", KEY, nullable=False),
        sa.Column("version_rev", sa.BigInteger(), nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("data", PROSE, nullable=False),
        sa.ForeignKeyConstraint(["entry_id"], ["entries.id"], name="fk_chunks_entry_id"),
        sa.PrimaryKeyConstraint("entry_id", "version_rev", "offset", name="pk_chunks"),
    )
