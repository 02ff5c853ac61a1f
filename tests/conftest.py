"""PostgreSQL for the tests that need it: see databases.py. And what every process that a test starts has."""

import gc
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

from databases import Databases, server_url
from quick import (  # noqa: F401 - hooks
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    pytest_thin_tables,
)
from surroundings import leave_the_person_out

# Where this is set, as it is in many images, each of the hundreds of processes that tests start compiles every module
# again: a second of CPU each. Nobody who uses an installed Turnwright pays that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

leave_the_person_out()

# The same examples each time, so that a verdict is no draw; `make fuzz` draws. How long an example takes says how busy the
# machine is; a test that hangs has its timeout.
ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
settings.register_profile("turnwright", ANY_PACE, derandomize=True, database=None)
settings.register_profile("fuzz", ANY_PACE, max_examples=500)
settings.load_profile("turnwright")


def pytest_xdist_auto_num_workers() -> int:
    """Half of the time that tests take they wait for processes and deadlines, so a core does for two of them."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected, a million objects, stays to the end: no search for garbage has to walk it, while it grows or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def postgres():
    """The server of this session of tests."""
    databases = Databases(server_url())
    yield databases
    databases.close()


@pytest.fixture
def postgres_url(postgres):
    """A database with the schema."""
    url = postgres.take()
    yield url
    postgres.give_back(url)


@pytest.fixture
def empty_postgres_url(postgres):
    """A database without anything."""
    url = postgres.create(empty=True)
    yield url
    postgres.drop(url)


@pytest.fixture(scope="module")
def shared_database(request):
    """What the tests of a module share: empty for SQLite, which it is unless the module is parametrized by it."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield ""
    else:
        databases = request.getfixturevalue("postgres")
        url = databases.take()
        yield url
        databases.give_back(url)
