"""PostgreSQL for the tests that need it: see databases.py. And what every process that a test starts has."""

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

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
)

# Where this is set, as it is in many images, each of the hundreds of processes that tests start compiles every module
# again: a second of CPU each. Nobody who uses an installed Turnwright pays that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A test meets nothing of the person who runs it: no settings, keys and files of theirs, and no service that they started,
# for these are looked for where nobody listens. What the tests themselves are told by variables stays.
TOLD = (
    "TURNWRIGHT_TEST_",
    "TURNWRIGHT_CASES",
    "TURNWRIGHT_SHARED",
    "TURNWRIGHT_FUZZ_",
    "TURNWRIGHT_LITELLM",
    "TURNWRIGHT_LLAMA_",
)
VENDORS = ("_API_KEY", "_BASE_URL", "_PROXY", "_proxy")
NOBODY = "127.0.0.1:1"
# Build tools keep what they downloaded.
CACHES = {"GOPATH": "go", "GOCACHE": ".cache/go-build", "CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}

for name in list(os.environ):
    if (name.startswith("TURNWRIGHT_") and not name.startswith(TOLD)) or name.endswith(VENDORS):
        del os.environ[name]
os.environ |= {f"TURNWRIGHT_{peer}": NOBODY for peer in ("STORE", "ASSEMBLER", "PROVIDER")}
if "PYTEST_XDIST_WORKER" not in os.environ:
    for variable, folder in CACHES.items():
        os.environ.setdefault(variable, str(Path.home() / folder))
    os.environ["HOME"] = tempfile.mkdtemp(prefix="turnwright-tests-home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)
    for variable in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        os.environ.pop(variable, None)

# The same examples each time, so that a verdict is no draw; `make fuzz` draws. How long an example takes says how busy the
# machine is; a test that hangs has its timeout.
ANY_PACE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
settings.register_profile("turnwright", ANY_PACE, derandomize=True, database=None)
settings.register_profile("fuzz", ANY_PACE, max_examples=500)
settings.load_profile("turnwright")


def pytest_xdist_auto_num_workers() -> int:
    """Half of the time that tests take they wait for processes and deadlines, so a core does for two of them."""
    return 2 * len(os.sched_getaffinity(0))


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
