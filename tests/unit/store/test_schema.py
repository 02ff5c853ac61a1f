"""The schema: rules that the database itself enforces, and the indexes that questions use."""

import os
import sqlite3
import subprocess
import sys

import pytest
import sqlalchemy
from turnwright_values.types import Cursor, Project

from turnwright_store.domain.viewers import Viewer, viewing
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.sql import contents, history, inbox, plans, views
from turnwright_store.sql.entries import find_at_paths
from turnwright_store.sql.feed import Feed, FeedPosition
from turnwright_store.sql.idempotency import delete_old_answers
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.loops import changed_loops
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.runs import find_run, list_runs
from turnwright_store.sql.turns import changed_turns
from turnwright_store.wiring import GRPC_NAME

LEADS_TO = {
    100: {102, 499}, 102: {200, 202, 499, 500}, 200: {102, 499}, 202: {102, 200, 499}, 499: {102}, 500: {102, 499}
}  # fmt: skip


@pytest.fixture
def raw():
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    yield connection
    connection.close()


@pytest.fixture
def core(raw):
    engine = sqlalchemy.create_engine(
        "sqlite://", creator=lambda: raw, poolclass=sqlalchemy.StaticPool, isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        upgrade_to_head(raw, connection)
        yield connection


# ---- What the database enforces by itself


def add_run(raw, status=100):
    raw.execute("INSERT INTO scopes (id, key) VALUES (10, 'project:1'), (11, 'run:1')")
    raw.execute(
        "INSERT INTO projects (id, scope_id, name, root, workspace_id, create_ms) VALUES (1, 10, 'p', '/', 'w', 1)"
    )
    raw.execute(
        "INSERT INTO runs (id, project_id, scope_id, alias, status, model, create_ms, update_ms)"
        f" VALUES (1, 1, 11, 'r', {status}, 'm', 1, 1)"
    )


@pytest.mark.parametrize("target", [*LEADS_TO, 204, 413, 422, 99])
@pytest.mark.parametrize("source", LEADS_TO)
def test_the_database_enforces_the_run_state_machine(core, raw, source, target):
    """RU101-RU108, C6: every pair."""
    add_run(raw, source)
    allowed = target == source or target in LEADS_TO[source]
    if allowed:
        raw.execute(f"UPDATE runs SET status = {target}")
    else:
        with pytest.raises(sqlite3.IntegrityError):
            raw.execute(f"UPDATE runs SET status = {target}")
    assert raw.execute("SELECT status FROM runs").fetchone() == (target if allowed else source,)


def add_loop(raw, sequence, status):
    raw.execute(
        "INSERT INTO loops (run_id, sequence, settings, prompt, status, create_ms, revision)"
        f" VALUES (1, {sequence}, '{{}}', 'x', {status}, 1, 1)"
    )


def test_a_run_has_one_active_loop(core, raw):
    """RU110."""
    add_run(raw)
    for sequence, status in enumerate((200, 102, 100, 100), 1):
        add_loop(raw, sequence, status)
    for status in (102, 202):
        with pytest.raises(sqlite3.IntegrityError):
            add_loop(raw, 9, status)
    assert raw.execute("SELECT count(*) FROM loops").fetchone() == (4,)


def test_a_run_has_one_open_turn(core, raw):
    add_run(raw)
    sql = "INSERT INTO turns (run_id, number, loop, request, begin_ms, end_ms, revision) VALUES (1, {}, 1, '{{}}', 1, {}, 1)"
    raw.execute(sql.format(1, 5))
    raw.execute(sql.format(2, 0))
    with pytest.raises(sqlite3.IntegrityError):
        raw.execute(sql.format(3, 0))
    assert raw.execute("SELECT number FROM turns WHERE end_ms = 0").fetchall() == [(2,)]


def add_entry(raw, path="a"):
    raw.execute(f"INSERT INTO entries (id, scope_id, path, scheme, head_rev) VALUES (5, 11, '{path}', '', 1)")


def add_version(raw, attributes="{}", writer=1):
    raw.execute(
        "INSERT INTO versions (id, entry_id, from_rev, writer, actor, create_ms, hash, body_size_bytes, attributes_bytes, attributes, body)"
        f" VALUES ({version_key(5, 1)}, 5, 1, {writer}, 'x', 1, X'', 0, 2, '{attributes}', '')"
    )


def add_view(raw, **more):
    values = {"visibility": 1, "state": 4, "outcome": "''", "from_rev": 1, "to_rev": "NULL"} | more
    raw.execute(
        "INSERT INTO views (run_id, entry_id, path, position, write_count, create_ms, {}) "
        "VALUES (1, 5, 'a', 1, 1, 1, {})".format(", ".join(values), ", ".join(map(str, values.values())))
    )


def test_a_path_is_unique_in_its_scope(core, raw):
    """RU048, RU059."""
    add_run(raw)
    add_entry(raw)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        raw.execute("INSERT INTO entries (scope_id, path, scheme, head_rev) VALUES (11, 'a', '', 1)")
    raw.execute("INSERT INTO entries (scope_id, path, scheme, head_rev) VALUES (10, 'a', '', 1)")
    assert raw.execute("SELECT count(*) FROM entries").fetchone() == (2,)


@pytest.mark.parametrize("path", ["", "x" * 2049])
def test_a_path_has_1_to_2048_characters(core, raw, path):
    """RU049."""
    add_run(raw)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        add_entry(raw, path)


@pytest.mark.parametrize("fields", [{"writer": 0}, {"writer": 5}])
def test_a_version_holds_a_tier(core, raw, fields):
    add_run(raw)
    add_entry(raw)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        add_version(raw, **fields)


@pytest.mark.parametrize(
    "column",
    [
        "entry_id",
        "from_rev",
        "writer",
        "actor",
        "create_ms",
        "body_size_bytes",
        "attributes_bytes",
        "attributes",
        "record",
    ],
)
def test_a_version_never_changes(core, raw, column):
    """But for where its body is: folding brings what was appended into it."""
    add_run(raw)
    add_entry(raw)
    add_version(raw)
    with pytest.raises(sqlite3.IntegrityError, match="immutable"):
        raw.execute(f"UPDATE versions SET {column} = {column}")


@pytest.mark.parametrize(
    "fields",
    [
        {"visibility": 0}, {"visibility": 4}, {"state": 0}, {"state": 7}, {"outcome": "'x'"}, {"from_rev": 2, "to_rev": 2},
    ],
)  # fmt: skip
def test_a_view_holds_what_the_contract_knows(core, raw, fields):
    """RU016-RU018."""
    add_run(raw)
    add_entry(raw)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
        add_view(raw, **fields)


def test_a_run_has_one_current_view_of_a_path(core, raw):
    """RU054."""
    add_run(raw)
    add_entry(raw)
    add_view(raw, from_rev=1, to_rev=2)
    add_view(raw, from_rev=2)
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"):
        add_view(raw, from_rev=3)


def test_rows_refer_to_rows_that_exist(core, raw):
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        raw.execute("INSERT INTO loops (run_id, sequence, settings, prompt, status, create_ms, revision)"
                    " VALUES (99, 1, '{}', 'x', 100, 1, 1)")  # fmt: skip


# ---- Questions use their indexes


class Sent:
    """What was sent to the database, as it was sent, and how the database would find it."""

    def __init__(self, core):
        self.raw = core.connection.driver_connection
        self.statements = []
        sqlalchemy.event.listen(core, "before_cursor_execute", self._see)

    def _see(self, _connection, _cursor, statement, parameters, *_):
        self.statements.append((statement, parameters))

    def plans(self):
        return [
            [row[3] for row in self.raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            for statement, parameters in self.statements
        ]


def filled(raw):
    """Enough rows that the planner has a choice: a long history, of which little is recent."""
    add_run(raw)
    raw.executemany(
        "INSERT INTO entries (id, scope_id, path, scheme, head_rev, shared_rev) VALUES (?, ?, ?, '', ?, ?)",
        [(n, 10 + n % 2, f"p{n}", n, None if n % 2 else n) for n in range(100, 1100)],
    )
    raw.executemany(
        "INSERT INTO versions (id, entry_id, from_rev, writer, actor, create_ms, hash, body_size_bytes, attributes_bytes, attributes, body)"
        " VALUES (?, ?, ?, 1, 'x', 1, '', 0, 2, '{}', '')",
        [(version_key(number, number), number, number) for number in range(100, 1100)],
    )
    raw.executemany(
        "INSERT INTO views (run_id, entry_id, path, from_rev, to_rev, visibility, state, position, write_count, create_ms)"
        " VALUES (1, ?, ?, ?, ?, 1, 4, 1, 1, 1)",
        [(n, f"p{n}", rev, None if rev == n + 3 else rev + 1) for n in range(100, 1100) for rev in range(n, n + 4)],
    )
    raw.execute("ANALYZE")


def at(run, revision):
    """A moment of a run, late enough for its shared entries."""
    return views.Moment(revision, 9999, 9999, run.project_scope)


def since(run, core, revision, project=9999):
    """The feed of a run since a cursor."""
    to = Cursor("i", NOW, 9999, 9999)
    after = Cursor("i", revision, project, 9999)
    return Feed(core, run, after, to, views.Wanted(views.ViewFilter.PACKET), ["tool"])


NOW = 1103
"""The revision of the latest view."""


@pytest.mark.parametrize(
    ("after", "uses"),
    [
        (
            (1090, 9999),
            [
                "views USING INDEX ix_views_opened (run_id=? AND from_rev>? AND from_rev<?)",
                "views USING INDEX ix_views_closed (run_id=? AND to_rev>?)",
                "views USING INDEX ix_views_closed (run_id=? AND to_rev>? AND to_rev<?)",
                "now_views USING INDEX uq_views_current (run_id=? AND path=?)",
            ],
        ),
        (
            (NOW, 1090),
            ["ix_entries_changed (scope_id=? AND shared_rev>?)", "uq_views_current (run_id=? AND path=?)"],
        ),
    ],
    ids=["own", "moved"],
)
@pytest.mark.parametrize("history", [False, True], ids=["empty", "long"])
def test_a_read_since_a_cursor_does_not_walk_the_history(core, raw, after, uses, history):
    filled(raw) if history else add_run(raw)
    run = find_run(core, "p", "r")
    sent = Sent(core)
    since(run, core, *after).page(FeedPosition(), 50)
    (plan,) = sent.plans()
    for index in uses:
        assert any(index in line for line in plan), plan
    assert not [line for line in plan if line.startswith("SCAN")], plan


@pytest.mark.parametrize(
    ("ask", "uses"),
    [
        (
            lambda core, run: views.find_entry_rows(core, run.id, ["p100"], at(run, 1100)),
            ["uq_views_current (run_id=? AND path=?)", "ix_views_past (run_id=? AND path=? AND to_rev>?)"],
        ),
        (
            lambda core, run: views.list_entry_rows(core, run.id, "p", "", 5, at(run, 1100)),
            ["uq_views_current (run_id=? AND path>? AND path<?)", "ix_views_past (run_id=? AND path>? AND path<?)"],
        ),
        (
            lambda core, run: views.snapshot(core, run, views.Wanted(), [], at(run, 1100)),
            ["ix_views_closed (run_id=? AND to_rev>?)"],
        ),
        (
            lambda core, run: history.list_history(core, run.id, "p100", NOW, 5),
            ["uq_views_current (run_id=? AND path=?)", "ix_views_past (run_id=? AND path=?"],
        ),
    ],
    ids=["paths", "range", "snapshot", "history"],
)
def test_an_earlier_moment_is_found_by_both_halves_of_the_intervals(core, raw, ask, uses):
    filled(raw)
    run = find_run(core, "p", "r")
    sent = Sent(core)
    ask(core, run)
    plan = sent.plans()[0]
    for index in uses:
        assert any(index in line for line in plan), plan
    assert not [line for line in plan if line.startswith("SCAN views")], plan


def shown():
    """A row that names a version."""
    return views.EntryRow("a", "", 11, 1, 4, "", 0, 0, 1, 1, 100, 0, 1, version_key(5, 1), 5, 1, 0, 1, 1, 2)


def owner_of(run):
    return ProjectRow(run.project_id, run.project_scope, Project(run.project))


def for_bob(ask):
    """The same question, asked by somebody who does not see the private runs of others."""
    bob = Viewer("bob", lambda _project: False)
    return lambda core, run: viewing(bob, lambda core: ask(core, run), core)


QUESTIONS = {
    "bodies": (
        lambda core, run: contents.load_entries(core, run, [shown()], views.Wanted()),
        "versions USING INTEGER PRIMARY KEY (rowid=?)",
    ),
    "paths": (
        lambda core, run: views.find_entry_rows(core, run.id, ["p100"]),
        "uq_views_current (run_id=? AND path=?)",
    ),
    "range": (
        lambda core, run: views.list_entry_rows(core, run.id, "p", "", 5),
        "uq_views_current (run_id=? AND path>?",
    ),
    "snapshot": (
        lambda core, run: views.snapshot(core, run, views.Wanted(), []),
        "(run_id=?)",
    ),
    "write": (
        lambda core, run: find_at_paths(core, run.id, run.scope, [run.scope], ["p100"]),
        "uq_views_current (run_id=? AND path=?)",
    ),
    "write of what is not seen": (
        lambda core, run: find_at_paths(core, run.id, 0, [run.scope], ["p100"]),
        "entries USING INDEX sqlite_autoindex_entries_1 (scope_id=? AND path=?)",
    ),
    "run": (lambda core, _run: find_run(core, "p", "r"), "sqlite_autoindex_runs_1 (project_id=? AND alias=?)"),
    "loops": (lambda core, run: changed_loops(core, run.id, (5, 0), 9, 5), "ix_loops_changed (run_id=? AND revision>?"),
    "turns": (lambda core, run: changed_turns(core, run.id, (5, 0), 9, 5), "ix_turns_changed (run_id=? AND revision>?"),
    "runs": (
        lambda core, run: list(list_runs(core, owner_of(run), (9, 9), 5)),
        "ix_runs_latest (project_id=?",
    ),
    "run, for bob": (
        for_bob(lambda core, _run: find_run(core, "p", "r")),
        "sqlite_autoindex_runs_1 (project_id=? AND alias=?)",
    ),
    "runs, for bob": (
        for_bob(lambda core, run: list(list_runs(core, owner_of(run), (9, 9), 5))),
        "ix_runs_latest (project_id=?",
    ),
    "inbox, for bob": (
        for_bob(lambda core, _run: inbox.page_of_waiting(core, None, None, (1, 1), 5, ["p"])),
        "runs USING INDEX ix_runs_open (project_id=?)",
    ),
    "inbox": (
        lambda core, _run: inbox.page_of_waiting(core, None, None, (1, 1), 5),
        "views USING INDEX ix_views_waiting (create_ms>?)",
    ),
    "inbox of a project": (
        lambda core, run: inbox.page_of_waiting(core, owner_of(run), None, (1, 1), 5),
        "runs USING INDEX ix_runs_open (project_id=?)",
    ),
    "overdue": (
        lambda core, _run: inbox.list_overdue(core, 1000, 5),
        "views USING INDEX ix_views_waiting (create_ms<?)",
    ),
    "plans": (
        lambda core, run: plans.current_plans(core, run.id),
        "views USING INDEX ix_views_plans (run_id=?)",
    ),
    "forgotten": (lambda core, _run: delete_old_answers(core, 5, 1000), "ix_idempotency_age (create_ms<?)"),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_uses_its_index(core, raw, question):
    ask, index = QUESTIONS[question]
    add_run(raw)
    run = find_run(core, "p", "r")
    add_entry(raw)
    add_version(raw)
    sent = Sent(core)
    ask(core, run)
    plans = sent.plans()
    assert len(plans) == 1
    assert any(index in line for line in plans[0]), plans


# ---- The start


def test_a_start_on_a_new_database_or_one_at_head_imports_no_migrations(tmp_path):
    code = """
import asyncio, sys
from pathlib import Path
from turnwright_store.edge.database import SqliteDatabase
async def main():
    database = SqliteDatabase(Path(sys.argv[1]), lambda: 1, queue_max=1, batch_max=1, readers=1)
    await database.start()
    await database.close()
asyncio.run(main())
import turnwright_store.wiring
print(*(name in sys.modules for name in ("alembic", "psycopg")))
"""
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "x.db")],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        ).stdout.split()
        for _ in range(2)
    ]
    assert [output[0] for output in outputs] == ["False", "False"]
    assert outputs[1] == ["False"] * 2


def test_the_service_is_named_as_in_the_contract():
    assert GRPC_NAME == "turnwright.store.v1.StoreService"
