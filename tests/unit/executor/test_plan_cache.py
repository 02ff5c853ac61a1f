"""Plans that are read for all who are told them at once, and how much is kept of them."""

from __future__ import annotations

import asyncio

import pytest

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import PLAN_BODY_BYTES_MAX
from turnwright_core.plans.plan import Plan, PlanKind
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.watching.plan_cache import KEPT_BYTES_MAX, PlanCache, PlanMoment

pytestmark = pytest.mark.asyncio

RUN = RunAddress("p", "r")


class Store:
    """Has the same plan under every identity but `gone`, and counts who asks."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_plan(self, _address, plan_id) -> Plan:
        self.asked += 1
        await asyncio.sleep(0)
        if plan_id == "gone":
            raise fault(Reason.ENTRY_NOT_FOUND, "There is none.", path="plan://gone")
        return Plan(plan_id, PlanKind.MARKDOWN, "- [ ] x\n" + "y" * (PLAN_BODY_BYTES_MAX - 8), self.asked)


async def test_one_reads_a_plan_for_all_who_want_it_at_one_moment() -> None:
    store = Store()
    cache = PlanCache(store)
    read = await asyncio.gather(*(cache.plan(RUN, "main", PlanMoment("e", 7)) for _ in range(50)))
    assert (store.asked, {one.plan.version for one in read}) == (1, {1})
    assert [item.content for item in read[0].items] == ["x"]
    assert (await cache.plan(RUN, "main", PlanMoment("e", 6))).plan.version == 1
    assert (await cache.plan(RUN, "main", PlanMoment("e", 8))).plan.version == 2
    assert (await cache.plan(RUN, "main", PlanMoment("later", 1))).plan.version == 3


async def test_a_plan_that_is_gone_is_none_each_time() -> None:
    store = Store()
    cache = PlanCache(store)
    assert [await cache.plan(RUN, "gone", PlanMoment("e", 1)) for _ in range(2)] == [None, None]
    assert store.asked == 2


async def test_of_many_long_plans_the_latest_are_kept() -> None:
    store = Store()
    cache = PlanCache(store)
    for number in range(100):
        await cache.plan(RUN, f"p{number}", PlanMoment("e", 1))
    assert KEPT_BYTES_MAX // 2 < cache._bytes <= KEPT_BYTES_MAX
    assert cache._bytes == sum(read.size for read in cache._kept.values())
    await cache.plan(RUN, "p99", PlanMoment("e", 1))
    assert store.asked == 100
    await cache.plan(RUN, "p0", PlanMoment("e", 1))
    assert store.asked == 101
