"""Two hundred runs at once on one executor: all of them end, and none is lost on the way."""

import asyncio

import pytest

from log_lines import logged
from services import running

RUNS = 200


@pytest.mark.timeout(240)
@pytest.mark.asyncio
async def test_two_hundred_runs_at_once(tmp_path, monkeypatch):
    """Issued together, so that leases are renewed while everything is busy; each run works in its own two turns."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "32768")
    # On a machine that is busy with other tests the default of six seconds may pass.
    async with running(tmp_path, lease_s=30) as services:
        services.script(
            '<set path="known://done">here</set>\n<update status="102">One more.</update>',
            '<get path="known://done"/>\n<update status="200">Done.</update>',
        )
        with logged("warning") as lines:
            queued = await asyncio.gather(*(services.act(run=f"r{number}") for number in range(RUNS)))
            loops = await asyncio.gather(*map(services.until, queued))
        assert [(loop.status, loop.turns) for loop in loops] == [(200, 2)] * RUNS
        # These tell how busy the machine is; whatever came of it would be another line.
        assert [line for line in lines if line["event"] not in ("renewal_delayed", "readiness_lost")] == []
        made = [(await services.entry("known://done", f"r{number}")).body for number in range(0, RUNS, 20)]
        assert made == ["here"] * 10
