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
    and_,
    func,
    literal_column,
    text,
)

from turnwright_core.runs import LOOP_ACTIVE, LOOP_OPEN, RUN_TRANSITIONS
from turnwright_store.domain.limits import REVISIONS_OF_ENTRY
from turnwright_store.sql import agent_tables, columns, packet_tables, webhook_tables
from turnwright_store.sql.columns import (
    compressed_column,
    foreign_key,
    foreign_key_on_sqlite,
    not_zero,
    number_column,
    partial_index,
    primary_key,
    text_column,
)
from turnwright_store.sql.dialect import CompressedText, Digest, Key, Path, Serialized, json_object

metadata: Final = columns.metadata
"""All tables."""

blocks, packets = packet_tables.blocks, packet_tables.packets
agents = agent_tables.agents
webhooks, deliveries = webhook_tables.webhooks, webhook_tables.deliveries

meta = Table(
    "meta", metadata, Column("key", Path, primary_key=True), text_column("value", None), sqlite_with_rowid=False
)

scopes = Table(
    "scopes",
    metadata,
    primary_key(),
    Column("key", Path, nullable=False, unique=True),
    number_column("revision"),
    number_column("positions"),
)

projects = Table(
    "projects",
    metadata,
    primary_key(),
    foreign_key("scope_id", "scopes.id"),
    Column("name", Path, nullable=False, unique=True),
    text_column("root", None),
    Column("workspace_id", Path, nullable=False, unique=True),
    number_column("create_ms", None),
    text_column("config_path"),
    number_column("assembly"),
    # How often approval rules of it, or of its runs, have changed; 0: there are none.
    number_column("rule_changes"),
)

models = Table(
    "models",
    metadata,
    Column("alias", Path, primary_key=True),
    text_column("vendor_model", None),
    number_column("context_length"),
    CheckConstraint("context_length >= 0", name="context_length"),
    number_column("output_tokens_max"),
    text_column("capabilities", "{}"),
    text_column("price"),
    *json_object("capabilities"),
    sqlite_with_rowid=False,
)

schemes = Table(
    "schemes",
    metadata,
    Column("name", Path, primary_key=True),
    text_column("category", None),
    text_column("default_scope", None),
    text_column("writable_by", None),
    Column("model_visible", Boolean, nullable=False),
    CheckConstraint("default_scope IN ('run', 'project', 'global')", name="default_scope"),
    *json_object("writable_by"),
    sqlite_with_rowid=False,
)

file_constraints = Table(
    "file_constraints",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    text_column("pattern", None),
    text_column("kind", "add"),
    number_column("create_ms", None),
    UniqueConstraint("project_id", "pattern"),
    CheckConstraint("kind IN ('add', 'readonly', 'ignore')", name="kind"),
)

runs = Table(
    "runs",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    foreign_key("scope_id", "scopes.id"),
    text_column("alias", None),
    number_column("status", None),
    text_column("model", None),
    Column("temperature", Float),
    Column("persona", CompressedText),
    Column("context_limit", BigInteger),
    number_column("turn"),
    number_column("turn_open"),
    number_column("loops"),
    number_column("loop_active"),
    number_column("loops_queued"),
    # Id of the loop that an owner can go on with; 0: there is none (see sql.next_loop).
    number_column("next_loop"),
    compressed_column("summary", ""),
    Column("abort_requested", Boolean, nullable=False, server_default=text("false")),
    text_column("lease_owner"),
    text_column("lease_address"),
    number_column("lease_epoch"),
    number_column("lease_expires_ms"),
    # Owners that ended without giving the run back while this turn was open, and how many they were.
    number_column("lost_turn"),
    number_column("losses"),
    number_column("revision"),
    number_column("create_ms", None),
    number_column("update_ms", None),
    text_column("forked_from_run"),
    number_column("forked_from_turn"),
    # The id of the eldest run of a family of forks; 0 for a run that is no fork. Forks read versions of their elders,
    # which live until the last of the family that sees them is removed.
    number_column("lineage"),
    # What it may spend: a JSON object of the limits of Budget, empty for none.
    text_column("budget"),
    Column("yolo", Boolean, nullable=False, server_default=text("false")),
    number_column("calls"),
    # What a person calls it, and the model call for a title: a JSON object of TitleCall, empty before that.
    text_column("title"),
    text_column("title_call"),
    # Sequence of its latest loop when its model was set last: later loops do not inherit the models of those up to it.
    number_column("model_loop"),
    # Of a fork, what was asked of the loop that it goes on from: a JSON object of LoopSettings, empty for nothing.
    text_column("asked"),
    # When it was removed; its alias is free then, and its rows follow in the background. 0: it is there.
    number_column("removed_ms"),
    # Who created it; empty for runs of earlier releases.
    text_column("by"),
    # Whether nobody but who created it and the owners of the project see it.
    number_column("private"),
    # Where it works (Place), the name of its own directory, and that of the one whose files it begins with.
    number_column("place"),
    text_column("place_name"),
    text_column("place_parent"),
    # Of an agent: the alias of the run that started it, its name there, and how deep it is.
    text_column("parent_run"),
    text_column("parent_name"),
    number_column("parent_depth"),
    UniqueConstraint("project_id", "alias"),
    UniqueConstraint("scope_id"),
    CheckConstraint(f"status IN ({', '.join(map(str, sorted(RUN_TRANSITIONS)))})", name="status"),
    CheckConstraint("temperature BETWEEN 0 AND 2", name="temperature"),
    CheckConstraint("context_limit >= 1024", name="context_limit"),
    CheckConstraint("calls BETWEEN 0 AND 3", name="calls"),
    CheckConstraint("loops_queued >= 0", name="loops_queued"),
)
Index("ix_runs_latest", runs.c.project_id, runs.c.update_ms, runs.c.id)
partial_index("ix_runs_waiting", runs.c.project_id, runs.c.next_loop, where=not_zero(runs.c.next_loop))
# Where proposals can wait: there are none without an open turn.
partial_index("ix_runs_open", runs.c.project_id, where=not_zero(runs.c.turn_open))
partial_index("ix_runs_lineage", runs.c.lineage, where=not_zero(runs.c.lineage))
partial_index("ix_runs_claimed", runs.c.lease_owner, where=runs.c.lease_owner != "")
partial_index("ix_runs_place", runs.c.place_name, where=runs.c.place_name != literal_column("''"))
partial_index("ix_runs_removed", runs.c.removed_ms, where=not_zero(runs.c.removed_ms))

# When an alias of a project began or ceased to name a run in another way than by the creation of that run.
run_names = Table(
    "run_names",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    text_column("alias", None),
    number_column("change_ms", None),
)
Index("ix_run_names_age", run_names.c.change_ms)

executors = Table(
    "executors",
    metadata,
    Column("owner", Path, primary_key=True),
    text_column("address"),
    # A JSON array of the workspaces that it has mounted.
    text_column("workspaces", "[]"),
    number_column("expires_ms", None),
    *json_object("workspaces"),
    sqlite_with_rowid=False,
)

loops = Table(
    "loops",
    metadata,
    primary_key(),
    foreign_key("run_id", "runs.id"),
    number_column("sequence", None),
    compressed_column("settings"),
    compressed_column("prompt"),
    number_column("status", None),
    compressed_column("reason", ""),
    compressed_column("summary", ""),
    number_column("first_turn"),
    number_column("turns"),
    number_column("prompt_tokens"),
    number_column("cached_tokens"),
    number_column("completion_tokens"),
    number_column("reasoning_tokens"),
    number_column("total_tokens"),
    Column("cost_usd", Float),
    number_column("create_ms", None),
    number_column("end_ms"),
    number_column("revision", None),
    text_column("command_id"),
    # Who asked for it: a JSON object of Asker; empty for loops of earlier releases.
    text_column("by"),
    UniqueConstraint("run_id", "sequence"),
)
partial_index("uq_loops_active", loops.c.run_id, where=loops.c.status.in_(LOOP_ACTIVE), unique=True)
partial_index("ix_loops_open", loops.c.run_id, loops.c.id, where=loops.c.status.in_(LOOP_OPEN))
Index("ix_loops_changed", loops.c.run_id, loops.c.revision)

schedules = Table(
    "schedules",
    metadata,
    primary_key(),
    foreign_key("run_id", "runs.id"),
    text_column("schedule_id", None),
    text_column("cron"),
    number_column("every_s"),
    compressed_column("prompt", ""),
    number_column("next_ms", None),
    number_column("last_ms"),
    number_column("fired"),
    number_column("due_ms", None),
    number_column("reader_turn"),
    # What its loops are to have of their own: a JSON object of LoopSettings, empty for nothing.
    compressed_column("settings", ""),
    # Sequence of the loop that it began last, and how many up to that have failed in a row.
    number_column("loop"),
    number_column("failures"),
    # Who set it: a JSON object of Asker; empty for schedules of earlier releases.
    text_column("by"),
    text_column("time_zone"),
    # Whether each time begins a run of its own, beside one that still works or not, and what became of the latest
    # times: a JSON array of Firing, the latest first, empty for none.
    number_column("new_run"),
    number_column("overlap"),
    compressed_column("firings", ""),
    UniqueConstraint("run_id", "schedule_id"),
)
Index("ix_schedules_due", schedules.c.due_ms)

turns = Table(
    "turns",
    metadata,
    foreign_key("run_id", "runs.id"),
    number_column("number", None),
    number_column("loop", None),
    compressed_column("request"),
    Column("result", CompressedText),
    number_column("begin_ms", None),
    number_column("end_ms"),
    number_column("revision", None),
    # Revisions of the shared scopes at its end; that of the run's own scope is `revision`.
    number_column("end_project_rev"),
    number_column("end_global_rev"),
    # Texts of the result, where they are digests; NULL: they stand in it.
    Column("packet_digest", Digest),
    Column("fingerprint", Digest),
    PrimaryKeyConstraint("run_id", "number"),
    sqlite_with_rowid=False,
)
partial_index("uq_turns_open", turns.c.run_id, where=turns.c.end_ms == 0, unique=True)
Index("ix_turns_changed", turns.c.run_id, turns.c.revision)

entries = Table(
    "entries",
    metadata,
    primary_key(),
    *foreign_key_on_sqlite("scope_id", "scopes.id"),
    text_column("path", None),
    text_column("scheme", None),
    number_column("head_rev", None),
    # The same once more where other runs read the scope too and look for what has changed in it; NULL in a run's own.
    Column("shared_rev", BigInteger),
    UniqueConstraint("scope_id", "path"),
    CheckConstraint("length(path) BETWEEN 1 AND 2048", name="path"),
    CheckConstraint("shared_rev = head_rev", name="shared_rev"),
)
# Serves those alone who say shared_rev > 0: without statistics PostgreSQL's planner would take it for every question to
# a scope, and read the whole scope to find some paths. The same below.
partial_index("ix_entries_changed", entries.c.scope_id, entries.c.shared_rev, where=entries.c.shared_rev > 0)

versions = Table(
    "versions",
    metadata,
    # Made of entry and revision (version_key): a version is found in the table itself, where those of an entry stand
    # together, and there is no index to be kept beside it.
    Column("id", Key, primary_key=True, autoincrement=False),
    # No foreign key: the removal of an entry would look through all versions.
    Column("entry_id", Key, nullable=False),
    number_column("from_rev", None),
    number_column("writer", None),
    text_column("actor", None),
    number_column("create_ms", None),
    # SHA-256 of the body with everything that was appended to it, as far as it is compacted; empty: `body` is shorter
    # than its digest. Read as sql.entries.BODY_HASH.
    Column("hash", Digest, nullable=False),
    # Bytes of the body as it was written; what was appended since counts in the views.
    number_column("body_size_bytes", None),
    # Bytes that `body` holds: more than `body_size_bytes` once chunks were compacted into it.
    number_column("stored_bytes"),
    # Of attributes and record.
    number_column("attributes_bytes", None),
    compressed_column("attributes"),
    # What a command has come through, where the entry is the record of one.
    Column("record", Serialized),
    # Last, so that reading what stands before does not walk the pages of a long body.
    compressed_column("body"),
    CheckConstraint(f"id = entry_id * {REVISIONS_OF_ENTRY} + from_rev", name="key"),
    CheckConstraint(f"from_rev BETWEEN 0 AND {REVISIONS_OF_ENTRY - 1}", name="from_rev"),
    CheckConstraint("writer BETWEEN 1 AND 4", name="writer"),
)

views = Table(
    "views",
    metadata,
    primary_key(),
    # No foreign keys: the removal of a run or an entry would look through all views; no index holds them all.
    Column("run_id", Key, nullable=False),
    Column("entry_id", Key, nullable=False),
    text_column("path", None),
    number_column("from_rev", None),
    Column("to_rev", BigInteger),
    Column("version_rev", BigInteger),
    number_column("chunk_bytes"),
    number_column("visibility", None),
    number_column("state", None),
    text_column("outcome"),
    number_column("turn"),
    number_column("loop"),
    number_column("position", None),
    number_column("write_count", None),
    number_column("create_ms", None),
    CheckConstraint("visibility BETWEEN 1 AND 3", name="visibility"),
    CheckConstraint("state BETWEEN 1 AND 6", name="state"),
    CheckConstraint("outcome = '' OR state IN (5, 6)", name="outcome"),
    CheckConstraint("to_rev > from_rev", name="interval"),
)
partial_index("uq_views_current", views.c.run_id, views.c.path, where=views.c.to_rev.is_(None), unique=True)
_PROPOSED: Final = views.c.to_rev.is_(None) & (views.c.state == 2)
partial_index("ix_views_proposed", views.c.run_id, views.c.turn, where=_PROPOSED)
# What waits for a decision in any run, the longest waiting first.
partial_index("ix_views_waiting", views.c.create_ms, views.c.id, where=_PROPOSED)
# What streams in any run, the longest silent first.
_STREAMING: Final = views.c.to_rev.is_(None) & (views.c.state == 3)
partial_index("ix_views_streaming", views.c.create_ms, views.c.id, where=_STREAMING)
# Plans with their latest deltas, however many versions are kept. No other statement asks in these words: with
# `to_rev IS NULL` planners would take the index of all current views, and SQLite prepares a statement anew at every
# call that has a parameter where an index has a number.
CURRENT_PLANS: Final = and_(
    func.coalesce(views.c.to_rev, literal_column("0")) == literal_column("0"),
    views.c.visibility < literal_column("3"),
    func.substr(views.c.path, literal_column("1"), literal_column("7")) == literal_column("'plan://'"),
)
partial_index("ix_views_plans", views.c.run_id, views.c.path, where=CURRENT_PLANS)
# Each holds its own half of the intervals, so that no planner takes one for the other's question.
Index("ix_views_opened", views.c.run_id, views.c.from_rev, sqlite_where=views.c.to_rev.is_(None))
partial_index("ix_views_closed", views.c.run_id, views.c.to_rev, where=views.c.to_rev.is_not(None))
# What became of a path: for those who name one, and say that it has ended.
partial_index("ix_views_past", views.c.run_id, views.c.path, views.c.to_rev, where=not_zero(views.c.to_rev))

chunks = Table(
    "chunks",
    metadata,
    *foreign_key_on_sqlite("entry_id", "entries.id"),
    number_column("version_rev", None),
    number_column("offset", None),
    compressed_column("data"),
    PrimaryKeyConstraint("entry_id", "version_rev", "offset"),
)

idempotency = Table(
    "idempotency",
    metadata,
    text_column("project", None),
    text_column("principal", None),
    text_column("method", None),
    text_column("request_id", None),
    text_column("digest", None),
    number_column("create_ms", None),
    # The run whose work it started; the answer is kept while that work goes on.
    text_column("run"),
    Column("response", LargeBinary, nullable=False),
    PrimaryKeyConstraint("project", "principal", "method", "request_id"),
    sqlite_with_rowid=False,
)
Index("ix_idempotency_age", idempotency.c.create_ms)

search_marks = Table(
    "search_marks",
    metadata,
    Column("scope_id", Key, ForeignKey("scopes.id"), primary_key=True, autoincrement=False),
    # Heads up to this revision of the scope are indexed.
    number_column("revision"),
)
"""How far the full-text index has come. The index itself is made by `create_tables`: each database has its own kind."""

# Who has changed what. Rows are added and, when they are old, deleted; a trigger refuses to change one.
audit = Table(
    "audit",
    metadata,
    primary_key(),
    # No foreign key: 0 stands for no project.
    Column("project_id", Key, nullable=False),
    number_column("time_ms", None),
    text_column("principal", None),
    text_column("kind", None),
    text_column("proof", None),
    text_column("token_id"),
    text_column("by"),
    text_column("peer"),
    text_column("method", None),
    text_column("run"),
    number_column("right", None),
    text_column("request_id"),
    text_column("detail"),
)
Index("ix_audit_project", audit.c.project_id, audit.c.time_ms, audit.c.id)

grants = Table(
    "grants",
    metadata,
    primary_key(),
    # 0: of the deployment.
    Column("project_id", Key, nullable=False),
    text_column("subject", None),
    number_column("role", None),
    # Numbers of rights that it leaves out: a JSON array.
    text_column("without", "[]"),
    text_column("by", None),
    number_column("create_ms", None),
    # When it ends; 0: never.
    number_column("until_ms"),
    UniqueConstraint("project_id", "subject"),
    CheckConstraint("role BETWEEN 1 AND 4", name="role"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("token_id", Path, primary_key=True),
    text_column("key_id"),
    text_column("principal"),
    text_column("kind"),
    text_column("audience"),
    # Names of the projects that it is limited to, a JSON array; empty: it is not limited.
    text_column("projects", "[]"),
    text_column("by", None),
    number_column("create_ms", None),
    number_column("expire_ms", None),
    # When it was revoked; 0: it was not.
    number_column("revoke_ms"),
    sqlite_with_rowid=False,
)
Index("ix_tokens_age", tokens.c.expire_ms)
"""Tokens that were made or revoked by the store, until they expire: never the tokens themselves."""

approval_rules = Table(
    "approval_rules",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    # 0: of the project.
    Column("run_id", Key, nullable=False),
    number_column("verdict", None),
    text_column("tool"),
    text_column("target"),
    text_column("principal"),
    number_column("mode"),
    Column("network", Boolean, nullable=False, server_default=text("false")),
    # Who wrote it: a JSON object of Asker.
    text_column("by", None),
    number_column("create_ms", None),
    CheckConstraint("verdict BETWEEN 1 AND 3", name="verdict"),
)
Index("ix_approval_rules", approval_rules.c.project_id, approval_rules.c.run_id)

# What may be taken of something, with what was used and reserved; amounts are tokens or millionths of a US dollar.
quotas = Table(
    "quotas",
    metadata,
    primary_key(),
    # No foreign key: 0 stands for the deployment.
    Column("project_id", Key, nullable=False),
    text_column("subject"),
    number_column("metric", None),
    number_column("most", None),
    # When the period began in which `used` was used.
    number_column("period_ms"),
    number_column("used"),
    number_column("reserved"),
    text_column("set_by"),
    UniqueConstraint("project_id", "subject", "metric"),
)

# What calls of turns under way have reserved.
reservations = Table(
    "reservations",
    metadata,
    primary_key(),
    foreign_key("run_id", "runs.id"),
    number_column("turn", None),
    Column("quota_id", Key, nullable=False),
    number_column("amount", None),
)
Index("ix_reservations_turn", reservations.c.run_id, reservations.c.turn)
Index("ix_reservations_quota", reservations.c.quota_id)

# Of a project, or of the deployment (0); `body` is JSON of the message ToolServer.
tool_servers = Table(
    "tool_servers", metadata, primary_key(),
    Column("project_id", Key, nullable=False), text_column("name"), text_column("body"),
    UniqueConstraint("project_id", "name"),
)  # fmt: skip
