"""Migrations, on both databases: from nothing, beside newer code, beside what this code does not read, two at once."""

import contextlib
import sqlite3
import threading

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

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
from turnwright_store.sql.tables import metadata


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
        """The tables of the full-text index are made by statements of their own: each database has its own kind."""
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
    with pytest.raises(SchemaUnreleasedError, match=r"start the commit b3a92d5d7 .* begin with a new database"):
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
