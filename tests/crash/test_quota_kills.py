"""Many owners reserve of one quota at several stores that are killed meanwhile: it is never passed, and never lost."""

import asyncio
import random
from contextlib import suppress

import pytest
from sqlalchemy import text
from turnwright.quotas.v1 import quota_service_pb2 as pb
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import usage_pb2

from contract.store.counting import connected
from contract.store.harness import Client, Run, new_project, working_run
from crash.test_kills import Store
from crash.workers import AWAY
from draws import SEED
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

EACH = 10
"""Tokens that a call reserves."""

RUNS = 12
USED = 3
"""Tokens that a turn has used in the end."""


@pytest.fixture
def stores(database, tmp_path):
    """Three replicas; on SQLite one store."""
    made = []
    for number in range(3 if database else 1):
        home = tmp_path / f"{number}"
        home.mkdir()
        made.append(Store(home, database))
        made[-1].start()
    yield made
    for one in made:
        one.close()


async def insisted(client, rpc, **fields):
    """Call until a store answers: one that was killed comes back."""
    while True:
        try:
            return await client.call(rpc, **fields)
        except TurnwrightError as error:
            if error.reason not in AWAY:
                raise
        await asyncio.sleep(0.02)


async def reserving(run):
    """Reserve for one call after the other until the quota has no room; returns how many were acknowledged."""
    again = write_pb2.PacketRecord(turn=1, again=True, reserve_tokens=EACH)
    count = 0
    try:
        while True:
            await insisted(run.client, "WriteEntries", **run.address, epoch=run.epoch, packet=again)
            count += 1
    except TurnwrightError as error:
        if error.reason is not Reason.QUOTA_EXCEEDED:
            raise
    return count


def taken(store):
    """What was used and reserved, as the database has it."""
    with connected(store.db, store.home) as connection:
        return tuple(connection.execute(text("SELECT used, reserved FROM quotas")).one())


async def looking(store, limit):
    """Look at the quota again and again, beside the stores."""
    while True:
        found = await asyncio.to_thread(taken, store)
        assert sum(found) <= limit, found
        await asyncio.sleep(0.01)


async def killing(stores, clients, kills):
    """Kill one store after the other, and start it again."""
    dice = random.Random(SEED)
    for number in range(kills):
        await asyncio.sleep(dice.uniform(0.05, 0.3))
        one = stores[number % len(stores)]
        await asyncio.to_thread(one.kill)
        await asyncio.to_thread(one.start)
        await one.serving(clients[number % len(stores)])


@pytest.mark.parametrize(
    ("calls", "kills"),
    [pytest.param(120, 1, id="few"), pytest.param(1000, 12, id="many", marks=pytest.mark.soak)],
)
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
async def test_no_quota_is_passed_whoever_reserves_and_whatever_is_killed(stores, calls, kills):
    clients = [Client(one.address) for one in stores]
    for one, client in zip(stores, clients, strict=True):
        await one.serving(client)
    project = await new_project(clients[0])
    limit = calls * EACH + EACH // 2
    await clients[0].call("SetQuota", quota=pb.Quota(metric=pb.QUOTA_METRIC_TOKENS_MONTH, limit=limit))
    runs = []
    for number in range(RUNS):
        run = await working_run(clients[0], project, f"r{number}")
        await run.begin()
        messages = [{"role": 1, "pieces": [{"text": "x"}]}]
        await run.write(packet=write_pb2.PacketRecord(turn=1, messages=messages, reserve_tokens=EACH))
        runs.append(Run(clients[number % len(clients)], project, run.alias, run.epoch))
    looks = asyncio.ensure_future(looking(stores[0], limit))
    kill = asyncio.ensure_future(killing(stores, clients, kills))
    counts = await asyncio.gather(*map(reserving, runs))
    await kill
    looks.cancel()
    with suppress(asyncio.CancelledError):
        await looks
    assert taken(stores[0]) == (0, calls * EACH)
    # A call whose store was killed may have reserved without an answer.
    assert calls - (1 + kills) * RUNS <= sum(counts) <= calls - RUNS
    result = {"usage": usage_pb2.Usage(total_tokens=USED)}
    for run in runs:
        await insisted(run.client, "EndTurn", **run.address, epoch=run.epoch, turn=1, result=result)
    assert taken(stores[0]) == (RUNS * USED, 0)
    for client in clients:
        await client.close()
