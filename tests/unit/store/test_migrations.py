"""Migrations, on both databases: from nothing, from each earlier schema with data, beside newer code, two at once."""

import contextlib
import sqlite3
import threading
from hashlib import sha256

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import select, text

from turnwright_store.edge.postgres_link import Links, PostgresLink, Server
from turnwright_store.edge.schema import (
    CODE,
    MIGRATIONS,
    REVISIONS,
    SchemaForeignError,
    SchemaTooNewError,
    bring_to_head,
    current_revision,
    migrate,
)
from turnwright_store.edge.thread import Kept
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.tables import chunks, entries, idempotency, loops, metadata, runs, turns, versions, views

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


def has_changed_type(context, _found, column, *_types):
    """On SQLite, a column that was made for text takes digests as bytes all the same."""
    return False if context.dialect.name == "sqlite" and str(column) == "versions.hash" else None


def has_changed_default(context, *_rest):
    """Of SQLite, Alembic takes the same default in other words for another one."""
    return False if context.dialect.name == "sqlite" else None


def test_the_migrations_make_the_tables(faces):
    raw, core = faces
    bring_to_head(raw, core)
    opts = {"compare_type": has_changed_type, "compare_server_default": has_changed_default}
    opts["include_object"] = known_on(core.dialect.name)
    context = MigrationContext.configure(core, opts=opts)
    assert compare_metadata(context, metadata) == []


def test_the_checks_of_the_migrations_are_those_of_the_tables(faces, request, tmp_path, empty):
    """Alembic does not compare checks; the databases tell how they understood both."""
    raw, core = faces
    bring_to_head(raw, core)
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


def test_the_constant_names_the_head_of_the_migrations():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [REVISIONS[-1]]
    assert [one.revision for one in script.walk_revisions()] == list(reversed(REVISIONS))


def test_a_migration_that_fails_leaves_nothing(faces):
    raw, core = faces
    bring_to("r0001", raw, core)
    raw.execute("CREATE TABLE blocks (x integer)")
    before = tables_of(core)
    core.rollback()
    with pytest.raises(sqlalchemy.exc.DBAPIError):
        bring_to_head(raw, core)
    assert (tables_of(core), current_revision(raw, core.dialect.name)) == (before, "r0001")


# ---- From the first schema, with data


def filled(core):
    """A database of the first schema with a row of each kind, as its code stored them."""
    is_sqlite = core.dialect.name == "sqlite"

    def prose(value):
        return value if is_sqlite else value.encode()

    def add(table, **values):
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join(f":{name}" for name in values)
        core.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)

    with core.begin():
        add("meta", key="incarnation", value="abc")
        for number, key in ((10, "project:1"), (11, "run:1")):
            add("scopes", id=number, key=key, revision=5)
        add("projects", id=1, scope_id=10, name="p", root="/", workspace_id="w", create_ms=1)
        add("runs", id=1, project_id=1, scope_id=11, alias="r", status=102, model="m", persona=prose("x"),
            summary=prose("done"), loops=1, loop_active=1, create_ms=1, update_ms=1)  # fmt: skip
        add(
            "loops",
            id=1,
            run_id=1,
            sequence=1,
            settings="{}",
            prompt=prose("do it"),
            status=102,
            create_ms=1,
            revision=1,
        )
        add("turns", run_id=1, number=1, loop=1, request="{}", begin_ms=1, revision=2)
        for number, body in enumerate(BODIES, 1):
            add("entries", id=number, scope_id=11, path=f"known://{number}", scheme="known", head_rev=1, create_ms=1)
            add("versions", id=number, entry_id=number, from_rev=1, writer=4, actor="a", create_ms=1,
                hash=prose(sha256(body.encode()).hexdigest()), body_size_bytes=len(body.encode()), attributes_bytes=2,
                attributes="{}", body=prose(body))  # fmt: skip
            for from_rev, to_rev in ((1, 2), (2, None)):
                add("views", run_id=1, entry_id=number, path=f"known://{number}", from_rev=from_rev, to_rev=to_rev,
                    version_rev=1, visibility=1, state=4, position=number, write_count=1, create_ms=1)  # fmt: skip
        add("entries", id=9, scope_id=10, path="shared.txt", scheme="", head_rev=2, create_ms=1)
        add("chunks", entry_id=3, version_rev=1, offset=0, data=prose("chunk"))
        add(
            "idempotency",
            project="p",
            principal="u",
            method="M",
            request_id="1",
            digest="d",
            create_ms=1,
            response=b"a",
        )


def test_data_of_the_first_schema_is_there_after_the_migration(faces):
    raw, core = faces
    bring_to("r0001", raw, core)
    filled(core)
    bring_to_head(raw, core)
    found = core.execute(
        select(versions.c.body, versions.c.body_size_bytes, versions.c.stored_bytes).order_by(versions.c.id)
    ).all()
    assert [tuple(row) for row in found] == [(body, len(body.encode()), len(body.encode())) for body in BODIES]
    hashes = core.execute(select(versions.c.hash).order_by(versions.c.id)).scalars().all()
    assert hashes == [sha256(body.encode()).hexdigest() for body in BODIES]
    assert core.execute(select(views.c.path, views.c.from_rev, views.c.to_rev).order_by(views.c.id)).all() == [
        (f"known://{number}", from_rev, to_rev)
        for number in range(1, 1 + len(BODIES))
        for from_rev, to_rev in ((1, 2), (2, None))
    ]
    run = core.execute(select(runs.c.persona, runs.c.summary, runs.c.forked_from_run, runs.c.removed_ms)).one()
    assert tuple(run) == ("x", "done", "", 0)
    assert core.execute(select(loops.c.prompt)).scalars().all() == ["do it"]
    assert core.execute(select(turns.c.number, turns.c.result)).all() == [(1, None)]
    assert core.execute(select(chunks.c.data)).scalars().all() == ["chunk"]
    assert core.execute(select(idempotency.c.response, idempotency.c.run)).all() == [(b"a", "")]


def test_what_follows_from_data_of_the_first_schema_is_there_too(faces):
    """Keys of versions, the revisions of shared entries, and what an owner can go on with."""
    raw, core = faces
    bring_to("r0001", raw, core)
    filled(core)
    bring_to_head(raw, core)
    keys = core.execute(select(versions.c.id).order_by(versions.c.id)).scalars().all()
    assert keys == [version_key(number, 1) for number in range(1, 1 + len(BODIES))]
    shared = core.execute(select(entries.c.id, entries.c.shared_rev).order_by(entries.c.id)).all()
    assert [tuple(row) for row in shared] == [*((number, None) for number in range(1, 1 + len(BODIES))), (9, 2)]
    assert core.execute(select(runs.c.next_loop)).scalars().all() == [1]


def test_what_the_first_schema_guarded_is_guarded_after_the_migration(faces):
    raw, core = faces
    bring_to("r0001", raw, core)
    filled(core)
    bring_to_head(raw, core)
    for statement in (
        "UPDATE versions SET body_size_bytes = 99",
        "UPDATE runs SET status = 100",
        f"{ADD_VIEW} VALUES (1, 1, 'known://1', 3, 1, 4, 1, 1, 1)",
    ):
        with pytest.raises(sqlalchemy.exc.IntegrityError), core.begin():
            core.execute(text(statement))
    with core.begin():
        core.execute(text("UPDATE versions SET stored_bytes = 6"))


def test_new_rows_get_numbers_after_those_that_were_there(faces):
    """A table that was made anew goes on counting."""
    raw, core = faces
    bring_to("r0001", raw, core)
    filled(core)
    bring_to_head(raw, core)
    with core.begin():
        number = core.execute(
            text(f"{ADD_VIEW} VALUES (1, 1, 'known://new', 3, 1, 4, 1, 1, 1) RETURNING id")
        ).scalar_one()
    assert number == 2 * len(BODIES) + 1


# ---- Which code may work on which schema


def test_a_database_at_head_is_left_alone(faces):
    raw, core = faces
    bring_to_head(raw, core)
    sent = []
    sqlalchemy.event.listen(core, "before_cursor_execute", lambda *args: sent.append(args[2]))
    bring_to_head(raw, core)
    assert (sent, current_revision(raw, core.dialect.name)) == ([], REVISIONS[-1])


@pytest.mark.parametrize("min_code", [CODE, CODE - 1])
def test_a_newer_schema_that_this_code_still_works_on_is_left_as_it_is(faces, min_code):
    """A replica with newer code has expanded it; this one goes on until it is replaced."""
    raw, core = faces
    bring_to_head(raw, core)
    raw.execute("UPDATE alembic_version SET version_num = 'r9999'")
    raw.execute(f"UPDATE meta SET value = '{min_code}' WHERE key = 'min_code'")
    bring_to_head(raw, core)
    assert current_revision(raw, core.dialect.name) == "r9999"


@pytest.mark.parametrize("min_code", [CODE + 1, None])
def test_a_newer_schema_that_needs_newer_code_is_refused(faces, min_code):
    raw, core = faces
    bring_to_head(raw, core)
    raw.execute("UPDATE alembic_version SET version_num = 'r9999'")
    raw.execute("DELETE FROM meta WHERE key = 'min_code'")
    if min_code:
        raw.execute(f"INSERT INTO meta (key, value) VALUES ('min_code', '{min_code}')")
    with pytest.raises(SchemaTooNewError, match="r9999") as caught:
        bring_to_head(raw, core)
    assert caught.value.revision == "r9999"
    assert current_revision(raw, core.dialect.name) == "r9999"


@pytest.mark.parametrize("version", ["1975ea83b712", "r0003"])
def test_a_database_that_another_program_migrates_is_refused_and_left_alone(faces, version):
    raw, core = faces
    raw.execute("CREATE TABLE alembic_version (version_num VARCHAR(32))")
    raw.execute(f"INSERT INTO alembic_version VALUES ('{version}')")
    with pytest.raises(SchemaForeignError, match=f"schema '{version}' that is not the store's.*--db"):
        bring_to_head(raw, core)
    assert tables_of(core) == {"alembic_version"}


def test_a_file_of_another_program_is_refused_and_left_alone(tmp_path):
    with opened(tmp_path / "notes.db") as (raw, core):
        raw.execute("CREATE TABLE notes (line TEXT)")
        with pytest.raises(SchemaForeignError, match="it holds notes, and no schema"):
            bring_to_head(raw, core)
        assert tables_of(core) == {"notes"}


def test_the_head_says_which_code_it_needs(faces):
    raw, core = faces
    bring_to_head(raw, core)
    (min_code,) = raw.execute("SELECT value FROM meta WHERE key = 'min_code'").fetchone()
    assert 1 <= int(min_code) <= CODE == len(REVISIONS)


def test_two_replicas_that_start_at_once_migrate_once(empty_postgres_url):
    together = threading.Barrier(3, timeout=10)
    failed = []

    def start():
        with opened(empty_postgres_url) as (raw, core):
            together.wait()
            with Kept() as kept:
                bring_to_head(raw, core)
            failed.append(kept.error)

    threads = [threading.Thread(target=start) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failed == [None] * 3
    with opened(empty_postgres_url) as (raw, _core):
        assert current_revision(raw, "postgresql") == REVISIONS[-1]
        assert raw.execute("SELECT count(*) FROM scopes").fetchone() == (1,)
