"""Many watchers of a run at an executor that does not have it: one stream from its owner for all. Architecture 7."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import pytest_asyncio
from turnwright.types.v1 import settings_pb2

import proxy as http2
from contract.executor.replicas import OWNER_POLL_S, Watcher, begun, eventually, talking, two_executors, watched
from proxy import proxied
from services import SECRET
from turnwright_client import Client, RunView
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.peers.routing import FORWARDED
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.identity.credentials import FOR

pytestmark = pytest.mark.asyncio

WATCHERS = 8


@pytest_asyncio.fixture
async def pair(tmp_path, over_http):
    """Two executors whose model talks until it is enough: the owner's stack, a client of the other, what the owner was called."""
    enough = asyncio.Event()
    async with over_http(talking(enough)), two_executors(tmp_path) as (services, other, seen):
        queued = await services.act()
        await begun(services, other)
        yield services, other, seen, queued.cursor, enough


def forwarded(seen) -> list[dict[str, str]]:
    """The watches that the other executor opened at the owner."""
    return [metadata for metadata in seen.of("WatchRun") if FORWARDED in metadata]


async def heard(client, services, after=None) -> Watcher:
    """A watch that hears the model."""
    watcher = Watcher(client, services.project, after)
    await watcher.hears()
    return watcher


async def many_heard(client, services, number: int) -> list[Watcher]:
    return await asyncio.gather(*(heard(client, services) for _ in range(number)))


async def test_many_watchers_share_one_stream_and_all_have_the_owners_bytes(pair):
    services, other, seen, began, enough = pair
    watchers = await many_heard(other, services, WATCHERS)
    shared = seen.watches_open
    enough.set()
    here = {
        event.cursor.seq: event.SerializeToString()
        for event in await watched(services.client, services.project, "r", after=began)
    }
    assert shared == 1
    for watcher in watchers:
        first, *events = await watcher.ended()
        assert first.WhichOneof("event") == "snapshot"
        assert [event.SerializeToString() for event in events] == [
            here[seq] for seq in range(first.cursor.seq + 1, max(here) + 1)
        ]


async def test_the_shared_stream_is_asked_for_in_the_executors_own_name_and_ends_with_its_last_watcher(pair):
    services, other, seen, _, enough = pair
    watchers = await many_heard(other, services, 2)
    own = [call for call in forwarded(seen) if FOR not in call]
    assert [call[FORWARDED] for call in own] == ["1"]
    enough.set()
    for watcher in watchers:
        await watcher.ended()

    async def nobody_watches():
        return seen.watches_open == 0

    assert await eventually(nobody_watches)


async def test_many_watchers_ask_who_has_the_run_as_often_as_one(pair):
    services, other, seen, _, _ = pair
    await many_heard(other, services, WATCHERS)
    before, began_s = len(seen.of("GetLease")), time.monotonic()
    await asyncio.sleep(0.5)
    asked, looks_max = len(seen.of("GetLease")) - before, (time.monotonic() - began_s) / OWNER_POLL_S + 1
    assert asked <= looks_max


async def test_who_comes_back_with_a_cursor_joins_without_a_word_to_the_owner(pair):
    services, other, seen, _, enough = pair
    watcher = await heard(other, services)
    asked, last = len(forwarded(seen)), watcher.events[-3]
    again = await heard(other, services, last.cursor)
    assert len(forwarded(seen)) == asked
    enough.set()
    assert await again.ended() == (await watcher.ended())[watcher.events.index(last) + 1 :]


async def test_a_watcher_with_an_older_cursor_misses_nothing(pair):
    services, other, _, began, enough = pair
    await heard(other, services)
    older = await heard(other, services, began)
    enough.set()
    numbers = [event.cursor.seq for event in await older.ended()]
    assert numbers == list(range(began.seq + 1, numbers[-1] + 1))


async def test_a_watcher_of_another_time_gets_a_snapshot_while_others_go_on(pair):
    services, other, _, _, enough = pair
    watcher = await heard(other, services)
    stale = type(watcher.events[0].cursor)(epoch="another", seq=3)
    late = await heard(other, services, stale)
    enough.set()
    events = await late.ended()
    assert [event.WhichOneof("event") for event in events].count("snapshot") == 1
    assert [event.WhichOneof("event") for event in await watcher.ended()].count("snapshot") == 1
    assert RunView().apply_all(events).entries == RunView().apply_all(watcher.events).entries


async def test_the_first_words_reach_who_watches_elsewhere_without_a_look_at_the_clock(tmp_path, over_http):
    """The store tells the other executor that somebody has begun; it does not wait until it would look by itself."""
    async with over_http(talking(asyncio.Event())), two_executors(tmp_path, owner_poll_s=3600) as (services, other, _):
        await other.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
        async with asyncio.timeout(60), contextlib.aclosing(other.watch(services.project, "r")) as events:
            assert (await anext(events)).HasField("snapshot")
            await services.act()
            async for event in events:
                if event.HasField("stream_delta"):
                    return
        raise AssertionError("the watch ended")


async def test_a_relay_whose_connection_is_lost_goes_on_with_the_owners_next_event(tmp_path, over_http):
    enough = asyncio.Event()
    async with (
        over_http(talking(enough)),
        proxied(f"unix:{tmp_path}/executor.sock") as proxy,
        two_executors(tmp_path, advertised=proxy.address) as (services, other, _),
    ):
        queued = await services.act()
        await begun(services, other)
        watcher = Watcher(other, services.project, queued.cursor)
        for count in range(3, 24, 5):
            await watcher.hears(count)
            proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR))
        enough.set()
        numbers = [event.cursor.seq for event in await watcher.ended()]
        assert numbers == list(range(queued.cursor.seq + 1, numbers[-1] + 1))


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"])
async def test_who_listens_everywhere_on_any_port_is_found_by_those_who_watch_elsewhere(
    tmp_path, monkeypatch, over_http, listen
):
    monkeypatch.setenv("TURNWRIGHT_INSECURE", "true")
    async with over_http(talking(asyncio.Event())), two_executors(tmp_path) as (services, other, _):
        settings = ExecutorSettings(
            home=tmp_path / "home", token=SECRET, log_level="error", listen=listen, sh_sandbox="limits",
            **{name: services.addresses[name] for name in ("store", "provider", "assembler")},
        )  # fmt: skip
        await services.stop("executor")
        services.builds["executor"] = lambda: build_executor(settings, SECRET)
        services.addresses["executor"] = listen
        await services.start("executor")
        port = services.servers["executor"].address.rpartition(":")[2]
        async with Client.connect(f"127.0.0.1:{port}", SECRET) as owner:
            queued = await owner.act(
                services.project, "Do it.", run="r", settings=settings_pb2.LoopSettings(model="m", yolo=True)
            )
        assert queued.cursor.epoch
        assert (await watched(other, services.project, "r", kind="stream_delta"))[-1].HasField("stream_delta")
