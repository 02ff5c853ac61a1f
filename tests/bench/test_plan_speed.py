"""What plans cost in the store, beside writes of the same bytes that are measured in the same run."""

from __future__ import annotations

import random
import statistics
import time

import pytest
from turnwright.plans.v1 import plan_service_pb2 as pb
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import entry_pb2, plan_pb2

from bench.test_storage import random_words
from bench.test_store_speed import BODY, Step, _stored_bytes, bench, kind  # noqa: F401 - fixtures
from contract.store.harness import set_

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

PAIRS = 300
DELTAS = 100
DELTA_CHARS = 2_500
"""As long as a hundred deltas of one plan may be together."""


async def test_setting_a_plan_beside_writing_the_same_bytes(bench):  # noqa: F811
    """A plan is two entries, its new version and the one that it replaces, so the writes are two as well, as durable."""
    number = iter(range(10**9))

    async def set_plan():
        plan = plan_pb2.Plan(plan_id="main", body=f"{BODY} {next(number)}")
        by = pb.PlanWriter(tier=entry_pb2.TIER_MODEL, epoch=bench.run.epoch)
        await bench.send("SetPlan", pb.SetPlanRequest(**bench.run.address, plan=plan, written_by=by))

    async def write():
        body = f"{BODY} {next(number)}"
        writes = (set_("known://plan", body), set_(f"known://{body[-9:]}", body))
        await bench.send("WriteEntries", bench.write_of(*writes, durability=write_pb2.DURABILITY_FULL))

    times = await _in_turn(PAIRS, write, set_plan)
    ratios = [plan / entries for entries, plan in times]
    assert min(ratios) > 0
    low, ratio, high = statistics.quantiles(ratios, n=4)
    write_ms, plan_ms = (statistics.median(each) for each in zip(*times, strict=True))
    bench.say(
        f"SetPlan {plan_ms:.2f} ms, WriteEntries of the same bytes {write_ms:.2f} ms: {ratio:.2f} "
        f"(pairs, quartiles {low:.2f} to {high:.2f})"
    )


async def _in_turn(count: int, *steps: Step) -> list[tuple[float, ...]]:
    """Milliseconds of the steps in rounds of one call each, forwards and backwards in turn."""
    rounds = []
    for at in range(count):
        taken = {}
        for step in steps if at % 2 else steps[::-1]:
            begin = time.perf_counter()
            await step()
            taken[step] = (time.perf_counter() - begin) * 1000
        rounds.append(tuple(taken[step] for step in steps))
    return rounds


async def test_stored_bytes_of_a_hundred_deltas(bench):  # noqa: F811
    words = random.Random(7)
    by, plan = pb.PlanWriter(tier=entry_pb2.TIER_MODEL), plan_pb2.Plan(body="Go.")
    await bench.send("SetPlan", pb.SetPlanRequest(**bench.run.address, plan=plan, written_by=by))
    before, told = _stored_bytes(bench), 0
    for _ in range(DELTAS):
        delta = "".join(random_words(words) for _ in range(3))[:DELTA_CHARS]
        told += len(delta)
        await bench.send("UpdatePlan", pb.UpdatePlanRequest(**bench.run.address, delta=delta, written_by=by))
    ratio = (_stored_bytes(bench) - before) / told
    assert ratio > 0
    bench.say(f"{DELTAS} deltas of {DELTA_CHARS} bytes: {ratio:.2f} bytes stored for a byte of them")
