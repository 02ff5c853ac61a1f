"""What a turn brought is summarized where it does not fit, at no cost where it surely does. Rows RU142, RU143, RU153."""

from __future__ import annotations

import asyncio
import collections

import grpc
import pytest
from turnwright.types.v1 import entry_pb2, settings_pb2

from contract.executor.proposing import waiting
from services import running
from turnwright_core.chat.prompt_edits import append_to
from turnwright_core.wire.prompt_edits import edit_to_pb

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
WINDOW = 12_000
"""Tokens of a model that reads the instructions, and then not much more."""
BIG = "fact\n" * 9000
ERROR = "log://turn_1/error/budget_turn"

VISIBLE, SUMMARIZED = entry_pb2.VISIBILITY_VISIBLE, entry_pb2.VISIBILITY_SUMMARIZED


class Calls(grpc.aio.ServerInterceptor):
    """Counts what the services are asked, and keeps how each turn was ended and checked."""

    def __init__(self):
        self.asked = collections.Counter()
        self.requests = {"EndTurn": [], "CheckBudget": []}
        self._heard = collections.defaultdict(asyncio.Event)

    async def first(self, name):
        """Wait for the first call of a method."""
        async with asyncio.timeout(60):
            await self._heard[name].wait()

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        name = details.method.rpartition("/")[2]
        self.asked[name] += 1
        self._heard[name].set()
        if name not in self.requests:
            return handler

        async def kept(request, context):
            self.requests[name].append(request)
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(kept, handler.request_deserializer, handler.response_serializer)


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


async def worked(services, context_limit, **settings):
    """A loop with a window of so many tokens, to its end."""
    limits = settings_pb2.RunSettings(model="m", context_limit=context_limit)
    wanted = settings_pb2.LoopSettings(**{"model": "m", "yolo": True, **settings})
    queued = await services.client.act(services.project, "Do it.", run="r", settings=wanted, run_settings=limits)
    return await services.until(queued)


async def test_results_that_do_not_fit_are_summarized_with_the_end_of_the_turn_and_keep_their_status(tmp_path) -> None:
    # RU142, RU143
    calls = Calls()
    async with running(tmp_path, [calls], record_after_s=1e6) as services:
        (services.files / "big.txt").write_text(BIG)
        services.script(f'<get path="big.txt"/><get path="none.txt"/>{GO_ON}', DONE)
        edit = edit_to_pb(append_to("last-user", "Mind the size."))
        loop = await worked(services, WINDOW, edits=[edit])
        told = await services.entry(ERROR)
        kept = {path: await services.entry(path) for path in ("big.txt", "log://turn_1/get/big.txt")}
        failed = await services.entry("log://turn_1/get/none.txt")
        assert loop.status == 200
        assert (told.status, told.outcome, "* big.txt" in told.body) == (413, "budget:413", True)
        assert {(one.visibility, one.status) for one in kept.values()} == {(SUMMARIZED, 200)}
        assert (failed.visibility, failed.status) == (SUMMARIZED, 404)
        assert (await services.entry("prompt://1")).visibility == VISIBLE
        assert "budget_turn" in (await services.entry("user://2")).body
    _, first, _ = calls.requests["EndTurn"]
    [checked] = calls.requests["CheckBudget"]
    assert list(checked.edits) == [edit]
    assert {write.path for write in first.writes} >= {"big.txt", ERROR}
    assert (calls.asked["CheckBudget"], calls.asked["EndTurn"]) == (1, 3)


async def test_a_turn_that_surely_fits_asks_nobody(tmp_path) -> None:
    # RU142; architecture 12.1
    calls = Calls()
    async with running(tmp_path, [calls]) as services:
        (services.files / "a.txt").write_text("text of a\n" * 100)
        services.script(
            f'<get path="a.txt"/><set path="known://a">A.</set>{GO_ON}', f"<sh>seq 300; exit 1</sh>{GO_ON}", DONE
        )
        assert (await worked(services, 32_768)).status == 200
    assert [calls.asked[name] for name in ("Assemble", "Generate", "EndTurn")] == [3, 3, 4]
    assert calls.asked["CheckBudget"] == 0


async def test_a_turn_that_waited_for_a_decision_asks_nobody_either(tmp_path) -> None:
    # RU142: what fits is known from the reply's note, whoever goes on
    calls = Calls()
    async with running(tmp_path, [calls]) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f'<set path="a.txt">new</set>{GO_ON}', DONE)
        await services.restart("executor")
        await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
        assert (await services.until(queued)).status == 200
    assert calls.asked["CheckBudget"] == 0


SLOW = "=== reply chunk_chars=4 delay_ms=40 ===\nA thought that takes its time, and then more of it.\n"


async def test_a_turn_whose_packet_is_sent_again_asks_nobody_either(tmp_path) -> None:
    # RU142: what fits is known from the stored packet's note too
    calls = Calls()
    async with running(tmp_path, [calls]) as services:
        (services.files / "a.txt").write_text("text of a\n" * 100)
        (services.root / "m.txt").write_text(SLOW)
        queued = await services.act()
        await calls.first("Generate")
        services.script(f'<get path="a.txt"/>{GO_ON}', DONE)
        await services.restart("executor")
        assert (await services.until(queued)).status == 200
        assert (await services.entry("a.txt")).visibility == VISIBLE
    # The second turn's packet is whole, the first one's was assembled once and sent twice.
    assert (calls.asked["Assemble"], calls.asked["Generate"], calls.asked["CheckBudget"]) == (2, 3, 0)


async def test_a_turn_whose_packet_is_sent_again_is_measured_all_the_same(tmp_path) -> None:
    # RU142
    calls = Calls()
    async with running(tmp_path, [calls]) as services:
        (services.files / "big.txt").write_text(BIG)
        (services.root / "m.txt").write_text(SLOW)
        limits = settings_pb2.RunSettings(model="m", context_limit=WINDOW)
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        client = services.client
        queued = await client.act(services.project, "Do it.", run="r", settings=wanted, run_settings=limits)
        await calls.first("Generate")
        services.script(f'<get path="big.txt"/>{GO_ON}', DONE)
        await services.restart("executor")
        assert (await services.until(queued)).status == 200
        assert (await services.entry("big.txt")).visibility == SUMMARIZED
    assert calls.asked["CheckBudget"] == 1


async def test_what_an_earlier_owner_carried_out_is_asked_about(tmp_path) -> None:
    # RU142
    calls = Calls()
    async with running(tmp_path, [calls]) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f'<get path="a.txt"/><set path="a.txt">new</set>{GO_ON}', DONE)
        await services.restart("executor")
        await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
        assert (await services.until(queued)).status == 200
        assert (await services.entry("a.txt")).visibility == VISIBLE
    assert calls.asked["CheckBudget"] == 1


async def test_turns_that_bring_too_much_are_strikes(tmp_path) -> None:
    # RU153, RU154, RU281
    async with running(tmp_path, strikes_max=2) as services:
        for name in ("a", "b", "c"):
            (services.files / f"{name}.txt").write_text(BIG + name)
        services.script(*(f'<get path="{name}.txt"/>{GO_ON}' for name in ("a", "b", "c")))
        loop = await worked(services, WINDOW)
        assert (loop.status, loop.reason, loop.turns) == (499, "strikes", 2)
