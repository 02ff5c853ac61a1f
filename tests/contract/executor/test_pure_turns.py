"""C58: a reply whose commands are all pure is written with their results, and nobody can tell but by the cost."""

import asyncio

import grpc
import pytest
from turnwright.store.v1 import ledger_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.executor.test_pipeline import DONE, GO_ON, Asked
from contract.store.harness import set_
from services import SECRET, running
from turnwright_core.errors import MissingError
from turnwright_core.rpc.headers import call_metadata

pytestmark = pytest.mark.asyncio

NEVER = 1e6
"""Seconds: however busy the machine is, no command takes so long that its reply is written before it."""


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


def written(calls) -> list[tuple[str, list[str]]]:
    """What each request wrote of a turn's reply and records, in the order of their paths."""
    kinds = ("assistant://", "log://turn_1/")
    asked = [
        (method, sorted(w.path for w in request.writes if w.path.startswith(kinds))) for method, request in calls.asked
    ]
    return [(method, paths) for method, paths in asked if paths]


async def test_reply_commands_results_and_verdict_are_one_write(tmp_path):
    calls = Asked()
    async with running(tmp_path, [calls], record_after_s=NEVER) as services:
        for name in "ab":
            (services.files / name).write_text(f"text of {name}")
        services.script(f'<get path="a"/><get path="b"/><think>So.</think>{DONE}')
        assert (await services.until(await services.act())).status == 200
        told = [
            (event.WhichOneof("event"), entry.path, entry.state, entry.record.WhichOneof("stage"))
            for event in services.events
            for entry in (event.message_added.entry, event.message_updated.entry)
            if entry.path.startswith("log://turn_1/")
        ]
    paths = [f"log://turn_1/{name}" for name in ("get/a", "get/b", "think/3", "update/4")]
    assert written(calls) == [("EndTurn", ["assistant://1", *paths])]
    assert told == [
        step
        for path in paths
        for step in (
            ("message_added", path, entry_pb2.STATE_RECORDED, "recorded"),
            ("message_updated", path, entry_pb2.STATE_RESOLVED, "settled"),
        )
    ]


@pytest.mark.parametrize("command", ['<set path="known://a">text</set>', "<sh>true</sh>", '<rm path="a"/>'])
async def test_with_any_other_command_the_reply_is_durable_before_one_is_carried_out(tmp_path, command):
    calls = Asked()
    async with running(tmp_path, [calls]) as services:
        (services.files / "a").write_text("text of a")
        services.script(f'<get path="a"/>{command}{DONE}')
        assert (await services.until(await services.act())).status == 200
    assert (written(calls)[0][0], len(written(calls)[0][1])) == ("WriteEntries", 4)


async def test_a_record_never_takes_the_place_of_an_entry_that_stands_there(tmp_path):
    """A model may write below `log://` whatever it likes; what it wrote there stays."""
    async with running(tmp_path) as services:
        (services.files / "a").write_text("text of a")
        await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
        taken = ("log://turn_1/get/a", "log://turn_1/get/a+2", "log://turn_1/update/2")
        async with grpc.aio.insecure_channel(services.addresses["store"]) as channel:
            writes = [set_(path, "mine", "{}", writer=Tier.MODEL) for path in taken]
            request = ledger_pb2.WriteEntriesRequest(project=services.project, run="r", writes=writes)
            store = store_service_pb2_grpc.StoreServiceStub(channel)
            await store.WriteEntries(request, metadata=call_metadata(SECRET, Tier.SYSTEM))
        services.script(f'<get path="a"/>{GO_ON}', DONE)
        assert (await services.until(await services.act())).status == 200
        assert [(await services.entry(path)).body for path in taken] == ["mine"] * 3
        records = [await services.entry(path) for path in ("log://turn_1/get/a+3", "log://turn_1/update/2+2")]
        loop = await services.client.get_loop(services.project, "r", 1)
    assert [(entry.status, entry.writer) for entry in records] == [
        (200, entry_pb2.TIER_SYSTEM),
        (200, entry_pb2.TIER_SYSTEM),
    ]
    assert loop.turns == 2


async def test_a_reply_does_not_wait_for_a_command_that_takes_long(tmp_path, nap):
    """A model that was paid is not asked again because of a slow page."""
    async with running(tmp_path, tools=nap) as services:
        services.script(f"<nap/>{DONE}")
        queued = await services.act()
        for _ in range(1500):
            try:
                entry = await services.entry("log://turn_1/nap/1")
                break
            except MissingError:
                await asyncio.sleep(0.02)
        assert entry.state == entry_pb2.STATE_RECORDED
        (tmp_path / "go").touch()
        assert (await services.until(queued)).status == 200
        assert (await services.entry("log://turn_1/nap/1")).status == 200
