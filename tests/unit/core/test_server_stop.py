"""A service that hangs while it is stopped is left behind: whoever stops it waits for its end."""

from __future__ import annotations

import asyncio

import pytest

from log_lines import logged
from turnwright_kit.guarded_call import CallsInProgress
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service


@pytest.mark.parametrize("step", ["drain", "close"])
@pytest.mark.asyncio
async def test_a_step_that_hangs_is_given_up_and_reported(tmp_path, step):
    async def hang() -> None:
        await asyncio.Event().wait()

    service = Service("store", "some.Service", lambda _: None, **{step: hang})
    running = RunningServer(service, f"unix:{tmp_path}/s.sock", "secret", 0.05, stop_s_more=0.05)
    await running.start()
    with logged("warning") as lines:
        async with asyncio.timeout(60):
            await running.stop()
    assert step in [line["step"] for line in lines if line["event"] == "stop_delayed"]


@pytest.mark.asyncio
async def test_streams_are_waited_for_no_longer_than_they_last():
    calls, ended = CallsInProgress(), asyncio.Event()
    await calls.streams_ended(600)
    for is_stream, work in ((True, asyncio.sleep(0)), (True, ended.wait()), (False, asyncio.Event().wait())):
        calls.begins(asyncio.create_task(work), is_stream=is_stream)
    waiting = asyncio.create_task(calls.streams_ended(600))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await calls.streams_ended(0.01)
    ended.set()
    async with asyncio.timeout(60):
        await waiting
