"""Plans in the store that follows another, and in two stores at once. Row RP07."""

import asyncio

import pytest

from contract.store.harness import POSTGRESQL_ONLY, Client, Run, start_store
from contract.store.test_plans import get_plan, set_plan, update_plan

pytestmark = pytest.mark.asyncio


async def test_plans_survive_a_restart(tmp_path, run, server):
    """RP07."""
    await set_plan(run, "old")
    await update_plan(run, "to the old")
    await set_plan(run, "x", mode="agent")
    before = [await update_plan(run, "y"), await get_plan(run, version=1)]
    await server.stop()
    again = await start_store(tmp_path)
    client = Client(again.address)
    same = Run(client, run.project, run.alias)
    after = [await get_plan(same), await get_plan(same, version=1)]
    await client.close()
    await again.stop()
    assert after == before


@POSTGRESQL_ONLY
async def test_deltas_through_two_replicas_have_sequences_of_their_own(tmp_path, run):
    """Two replicas need a database that both reach."""
    await set_plan(run, "x")
    second = await start_store(tmp_path, name="second")
    client = Client(second.address)
    same = Run(client, run.project, run.alias)
    await asyncio.gather(*(update_plan(one, str(number)) for number in range(10) for one in (run, same)))
    plan = await get_plan(same)
    await client.close()
    await second.stop()
    assert [delta.sequence for delta in plan.deltas] == list(range(1, 21))
