"""Migrations, on both databases: from nothing, beside newer code, beside what this code does not read, two at once."""

import contextlib
import json
import sqlite3
import threading

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from turnwright_values.types import Schedule

from turnwright_store.edge.postgres_link import Links, PostgresLink, Server
from turnwright_store.edge.schema import (
    CODE,
    MIGRATIONS,
    REVISIONS,
    UNRELEASED,
    SchemaForeignError,
    SchemaTooNewError,
    SchemaUnreleasedError,
    current_revision,
    migrate,
    upgrade_to_head,
)
from turnwright_store.edge.thread import CaughtError
from turnwright_store.sql import schedules, tables
from turnwright_store.sql.schedules import ScheduleRow
from turnwright_store.sql.tables import metadata

ADD_VIEW = "INSERT INTO views (run_id, entry_id, path, from_rev, visibility, state, position, write_count, create_ms)"
BODIES = ("short", "é\n" * 400, "")


@contextlib.contextmanager
def opened(target):
    """Both faces of a database: a URL of PostgreSQL, or a file."""
    if "://" in str(target):
        link = PostgresLink(Links(Server(target, 5.0, 30.0, 10.0)))
        link.open()
        yield link.raw, link.core
        link.close()
        return
    raw = sqlite3.connect(target, isolation_level=None, check_same_thread=False)
    raw.execute("PRAGMA foreign_keys = ON")
    engine = sqlalchemy.create_engine(
        "sqlite://", creator=lambda: raw, poolclass=sqlalchemy.StaticPool, isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as core:
        yield raw, core
    raw.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request, tmp_path):
    """Where an empty database is."""
    return tmp_path / "x.db" if request.param == "sqlite" else request.getfixturevalue("empty_postgres_url")


@pytest.fixture
def faces(empty):
    """An empty database: the driver's connection and SQLAlchemy's."""
    with opened(empty) as both:
        yield both


def bring_to(revision, raw, core):
    raw.execute("BEGIN")
    with core.begin():
        migrate(core, revision)


def tables_of(core):
    return set(sqlalchemy.inspect(core).get_table_names())


# ---- The schema that they make


ON_SQLITE = {"fk_entries_scope_id", "fk_versions_entry_id", "fk_chunks_entry_id"}
"""References of rows that come in great numbers; PostgreSQL does not check them."""


def known_on(database):
    """What of a database the tables know."""

    def is_known(_object, name, kind, *_rest):
        """The tables of the full-text index are made by the migrations alone: each database has its own kind."""
        is_index = kind == "table" and name.startswith("search") and name != "search_marks"
        return not is_index and not (database == "postgresql" and name in ON_SQLITE)

    return is_known


def has_changed_default(context, *_rest):
    """Of SQLite, Alembic takes the same default in other words for another one."""
    return False if context.dialect.name == "sqlite" else None


def test_the_migrations_make_the_tables(faces):
    raw, core = faces
    upgrade_to_head(raw, core)
    opts = {"compare_type": True, "compare_server_default": has_changed_default}
    opts["include_object"] = known_on(core.dialect.name)
    context = MigrationContext.configure(core, opts=opts)
    assert compare_metadata(context, metadata) == []


def test_a_database_of_an_earlier_revision_gets_what_it_lacks_and_keeps_what_it_holds(faces):
    raw, core = faces
    bring_to("r0005", raw, core)
    raw.execute("DROP TABLE schedules")
    raw.execute("ALTER TABLE projects DROP COLUMN assembly")
    raw.execute("INSERT INTO scopes (key) VALUES ('kept')")
    raw.execute(
        "INSERT INTO projects (scope_id, name, root, workspace_id, create_ms) SELECT id, 'p', '/p', 'w', 1 FROM scopes WHERE key = 'kept'"
    )
    raw.commit()
    core.rollback()
    upgrade_to_head(raw, core)
    assert raw.execute("SELECT name, assembly FROM projects").fetchone() == ("p", 0)
    assert raw.execute("SELECT count(*) FROM schedules").fetchone()[0] == 0
    assert current_revision(raw, core.dialect.name) == REVISIONS[-1]


def test_schedules_of_an_earlier_revision_begin_no_runs_and_have_times_in_utc(faces):
    raw, core = faces
    upgrade_to_head(raw, core)
    for statement in (
        *(f"ALTER TABLE schedules DROP COLUMN {name}" for name in ("time_zone", "new_run", "overlap", "firings")),
        "UPDATE alembic_version SET version_num = 'r0023'",
        "INSERT INTO scopes (key) VALUES ('x')",
        "INSERT INTO projects (scope_id, name, root, workspace_id, create_ms) SELECT max(id), 'p', '/p', 'w', 1 FROM scopes",
        (
            "INSERT INTO runs (project_id, scope_id, alias, status, model, create_ms, update_ms, loops) "
            "SELECT projects.id, scope_id, 'r', 102, 'm', 1, 1, 3 FROM projects"
        ),
        "INSERT INTO schedules (run_id, schedule_id, cron, next_ms, due_ms) SELECT id, 's', '0 3 * * *', 5, 5 FROM runs",
    ):
        raw.execute(statement)
    raw.commit()
    core.rollback()
    upgrade_to_head(raw, core)
    run = core.execute(sqlalchemy.select(tables.runs.c.id)).scalar_one()
    row = schedules.find_schedule(core, run, "s")
    assert row == ScheduleRow(Schedule("s", "0 3 * * *", next_ms=5), 5)


def test_a_database_of_an_earlier_revision_takes_statuses_that_are_new(faces):
    raw, core = faces
    upgrade_to_head(raw, core)
    before = indexes_of_loops(core)
    check = "CONSTRAINT ck_loops_status CHECK (status IN (100, 102, 202, 200, 204, 413, 422, 499, 500))"
    if core.dialect.name == "postgresql":
        raw.execute(f"ALTER TABLE loops ADD {check}")
    else:
        indexes = raw.execute("SELECT sql FROM sqlite_master WHERE tbl_name = 'loops' AND sql LIKE 'CREATE %INDEX%'")
        statements = [sql for (sql,) in indexes]
        (table,) = raw.execute("SELECT sql FROM sqlite_master WHERE name = 'loops'").fetchone()
        raw.execute("DROP TABLE loops")
        for statement in (f"{table.rstrip().removesuffix(')')}, {check})", *statements):
            raw.execute(statement)
    for statement in (
        "UPDATE alembic_version SET version_num = 'r0011'",
        "INSERT INTO scopes (key) VALUES ('x')",
        "INSERT INTO projects (scope_id, name, root, workspace_id, create_ms) SELECT max(id), 'p', '/p', 'w', 1 FROM scopes",
        (
            "INSERT INTO runs (project_id, scope_id, alias, status, model, create_ms, update_ms) "
            "SELECT projects.id, scope_id, 'r', 102, 'm', 1, 1 FROM projects"
        ),
    ):
        raw.execute(statement)
    raw.commit()
    core.rollback()
    run = core.execute(sqlalchemy.select(tables.runs.c.id)).scalar_one()
    row = {"run_id": run, "settings": "{}", "prompt": "Do it.", "create_ms": 1, "revision": 1}
    core.execute(sqlalchemy.insert(tables.loops).values(sequence=1, status=200, **row))
    core.commit()
    upgrade_to_head(raw, core)
    core.execute(sqlalchemy.insert(tables.loops).values(sequence=2, status=206, **row))
    kept = core.execute(sqlalchemy.select(tables.loops.c.sequence, tables.loops.c.status)).all()
    assert (kept, indexes_of_loops(core)) == ([(1, 200), (2, 206)], before)


def indexes_of_loops(core):
    """By name, on which rows they are."""
    found = sqlalchemy.inspect(core).get_indexes("loops")
    return {one["name"]: str(one.get("dialect_options", {}).get(f"{core.dialect.name}_where")) for one in found}


def test_no_loop_of_an_earlier_revision_has_a_grant_that_nobody_can_tell_whose_it_is(faces):
    # C62
    raw, core = faces
    upgrade_to_head(raw, core)
    for statement in (
        *(f"ALTER TABLE runs DROP COLUMN {name}" for name in ("model_loop", "asked")),
        *(f"ALTER TABLE schedules DROP COLUMN {name}" for name in ("settings", "loop", "failures")),
        "UPDATE alembic_version SET version_num = 'r0008'",
        "INSERT INTO scopes (key) VALUES ('x')",
        "INSERT INTO projects (scope_id, name, root, workspace_id, create_ms) SELECT max(id), 'p', '/p', 'w', 1 FROM scopes",
        (
            "INSERT INTO runs (project_id, scope_id, alias, status, model, create_ms, update_ms, loops) "
            "SELECT projects.id, scope_id, 'r', 102, 'm', 1, 1, 3 FROM projects"
        ),
    ):
        raw.execute(statement)
    raw.commit()
    core.rollback()
    settings = '{"mode": "act", "model": "\u00e4", "yolo": true, "no_web": true}'
    with core.begin():
        for sequence, status in ((1, 200), (2, 102), (3, 100)):
            row = {"sequence": sequence, "status": status, "settings": settings, "prompt": "Do it.", "create_ms": 1}
            run = core.execute(sqlalchemy.select(tables.runs.c.id)).scalar_one()
            core.execute(sqlalchemy.insert(tables.loops).values(run_id=run, revision=1, **row))
    upgrade_to_head(raw, core)
    found = core.execute(sqlalchemy.select(tables.loops.c.settings).order_by(tables.loops.c.sequence)).scalars().all()
    read = [json.loads(text) for text in found]
    assert [one["yolo"] for one in read] == [True, False, False]
    assert {(one["model"], one["no_web"]) for one in read} == {("\u00e4", True)}
    assert core.execute(sqlalchemy.select(tables.runs.c.model_loop)).scalar_one() == 3


def test_the_checks_of_the_migrations_are_those_of_the_tables(faces, request, tmp_path, empty):
    """Alembic does not compare checks; the databases tell how they understood both."""
    raw, core = faces
    upgrade_to_head(raw, core)
    other = (
        tmp_path / "y.db" if core.dialect.name == "sqlite" else request.getfixturevalue("postgres").create(empty=True)
    )

    def checks(connection):
        inspector = sqlalchemy.inspect(connection)
        return {
            (table, check["name"], check["sqltext"])
            for table in metadata.tables
            for check in inspector.get_check_constraints(table)
        }

    with opened(other) as (_raw, made):
        metadata.create_all(made)
        assert checks(core) == checks(made)
    if core.dialect.name == "postgresql":
        request.getfixturevalue("postgres").drop(other)


def test_an_empty_database_gets_what_the_migrations_make(tmp_path):
    def holds(name, bring):
        with opened(tmp_path / name) as (raw, core):
            bring(raw, core)
            return {
                table: (sqls, raw.execute(f"SELECT * FROM {table}").fetchall() if kind == "table" else ())
                for kind, table, sqls in raw.execute("SELECT type, name, lower(sql) FROM sqlite_master").fetchall()
                if table != "alembic_version"
            }

    assert holds("made.db", upgrade_to_head) == holds("migrated.db", lambda raw, core: bring_to("head", raw, core))


def test_the_constant_names_the_head_of_the_migrations():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [REVISIONS[-1]]
    assert [one.revision for one in script.walk_revisions()] == list(reversed(REVISIONS))


def test_a_migration_that_fails_leaves_nothing(faces):
    """Another program's database: PostgreSQL has no look at what stands in one."""
    raw, core = faces
    if core.dialect.name == "sqlite":
        pytest.skip("a file that holds anything else is refused before")
    raw.execute("CREATE TABLE search_marks (x integer)")
    before = tables_of(core)
    core.rollback()
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        upgrade_to_head(raw, core)
    assert (tables_of(core), current_revision(raw, core.dialect.name)) == (before, "")


# ---- Which code may work on which schema


def test_a_database_at_head_is_left_alone(faces):
    raw, core = faces
    upgrade_to_head(raw, core)
    sent = []
    sqlalchemy.event.listen(core, "before_cursor_execute", lambda *args: sent.append(args[2]))
    upgrade_to_head(raw, core)
    assert (sent, current_revision(raw, core.dialect.name)) == ([], REVISIONS[-1])


@pytest.mark.parametrize("min_code", [CODE, CODE - 1])
def test_a_newer_schema_that_this_code_still_works_on_is_left_as_it_is(faces, min_code):
    """A replica with newer code has expanded it; this one goes on until it is replaced."""
    raw, core = faces
    upgrade_to_head(raw, core)
    raw.execute("UPDATE alembic_version SET version_num = 'r9999'")
    raw.execute(f"UPDATE meta SET value = '{min_code}' WHERE key = 'min_code'")
    upgrade_to_head(raw, core)
    assert current_revision(raw, core.dialect.name) == "r9999"


@pytest.mark.parametrize("min_code", [CODE + 1, None])
def test_a_newer_schema_that_needs_newer_code_is_refused(faces, min_code):
    raw, core = faces
    upgrade_to_head(raw, core)
    raw.execute("UPDATE alembic_version SET version_num = 'r9999'")
    raw.execute("DELETE FROM meta WHERE key = 'min_code'")
    if min_code:
        raw.execute(f"INSERT INTO meta (key, value) VALUES ('min_code', '{min_code}')")
    with pytest.raises(SchemaTooNewError, match="r9999") as caught:
        upgrade_to_head(raw, core)
    assert caught.value.revision == "r9999"
    assert current_revision(raw, core.dialect.name) == "r9999"


@pytest.mark.parametrize("version", ["1975ea83b712", "r9999"])
def test_a_database_that_another_program_migrates_is_refused_and_left_alone(faces, version):
    raw, core = faces
    raw.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    raw.execute(f"INSERT INTO alembic_version VALUES ('{version}')")
    with pytest.raises(SchemaForeignError, match=f"schema '{version}' that is not the store's.*--db"):
        upgrade_to_head(raw, core)
    assert tables_of(core) == {"alembic_version"}


@pytest.mark.parametrize("revision", UNRELEASED)
def test_a_database_from_before_the_first_release_is_refused_and_left_alone(faces, revision):
    raw, core = faces
    upgrade_to_head(raw, core)
    raw.execute(f"UPDATE alembic_version SET version_num = '{revision}'")
    with pytest.raises(SchemaUnreleasedError, match="Begin with a new database"):
        upgrade_to_head(raw, core)
    assert current_revision(raw, core.dialect.name) == revision


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path):
    with opened(tmp_path / "notes.db") as (raw, core):
        raw.execute("CREATE TABLE notes (line TEXT)")
        with pytest.raises(SchemaForeignError, match="it holds notes, and no schema"):
            upgrade_to_head(raw, core)
        assert tables_of(core) == {"notes"}


def test_the_head_says_which_code_it_needs(faces):
    raw, core = faces
    upgrade_to_head(raw, core)
    (min_code,) = raw.execute("SELECT value FROM meta WHERE key = 'min_code'").fetchone()
    assert 1 <= int(min_code) <= CODE


def test_two_replicas_that_start_at_once_migrate_once(empty_postgres_url):
    together = threading.Barrier(3, timeout=60)
    failed = []

    def start():
        with opened(empty_postgres_url) as (raw, core):
            together.wait()
            with CaughtError() as kept:
                upgrade_to_head(raw, core)
            failed.append(kept.error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == [None] * 3
    with opened(empty_postgres_url) as (raw, _core):
        assert current_revision(raw, "postgresql") == REVISIONS[-1]
        assert raw.execute("SELECT count(*) FROM scopes").fetchone() == (2,)
