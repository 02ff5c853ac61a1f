"""Two executors on one store: calls for a run reach its owner through either, and a dead one's runs move to the other."""

import asyncio
import contextlib
import time

import grpc
import pytest
import pytest_asyncio
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import Tier

from contract.executor.replicas import DONE, Watcher, begun, eventually, talking, two_executors, watched
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, Stack, insisted
from services import SECRET
from sse_server import chat
from turnwright_client import Client, RunView
from turnwright_client.client import loop_in
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import AUTHORIZATION, TIER, call_metadata
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.peers.routing import FORWARDED
from turnwright_kit.identity.credentials import FOR
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.peer import Peer
from turnwright_store.config import StoreSettings

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def pair(tmp_path, monkeypatch):
    """The owner of every run, a client of another executor that never looks for work, and what the owner was called."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with two_executors(tmp_path) as made:
        yield made


async def test_a_watch_through_any_executor_has_the_owners_deltas_and_numbers(tmp_path, over_http):
    enough = asyncio.Event()
    async with over_http(talking(enough)), two_executors(tmp_path) as (services, other, seen):
        queued = await services.act()
        await begun(services, other)
        watcher = Watcher(other, services.project)
        await watcher.hears()
        enough.set()
        here, there = await watched(services.client, services.project, "r", after=queued.cursor), await watcher.ended()
    assert {event.cursor.epoch for event in there} == {queued.cursor.epoch}
    assert {event.WhichOneof("event") for event in there} >= {"snapshot", "stream_delta", "turn_finished"}
    first = there[0].cursor.seq
    numbered = [event.SerializeToString() for event in here if event.cursor.seq > first]
    assert [event.SerializeToString() for event in there if event.cursor.seq > first] == numbered
    forwarded = next(metadata for metadata in seen.of("WatchRun") if FORWARDED in metadata)
    gate = CallerGate("executor", [SECRET])
    caller = gate.caller([(name, value) for name, value in forwarded.items() if name in (AUTHORIZATION, TIER, FOR)])
    assert (caller.name, caller.tier, caller.by, caller.peer != "") == ("alice", Tier.CLIENT, "executor", True)
    assert forwarded["turnwright-forwarded"] == "1"


async def test_an_abort_through_any_executor_ends_what_the_owner_does_at_once(pair):
    services, other, _ = pair
    services.script(f"<sh>sleep 3000</sh>{DONE}")
    queued = await services.act()
    await services.until(queued, 102)

    async def is_running():
        with contextlib.suppress(TurnwrightError):
            return await services.entry("sh://turn_1/sleep_3000_1")

    await eventually(is_running)
    await other.abort(services.project, "r")
    assert (await services.until(queued)).status == 499


async def test_a_proposal_is_decided_through_any_executor(pair):
    services, other, _ = pair
    services.script(f'<set path="a.txt">new\n</set>{DONE}')
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    await other.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
    assert (await other.wait_loop(services.project, "r", 1)).status == 200
    assert (services.files / "a.txt").read_text() == "new\n"


async def test_a_watch_of_a_run_at_rest_follows_it_to_the_executor_that_takes_it_up(tmp_path, over_http):
    async with over_http(chat(DONE), talking(asyncio.Event())), two_executors(tmp_path) as (services, other, _):
        await services.until(await services.act())
        watching = asyncio.create_task(watched(other, services.project, "r", kind="stream_delta"))
        await asyncio.sleep(0.3)
        await services.act()
        assert (await watching)[-1].stream_delta.turn == 2


@pytest.mark.parametrize("kind", [run_service_pb2.AbortRunRequest, executor_service_pb2.WatchRunRequest])
async def test_a_call_that_was_forwarded_is_not_forwarded_again(tmp_path, over_http, kind):
    async with over_http(talking(asyncio.Event())), two_executors(tmp_path) as (services, other, _):
        await services.act()
        await begun(services, other)
        peer = Peer("executor", f"unix:{tmp_path}/second.sock", SECRET, 60.0)
        stub, runs = (
            executor_service_pb2_grpc.ExecutorServiceStub(peer.channel),
            run_service_pb2_grpc.RunServiceStub(peer.channel),
        )
        request, sent = kind(project=services.project, run="r"), (*call_metadata(SECRET), (FORWARDED, "1"))
        abort = kind is run_service_pb2.AbortRunRequest
        call = (runs.AbortRun if abort else stub.WatchRun)(request, timeout=60, metadata=sent)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await (call if abort else call.read())
        await peer.close()
    error = from_rpc(refused.value, "executor", "")
    assert (error.reason, error.metadata) == (
        Reason.NOT_OWNER,
        {"run": "r", "address": services.addresses["executor"]},
    )


# ---- Executors that are processes

ENDLESS, ENDLESS_MS = "A long thought, and then some more of it.", 60_000
"""A reply, and milliseconds between its words: nobody waits for its end."""


@contextlib.asynccontextmanager
async def stacked(root, points=None, **settings):
    """A stack with two executors, and a client of each."""
    stack = Stack(root, executors=2, **settings)
    try:
        await stack.start(**(points or {}))
        async with (
            Client.connect(stack.at("executor0"), stack.secret, policy=ENDURING) as first,
            Client.connect(stack.at("executor1"), stack.secret, policy=ENDURING) as second,
        ):
            yield stack, first, second
    finally:
        stack.close()


async def act(stack, client, *replies, **pace):
    await stack.add_model("m", *replies, **pace)
    settings = settings_pb2.LoopSettings(model="m", yolo=True)
    return await insisted(lambda: client.act(stack.project, "Do it.", run="r", settings=settings, request_id="once"))


async def owner_of(stack):
    """The name of the executor that has the run, once one has."""
    store = StoreClient(stack.at("store0"))

    async def holder():
        held = await store.call("GetLease", project=stack.project, run="r")
        return next((name for name in stack.lives if stack.at(name) == held.address), None)

    try:
        return await eventually(holder)
    finally:
        await store.close()


async def test_the_runs_of_a_dead_executor_move_after_what_the_default_settings_add_up_to(tmp_path):
    store, executor = StoreSettings(), ExecutorSettings()
    defaults = {"lease_s": store.lease_s, "lease_grace_s": store.lease_grace_s, "work_poll_s": executor.work_poll_s}
    assert sum(defaults.values()) < 10
    async with stacked(tmp_path, **defaults) as (stack, first, second):
        await act(stack, first, ENDLESS, delay_ms=ENDLESS_MS)
        owner = await owner_of(stack)
        watcher = Watcher(second if owner == "executor0" else first, stack.project)
        await watcher.hears(0)
        await stack.add_model("m", DONE)
        stack.lives[owner].kill()
        killed_s = time.monotonic()

        async def has_moved():
            return await owner_of(stack) != owner

        await eventually(has_moved)
        print(f"the run moved after {time.monotonic() - killed_s:.1f} s")
        assert loop_in((await watcher.ended())[-1]).status == 200


async def test_a_watch_survives_the_death_of_its_runs_owner_and_misses_nothing(tmp_path):
    async with stacked(tmp_path) as (stack, first, second):
        await act(stack, first, ENDLESS, delay_ms=ENDLESS_MS)
        owner = await owner_of(stack)
        survivor = second if owner == "executor0" else first
        watcher = Watcher(survivor, stack.project)
        await watcher.hears(0)
        await stack.add_model("m", "A thought.<sh>echo a >> effects.txt</sh>", f"And another.{DONE}")
        stack.lives[owner].kill()
        events = await watcher.ended()
        told = RunView().apply_all(events)
        again = RunView().apply_all((await watched(survivor, stack.project, "r"))[:1])
        assert {path: entry.state for path, entry in told.entries.items()} == {
            path: entry.state for path, entry in again.entries.items()
        }
        assert len({event.cursor.epoch for event in events}) > 1
        assert stack.effects == {"a": 1}


@pytest.mark.parametrize("step", ["confirm", "write", "generate"])
async def test_an_executor_that_was_paused_past_its_lease_starts_no_effect(tmp_path, step):
    """Between the mark of an effect and the look at the lease, before that mark is written, and before the model."""
    points = {"executor0": f"pause {step} 1", "executor1": f"pause {step} 1"}
    async with stacked(tmp_path, points) as (stack, first, second):
        for name in points:
            stack.lives[name].count()
        await act(stack, first, f"<sh>echo a >> effects.txt</sh>{DONE}", DONE, DONE)

        # Not who had the run first: on a busy machine that one may lose it on its way.
        async def paused():
            return next((name for name in points if stack.lives[name].is_paused), None)

        owner = await eventually(paused)
        survivor = second if owner == "executor0" else first
        # The one that takes over comes to the same step and is let go at once.
        other = next(life for name, life in stack.lives.items() if name in points and name != owner)
        letting = asyncio.create_task(let_go(other))
        ended = await watched(survivor, stack.project, "r")
        letting.cancel()
        before = stack.effects
        stack.lives[owner].resume()
        await asyncio.sleep(1)
        assert loop_in(ended[-1]).status == 200
        assert (stack.effects, max(stack.effects.values(), default=0) <= 1) == (before, True)
        # It serves on.
        client = first if owner == "executor0" else second
        assert (await insisted(lambda: client.get_run(stack.project, "r"))).run.status == 200


async def let_go(life):
    while True:
        if life.is_paused:
            life.resume()
        await asyncio.sleep(0.02)


async def test_an_abort_is_taken_by_any_executor_while_the_owner_is_paused(tmp_path):
    async with stacked(tmp_path) as (stack, first, second):
        await act(stack, first, ENDLESS, delay_ms=ENDLESS_MS)
        owner = await owner_of(stack)
        await begun(stack, first)
        stack.lives[owner].pause()
        survivor = second if owner == "executor0" else first
        async with asyncio.timeout(60):
            await survivor.abort(stack.project, "r")
            assert loop_in((await watched(survivor, stack.project, "r"))[-1]).status == 499
        stack.lives[owner].resume()


async def test_a_run_that_is_opened_after_a_restart_of_every_service_is_the_run_that_was(tmp_path):
    """RT05: what ended stays as it ended, what is queued is worked on, what waits for a decision waits."""
    async with stacked(tmp_path) as (stack, first, _):
        await act(stack, first, f"<sh>echo a >> effects.txt</sh>{DONE}", f'<set path="b.txt">b\n</set>{DONE}')
        await first.wait_loop(stack.project, "r", 1)
        settings = settings_pb2.LoopSettings(model="m")
        await stack.add_model("m", f'<set path="b.txt">b\n</set>{DONE}')
        waiting = await first.act(stack.project, "Again.", run="r", settings=settings)
        await watched(first, stack.project, "r", "proposal_pending", waiting.cursor)
        await first.act(stack.project, "And again.", run="r", settings=settings)
        before = await told(first, stack.project)
        while not before[0].loops_queued:
            # Events come a moment after what they tell of.
            before = await told(first, stack.project)
        for life in stack.lives.values():
            life.kill()
        for life in stack.lives.values():
            life.start()
        after = await insisted(lambda: told(first, stack.project))
        assert after == before
        assert stack.effects == {"a": 1}


async def told(client, project):
    """What a reader is told of a run: its state, its entries, and what waits."""
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(project, "r")) as events:
        snapshot = (await anext(events)).snapshot
    loops = (await client.get_run(project, "r")).loops
    return snapshot.run, list(snapshot.entries), list(snapshot.proposals), [loop.status for loop in loops]
