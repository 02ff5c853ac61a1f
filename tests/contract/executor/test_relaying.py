"""Many watchers of a run at an executor that does not have it: one stream from its owner for all. Architecture 7."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
import pytest_asyncio
from turnwright.types.v1 import settings_pb2

import proxy as http2
from contract.executor.replicas import DONE, OWNER_POLL_S, begun, eventually, two_executors, watched
from proxy import proxied
from services import SECRET
from turnwright_client import Client, RunView
from turnwright_client.client import loop_in
from turnwright_core.runs import LOOP_ENDED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.peers.routing import FORWARDED
from turnwright_executor.wiring import build as build_executor

pytestmark = pytest.mark.asyncio

LONG = f"=== reply chunk_chars=4 delay_ms=40 ===\n{'A long thought, and then some more. ' * 4}\n{DONE}\n"
WATCHERS = 8


@pytest_asyncio.fixture
async def pair(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with two_executors(tmp_path) as made:
        yield made


def forwarded(seen) -> list[dict[str, str]]:
    """The watches that the other executor opened at the owner."""
    return [metadata for metadata in seen.of("WatchRun") if FORWARDED in metadata]


class Watcher:
    """A client's watch, read in the background, heartbeats left out."""

    def __init__(self, client, services, after=None):
        self.events = []
        self._reading = asyncio.create_task(self._read(client.watch(services.project, "r", after)))

    async def _read(self, stream) -> None:
        async with contextlib.aclosing(stream) as events:
            async for event in events:
                if event.HasField("heartbeat"):
                    continue
                self.events.append(event)
                loop = loop_in(event)
                if loop and loop.status in LOOP_ENDED:
                    return

    async def has_deltas(self, more_than: int = 3) -> bool:
        return sum(event.WhichOneof("event") == "stream_delta" for event in self.events) > more_than

    async def ended(self):
        """All events up to the loop's end."""
        await asyncio.wait_for(self._reading, 60)
        return self.events


async def test_many_watchers_share_one_stream_and_all_have_the_owners_bytes(pair):
    services, other, seen = pair
    (services.root / "m.txt").write_text(LONG)
    queued = await services.act()
    await begun(services, other)
    watchers = [Watcher(other, services) for _ in range(WATCHERS)]
    for watcher in watchers:
        await eventually(watcher.has_deltas)
    shared = seen.watches_open
    here = {
        event.cursor.seq: event.SerializeToString()
        for event in await watched(services.client, services.project, "r", after=queued.cursor)
    }
    assert shared == 1
    for watcher in watchers:
        first, *events = await watcher.ended()
        assert first.WhichOneof("event") == "snapshot"
        assert [event.SerializeToString() for event in events] == [
            here[seq] for seq in range(first.cursor.seq + 1, max(here) + 1)
        ]


async def test_the_shared_stream_is_asked_for_in_the_executors_own_name_and_ends_with_its_last_watcher(pair):
    services, other, seen = pair
    (services.root / "m.txt").write_text(LONG)
    await services.act()
    await begun(services, other)
    watchers = [Watcher(other, services) for _ in range(2)]
    for watcher in watchers:
        await eventually(watcher.has_deltas)
    own = [call for call in forwarded(seen) if call["authorization"] == f"Bearer {SECRET}"]
    assert [(call["turnwright-tier"], call[FORWARDED]) for call in own] == [("client", "1")]
    for watcher in watchers:
        await watcher.ended()

    async def nobody_watches():
        return seen.watches_open == 0

    assert await eventually(nobody_watches)


async def test_many_watchers_ask_who_has_the_run_as_often_as_one(pair):
    services, other, seen = pair
    (services.root / "m.txt").write_text(LONG)
    await services.act()
    await begun(services, other)
    watchers = [Watcher(other, services) for _ in range(WATCHERS)]
    for watcher in watchers:
        await eventually(watcher.has_deltas)
    before, began_s = len(seen.of("GetLease")), time.monotonic()
    await asyncio.sleep(0.5)
    asked, looks_max = len(seen.of("GetLease")) - before, (time.monotonic() - began_s) / OWNER_POLL_S + 1
    for watcher in watchers:
        await watcher.ended()
    assert asked <= looks_max


async def test_who_comes_back_with_a_cursor_joins_without_a_word_to_the_owner(pair):
    services, other, seen = pair
    (services.root / "m.txt").write_text(LONG)
    await services.act()
    await begun(services, other)
    watcher = Watcher(other, services)
    await eventually(watcher.has_deltas)
    asked, last = len(forwarded(seen)), watcher.events[-3]
    again = await Watcher(other, services, last.cursor).ended()
    assert again == (await watcher.ended())[watcher.events.index(last) + 1 :]
    assert len(forwarded(seen)) == asked


async def test_a_watcher_with_an_older_cursor_misses_nothing(pair):
    services, other, _ = pair
    (services.root / "m.txt").write_text(LONG)
    queued = await services.act()
    await begun(services, other)
    await eventually(Watcher(other, services).has_deltas)
    events = await Watcher(other, services, queued.cursor).ended()
    numbers = [event.cursor.seq for event in events]
    assert numbers == list(range(queued.cursor.seq + 1, numbers[-1] + 1))


async def test_a_watcher_of_another_time_gets_a_snapshot_while_others_go_on(pair):
    services, other, _ = pair
    (services.root / "m.txt").write_text(LONG)
    await services.act()
    await begun(services, other)
    watcher = Watcher(other, services)
    await eventually(watcher.has_deltas)
    stale = type(watcher.events[0].cursor)(epoch="another", seq=3)
    events = await Watcher(other, services, stale).ended()
    assert [event.WhichOneof("event") for event in events].count("snapshot") == 1
    assert [event.WhichOneof("event") for event in await watcher.ended()].count("snapshot") == 1
    assert RunView().apply_all(events).entries == RunView().apply_all(watcher.events).entries


async def test_the_first_words_reach_who_watches_elsewhere_without_a_look_at_the_clock(tmp_path, monkeypatch):
    """The store tells the other executor that somebody has begun; it does not wait until it would look by itself."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with two_executors(tmp_path, owner_poll_s=60) as (services, other, _):
        (tmp_path / "m.txt").write_text(LONG)
        await other.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
        kinds = []
        async with asyncio.timeout(30), contextlib.aclosing(other.watch(services.project, "r")) as events:
            async for event in events:
                kinds.append(event.WhichOneof("event"))
                if kinds == ["snapshot"]:
                    await services.act()
                if kinds[-1] in ("stream_delta", "turn_finished"):
                    break
    assert kinds[-1] == "stream_delta"


async def test_a_relay_whose_connection_is_lost_goes_on_with_the_owners_next_event(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with (
        proxied(f"unix:{tmp_path}/executor.sock") as proxy,
        two_executors(tmp_path, advertised=proxy.address) as (services, other, _),
    ):
        (tmp_path / "m.txt").write_text(LONG)
        queued = await services.act()
        await begun(services, other)
        watcher = Watcher(other, services, queued.cursor)
        for count in range(3, 24, 5):
            await eventually(lambda count=count: watcher.has_deltas(count))
            proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR))
        numbers = [event.cursor.seq for event in await watcher.ended()]
        assert numbers == list(range(queued.cursor.seq + 1, numbers[-1] + 1))


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "127.0.0.1:0"])
async def test_who_listens_everywhere_on_any_port_is_found_by_those_who_watch_elsewhere(tmp_path, monkeypatch, listen):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_INSECURE", "true")
    async with two_executors(tmp_path) as (services, other, _):
        settings = ExecutorSettings(
            home=tmp_path / "home", token=SECRET, log_level="error", listen=listen, sh_sandbox="limits",
            **{name: services.addresses[name] for name in ("store", "provider", "assembler")},
        )  # fmt: skip
        await services.stop("executor")
        services.builds["executor"] = lambda: build_executor(settings, SECRET)
        services.addresses["executor"] = listen
        await services.start("executor")
        (tmp_path / "m.txt").write_text(LONG)
        port = services.servers["executor"].address.rpartition(":")[2]
        async with Client.connect(f"127.0.0.1:{port}", SECRET) as owner:
            queued = await owner.act(
                services.project, "Do it.", run="r", settings=settings_pb2.LoopSettings(model="m", yolo=True)
            )
        seen = await watched(other, services.project, "r")
        kinds = {event.WhichOneof("event") for event in seen}
    assert queued.cursor.epoch
    assert "stream_delta" in kinds
