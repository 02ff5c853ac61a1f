"""What plans cost in the store, beside writes of the same bytes that are measured in the same run."""

from __future__ import annotations

import random

import pytest
from turnwright.store.v1 import plan_pb2, write_pb2
from turnwright.types.v1 import entry_pb2
from turnwright.types.v1 import plan_pb2 as types_pb2

from bench.test_storage import random_words
from bench.test_store_speed import BODY, _stored_bytes, bench, kind, medians  # noqa: F401 - fixtures
from contract.store.harness import set_

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

MODEL = entry_pb2.TIER_MODEL
DELTAS = 100
DELTA_CHARS = 2_500
"""As long as a hundred deltas of one plan may be together."""


async def test_setting_a_plan_beside_writing_the_same_bytes(bench):  # noqa: F811
    """A plan is two entries, its new version and the one that it replaces, so the writes are two as well, as durable."""
    count = 40
    number = iter(range(10**9))

    async def set_plan():
        plan = types_pb2.Plan(plan_id="main", body=f"{BODY} {next(number)}")
        await bench.send(
            "SetPlan", plan_pb2.SetPlanRequest(**bench.run.address, fence=bench.run.fence, plan=plan, writer=MODEL)
        )

    async def write():
        body = f"{BODY} {next(number)}"
        writes = (set_("known://plan", body), set_(f"known://{body[-9:]}", body))
        await bench.send("WriteEntries", bench.write_of(*writes, durability=write_pb2.DURABILITY_FULL))

    times = await medians(count, echo=bench.echo, set_plan=set_plan, write=write)
    assert times["write"] > 0
    ratio = times["set_plan"] / times["write"]
    bench.say(f"SetPlan {times['set_plan']:.2f} ms, {ratio:.2f} of WriteEntries of the same bytes")


async def test_stored_bytes_of_a_hundred_deltas(bench):  # noqa: F811
    words = random.Random(7)
    await bench.send(
        "SetPlan", plan_pb2.SetPlanRequest(**bench.run.address, plan=types_pb2.Plan(body="Go."), writer=MODEL)
    )
    before, told = _stored_bytes(bench), 0
    for _ in range(DELTAS):
        delta = "".join(random_words(words) for _ in range(3))[:DELTA_CHARS]
        told += len(delta)
        await bench.send("UpdatePlan", plan_pb2.UpdatePlanRequest(**bench.run.address, delta=delta, writer=MODEL))
    ratio = (_stored_bytes(bench) - before) / told
    assert ratio > 0
    bench.say(f"{DELTAS} deltas of {DELTA_CHARS} bytes: {ratio:.2f} bytes stored for a byte of them")
