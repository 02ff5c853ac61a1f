"""Runs that leave a deployment as documents and go on in another. Rows RT01, OM38."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from turnwright.types.v1 import settings_pb2

from services import running

pytestmark = pytest.mark.asyncio

REPLIES = (
    '<get path="a.txt"/><plan>Read, then change.</plan><update status="102">Reading.</update>',
    '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set><sh>echo hi</sh><update status="102">Set.</update>',
    '<update status="200">Done.</update>',
)
MORE = ('<get path="a.txt"/><update status="102">More.</update>', '<update status="200">Again.</update>')


async def explained(services, run: str) -> list[tuple[str, str]]:
    """The digest of the packet of each turn as it is assembled now, and as it was sent."""
    turns = [one.number async for one in services.client.list_turns(services.project, run)]
    told = [await services.client.explain_packet(services.project, run, number) for number in sorted(turns)]
    return [(one.digest, one.stored_digest) for one in told]


async def parts_of(text: bytes) -> AsyncIterator[bytes]:
    yield text


@pytest.mark.parametrize("assembly", [settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT])
async def test_an_imported_run_sends_its_model_what_it_would_have_been_sent(tmp_path, monkeypatch, assembly) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    async with running(tmp_path / "one") as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(*REPLIES)
        await services.until(await services.act("Make it new.", assembly=assembly))
        text = b"".join([part async for part in services.client.export_run(services.project, "r")])
        was = await explained(services, "r")
        assert [one for one, _ in was] == [one for _, one in was]
        services.script(*MORE)
        await services.until(await services.act("And again.", assembly=assembly))
        went_on = [one.result.packet_digest async for one in services.client.list_turns(services.project, "r")]
    async with running(tmp_path / "two") as services:
        (services.files / "a.txt").write_text("new\n")
        made = await services.client.import_run(services.project, parts_of(text), run="r")
        assert (made.skipped, made.run.turn) == (0, 3)
        assert [one for one, _ in await explained(services, "r")] == [one for one, _ in was]
        assert [one.result.packet_digest async for one in services.client.list_turns(services.project, "r")] == [
            stored for _, stored in reversed(was)
        ]
        services.script(*MORE)
        await services.until(await services.act("And again.", assembly=assembly))
        here = [one.result.packet_digest async for one in services.client.list_turns(services.project, "r")]
        assert here == went_on
