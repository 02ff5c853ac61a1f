"""Plugins of an assembler over a real channel. Rows RU043, RU044, RU148; architecture 4."""

import asyncio
import sys
import textwrap
from contextlib import asynccontextmanager

import grpc
import pytest
import pytest_asyncio

from contract.assembler.stack import Client, at, part, start_assembler
from log_lines import logged
from turnwright_assembler.sections.plugin_sections import RENDER_VERSION
from turnwright_core.delta_encoding import Copied
from turnwright_core.rpc.errors import from_rpc
from turnwright_kit.settings import SettingsError
from unit.assembler.entries import entry
from unit.assembler.packet_reader import names, section

pytestmark = pytest.mark.asyncio

PROMPT = entry("prompt://1", "go out", mode="act", loop=1, position=1)
FACTS = [entry(f"known://{number}", f"fact {number}", position=2 + number) for number in range(3)]

GUARD = """
__version__ = "2.1"
SEEN = []


def register(registry):
    from turnwright_assembler.plugins import Item

    def facts(context):
        SEEN.append(len(context.entries))
        return [Item(f"count://{len(context.entries)}")]

    registry.section("facts", facts, priority=90, schemes=("known",))
    registry.filter("assembly.user", hidden, priority=160, schemes=("known",))
    registry.filter("assembly.system", lambda text, context: text.replace("secret", "******"))


def hidden(pieces, context):
    if any("explode" in entry.body for entry in context.entries):
        raise RuntimeError("a body with a secret")
    return [piece.replace("secret", "******") for piece in pieces]
"""


@pytest_asyncio.fixture
async def assembling(tmp_path, monkeypatch, store):
    """A client of an assembler with these plugins."""
    monkeypatch.syspath_prepend(str(tmp_path))

    @asynccontextmanager
    async def assembler(text: str, name: str = "guard", **settings):
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.delitem(sys.modules, name, raising=False)
        server = await start_assembler(tmp_path, sections=f"{name}:register", **settings)
        one = Client(server.address)
        try:
            yield one
        finally:
            await one.channel.close()
            await server.stop()

    return assembler


async def test_a_packet_has_what_plugins_bring_and_names_what_made_it(store, assembling):
    # RU043, RU044
    async with assembling(GUARD) as client:
        store.says(part(PROMPT, *FACTS, entry("known://s", "a secret", position=9), cursor=at(1)))
        answer = await client.assemble()
    assert names(answer.user) == ["prompt", "summary", "visible", "facts", "instructions", "budget"]
    assert ("secret" in answer.user, answer.user.count("******")) == (False, 2)
    assert section(answer.user, "facts").children[0].attributes == {"path": "count://4"}
    assert (answer.report.render_version, list(answer.report.plugins)) == (
        f"{RENDER_VERSION} guard:register=2.1", ["guard:register"],
    )  # fmt: skip
    assert f'tokenUsage="{answer.report.tokens}"' in answer.user


async def test_a_warm_assembler_and_a_cold_one_give_equal_bytes_and_nothing_is_rendered_twice(store, assembling):
    # architecture 4, 12.5
    async with assembling(GUARD) as client:
        store.says(part(PROMPT, *FACTS, cursor=at(1)))
        first = await client.assemble()
        store.says(part(entry("a.py", "pass", position=9), cursor=at(2)))
        second = await client.assemble(turn=2, base_digest=first.report.digest)
        assert any(isinstance(piece, Copied) for piece in second.pieces(1))
        store.says(part(cursor=at(2)))
        whole = await client.assemble(turn=2)
        assert sys.modules["guard"].SEEN == [3]
    async with assembling(GUARD, "guard_again") as client:
        store.says(part(PROMPT, *FACTS, entry("a.py", "pass", position=9), cursor=at(2)))
        cold = await client.assemble(turn=2)
    assert (cold.user, cold.report.digest) == (whole.user, second.report.digest)


async def test_a_plugin_that_fails_is_named_without_what_it_raised_and_the_next_packet_is_made(store, assembling):
    async with assembling(GUARD) as client:
        store.says(part(PROMPT, entry("known://x", "explode", position=2), cursor=at(1)))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.assemble()
        error = from_rpc(refused.value, "assembler", "here")
        assert (error.reason.name, error.metadata["plugin"], error.metadata["part"]) == (
            "PLUGIN_FAILED", "guard:register", "assembly.user",
        )  # fmt: skip
        assert "secret" not in error.message
        # Nothing is kept of a call that failed: the run is read anew.
        store.says(part(PROMPT, *FACTS, cursor=at(2)))
        assert "facts" in names((await client.assemble()).user)


WAITING = """
import threading

BUSY, GO = threading.Event(), threading.Event()


def register(registry):
    registry.section("slow", slow, priority=90, schemes=("known",))


def slow(context):
    for entry in context.entries:
        BUSY.set()
        GO.wait(30)
    return []
"""


async def test_a_plugin_that_takes_too_long_is_named_and_the_next_packet_is_made(store, assembling):
    # architecture 12.9
    with logged("error") as lines:
        async with assembling(WAITING, "late", section_deadline_s=2) as client:
            store.says(part(PROMPT, *FACTS, cursor=at(1)))
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await client.assemble()
            store.says(part(PROMPT, *FACTS, cursor=at(2)))
            sys.modules["late"].GO.set()
            assert "prompt" in names((await client.assemble()).user)
    error = from_rpc(refused.value, "assembler", "here")
    assert (error.reason.name, error.metadata["plugin"], error.metadata["part"]) == (
        "PLUGIN_FAILED", "late:register", "<slow>",
    )  # fmt: skip
    assert "did not finish <slow> within 2 s" in error.message
    said = [(line["event"], line["plugin"], line["error_id"]) for line in lines]
    assert said == [("plugin_failed", "late:register", error.metadata["error_id"])]


async def test_a_plugin_that_takes_long_holds_up_no_other_run(store, assembling):
    # architecture 12.9
    async with assembling(WAITING, "long") as client:
        store.says(part(PROMPT, *FACTS, cursor=at(1)))
        waiting = asyncio.create_task(client.assemble())
        assert await asyncio.to_thread(sys.modules["long"].BUSY.wait, 10)
        store.says(part(PROMPT, cursor=at(1)))
        other = await client.assemble(run="other")
        assert not waiting.done()
        sys.modules["long"].GO.set()
        assert "fact 1" in (await waiting).user
    assert names(other.user)[0] == "prompt"


async def test_an_assembler_does_not_start_with_a_section_that_cannot_be_shown(tmp_path, assembling):
    with pytest.raises(
        SettingsError, match=r"^TURNWRIGHT_SECTIONS: the plugin guard:register cannot be loaded: .*taken"
    ):
        async with assembling("def register(registry):\n    registry.section('log', print, priority=90)\n"):
            pytest.fail("it started")


async def test_a_transcript_is_refused_where_plugins_change_packets(store, assembling):
    # What they would hide must not appear.
    async with assembling(GUARD) as client:
        store.says(part(PROMPT, entry("known://s", "a secret", position=9), cursor=at(1)))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.assemble(transcript=True)
    error = from_rpc(refused.value, "assembler", "here")
    assert (error.reason.name, error.metadata["plugin"]) == ("PLUGIN_FAILED", "guard:register")
    assert "use the assembly `packet`" in error.message
