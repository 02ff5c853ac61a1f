"""How often a write waits for PostgreSQL: what a network costs is its trips."""

import threading

import pytest

from contract.store.harness import POSTGRESQL_ONLY, set_
from turnwright_store.edge.postgres_pipe import Pipe

pytestmark = [pytest.mark.asyncio, POSTGRESQL_ONLY]


@pytest.fixture
def trips(monkeypatch):
    """The trips of each thread, by its name."""
    made = []
    push = Pipe.push

    def counted(pipe):
        made.append(threading.current_thread().name)
        push(pipe)

    monkeypatch.setattr(Pipe, "push", counted)
    return made


@pytest.mark.parametrize("count", [1, 64])
async def test_a_lone_write_waits_three_times_whatever_it_writes(run, trips, count):
    """For its run, for what is there, and for the commit. Numbers of entries are there from the write before."""
    await run.write(set_("known://first", "x"))
    trips.clear()
    await run.write(*(set_(f"known://{number}", "x") for number in range(count)))
    assert trips.count("store-writer") == 3


async def test_a_write_of_what_is_there_waits_three_times_too(run, trips):
    await run.write(set_("known://a", "x"))
    trips.clear()
    await run.write(set_("known://a", "y"))
    assert trips.count("store-writer") == 3
