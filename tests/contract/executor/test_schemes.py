"""Schemes that are registered while the services run: what packets show of them, and what a model may write.

Rows RU066, RU067, RU084-RU086; decision C9.
"""

from __future__ import annotations

import asyncio
import contextlib
import re

import pytest
from turnwright.schemes.v1 import scheme_service_pb2, scheme_service_pb2_grpc
from turnwright.store.v1 import ledger_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, grant_pb2
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from contract.store.harness import scheme_of
from services import running, token_for
from turnwright_core.wire.entries import write_to_pb
from turnwright_kit.identity.caller import Kind
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

PAGE = "wiki://page"
SET = f'<set path="{PAGE}">What is known.</set>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
MODEL, PLUGIN = int(Tier.MODEL), int(Tier.PLUGIN)
SECTION = re.compile(r"^<(summary|visible|log|unknowns)>\n(.*?)\n</\1>$", re.DOTALL | re.MULTILINE)


@contextlib.asynccontextmanager
async def plugin(services):
    """The store, as a plugin with a token of its own calls it, which may register schemes."""
    await services.client.set_grant("", "user:wiki", grant_pb2.GRANT_ROLE_OPERATOR)
    peer = Peer("store", services.addresses["store"], token_for("wiki", Kind.PLUGIN, audience="store"), 10.0)
    try:
        yield peer
    finally:
        await peer.close()


async def register(services, name="wiki", **rules) -> None:
    scheme = scheme_of(name, **rules)
    async with plugin(services) as peer:
        schemes = scheme_service_pb2_grpc.SchemeServiceStub(peer.channel)
        await peer.call(schemes.SetScheme, scheme_service_pb2.SetSchemeRequest(scheme=scheme))


async def write(services, path: str, body: str) -> None:
    change = SetEntry(body, visibility=Visibility.VISIBLE, state=State.RESOLVED)
    writes = [write_to_pb(EntryWrite(path, change, Tier.PLUGIN))]
    async with plugin(services) as peer:
        store = store_service_pb2_grpc.StoreServiceStub(peer.channel)
        request = ledger_pb2.WriteEntriesRequest(project=services.project, run="r", writes=writes)
        await peer.call(store.WriteEntries, request)


async def sections_of(services, turn: int, path: str = PAGE) -> list[str]:
    """The sections of a packet in which an entry stands."""
    packet = (await services.entry(f"user://{turn}")).body
    return [name for name, inside in SECTION.findall(packet) if f' path="{path}"' in inside]


async def worked(services, *replies, **settings):
    """A loop, from its prompt to its end."""
    services.script(*replies)
    return await services.until(await services.act(**settings))


# What packets show ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("category", "sections"),
    [
        ("data", ["summary", "visible"]),
        ("logging", ["log"]),
        ("", ["log"]),
        ("unknown", ["unknowns"]),
        ("audit", []),
        ("hidden", []),
    ],
)
async def test_an_entry_stands_in_the_section_of_its_registered_category(services, category, sections):
    await register(services, category=category)
    await worked(services, SET + GO_ON, DONE)
    assert (await services.entry(PAGE)).body == "What is known."
    assert await sections_of(services, 2) == sections


async def test_an_invisible_scheme_stays_out_of_the_packet_and_out_of_reach(services):
    await register(services, category="data", model_visible=False)
    await worked(services, SET + GO_ON, f'<get path="{PAGE}"/>' + GO_ON, '<get path="wiki://*"/>' + GO_ON, DONE)
    assert await sections_of(services, 2) == []
    assert await services.status("log://turn_2/get/wiki%3A/page") == 404
    assert PAGE not in (await services.entry("log://turn_3/get/wiki%3A/*")).body


async def test_a_scheme_that_is_hidden_later_leaves_the_packets_of_a_run_that_has_shown_it(services):
    await register(services, category="data")
    await worked(services, SET + GO_ON, DONE)
    await register(services, category="data", model_visible=False)
    await worked(services, f'<get path="{PAGE}"/>' + DONE, prompt="Again.")
    before, after = [await sections_of(services, turn) for turn in (2, 3)]
    assert (before, after) == (["summary", "visible"], [])
    assert await services.status("log://turn_3/get/wiki%3A/page") == 404


async def test_a_scheme_counts_from_the_next_turn_of_a_loop_that_runs(services):
    """A command waits in turn 1 until the scheme is registered."""
    services.script(
        "<sh>touch begun; while [ ! -e go ]; do sleep 0.02; done</sh>" + GO_ON,
        '<set path="wiki://other">More.</set><sh>touch happened</sh>' + GO_ON,
        DONE,
    )
    queued = await services.act()
    async with asyncio.timeout(60):
        while not (services.files / "begun").exists():  # noqa: ASYNC110 - the file of another process
            await asyncio.sleep(0.02)
    await register(services, category="data", writable_by=[PLUGIN])
    await write(services, PAGE, "From a plugin.")
    (services.files / "go").touch()
    await services.until(queued)
    assert await sections_of(services, 2) == ["summary", "visible"]
    assert await services.status("log://turn_2/set/wiki%3A/other") == 403
    assert not (services.files / "happened").exists()


async def test_a_services_start_after_the_registration_changes_nothing(services):
    await register(services, category="data", writable_by=[MODEL])
    for name in ("store", "assembler", "executor"):
        await services.restart(name)
    await worked(services, SET + GO_ON, DONE)
    assert await sections_of(services, 2) == ["summary", "visible"]


async def test_a_demotion_reaches_entries_that_only_models_may_write(tmp_path, monkeypatch):
    """The packet does not fit, and what the turn before has shown is summarized whoever may write it (C9)."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "10000")
    async with running(tmp_path) as services:
        await register(services, category="data", writable_by=[MODEL])
        text = "word " * 6000
        await worked(services, f'<set path="{PAGE}">{text}</set>' + GO_ON, DONE)
        assert (await services.entry(PAGE)).visibility == entry_pb2.VISIBILITY_SUMMARIZED
        assert await sections_of(services, 2) == ["summary"]


# What a model may write -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tiers", "status", "body"), [([], 200, "What is known."), ([MODEL], 200, "What is known."), ([PLUGIN], 403, "")]
)
async def test_a_model_writes_what_the_scheme_lets_it_write(services, tiers, status, body):
    await register(services, writable_by=tiers)
    await worked(services, SET + GO_ON, DONE)
    found = [entry.body async for entry in services.client.list_entries(services.project, "r", "wiki://*")]
    assert await services.status("log://turn_1/set/wiki%3A/page") == status
    assert "".join(found) == body


@pytest.mark.parametrize(
    ("command", "record"),
    [
        (f'<set path="{PAGE}">x</set>', "set/wiki%3A/page"),
        (f'<rm path="{PAGE}"/>', "rm/wiki%3A/page"),
        (f'<mv path="{PAGE}" to="known://page"/>', "mv/wiki%3A/page"),
        (f'<cp path="a.txt" to="{PAGE}"/>', "cp/a.txt"),
    ],
)
async def test_a_refused_write_ends_the_turn_before_the_next_command(services, command, record):
    """The refusal comes before anything that follows, not with the write at the turn's end."""
    await register(services, category="data", writable_by=[PLUGIN])
    await worked(services, DONE)
    await write(services, PAGE, "From a plugin.")
    await worked(services, command + "<sh>touch happened</sh>" + GO_ON, DONE, prompt="Again.")
    assert await services.status(f"log://turn_2/{record}") == 403
    assert (await services.entry(PAGE)).body == "From a plugin."
    assert not (services.files / "happened").exists()


async def test_a_models_right_is_read_off_the_registry_also_where_a_client_calls_the_tool(services):
    await register(services, writable_by=[PLUGIN])
    await worked(services, DONE)
    await services.restart("executor")
    record = await services.client.call_tool(services.project, "r", "set", {"path": PAGE}, "x")
    assert (record.status, record.outcome) == (403, "permission:403")


# What clients see -----------------------------------------------------------------------------------------------------


async def test_a_client_is_shown_registered_questions_among_the_unknowns_of_a_run(services):
    await register(services, "question", category="unknown")
    await register(services, "secret", category="audit")
    await worked(services, '<set path="question://a">Why?</set><set path="secret://b">x</set>' + GO_ON, DONE)
    shown = await services.client.get_run(services.project, "r", history_max=100)
    assert [entry.path for entry in shown.unknowns] == ["question://a"]
    assert "secret://b" not in {entry.path for entry in shown.history}
