"""A store and two executors are killed around the times of a schedule that begins new runs: each time has one. ADR 79."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from turnwright.types.v1 import schedule_pb2, settings_pb2

from contract.store.harness import SECRET
from crash.stack import ENDURING, insisted
from turnwright_client import Client

REPLY = '<update status="200">All is done.</update>'
GUARD_S = 120


@pytest.mark.asyncio
async def test_each_time_has_one_run_whatever_is_killed(stack):
    await stack.add_model("chat", *[REPLY] * 200)
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        await insisted(client.discover)
        where = (stack.project, "home")
        await insisted(lambda: client.create_run(*where, settings_pb2.RunSettings(model="chat", yolo=True)))
        allow = schedule_pb2.SCHEDULE_OVERLAP_ALLOW
        every = {"every": timedelta(seconds=1), "prompt": "Go on.", "new_run": True, "overlap": allow}
        await insisted(lambda: client.set_schedule(*where, "beat", **every))

        async def schedule():
            (found,) = await insisted(lambda: client.list_schedules(*where))
            return found

        async def later(fired):
            async with asyncio.timeout(GUARD_S):
                while (found := await schedule()).fired < fired:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            return found

        for delay_s, names in (
            (0.0, ["store0"]),
            (0.3, ["executor1"]),
            (0.7, ["store0", "executor0"]),
            (0.9, ["store0"]),
        ):
            fired = (await schedule()).fired
            await asyncio.sleep(delay_s)
            for name in names:
                stack.lives[name].kill()
            for name in names:
                stack.lives[name].start()
            await later(fired + 2)
        last = await insisted(lambda: client.pause_schedule(*where, "beat"))
        names = [run.run async for run in client.list_runs(stack.project) if run.run.startswith("beat-")]
        async with asyncio.timeout(GUARD_S):
            for name in names:
                assert (await insisted(lambda name=name: client.wait_loop(stack.project, name, 1))).status == 200
        loops = {name: len((await client.get_run(stack.project, name)).loops) for name in names}
    # An alias says its time, and a second one of the same time would have a number behind it.
    times = [datetime.strptime(name, "beat-%Y%m%dT%H%M%S%z") for name in names]
    assert len(set(times)) == len(times) == last.fired >= 8
    assert set(loops.values()) == {1}
    assert not [one for one in last.latest if one.reason]
