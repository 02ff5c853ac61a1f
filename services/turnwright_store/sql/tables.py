"""The tables. Names of columns are those of the vocabulary; times are milliseconds since 1970.

A scope (global, a project, a run) counts the transactions that touched it: its revision. Versions are immutable and
numbered by the revision of their entry's scope at which they were written; an entry's `head_rev` names the latest one.
Views are intervals over the revisions of their run's scope: a change closes a row and opens another, so that every
earlier moment can be read, and the change log is an index over these rows.
Source: architecture 3; rows RU045-RU060, RU096-RU110; C34.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from turnwright_store.sql.dialect import Digest, Key, Path, Prose, json_object

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _key() -> Column[int]:
    return Column("id", Key, primary_key=True)


def _refers(name: str, to: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, Key, ForeignKey(to), nullable=nullable)


def _number(name: str, default: str | None = "0") -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=None if default is None else text(default))


def _words(name: str, default: str | None = "") -> Column[str]:
    return Column(name, Path, nullable=False, server_default=default)


def _prose(name: str, default: str | None = None) -> Column[str]:
    return Column(name, Prose, nullable=False, server_default=default)


meta = Table("meta", metadata, Column("key", Path, primary_key=True), _words("value", None))

scopes = Table(
    "scopes",
    metadata,
    _key(),
    Column("key", Path, nullable=False, unique=True),
    _number("revision"),
    _number("positions"),
)

projects = Table(
    "projects",
    metadata,
    _key(),
    _refers("scope_id", "scopes.id"),
    Column("name", Path, nullable=False, unique=True),
    _words("root", None),
    Column("workspace_id", Path, nullable=False, unique=True),
    _number("create_ms", None),
)

models = Table(
    "models",
    metadata,
    Column("alias", Path, primary_key=True),
    _words("vendor_model", None),
    _number("context_length"),
    CheckConstraint("context_length >= 0", name="context_length"),
)

schemes = Table(
    "schemes",
    metadata,
    Column("name", Path, primary_key=True),
    _words("category", None),
    _words("default_scope", None),
    _words("writable_by", None),
    Column("model_visible", Boolean, nullable=False),
    CheckConstraint("default_scope IN ('run', 'project', 'global')", name="default_scope"),
    *json_object("writable_by"),
)

file_constraints = Table(
    "file_constraints",
    metadata,
    _key(),
    _refers("project_id", "projects.id"),
    _words("pattern", None),
    _words("kind", "add"),
    _number("create_ms", None),
    UniqueConstraint("project_id", "pattern"),
    CheckConstraint("kind IN ('add', 'readonly', 'ignore')", name="kind"),
)

runs = Table(
    "runs",
    metadata,
    _key(),
    _refers("project_id", "projects.id"),
    _refers("scope_id", "scopes.id"),
    _words("alias", None),
    _number("status", None),
    _words("model", None),
    Column("temperature", Float),
    Column("persona", Prose),
    Column("context_limit", BigInteger),
    _number("turn"),
    _number("turn_open"),
    _number("loops"),
    _number("loop_active"),
    _number("loops_queued"),
    _prose("summary", ""),
    Column("abort_requested", Boolean, nullable=False, server_default=text("false")),
    _words("lease_owner"),
    _words("lease_address"),
    _number("lease_epoch"),
    _number("lease_expires_ms"),
    _number("revision"),
    _number("create_ms", None),
    _number("update_ms", None),
    _words("forked_from_run"),
    _number("forked_from_turn"),
    # The id of the eldest run of a family of forks; 0 for a run that is no fork. Forks read versions of their elders,
    # which live until the last of the family that sees them is removed.
    _number("lineage"),
    # When it was removed; its alias is free then, and its rows follow in the background. 0: it is there.
    _number("removed_ms"),
    UniqueConstraint("project_id", "alias"),
    UniqueConstraint("scope_id"),
    CheckConstraint("status IN (100, 102, 200, 202, 499, 500)", name="status"),
    CheckConstraint("temperature BETWEEN 0 AND 2", name="temperature"),
    CheckConstraint("context_limit >= 1024", name="context_limit"),
    CheckConstraint("loops_queued >= 0", name="loops_queued"),
)
Index("ix_runs_latest", runs.c.project_id, runs.c.update_ms, runs.c.id)
Index(
    "ix_runs_lineage",
    runs.c.lineage,
    sqlite_where=runs.c.lineage > 0,
    postgresql_where=runs.c.lineage > 0,
)
Index(
    "ix_runs_claimed",
    runs.c.lease_owner,
    sqlite_where=runs.c.lease_owner != "",
    postgresql_where=runs.c.lease_owner != "",
)
Index(
    "ix_runs_removed",
    runs.c.removed_ms,
    sqlite_where=runs.c.removed_ms > 0,
    postgresql_where=runs.c.removed_ms > 0,
)

executors = Table(
    "executors",
    metadata,
    Column("owner", Path, primary_key=True),
    _words("address"),
    # A JSON array of the workspaces that it has mounted.
    _words("workspaces", "[]"),
    _number("expires_ms", None),
    *json_object("workspaces"),
)

loops = Table(
    "loops",
    metadata,
    _key(),
    _refers("run_id", "runs.id"),
    _number("sequence", None),
    _words("settings", None),
    _prose("prompt"),
    _number("status", None),
    _prose("reason", ""),
    _prose("summary", ""),
    _number("first_turn"),
    _number("turns"),
    _number("prompt_tokens"),
    _number("cached_tokens"),
    _number("completion_tokens"),
    _number("reasoning_tokens"),
    _number("total_tokens"),
    Column("cost_usd", Float),
    _number("create_ms", None),
    _number("end_ms"),
    _number("revision", None),
    UniqueConstraint("run_id", "sequence"),
    CheckConstraint("status IN (100, 102, 202, 200, 204, 413, 422, 499, 500)", name="status"),
    *json_object("settings"),
)
Index(
    "uq_loops_active",
    loops.c.run_id,
    unique=True,
    sqlite_where=loops.c.status.in_((102, 202)),
    postgresql_where=loops.c.status.in_((102, 202)),
)
Index(
    "ix_loops_open",
    loops.c.run_id,
    loops.c.id,
    sqlite_where=loops.c.status.in_((100, 102, 202)),
    postgresql_where=loops.c.status.in_((100, 102, 202)),
)
Index("ix_loops_changed", loops.c.run_id, loops.c.revision)

turns = Table(
    "turns",
    metadata,
    _refers("run_id", "runs.id"),
    _number("number", None),
    _number("loop", None),
    _words("request", None),
    Column("result", Text),
    _number("begin_ms", None),
    _number("end_ms"),
    _number("revision", None),
    # Revisions of the shared scopes at its end; that of the run's own scope is `revision`.
    _number("end_project_rev"),
    _number("end_global_rev"),
    PrimaryKeyConstraint("run_id", "number"),
    *json_object("request"),
    *json_object("result"),
)
Index(
    "uq_turns_open",
    turns.c.run_id,
    unique=True,
    sqlite_where=turns.c.end_ms == 0,
    postgresql_where=turns.c.end_ms == 0,
)
Index("ix_turns_changed", turns.c.run_id, turns.c.revision)

entries = Table(
    "entries",
    metadata,
    _key(),
    _refers("scope_id", "scopes.id"),
    _words("path", None),
    _words("scheme", None),
    _number("head_rev", None),
    _number("create_ms", None),
    UniqueConstraint("scope_id", "path"),
    CheckConstraint("length(path) BETWEEN 1 AND 2048", name="path"),
)
Index("ix_entries_changed", entries.c.scope_id, entries.c.head_rev)

versions = Table(
    "versions",
    metadata,
    _key(),
    _refers("entry_id", "entries.id"),
    _number("from_rev", None),
    _number("writer", None),
    _words("actor", None),
    _number("create_ms", None),
    # Of the body with everything that was appended to it, as far as it is folded.
    Column("hash", Digest, nullable=False),
    # Bytes of the body as it was written; what was appended since counts in the views.
    _number("body_bytes", None),
    # Bytes that `body` holds: more than `body_bytes` once chunks were folded into it.
    _number("stored_bytes"),
    _number("attributes_bytes", None),
    _words("attributes", None),
    # Last, so that reading what stands before does not walk the pages of a long body.
    _prose("body"),
    UniqueConstraint("entry_id", "from_rev"),
    CheckConstraint("writer BETWEEN 1 AND 4", name="writer"),
    *json_object("attributes"),
)

views = Table(
    "views",
    metadata,
    _key(),
    # No foreign keys: the removal of a run or an entry would look through all views; no index holds them all.
    Column("run_id", Key, nullable=False),
    Column("entry_id", Key, nullable=False),
    _words("path", None),
    _number("from_rev", None),
    Column("to_rev", BigInteger),
    Column("version_rev", BigInteger),
    _number("chunk_bytes"),
    _number("visibility", None),
    _number("state", None),
    _words("outcome"),
    _number("turn"),
    _number("loop"),
    _number("position", None),
    _number("write_count", None),
    _number("create_ms", None),
    CheckConstraint("visibility BETWEEN 1 AND 3", name="visibility"),
    CheckConstraint("state BETWEEN 1 AND 6", name="state"),
    CheckConstraint("outcome = '' OR state IN (5, 6)", name="outcome"),
    CheckConstraint("to_rev > from_rev", name="interval"),
)
Index(
    "uq_views_current",
    views.c.run_id,
    views.c.path,
    unique=True,
    sqlite_where=views.c.to_rev.is_(None),
    postgresql_where=views.c.to_rev.is_(None),
)
Index(
    "ix_views_proposed",
    views.c.run_id,
    views.c.turn,
    sqlite_where=(views.c.to_rev.is_(None)) & (views.c.state == 2),
    postgresql_where=(views.c.to_rev.is_(None)) & (views.c.state == 2),
)
# Each holds its own half of the intervals, so that no planner takes one for the other's question.
Index(
    "ix_views_opened",
    views.c.run_id,
    views.c.from_rev,
    sqlite_where=views.c.to_rev.is_(None),
    postgresql_where=views.c.to_rev.is_(None),
)
Index(
    "ix_views_closed",
    views.c.run_id,
    views.c.to_rev,
    sqlite_where=views.c.to_rev.is_not(None),
    postgresql_where=views.c.to_rev.is_not(None),
)

chunks = Table(
    "chunks",
    metadata,
    _refers("entry_id", "entries.id"),
    _number("version_rev", None),
    _number("offset", None),
    _prose("data"),
    PrimaryKeyConstraint("entry_id", "version_rev", "offset"),
)

idempotency = Table(
    "idempotency",
    metadata,
    _words("project", None),
    _words("principal", None),
    _words("method", None),
    _words("request_id", None),
    _words("digest", None),
    _number("create_ms", None),
    # The run whose work it started; the answer is kept while that work goes on.
    _words("run"),
    Column("response", LargeBinary, nullable=False),
    PrimaryKeyConstraint("project", "principal", "method", "request_id"),
)
Index("ix_idempotency_age", idempotency.c.create_ms)

blocks = Table(
    "blocks",
    metadata,
    _key(),
    _refers("project_id", "projects.id"),
    Column("digest", Digest, nullable=False),
    _prose("text"),
    UniqueConstraint("project_id", "digest"),
)

packets = Table(
    "packets",
    metadata,
    _refers("run_id", "runs.id"),
    _number("turn", None),
    # The turn that `layout` is a difference to; 0: it stands for itself.
    _number("base_turn"),
    _prose("layout"),
    PrimaryKeyConstraint("run_id", "turn"),
)

search_marks = Table(
    "search_marks",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    # Heads up to this revision of the scope are indexed.
    _number("revision"),
)
"""How far the full-text index has come. The index itself is made by the migrations: each database has its own kind."""
