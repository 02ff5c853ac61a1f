"""Databases on the PostgreSQL server that TURNWRIGHT_TEST_POSTGRES names: one for each test, thrown away afterwards."""

import os
import secrets
from urllib.parse import urlsplit

import psycopg
import pytest

VARIABLE = "TURNWRIGHT_TEST_POSTGRES"
HOW = (
    f"{VARIABLE} is not set. `make postgres` starts a throw-away server and says what to export; any server whose user "
    "may create databases will do: postgresql://user:password@host:port/postgres"
)

os.environ.pop("TURNWRIGHT_DB", None)


def server_url():
    """The server; without one the test is skipped, except where nothing may be left out."""
    url = os.environ.get(VARIABLE, "")
    if url:
        return url
    if os.environ.get("CI") == "true":
        pytest.fail(HOW)
    pytest.skip(HOW)


class Databases:
    """The databases of one session of tests, copies of one that is migrated once."""

    def __init__(self, url):
        self.url = url
        self.prefix = f"turnwright_test_{secrets.token_hex(4)}"
        self.count = 0
        self.server = psycopg.connect(url, autocommit=True)
        self.template = f"{self.prefix}_template"
        self.server.execute(f"CREATE DATABASE {self.template}")
        migrate(self.url_of(self.template))

    def url_of(self, name):
        return urlsplit(self.url)._replace(path=f"/{name}").geturl()

    def create(self, *, empty=False):
        """The URL of a new database, with the schema unless it is to be empty."""
        self.count += 1
        name = f"{self.prefix}_{self.count}"
        self.server.execute(f"CREATE DATABASE {name} TEMPLATE {'template0' if empty else self.template}")
        return self.url_of(name)

    def drop(self, url):
        self.server.execute(f"DROP DATABASE {urlsplit(url).path[1:]} WITH (FORCE)")

    def close(self):
        self.drop(self.url_of(self.template))
        self.server.close()


def migrate(url):
    """Bring a database of PostgreSQL to head."""
    from turnwright_store.edge.postgres_link import Links, PostgresLink, Server

    _migrate(PostgresLink(Links(Server(url, 5.0, 30.0, 10.0))))


def migrate_file(path):
    """Bring a file of SQLite to head."""
    from turnwright_store.edge.connection import SqliteLink

    _migrate(SqliteLink(path, ()))


def _migrate(link):
    from turnwright_store.edge.schema import bring_to_head

    link.open()
    bring_to_head(link.raw, link.core)
    link.close()
