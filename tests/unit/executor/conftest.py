"""What the tests of tools share: a store for a module, a project with a run for a test."""

from math import inf

import pytest
import pytest_asyncio

from turnwright_core.constraints import Constraints

from .bench import Bench, run_entries, sandbox_hosts, served_store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory):
    """A connection to a store."""
    async with served_store(tmp_path_factory.mktemp("store")) as peer:
        yield peer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hosts(tmp_path_factory):
    """A sandbox host that has the folders of all tests."""
    async with sandbox_hosts(tmp_path_factory.mktemp("box"), tmp_path_factory.getbasetemp()) as made:
        yield made


@pytest.fixture
def where(request) -> str:
    """Where the project is; see `both`."""
    return getattr(request, "param", "here")


@pytest_asyncio.fixture(loop_scope="module")
async def bench(store, tmp_path, where, hosts):
    """An empty project with a run."""
    root = tmp_path / "project"
    root.mkdir()
    entries = await run_entries(store, root)
    made = Bench(root, entries, there=frozenset(entry.path for entry in await entries.find("")))
    if where == "on_a_host":
        place = f"box:/{tmp_path.name}/project"
        made.hosted = await hosts.place(entries.address, entries.epoch, place, Constraints(), lambda: inf)
    return made
