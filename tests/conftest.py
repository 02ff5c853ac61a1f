"""PostgreSQL for the tests that need it: see databases.py."""

import pytest

from databases import Databases, server_url


@pytest.fixture(scope="session")
def postgres():
    """The server of this session of tests."""
    databases = Databases(server_url())
    yield databases
    databases.close()


@pytest.fixture
def postgres_url(postgres):
    """A database with the schema."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture
def empty_postgres_url(postgres):
    """A database without anything."""
    url = postgres.create(empty=True)
    yield url
    postgres.drop(url)
