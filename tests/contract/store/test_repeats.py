"""Repeated requests: the same id gives the first answer."""

import asyncio

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import PROPOSED, Client, act, as_tier, new_project, set_, start_store, working_run
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def commands(project):
    """Every mutation that can be repeated."""
    at = {"project": project, "run": "r1"}
    record = "log://turn_1/sh/x"
    return {
        "CreateRun": {"project": project, "settings": settings_pb2.RunSettings(model="fast")},
        "EnqueueLoop": {**at, "prompt": "again", "settings": act()},
        "AbortRun": at,
        "ResolveProposal": {**at, "path": record, "accept": {}},
        "WriteEntries": {**at, "writes": [set_("known://a", "x")]},
    }


@pytest.mark.parametrize("rpc", ["CreateRun", "EnqueueLoop", "AbortRun", "ResolveProposal", "WriteEntries"])
async def test_a_repeat_gets_the_first_answer_and_changes_nothing(client, run, rpc):
    await run.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED))
    fields = {**commands(run.project)[rpc], "request_id": "id-1"}
    first = await client.call(rpc, **fields)
    after = (await run.get(), await run.view(), (await client.call("ListRuns", project=run.project)).runs)
    assert await client.call(rpc, **fields) == first
    assert (await run.get(), await run.view(), (await client.call("ListRuns", project=run.project)).runs) == after


async def test_an_id_with_another_payload_is_refused(client, run):
    await client.call("WriteEntries", **run.address, writes=[set_("known://a", "x")], request_id="id")
    repeat = client.call("WriteEntries", **run.address, writes=[set_("known://a", "y")], request_id="id")
    error = await refused(repeat)
    assert (error.reason, error.metadata) == (Reason.REQUEST_ID_REUSED, {"request_id": "id"})
    assert (await run.entry("known://a")).body == "x"


async def test_a_refused_command_stores_nothing_and_its_id_may_be_used_again(client, run):
    bad = client.call("EnqueueLoop", **run.address, prompt="", settings=act(), request_id="id")
    assert (await refused(bad)).reason is Reason.INVALID_FIELD
    good = await client.call("EnqueueLoop", **run.address, prompt="x", settings=act(), request_id="id")
    assert good.loop.sequence == 2


async def test_ids_belong_to_the_principal_and_the_method(server, client, run):
    alice, bob = as_tier(server.address, Tier.CLIENT, "alice"), as_tier(server.address, Tier.CLIENT, "bob")
    answers = [
        await one.call("EnqueueLoop", **run.address, prompt="x", settings=act(), request_id="id")
        for one in (client, alice, bob)
    ]
    assert [answer.loop.sequence for answer in answers] == [2, 3, 4]
    await alice.call("AbortRun", **run.address, request_id="id")
    await alice.close()
    await bob.close()


async def test_repeats_that_come_at_once_do_the_work_once(client, run):
    fields = {**run.address, "prompt": "x", "settings": act(), "request_id": "id"}
    answers = await asyncio.gather(*(client.call("EnqueueLoop", **fields) for _ in range(20)))
    assert {answer.loop.sequence for answer in answers} == {2}
    assert (await run.get()).loops_queued == 1


async def test_an_answer_outlives_the_process(tmp_path):
    fields = {"prompt": "x", "settings": act(), "request_id": "id"}
    server = await start_store(tmp_path)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r1")
    first = await client.call("EnqueueLoop", **run.address, **fields)
    await client.close()
    await server.stop()
    server = await start_store(tmp_path)
    client = Client(server.address)
    assert await client.call("EnqueueLoop", **run.address, **fields) == first
    await client.close()
    await server.stop()
