"""Who waits for a slot is notified, and who sleeps gives it back."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.executor.v1 import event_pb2

from contract.executor.test_aborts import phase_seen, until
from services import running
from sse_server import SseServer, chat, error

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
WAITING, RETRYING = event_pb2.RunProgress.PHASE_WAITING, event_pb2.RunProgress.PHASE_RETRYING


async def test_a_run_that_waits_for_its_turn_is_notified(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, loops_max=1) as services:
        services.script(
            '<sh>touch begun; until [ -e go ]; do sleep 0.02; done</sh><update status="102">On.</update>', DONE
        )
        first = await services.act(run="first")
        await until((services.files / "begun").exists, "the command")
        second = await services.act(run="second")
        async with asyncio.timeout(60):
            await phase_seen(services, second, WAITING)
        (services.files / "go").touch()
        assert [(await services.until(one)).status for one in (first, second)] == [200, 200]


async def test_a_loop_that_waits_for_a_rate_limit_keeps_no_other_run_waiting(tmp_path, monkeypatch) -> None:
    # RU109: a loop that sleeps has no slot, as one that waits for a decision
    async with contextlib.AsyncExitStack() as stack:
        limited = error(429, "slow down", headers={"retry-after": "60"})
        server = await stack.enter_async_context(SseServer((limited, chat(DONE))))
        monkeypatch.setenv("TURNWRIGHT_MODEL_limited", "openai/limited")
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        services = await stack.enter_async_context(running(tmp_path, loops_max=1))
        asleep = await services.act(run="asleep", model="limited")
        await phase_seen(services, asleep, RETRYING)
        services.script(DONE)
        async with asyncio.timeout(50):
            assert (await services.until(await services.act(run="healthy"))).status == 200
        assert len(server.requests) == 1, "the first one still sleeps"
        await services.client.abort(services.project, "asleep")
        assert (await services.until(asleep)).status == 499
