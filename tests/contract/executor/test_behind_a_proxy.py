"""Clients whose connections are ended by what stands between them and the executor."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import pytest_asyncio
from msgspec.structs import replace

import proxy as http2
from contract.executor.replicas import DONE, watched
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from proxy import proxied
from services import SECRET, running
from turnwright_client import Client, RunView, WatchPolicy
from turnwright_client.client import loop_in
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import LOOP_ENDED

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

WORDS = " ".join(f"word{number}" for number in range(60))
LONG = f"=== reply chunk_chars=8 delay_ms=10 ===\n{WORDS}\n{DONE}\n"
PATIENT = WatchPolicy(retries_max=8, backoff_s=0.01, backoff_s_max=0.05, silence_s_max=60)

FAULTS = {
    "reset": lambda proxy: proxy.reset(),
    "close": lambda proxy: proxy.close(),
    "half close": lambda proxy: proxy.half_close(),
    "age of the connection": lambda proxy: proxy.go_away(),
    "INTERNAL_ERROR": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR)),
    "CANCEL": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.CANCEL)),
    "NO_ERROR": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.NO_ERROR)),
    "REFUSED_STREAM": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.REFUSED_STREAM)),
    "ENHANCE_YOUR_CALM": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.ENHANCE_YOUR_CALM)),
    **{
        f"status {status}": lambda proxy, status=status: proxy.end_calls(lambda call: http2.trailers(call, status))
        for status in range(17)
    },
}


@pytest_asyncio.fixture(loop_scope="module")
async def behind(services):
    """The services, the proxy, and a client that reaches the executor through it."""
    async with (
        proxied(services.addresses["executor"]) as proxy,
        Client.connect(proxy.address, SECRET, policy=PATIENT) as client,
    ):
        yield services, proxy, client


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_watch_goes_on_behind_every_end_of_a_connection(behind, fault):
    services, proxy, client = behind
    (services.root / "m.txt").write_text(LONG)
    queued = await services.act()
    events, faults = [], 0
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(services.project, "r", queued.cursor)) as stream:
        async for event in stream:
            if event.HasField("heartbeat"):
                continue
            events.append(event)
            deltas = sum(event.WhichOneof("event") == "stream_delta" for event in events)
            if faults < 3 and deltas >= 3 * (faults + 1):
                faults += 1
                FAULTS[fault](proxy)
            loop = loop_in(event)
            if loop and loop.status in LOOP_ENDED:
                break
    here = await watched(services.client, services.project, "r", after=queued.cursor)
    assert faults == 3
    assert [event.cursor.seq for event in events] == [event.cursor.seq for event in here]
    assert RunView().apply_all(events) == RunView().apply_all(here)


async def test_a_proxy_that_closes_what_is_idle_never_ends_a_watch(behind):
    services, proxy, client = behind
    services.script(DONE)
    await services.until(await services.act())
    proxy.idle_s = 0.02
    watch = client.watch(services.project, "r", services.events[-1].cursor)
    async with asyncio.timeout(60), contextlib.aclosing(watch) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while proxy.accepted < 3 * PATIENT.retries_max:
            await asyncio.sleep(0.01)
            assert not coming.done()
        proxy.idle_s = None
        await services.act()
        assert (await coming).WhichOneof("event") != "heartbeat"


async def test_who_connects_through_a_proxy_that_refuses_everything_is_told_so_in_the_end(behind):
    services, proxy, _ = behind
    await services.act()
    proxy.is_refusing = True
    brief = replace(PATIENT, retries_max=2)
    async with Client.connect(proxy.address, SECRET, policy=brief) as client:
        with pytest.raises(TurnwrightError) as told:
            await watched(client, services.project, "r")
    assert told.value.reason is Reason.SERVICE_UNAVAILABLE


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_task_whose_answer_was_lost_is_queued_once(behind, fault):
    services, proxy, client = behind
    services.script(DONE, DONE)
    await client.get_status()
    lost = []

    def lose(connection, call):
        if len(lost) < 2:
            lost.append(call)
            FAULTS[fault](proxy)

    proxy.on_data = lose
    await client.act(services.project, "Do it.", run="r", settings={"model": "m", "yolo": True})
    found = await services.client.get_run(services.project, "r")
    assert len(lost) == 2
    assert [loop.sequence for loop in found.loops] == [1]


@pytest.mark.parametrize("method", ["list_models", "discover", "get_status"])
async def test_what_only_reads_is_asked_for_again(behind, method):
    _, proxy, client = behind
    await client.list_models()
    lost = []

    def lose(connection, call):
        if not lost:
            lost.append(call)
            proxy.reset()

    proxy.on_data = lose
    assert await getattr(client, method)()
    assert lost


async def test_the_inbox_is_sent_again_after_a_reset(behind):
    services, proxy, client = behind
    async with asyncio.timeout(60), contextlib.aclosing(client.watch_proposals(services.project)) as stream:
        assert (await anext(stream)).complete
        proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR))
        assert (await anext(stream)).complete


async def test_the_runs_of_a_project_are_sent_again_after_a_reset(behind):
    services, proxy, client = behind
    async with asyncio.timeout(60), contextlib.aclosing(client.watch_runs(services.project)) as stream:
        while not (await anext(stream)).snapshot.last:
            pass
        proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR))
        told = await anext(stream)
        assert told.HasField("hello") or told.HasField("snapshot")


@pytest.mark.parametrize(
    "fault", ["reset", "INTERNAL_ERROR", "CANCEL", "status 2", "status 13", "status 1", "status 0"]
)
async def test_a_run_goes_on_whatever_ends_the_connections_between_the_services(tmp_path, monkeypatch, fault):
    """Between the executor and each of its neighbours; every event comes, and the run ends as it would have."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with contextlib.AsyncExitStack() as stack:
        between = {
            name: await stack.enter_async_context(proxied(f"unix:{tmp_path}/{name}.sock"))
            for name in ("store", "assembler")
        }
        peers = {name: proxy.address for name, proxy in between.items()}
        services = await stack.enter_async_context(running(tmp_path, **peers))
        services.script('<set path="a.txt">new</set><update status="102">Going on.</update>', DONE)
        passed = 0

        def lose(connection, call):
            nonlocal passed
            passed += 1
            if passed % 9 == 0:
                for proxy in between.values():
                    FAULTS[fault](proxy)

        for proxy in between.values():
            proxy.on_data = lose
        loop = await asyncio.wait_for(services.until(await services.act()), 60)
        assert (loop.status, (services.files / "a.txt").read_text()) == (200, "new"), loop.reason
        assert passed > 9
