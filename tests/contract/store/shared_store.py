"""For modules whose tests share one store, on each database in turn; the fixtures behind these are in conftest.py.

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES
"""

import pytest


def on_a_shared_store(*databases):
    return [
        pytest.mark.asyncio(loop_scope="module"),
        pytest.mark.parametrize("shared_database", databases, indirect=True, scope="module"),
    ]


ON_A_SHARED_STORE = on_a_shared_store("sqlite", "postgresql")
POSTGRESQL_IN_SOAK = on_a_shared_store("sqlite", pytest.param("postgresql", marks=pytest.mark.soak))
"""For tests of rules that no statement decides."""


@pytest.fixture(autouse=True)
def db(shared_database):
    return shared_database


@pytest.fixture
def client(shared_client):
    return shared_client


@pytest.fixture
def project(shared_project):
    return shared_project


@pytest.fixture
def run(shared_run):
    return shared_run


SHARED_FIXTURES = (db, client, project, run)
"""In the place of those that give each test a store of its own."""
