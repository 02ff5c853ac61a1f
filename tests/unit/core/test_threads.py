"""Threads for what may block: reused, bounded, and never waited for."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from turnwright_kit.threads import DaemonThreadPool

pytestmark = pytest.mark.asyncio


async def test_calls_one_after_another_share_a_thread():
    pool = DaemonThreadPool("reuse", 8)
    assert len({await pool.run(threading.get_ident) for _ in range(50)}) == 1


async def test_no_more_run_at_once_than_there_are_places_and_one_that_is_stuck_keeps_its_own():
    pool, stuck, go_on = DaemonThreadPool("bounded", 2), threading.Event(), threading.Event()

    def block():
        stuck.set()
        go_on.wait(30)

    blocked = asyncio.create_task(pool.run(block))
    await asyncio.to_thread(stuck.wait, 30)
    blocked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await blocked

    barrier = threading.Barrier(2)
    pair = [asyncio.create_task(pool.run(barrier.wait, 30)) for _ in range(2)]
    # The second of them has no place until the stuck one has returned.
    assert not (await asyncio.wait(pair, timeout=0.2))[0]
    go_on.set()
    assert sorted(await asyncio.gather(*pair)) == [0, 1]


async def test_what_a_function_raises_reaches_its_caller_and_the_thread_goes_on():
    pool = DaemonThreadPool("raising", 1)

    def fail(error):
        raise error

    with pytest.raises(ValueError, match="no"):
        await pool.run(fail, ValueError("no"))
    for error in (StopIteration(), SystemExit(3)):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            await pool.run(fail, error)
    assert await pool.run(int, "7") == 7


async def test_an_idle_thread_ends():
    pool = DaemonThreadPool("ending", 4, idle_s=0.01)
    for _ in range(3):
        worker = await pool.run(threading.current_thread)
        await asyncio.to_thread(worker.join, 30)
        assert not worker.is_alive()


async def test_a_caller_that_is_dropped_leaves_no_error_unasked():
    """Python would log that an exception was never retrieved, whenever it collects the future."""
    complaints, loop, fails = [], asyncio.get_running_loop(), threading.Event()
    loop.set_exception_handler(lambda _, about: complaints.append(about["message"]))
    pool = DaemonThreadPool("failing", 1)

    def work() -> None:
        assert fails.wait(60)
        raise ValueError

    caller = pool.run(work)
    caller.send(None)
    caller.close()
    fails.set()
    # It has the only place.
    assert await pool.run(int) == 0
    gc.collect()
    assert complaints == []
