"""What the tests of tools share: a store for a module, a project with a run for a test."""

import pytest_asyncio

from .bench import Bench, run_entries, served_store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory):
    """A connection to a store."""
    async with served_store(tmp_path_factory.mktemp("store")) as peer:
        yield peer


@pytest_asyncio.fixture(loop_scope="module")
async def bench(store, tmp_path):
    """An empty project with a run."""
    root = tmp_path / "project"
    root.mkdir()
    entries = await run_entries(store, root)
    return Bench(root, entries, there=frozenset(entry.path for entry in await entries.find("")))
