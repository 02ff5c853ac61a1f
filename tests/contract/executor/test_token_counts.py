"""How the tokens of a prompt are counted before it is sent: right from the first turn, and told. Issue 15.4; C16."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import settings_pb2, usage_pb2

from services import running
from sse_server import SseServer, error, never
from strict_vendors import STRICT, Reply, serving

pytestmark = pytest.mark.asyncio

PACKET, TRANSCRIPT = settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT
DONE = '<update status="200">Done.</update>'
ESTIMATE, VENDOR, USAGE = (
    usage_pb2.TOKEN_SOURCE_ESTIMATE, usage_pb2.TOKEN_SOURCE_VENDOR, usage_pb2.TOKEN_SOURCE_USAGE
)  # fmt: skip
COUNT = "/v1/messages/count_tokens"
WINDOW = 16_384


def thinking(number: int) -> Reply:
    return Reply(calls=[("think", {"body": f"{number}"})]) if number < 2 else Reply("All is done.")


def silent(number: int) -> Reply:
    return Reply(DONE, thinks=False)


async def ran(tmp_path, monkeypatch, script, prompt: str, assembly: int = TRANSCRIPT, pages=None, loops: int = 1):
    """The loops, their turns in order, and the servers that were asked."""
    vendor = STRICT["anthropic"](script)
    pages = {COUNT: error(404, "Not Found")} if pages is None else pages
    async with SseServer([vendor] * 20, pages=pages) as server:
        serving(monkeypatch, tmp_path, "anthropic", server.url)
        async with running(tmp_path) as services:
            limits = settings_pb2.RunSettings(model="m", context_limit=WINDOW)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            ended = []
            for number in range(loops):
                queued = await services.client.act(
                    services.project, prompt, run="r", settings=settings, **({"run_settings": limits} if not number else {})
                )  # fmt: skip
                ended.append(await services.until(queued))
            turns = (await services.client.get_run(services.project, "r", turns_max=100)).turns
    assert vendor.refusals == []
    return ended, sorted(turns, key=lambda turn: turn.number), server, vendor


@pytest.mark.parametrize("assembly", [PACKET, TRANSCRIPT])
async def test_half_of_the_window_is_not_given_away_in_the_first_turn(tmp_path, monkeypatch, assembly):
    # Characters through two would make 20,000 tokens of the prompt, and the window has 16,384.
    prompt = "def add(left: int, right: int) -> int:\n    return left + right\n\n" * 400
    script = silent if assembly == PACKET else lambda number: Reply("Done.")
    [loop], [turn], _, vendor = await ran(tmp_path, monkeypatch, script, prompt, assembly)
    assert loop.status == 200, loop.reason
    assert len(vendor.bodies) == 1
    assert turn.result.token_source == ESTIMATE
    assert turn.result.packet_tokens > WINDOW
    assert 0.4 < turn.result.calibration < 0.7


async def test_what_has_more_tokens_than_characters_through_two_is_not_sent(tmp_path, monkeypatch):
    [loop], [turn], server, _ = await ran(tmp_path, monkeypatch, silent, "🚀" * 7_000)
    assert (loop.status, loop.reason.partition(":")[0]) == (413, "context_exceeded")
    assert "are allowed" in loop.reason
    assert turn.result.token_source == ESTIMATE
    assert turn.result.calibration > 1
    assert server.requests == []


async def test_a_turn_says_how_its_prompt_was_counted_and_no_turn_but_the_first_asks(tmp_path, monkeypatch):
    prompt = "The quick brown fox jumps over the lazy dog. " * 800
    loops, turns, server, _ = await ran(
        tmp_path, monkeypatch, thinking, prompt, pages={COUNT: {"input_tokens": 13_000}}
    )
    assert [loop.status for loop in loops] == [200]
    assert [turn.result.token_source for turn in turns] == [VENDOR, USAGE, USAGE]
    first, second, _ = (turn.result for turn in turns)
    assert round(first.packet_tokens * first.calibration) == 13_000
    assert second.calibration == first.usage.prompt_tokens / first.packet_tokens
    assert [look.path for look in server.looks if look.method == "POST"] == [COUNT]


async def test_a_loop_far_from_its_limit_asks_no_vendor(tmp_path, monkeypatch):
    pages = {COUNT: {"input_tokens": 13_000}}
    loops, turns, server, _ = await ran(tmp_path, monkeypatch, lambda _: Reply("Done."), "Hi.", pages=pages, loops=2)
    assert [loop.status for loop in loops] == [200, 200]
    assert [turn.result.token_source for turn in turns] == [ESTIMATE, USAGE]
    assert [look for look in server.looks if look.method == "POST"] == []


async def test_a_later_loop_counts_by_the_turn_before_it_unless_that_was_sent_in_another_way(tmp_path, monkeypatch):
    async with SseServer([STRICT["anthropic"](silent)] * 20) as server:
        serving(monkeypatch, tmp_path, "anthropic", server.url)
        async with running(tmp_path) as services:
            for assembly in (PACKET, PACKET, TRANSCRIPT, TRANSCRIPT):
                settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
                queued = await services.client.act(services.project, "Hi.", run="r", settings=settings)
                assert (await services.until(queued)).status == 200
            turns = (await services.client.get_run(services.project, "r", turns_max=9)).turns
    one, two, other, last = (turn.result for turn in sorted(turns, key=lambda turn: turn.number))
    assert [result.token_source for result in (one, two, other, last)] == [ESTIMATE, USAGE, ESTIMATE, USAGE]
    assert two.calibration == one.usage.prompt_tokens / one.packet_tokens
    assert last.calibration == other.usage.prompt_tokens / other.packet_tokens


async def test_the_count_of_a_stored_packet_is_stored_with_it(tmp_path, monkeypatch):
    # A packet that is sent again was counted once.
    vendor = STRICT["anthropic"](silent)
    async with SseServer([never(), vendor]) as server:
        serving(monkeypatch, tmp_path, "anthropic", server.url)
        async with running(tmp_path) as services:
            queued = await services.act()
            await server.wait_for(1)
            await services.restart("executor")
            assert (await services.until(queued)).status == 200
            [turn] = (await services.client.get_run(services.project, "r", turns_max=9)).turns
    assert turn.result.token_source == ESTIMATE
    assert turn.result.calibration > 0
