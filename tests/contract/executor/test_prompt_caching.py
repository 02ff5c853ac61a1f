"""Prompt caches: where requests are marked, how much of them vendors then read from their caches, and who is told."""

from __future__ import annotations

import itertools
import json

import pytest
from turnwright.types.v1 import settings_pb2

from services import running
from sse_server import SseServer
from strict_vendors import STRICT, Reply, serving, unmarked

pytestmark = pytest.mark.asyncio

TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT
PACKET = settings_pb2.ASSEMBLY_PACKET
DONE = '<update status="200">Done.</update>'


def reads(turns: int):
    """A script that reads a file in each turn, and then ends."""

    def script(number: int) -> Reply:
        calls = [("get", {"path": f"f{number}.txt"}), ("think", {"body": f"{number}"})]
        return Reply("Reading.", calls) if number < turns - 1 else Reply("All is read.")

    return script


async def ran(tmp_path, monkeypatch, name: str, script, assembly: int = TRANSCRIPT, turns: int = 6):
    """The vendor after a loop, and the loop's turns."""
    vendor = STRICT[name](script)
    async with SseServer([vendor] * turns) as server:
        serving(monkeypatch, tmp_path, name, server.url)
        async with running(tmp_path) as services:
            for number in range(turns):
                (services.files / f"f{number}.txt").write_text(f"{number} is read.\n" * 200)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            loop = await services.until(await services.client.act(services.project, "Go.", run="r", settings=settings))
            told = (await services.client.get_run(services.project, "r", turns_max=100)).turns
    assert vendor.refusals == []
    assert loop.status == 200, loop.reason
    return vendor, list(told)


@pytest.mark.parametrize("name", ["chat", "openrouter", "responses", "anthropic", "gemini"])
async def test_most_of_a_transcript_is_read_from_the_cache_and_the_turn_says_how_much(tmp_path, monkeypatch, name):
    vendor, turns = await ran(tmp_path, monkeypatch, name, reads(6))
    assert len(vendor.bodies) == 6
    later = vendor.cached_shares[1:]
    # What is new in a turn is a reply with its results; all before is cached.
    assert min(later) > 0.55
    assert later[-1] > 0.8
    reported = [turn.result.usage.cached_tokens / turn.result.usage.prompt_tokens for turn in turns]
    assert sorted(reported) == pytest.approx(sorted(vendor.cached_shares), abs=0.01)
    # Vendors that take no marks cache by themselves: there is nothing to be told.
    assert {"cache"} & {name for turn in turns for name in turn.result.dropped} == set()


@pytest.mark.parametrize("name", ["openrouter", "anthropic"])
async def test_marks_move_on_and_leave_what_was_sent_as_it_was(tmp_path, monkeypatch, name):
    vendor, _ = await ran(tmp_path, monkeypatch, name, reads(5), turns=5)
    for earlier, later in itertools.pairwise(vendor.bodies):
        before, after = (json.dumps(unmarked(list(vendor.blocks(body)))) for body in (earlier, later))
        assert after.startswith(before.removesuffix("]"))
    places = [
        [place for place, block in enumerate(vendor.blocks(body)) if block != unmarked(block)] for body in vendor.bodies
    ]
    tools = len(vendor.bodies[0]["tools"])
    # The last tool, the system message, what the request before ended with, and the end: never a fifth.
    first = [tools - 1, tools, tools + 1]
    assert places[0] == first
    ends = [tools + 1, *(mine[-1] for mine in places[1:])]
    assert places[1:] == [[*first[:2], ends[turn], ends[turn + 1]] for turn in range(4)]


async def test_a_packet_is_marked_where_it_does_not_change(tmp_path, monkeypatch):
    def script(number: int) -> Reply:
        return Reply('<get path="f0.txt"/>' if number < 2 else DONE, thinks=False)

    vendor, turns = await ran(tmp_path, monkeypatch, "anthropic", script, PACKET, 3)
    [system, user] = vendor.blocks(vendor.bodies[-1])
    assert ("cache_control" in system, "cache_control" in json.dumps(user)) == (True, False)
    assert [turn.result.usage.cached_tokens > 0 for turn in reversed(turns)] == [False, True, True]
