"""A model call whose answer is lost is charged at what was reserved for it, once, whatever it was lost with."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest
from turnwright.store.v1 import lease_pb2, store_service_pb2_grpc
from turnwright.types.v1 import budget_pb2

from services import LEASE_S, SECRET, expected_tokens, running
from sse_server import Answer, SseServer, chat, delta, error, events
from turnwright_core.limits import REPLY_RESERVE_TOKENS
from turnwright_core.runs import LOOP_ENDED
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'

SILENT = Answer(silent=True, end="hang")
BEGUN = Answer(chunks=events(delta(role="assistant", content="I "), done=False), end="hang")


@contextlib.asynccontextmanager
async def asked(tmp_path, monkeypatch, *answers, **executor):
    """The services with a vendor that gives these answers."""
    async with SseServer(answers) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0.1")
        async with running(tmp_path, work_poll_s=0.1, **executor) as services:
            yield services, server


async def until_asked(server, count):
    """Wait until the vendor has so many requests."""
    for _ in range(1500):
        if len(server.requests) >= count:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"the vendor was asked {len(server.requests)} times")


async def ended(services):
    """The loop once it has ended, what was spent, and the result of its first turn."""
    for _ in range(1500):
        loop = await services.client.get_loop(services.project, "r", 1)
        if loop.status in LOOP_ENDED:
            answer = await services.client.get_run(services.project, "r", turns_max=10)
            return loop, answer.spent, answer.turns[-1].result
        await asyncio.sleep(0.02)
    raise AssertionError("the loop never ended")


@contextlib.asynccontextmanager
async def process(services, name, **settings):
    """One of the services in a process of its own, in place of the one in the test's."""
    if name in services.servers:
        await services.stop(name)
    peers = {peer: services.addresses[peer] for peer in ("store", "provider", "assembler")}
    told = {"home": services.root / "home", "token": SECRET, "log_level": "error", "listen": services.addresses[name]}
    told |= {**(peers if name == "executor" else {}), **settings}
    environment = {f"TURNWRIGHT_{key.upper()}": str(value) for key, value in told.items()}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"turnwright_{name}", env={**os.environ, **environment}
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
        if name != "executor":
            await services.start(name)


@pytest.mark.parametrize("lost", [SILENT, BEGUN], ids=["silent", "begun"])
async def test_a_call_that_is_lost_with_an_executor_that_is_stopped_is_charged(tmp_path, monkeypatch, lost) -> None:
    async with asked(tmp_path, monkeypatch, lost, chat(DONE)) as (services, server):
        await services.act()
        await until_asked(server, 1)
        await services.restart("executor")
        loop, spent, result = await ended(services)
    assert (loop.status, len(server.requests)) == (200, 2)
    assert result.lost_tokens == expected_tokens(result) + REPLY_RESERVE_TOKENS
    assert spent.tokens == result.usage.total_tokens + result.lost_tokens


@pytest.mark.parametrize(
    "ending", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)], ids=lambda one: one.name
)
async def test_a_call_that_is_lost_with_the_provider_is_charged(tmp_path, monkeypatch, ending) -> None:
    async with asked(tmp_path, monkeypatch, SILENT, chat(DONE)) as (services, server):
        async with process(services, "provider", flush_ms=0) as child:
            await services.act()
            await until_asked(server, 1)
            child.send_signal(ending)
            await child.wait()
        loop, _, result = await ended(services)
    assert (loop.status, len(server.requests)) == (200, 2)
    assert result.lost_tokens == expected_tokens(result) + REPLY_RESERVE_TOKENS


async def test_calls_that_no_provider_took_are_not_charged(tmp_path, monkeypatch) -> None:
    async with asked(tmp_path, monkeypatch, chat(DONE)) as (services, _):
        await services.stop("provider")
        queued = await services.act()
        # The first call and one more have failed by then.
        await asyncio.wait({asyncio.create_task(services.until(queued))}, timeout=4)
        await services.start("provider")
        loop, spent, result = await ended(services)
    assert (loop.status, result.lost_tokens) == (200, 0)
    assert spent.tokens == result.usage.total_tokens


async def test_a_call_that_the_vendor_refuses_is_not_charged(tmp_path, monkeypatch) -> None:
    async with asked(tmp_path, monkeypatch, error(401, "no such key")) as (services, _):
        await services.act()
        loop, spent, _ = await ended(services)
    assert (loop.reason.partition(":")[0], spent.tokens) == ("vendor_auth", 0)


async def test_a_call_is_charged_that_somebody_aborts_before_a_word_of_it_has_come(tmp_path, monkeypatch) -> None:
    async with asked(tmp_path, monkeypatch, SILENT) as (services, server):
        await services.act()
        await until_asked(server, 1)
        await services.client.abort(services.project, "r")
        loop, spent, _ = await ended(services)
    assert (loop.status, spent.lost_tokens > REPLY_RESERVE_TOKENS) == (499, True)
    assert spent.tokens == spent.lost_tokens


@pytest.mark.parametrize("said", ["", "I "], ids=["before a word", "in the middle"])
async def test_each_attempt_whose_usage_is_known_is_charged_with_it(tmp_path, monkeypatch, said) -> None:
    used = delta(content=said) | {"usage": {"prompt_tokens": 700, "completion_tokens": 1, "cost": 0.25}}
    broken = Answer(chunks=events(used, done=False), end="cut")
    async with asked(tmp_path, monkeypatch, broken, broken, chat(DONE)) as (services, server):
        await services.act()
        loop, spent, result = await ended(services)
    assert (loop.status, len(server.requests)) == (200, 3)
    assert (result.lost_tokens, result.lost_cost_usd) == (1402, 0.5)
    assert spent.tokens == result.usage.total_tokens + 1402


@pytest.mark.parametrize(
    "ending", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)], ids=lambda one: one.name
)
async def test_a_budget_holds_whatever_ends_the_executors(tmp_path, monkeypatch, ending) -> None:
    """Each call is lost; no further one is made than the budget has room for."""
    async with asked(tmp_path, monkeypatch, *[BEGUN] * 20) as (services, server):
        await services.stop("executor")
        settings = {"lease_s": LEASE_S, "work_poll_s": 0.1, "sh_sandbox": "limits", "turn_losses_max": 50}
        store = Peer("store", services.addresses["store"], SECRET, 10.0)
        ledger, held = store_service_pb2_grpc.StoreServiceStub(store.channel), {"project": services.project, "run": "r"}
        budget = budget_pb2.Budget(tokens_max=14_000)
        calls = 0
        while True:
            async with process(services, "executor", **settings) as child:
                if not calls:
                    await _acted(services, budget)
                loop = await _asked_or_ended(services, server, calls + 1)
                if loop:
                    break
                calls += 1
                child.send_signal(ending)
                await child.wait()
            # Its lease would pass in time: nobody waits for that here.
            await store.call(ledger.ReleaseRun, lease_pb2.ReleaseRunRequest(**held, epoch=calls))
        await store.close()
        await services.start("executor")
        loop, spent, result = await ended(services)
    reserved = result.lost_tokens // calls
    assert loop.reason.startswith("budget_exhausted:tokens")
    assert (len(server.requests), spent.tokens) == (calls, calls * reserved)
    assert spent.tokens <= 14_000 < spent.tokens + reserved


async def _acted(services, budget):
    for _ in range(600):
        with contextlib.suppress(Exception):
            return await services.act(budget=budget)
        await asyncio.sleep(0.05)
    raise AssertionError("no executor takes the task")


async def _asked_or_ended(services, server, calls):
    for _ in range(1500):
        if len(server.requests) >= calls:
            return None
        with contextlib.suppress(Exception):
            loop = await services.client.get_loop(services.project, "r", 1)
            if loop.status in LOOP_ENDED:
                return loop
        await asyncio.sleep(0.02)
    raise AssertionError("nothing happened")
