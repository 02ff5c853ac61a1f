"""Databases on the PostgreSQL server that TURNWRIGHT_TEST_POSTGRES names: a test has one for itself.

To make one costs more than most tests do, so one that is used no more is emptied for the next test. So does compiling
the statements of a store, so the stores of a process share what was compiled.
"""

import atexit
import os
import secrets
import shutil
import tempfile
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from sqlalchemy import Dialect, Engine, event

from needs import left_out

VARIABLE = "TURNWRIGHT_TEST_POSTGRES"
HOW = (
    f"{VARIABLE} is not set. `make postgres` starts a throw-away server and says what to export; any server whose user "
    "may create databases will do: postgresql://user:password@host:port/postgres"
)

os.environ.pop("TURNWRIGHT_DB", None)


def server_url():
    """The server; without one the test is left out."""
    return os.environ.get(VARIABLE) or left_out("PostgreSQL", HOW)


class CompiledStatements(dict):
    """What any engine of this process has compiled, by statement and kind of dialect: to SQLAlchemy each engine has its own."""

    def get(self, key):
        return super().get(_by_kind(key))

    def __setitem__(self, key, compiled):
        if len(self) >= COMPILED_MAX:
            self.clear()
        super().__setitem__(_by_kind(key), compiled)


COMPILED_MAX = 10_000
COMPILED = CompiledStatements()


def _by_kind(key):
    return tuple(type(part) if isinstance(part, Dialect) else part for part in key)


@event.listens_for(Engine, "engine_connect")
def _share(connection):
    connection.execution_options(compiled_cache=COMPILED)


ROWS_MAX = 2000
"""Rows that are deleted to empty a database; one with more is thrown away, for dead rows slow down who comes later."""

SCHEMA = """
    SELECT c.relname, a.attname, a.atttypid::text
    FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL SELECT proname, NULL, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT tgname, NULL, NULL FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT conname, NULL, NULL FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'settings', NULL, setconfig::text FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
    ORDER BY 1, 2, 3
"""
"""Everything that a test may have made or set beside rows."""

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'"
END_OTHERS = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()
"""


class Fresh:
    """What a database holds that nobody has used."""

    def __init__(self, connection):
        self.schema = connection.execute(SCHEMA).fetchall()
        tables = [name for (name,) in connection.execute(TABLES)]
        self.rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
        sequences = [name for (name,) in connection.execute(SEQUENCES)]
        self.sequences = {
            name: connection.execute(f"SELECT last_value, is_called FROM {name}").fetchone() for name in sequences
        }

    def restore(self, connection):
        """Have a used database hold that alone; False where it is not worth it."""
        connection.execute(END_OTHERS)
        if connection.execute(SCHEMA).fetchall() != self.schema:
            return False
        with connection.transaction():
            # In one statement: rows that refer to one another go together.
            deletes = ", ".join(f"{name}_gone AS (DELETE FROM {name} RETURNING 1)" for name in self.rows)
            counts = " + ".join(f"(SELECT count(*) FROM {name}_gone)" for name in self.rows)
            (deleted,) = connection.execute(f"WITH {deletes} SELECT {counts}").fetchone()
            for name, rows in self.rows.items():
                for row in rows:
                    values = ", ".join(["%s"] * len(row))
                    connection.execute(f"INSERT INTO {name} OVERRIDING SYSTEM VALUE VALUES ({values})", row)
            for name, state in self.sequences.items():
                connection.execute(f"SELECT setval('{name}', %s, %s)", state)
        return deleted <= ROWS_MAX


class Databases:
    """The databases of one session of tests, copies of one that is migrated once."""

    def __init__(self, url):
        self.url = url
        self.prefix = f"turnwright_test_{secrets.token_hex(4)}"
        self.count = 0
        self.free = []
        self.server = psycopg.connect(url, autocommit=True)
        self.template = f"{self.prefix}_template"
        self.server.execute(f"CREATE DATABASE {self.template}")
        migrate(self.url_of(self.template))
        with psycopg.connect(self.url_of(self.template), autocommit=True) as connection:
            self.fresh = Fresh(connection)

    def url_of(self, name):
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def create(self, *, empty=False):
        """The URL of a new database, with the schema unless it is to be empty."""
        self.count += 1
        name = f"{self.prefix}_{self.count}"
        self.server.execute(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else self.template}")
        return self.url_of(name)

    def take(self):
        """The URL of a database with the schema, as good as new."""
        return self.free.pop() if self.free else self.create()

    def give_back(self, url):
        """Keep a database for another test, or drop it."""
        with psycopg.connect(url, autocommit=True) as connection:
            is_fresh = self.fresh.restore(connection)
        self.free.append(url) if is_fresh else self.drop(url)

    def drop(self, url):
        self.server.execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def close(self):
        for url in (*self.free, self.url_of(self.template)):
            self.drop(url)
        self.server.close()


def migrate(url):
    """Bring a database of PostgreSQL to head."""
    from turnwright_store.edge.postgres_link import Links, PostgresLink, Server

    _migrate(PostgresLink(Links(Server(url, 5.0, 30.0, 10.0))))


def migrate_file(path):
    """Bring a file of SQLite to head."""
    from turnwright_store.edge.connection import SqliteLink

    _migrate(SqliteLink(path, ()))


@cache
def migrated_file():
    """A file of SQLite at head, made once in a process: to migrate one costs more than most tests do."""
    folder = tempfile.mkdtemp(prefix="turnwright-test-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder, "turnwright.db")
    migrate_file(file)
    return file


def _migrate(link):
    from turnwright_store.edge.schema import upgrade_to_head

    link.open()
    upgrade_to_head(link.raw, link.core)
    link.close()
