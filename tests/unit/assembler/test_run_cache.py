import asyncio

import pytest

from turnwright_assembler.app.run_cache import RunCache
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.ports import ViewPart
from turnwright_core.errors import ExhaustedError
from unit.assembler.entries import DIVISOR, entry


def rows(chars):
    made = RunRows(DIVISOR)
    made.apply(ViewPart((entry("a.py", "x" * chars),), (), None))
    return made


async def put(cache, run, kept):
    async with cache.hold(("p", run)) as held:
        held.rows = kept


async def kept(cache, run):
    async with cache.hold(("p", run)) as held:
        return held.rows


@pytest.mark.asyncio
async def test_rows_are_found_again_by_project_and_run():
    cache, own = RunCache(10**9, 4), rows(10)
    await put(cache, "a", own)
    async with cache.hold(("other", "a")) as held:
        assert held.rows is None
    assert await kept(cache, "a") is own


@pytest.mark.asyncio
async def test_the_least_recently_used_run_is_forgotten_first():
    one = rows(100_000)
    cache = RunCache(int(one.size_bytes * 2.5), 4)
    for run in ("a", "b"):
        await put(cache, run, rows(100_000))
    assert await kept(cache, "a")
    await put(cache, "c", rows(100_000))
    assert [bool(await kept(cache, run)) for run in ("a", "b", "c")] == [True, False, True]
    assert cache.size_bytes == 2 * one.size_bytes


async def emptied(cache):
    async with asyncio.timeout(30):
        for _ in iter(cache.__len__, 0):
            await asyncio.sleep(0.01)


@pytest.mark.asyncio
async def test_rows_that_nobody_asks_for_are_forgotten():
    cache = RunCache(10**9, 4, idle_s=0.05)
    await put(cache, "a", rows(10))
    await put(cache, "b", rows(10))
    await emptied(cache)
    assert cache.size_bytes == 0
    await put(cache, "c", rows(10))
    await emptied(cache)


@pytest.mark.asyncio
async def test_a_run_larger_than_the_cache_is_not_kept():
    cache = RunCache(1000, 4)
    await put(cache, "a", rows(100_000))
    assert (await kept(cache, "a"), len(cache), cache.size_bytes) == (None, 0, 0)


@pytest.mark.asyncio
async def test_rows_of_a_call_that_failed_are_dropped():
    cache = RunCache(10**9, 4)
    await put(cache, "a", rows(10))

    async def fail():
        async with cache.hold(("p", "a")) as held:
            assert held.rows
            raise OSError

    with pytest.raises(OSError):
        await fail()
    assert (await kept(cache, "a"), cache.size_bytes) == (None, 0)


@pytest.mark.asyncio
async def test_rows_of_a_call_that_was_cancelled_are_dropped():
    cache, inside = RunCache(10**9, 4), asyncio.Event()
    await put(cache, "a", rows(10))

    async def hang():
        async with cache.hold(("p", "a")):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hang())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await kept(cache, "a") is None


@pytest.mark.asyncio
async def test_calls_for_one_run_go_one_by_one_and_those_for_others_do_not_wait():
    cache, order, gate = RunCache(10**9, 4), [], asyncio.Event()

    async def call(run, name, wait=None):
        async with cache.hold(("p", run)):
            order.append(f"{name} in")
            if wait:
                await wait.wait()
            order.append(f"{name} out")

    first = asyncio.create_task(call("a", "first", gate))
    await asyncio.sleep(0)
    second = asyncio.create_task(call("a", "second"))
    await call("b", "other")
    gate.set()
    await asyncio.gather(first, second)
    assert order == ["first in", "other in", "other out", "first out", "second in", "second out"]


@pytest.mark.asyncio
async def test_a_line_that_is_too_long_is_refused():
    cache = RunCache(10**9, 1)
    async with cache.hold(("p", "a")):
        with pytest.raises(ExhaustedError, match="retry") as refused:
            await kept(cache, "a")
    assert (refused.value.reason.name, refused.value.metadata["limit"]) == ("QUEUE_FULL", "1")
    assert await kept(cache, "a") is None
