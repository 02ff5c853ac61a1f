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
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    text,
)

from turnwright_store.sql.columns import belongs, key, named, not_zero, number, partial, prose, refers, words
from turnwright_store.sql.dialect import Digest, Key, Packed, Path, Prose, Serialized, json_object

metadata: Final = named
"""All tables."""

REVISIONS_OF_ENTRY: Final = 2**32
"""Revisions that a scope can have, and keys of versions that belong to one entry; of entries there can be 2**31."""

meta = Table("meta", metadata, Column("key", Path, primary_key=True), words("value", None))

scopes = Table(
    "scopes",
    metadata,
    key(),
    Column("key", Path, nullable=False, unique=True),
    number("revision"),
    number("positions"),
)

projects = Table(
    "projects",
    metadata,
    key(),
    refers("scope_id", "scopes.id"),
    Column("name", Path, nullable=False, unique=True),
    words("root", None),
    Column("workspace_id", Path, nullable=False, unique=True),
    number("create_ms", None),
    words("config_path"),
)

models = Table(
    "models",
    metadata,
    Column("alias", Path, primary_key=True),
    words("vendor_model", None),
    number("context_length"),
    CheckConstraint("context_length >= 0", name="context_length"),
)

schemes = Table(
    "schemes",
    metadata,
    Column("name", Path, primary_key=True),
    words("category", None),
    words("default_scope", None),
    words("writable_by", None),
    Column("model_visible", Boolean, nullable=False),
    CheckConstraint("default_scope IN ('run', 'project', 'global')", name="default_scope"),
    *json_object("writable_by"),
)

file_constraints = Table(
    "file_constraints",
    metadata,
    key(),
    refers("project_id", "projects.id"),
    words("pattern", None),
    words("kind", "add"),
    number("create_ms", None),
    UniqueConstraint("project_id", "pattern"),
    CheckConstraint("kind IN ('add', 'readonly', 'ignore')", name="kind"),
)

runs = Table(
    "runs",
    metadata,
    key(),
    refers("project_id", "projects.id"),
    refers("scope_id", "scopes.id"),
    words("alias", None),
    number("status", None),
    words("model", None),
    Column("temperature", Float),
    Column("persona", Prose),
    Column("context_limit", BigInteger),
    number("turn"),
    number("turn_open"),
    number("loops"),
    number("loop_active"),
    number("loops_queued"),
    # Id of the loop that an owner can go on with; 0: there is none (see sql.next_loop).
    number("next_loop"),
    prose("summary", ""),
    Column("abort_requested", Boolean, nullable=False, server_default=text("false")),
    words("lease_owner"),
    words("lease_address"),
    number("lease_epoch"),
    number("lease_expires_ms"),
    # Owners that ended without giving the run back while this turn was open, and how many they were.
    number("lost_turn"),
    number("losses"),
    number("revision"),
    number("create_ms", None),
    number("update_ms", None),
    words("forked_from_run"),
    number("forked_from_turn"),
    # The id of the eldest run of a family of forks; 0 for a run that is no fork. Forks read versions of their elders,
    # which live until the last of the family that sees them is removed.
    number("lineage"),
    # What it may spend: a JSON object of the limits of Budget, empty for none.
    words("budget"),
    Column("yolo", Boolean, nullable=False, server_default=text("false")),
    # When it was removed; its alias is free then, and its rows follow in the background. 0: it is there.
    number("removed_ms"),
    UniqueConstraint("project_id", "alias"),
    UniqueConstraint("scope_id"),
    CheckConstraint("status IN (100, 102, 200, 202, 499, 500)", name="status"),
    CheckConstraint("temperature BETWEEN 0 AND 2", name="temperature"),
    CheckConstraint("context_limit >= 1024", name="context_limit"),
    CheckConstraint("loops_queued >= 0", name="loops_queued"),
)
Index("ix_runs_latest", runs.c.project_id, runs.c.update_ms, runs.c.id)
partial("ix_runs_waiting", runs.c.project_id, runs.c.next_loop, where=not_zero(runs.c.next_loop))
partial("ix_runs_lineage", runs.c.lineage, where=not_zero(runs.c.lineage))
partial("ix_runs_claimed", runs.c.lease_owner, where=runs.c.lease_owner != "")
partial("ix_runs_removed", runs.c.removed_ms, where=not_zero(runs.c.removed_ms))

executors = Table(
    "executors",
    metadata,
    Column("owner", Path, primary_key=True),
    words("address"),
    # A JSON array of the workspaces that it has mounted.
    words("workspaces", "[]"),
    number("expires_ms", None),
    *json_object("workspaces"),
)

loops = Table(
    "loops",
    metadata,
    key(),
    refers("run_id", "runs.id"),
    number("sequence", None),
    words("settings", None),
    prose("prompt"),
    number("status", None),
    prose("reason", ""),
    prose("summary", ""),
    number("first_turn"),
    number("turns"),
    number("prompt_tokens"),
    number("cached_tokens"),
    number("completion_tokens"),
    number("reasoning_tokens"),
    number("total_tokens"),
    Column("cost_usd", Float),
    number("create_ms", None),
    number("end_ms"),
    number("revision", None),
    UniqueConstraint("run_id", "sequence"),
    CheckConstraint("status IN (100, 102, 202, 200, 204, 413, 422, 499, 500)", name="status"),
    *json_object("settings"),
)
partial("uq_loops_active", loops.c.run_id, where=loops.c.status.in_((102, 202)), unique=True)
partial("ix_loops_open", loops.c.run_id, loops.c.id, where=loops.c.status.in_((100, 102, 202)))
Index("ix_loops_changed", loops.c.run_id, loops.c.revision)

turns = Table(
    "turns",
    metadata,
    refers("run_id", "runs.id"),
    number("number", None),
    number("loop", None),
    words("request", None),
    Column("result", Path),
    number("begin_ms", None),
    number("end_ms"),
    number("revision", None),
    # Revisions of the shared scopes at its end; that of the run's own scope is `revision`.
    number("end_project_rev"),
    number("end_global_rev"),
    # Texts of the result, where they are digests; NULL: they stand in it.
    Column("packet_digest", Digest),
    Column("fingerprint", Digest),
    PrimaryKeyConstraint("run_id", "number"),
    *json_object("request"),
    *json_object("result"),
)
partial("uq_turns_open", turns.c.run_id, where=turns.c.end_ms == 0, unique=True)
Index("ix_turns_changed", turns.c.run_id, turns.c.revision)

entries = Table(
    "entries",
    metadata,
    key(),
    *belongs("scope_id", "scopes.id"),
    words("path", None),
    words("scheme", None),
    number("head_rev", None),
    # The same once more where other runs read the scope too and look for what has changed in it; NULL in a run's own.
    Column("shared_rev", BigInteger),
    number("create_ms", None),
    UniqueConstraint("scope_id", "path"),
    CheckConstraint("length(path) BETWEEN 1 AND 2048", name="path"),
    CheckConstraint("shared_rev = head_rev", name="shared_rev"),
)
# Serves those alone who say shared_rev > 0: without statistics PostgreSQL's planner would take it for every question to
# a scope, and read the whole scope to find some paths. The same below.
partial("ix_entries_changed", entries.c.scope_id, entries.c.shared_rev, where=entries.c.shared_rev > 0)

versions = Table(
    "versions",
    metadata,
    # Made of entry and revision (version_key): a version is found in the table itself, where those of an entry stand
    # together, and there is no index to be kept beside it.
    Column("id", Key, primary_key=True, autoincrement=False),
    # No foreign key: the removal of an entry would look through all versions.
    Column("entry_id", Key, nullable=False),
    number("from_rev", None),
    number("writer", None),
    words("actor", None),
    number("create_ms", None),
    # Of the body with everything that was appended to it, as far as it is folded.
    Column("hash", Digest, nullable=False),
    # Bytes of the body as it was written; what was appended since counts in the views.
    number("body_size_bytes", None),
    # Bytes that `body` holds: more than `body_size_bytes` once chunks were folded into it.
    number("stored_bytes"),
    # Of attributes and record.
    number("attributes_bytes", None),
    words("attributes", None),
    # What a command has come through, where the entry is the record of one.
    Column("record", Serialized),
    # Last, so that reading what stands before does not walk the pages of a long body.
    prose("body"),
    CheckConstraint(f"id = entry_id * {REVISIONS_OF_ENTRY} + from_rev", name="key"),
    CheckConstraint(f"from_rev BETWEEN 0 AND {REVISIONS_OF_ENTRY - 1}", name="from_rev"),
    CheckConstraint("writer BETWEEN 1 AND 4", name="writer"),
    *json_object("attributes"),
)

views = Table(
    "views",
    metadata,
    key(),
    # No foreign keys: the removal of a run or an entry would look through all views; no index holds them all.
    Column("run_id", Key, nullable=False),
    Column("entry_id", Key, nullable=False),
    words("path", None),
    number("from_rev", None),
    Column("to_rev", BigInteger),
    Column("version_rev", BigInteger),
    number("chunk_bytes"),
    number("visibility", None),
    number("state", None),
    words("outcome"),
    number("turn"),
    number("loop"),
    number("position", None),
    number("write_count", None),
    number("create_ms", None),
    CheckConstraint("visibility BETWEEN 1 AND 3", name="visibility"),
    CheckConstraint("state BETWEEN 1 AND 6", name="state"),
    CheckConstraint("outcome = '' OR state IN (5, 6)", name="outcome"),
    CheckConstraint("to_rev > from_rev", name="interval"),
)
partial("uq_views_current", views.c.run_id, views.c.path, where=views.c.to_rev.is_(None), unique=True)
partial("ix_views_proposed", views.c.run_id, views.c.turn, where=(views.c.to_rev.is_(None)) & (views.c.state == 2))
# What waits for a decision in any run, the longest waiting first.
partial("ix_views_waiting", views.c.create_ms, views.c.id, where=(views.c.to_rev.is_(None)) & (views.c.state == 2))
# What streams in any run, the longest silent first.
partial("ix_views_streaming", views.c.create_ms, views.c.id, where=(views.c.to_rev.is_(None)) & (views.c.state == 3))
# Each holds its own half of the intervals, so that no planner takes one for the other's question.
Index(
    "ix_views_opened",
    views.c.run_id,
    views.c.from_rev,
    sqlite_where=views.c.to_rev.is_(None),
)
partial("ix_views_closed", views.c.run_id, views.c.to_rev, where=views.c.to_rev.is_not(None))
# What became of a path: for those who name one, and say that it has ended.
partial("ix_views_past", views.c.run_id, views.c.path, views.c.to_rev, where=not_zero(views.c.to_rev))

chunks = Table(
    "chunks",
    metadata,
    *belongs("entry_id", "entries.id"),
    number("version_rev", None),
    number("offset", None),
    prose("data"),
    PrimaryKeyConstraint("entry_id", "version_rev", "offset"),
)

idempotency = Table(
    "idempotency",
    metadata,
    words("project", None),
    words("principal", None),
    words("method", None),
    words("request_id", None),
    words("digest", None),
    number("create_ms", None),
    # The run whose work it started; the answer is kept while that work goes on.
    words("run"),
    Column("response", LargeBinary, nullable=False),
    PrimaryKeyConstraint("project", "principal", "method", "request_id"),
)
Index("ix_idempotency_age", idempotency.c.create_ms)

blocks = Table(
    "blocks",
    metadata,
    key(),
    refers("project_id", "projects.id"),
    Column("digest", Digest, nullable=False),
    # The version whose body the text shows: the text is kept by what that does not say. NULL: it stands for itself.
    # No foreign key: who deletes versions makes their blocks whole, or fails to read them.
    Column("version_id", Key),
    # How much of that body, from its beginning.
    number("body_size_bytes"),
    Column("text", Packed, nullable=False),
    UniqueConstraint("project_id", "digest"),
)
partial("ix_blocks_version", blocks.c.version_id, where=blocks.c.version_id.is_not(None))

packets = Table(
    "packets",
    metadata,
    refers("run_id", "runs.id"),
    number("turn", None),
    # The turn that `layout` is a difference to; 0: it stands for itself.
    number("base_turn"),
    # How many layouts there are from this one to the one that stands for itself.
    number("depth"),
    # Blocks of the packet, one that stands in it twice counted twice.
    number("length"),
    prose("layout"),
    # What the owner wants to know of it when it is sent again: JSON that the store does not read.
    prose("note", ""),
    # Model calls that were made with it, or were about to be.
    number("calls"),
    PrimaryKeyConstraint("run_id", "turn"),
)

search_marks = Table(
    "search_marks",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    # Heads up to this revision of the scope are indexed.
    number("revision"),
)
"""How far the full-text index has come. The index itself is made by the migrations: each database has its own kind."""
