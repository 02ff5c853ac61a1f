"""What processes of these tests keep their runs in: SQLite or PostgreSQL."""

import asyncio

import pytest

from crash.stack import Stack


@pytest.fixture
def database(request):
    """The URL of the database that the test names, `sqlite` or `postgresql`; empty for SQLite."""
    yield from _database(request)


SQLITE_OR_SOAK = ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)]
"""For kills of executors at one point each: what an executor does there does not depend on the database."""


@pytest.fixture(scope="module", params=SQLITE_OR_SOAK)
def stack(request, tmp_path_factory):
    """A stack with two executors, which the tests of a module share."""
    for url in _database(request):
        made = Stack(tmp_path_factory.mktemp("stack"), url, executors=2)
        asyncio.run(made.start())
        yield made
        made.close()


def _database(request):
    if request.param == "sqlite":
        yield ""
        return
    databases = request.getfixturevalue("postgres")
    url = databases.take()
    yield url
    databases.give_back(url)
