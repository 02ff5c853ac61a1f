"""What a loop makes of a store that refuses a write for good: it ends once, says why, and pays for what it asked."""

import asyncio
import contextlib

import grpc
import pytest
from turnwright.store.v1 import ledger_pb2, store_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, settings_pb2
from turnwright_values.types import Tier, Visibility

from contract.store.harness import set_
from services import SECRET, running
from sse_server import SseServer, chat
from turnwright_core.errors import Reason, fault
from turnwright_core.rpc.headers import call_metadata
from turnwright_core.runs import LOOP_ENDED
from turnwright_kit.errors import abort
from turnwright_store.domain.limits import WriteLimits

pytestmark = pytest.mark.asyncio

GO_ON = '<update status="102">Going on.</update>'
REPLY = f'<set path="unknown://{{n}}">What is it?</set><sh>echo {{n}} >> effects.txt</sh>{GO_ON}'
CALL_TOKENS = 1000
"""What the vendor says that each call took: its prompt and its reply."""

REFUSED = (
    Reason.LIMIT_EXCEEDED,
    Reason.INVALID_FIELD,
    Reason.WRITER_FORBIDDEN,
    Reason.TIER_FORBIDDEN,
    Reason.TRANSITION_FORBIDDEN,
    Reason.REVISION_CONFLICT,
    Reason.INTERNAL,
)


class Refusing(grpc.aio.ServerInterceptor):
    """Refuses the calls of a store that a test names, and counts what it refused."""

    def __init__(self, method, reason, is_meant):
        self.method = method
        self.reason = reason
        self.is_meant = is_meant
        self.refused = 0

    async def times(self, count):
        """Wait until it has refused so often."""
        for _ in range(1500):
            if self.refused >= count:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"it was asked {self.refused} times")

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if details.method.rpartition("/")[2] != self.method:
            return handler

        async def answer(request, context):
            if self.is_meant(request):
                self.refused += 1
                await abort(context, fault(self.reason, "Never."))
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )


def priced(text):
    return chat(text, prompt_tokens=CALL_TOKENS - -(-len(text) // 4))


@contextlib.asynccontextmanager
async def asked(tmp_path, monkeypatch, *observers, replies=200, **limits):
    """The services with a vendor that always has another reply, and tells what each took."""
    async with SseServer([priced(REPLY.format(n=n)) for n in range(replies)]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        store_settings = {"write_limits": WriteLimits(**limits)}
        async with running(tmp_path, observers, store_settings, work_poll_s=0.1) as services:
            yield services, server


async def ended(services, run="r"):
    """The run's first loop once it has ended, as the store has it."""
    for _ in range(600):
        loop = await services.client.get_loop(services.project, run, 1)
        if loop.status in LOOP_ENDED:
            return loop
        await asyncio.sleep(0.05)
    raise AssertionError("the loop never ended")


async def fill(services, run, count):
    """Give a new run so many entries."""
    async with grpc.aio.insecure_channel(services.addresses["store"]) as channel:
        store = store_service_pb2_grpc.StoreServiceStub(channel)
        writes = [set_(f"unknown://before_{n}", "?", "{}", writer=Tier.MODEL) for n in range(count)]
        request = ledger_pb2.WriteEntriesRequest(project=services.project, run=run, writes=writes)
        await store.WriteEntries(request, metadata=call_metadata(SECRET, Tier.SYSTEM))


async def test_a_run_at_the_limit_of_its_entries_ends_wherever_it_meets_it(tmp_path, monkeypatch) -> None:
    told = {}
    async with asked(tmp_path, monkeypatch, run_entries_max=40) as (services, server):
        for before in range(20, 40):
            run, calls = f"r{before}", len(server.requests)
            await services.client.create_run(services.project, run, settings_pb2.RunSettings(model="m"))
            await fill(services, run, before)
            await services.act(run=run)
            loop = await ended(services, run)
            answer = await services.client.get_run(services.project, run)
            paid = (len(server.requests) - calls) * CALL_TOKENS
            told[before] = (loop.status, loop.reason.partition(":")[0], answer.spent.tokens - paid)
            if answer.run.turn:
                error = await services.entry(f"log://turn_{answer.run.turn}/error/limit_exceeded", run)
                assert "40" in error.body
            records = services.client.list_entries(services.project, run, "log://**")
            assert not [entry.path async for entry in records if entry.outcome.startswith("crash")]
    assert told == dict.fromkeys(told, (500, "limit_exceeded", 0))


def _begins(request):
    return not request.turn and request.HasField("next")


def _has_packet(request):
    return request.HasField("packet")


def _has_reply(request):
    return any(write.path.startswith("assistant://") for write in request.writes)


def _has_mark(request):
    return any(write.set.record.HasField("dispatched") for write in request.writes)


def _has_channel(request):
    return any(write.set.state == entry_pb2.STATE_STREAMING for write in request.writes)


def _goes_on(request):
    return bool(request.turn) and not request.HasField("loop_end")


PLACES = {
    "begin": ("EndTurn", _begins, 0),
    "packet": ("WriteEntries", _has_packet, 0),
    "record": ("WriteEntries", _has_reply, 1),
    "mark": ("WriteEntries", _has_mark, 1),
    "verdict": ("EndTurn", _goes_on, 1),
}


@pytest.mark.parametrize("place", PLACES)
async def test_a_write_that_is_refused_for_good_ends_the_loop_once(tmp_path, monkeypatch, place) -> None:
    method, is_meant, calls = PLACES[place]
    refusing = Refusing(method, Reason.INTERNAL, is_meant)
    told = {}
    async with asked(tmp_path, monkeypatch, refusing) as (services, server):
        for reason in REFUSED:
            refusing.reason, refusing.refused, before = reason, 0, len(server.requests)
            await services.act(run=reason.name)
            loop = await ended(services, reason.name)
            spent = (await services.client.get_run(services.project, reason.name)).spent
            asked_for = len(server.requests) - before
            told[loop.reason.partition(":")[0].upper()] = (loop.status, refusing.refused, asked_for, spent.tokens)
    assert told == {reason.name: (500, 1, calls, calls * CALL_TOKENS) for reason in REFUSED}


@pytest.mark.parametrize("place", ["record", "verdict"])
async def test_a_loop_whose_end_is_refused_too_asks_the_model_no_more(tmp_path, monkeypatch, place) -> None:
    """It ends as soon as its end is taken, with what the paid call took."""
    method, is_meant, _ = PLACES[place]
    is_closed = True
    writes = Refusing(method, Reason.INVALID_FIELD, is_meant)
    ends = Refusing("EndTurn", Reason.INVALID_FIELD, lambda request: is_closed and request.HasField("loop_end"))
    async with asked(tmp_path, monkeypatch, writes, ends) as (services, server):
        await services.act()
        # More than every way in which one attempt words an end.
        await ends.times(10)
        is_closed = False
        loop = await ended(services)
        spent = (await services.client.get_run(services.project, "r")).spent
    assert (loop.status, loop.reason.partition(":")[0]) == (500, "invalid_field")
    assert (len(server.requests), spent.tokens) == (1, CALL_TOKENS)


async def test_a_loop_ends_without_what_the_store_does_not_take_with_its_end(tmp_path, monkeypatch) -> None:
    record = Refusing("WriteEntries", Reason.LIMIT_EXCEEDED, _has_reply)
    entries = Refusing("EndTurn", Reason.LIMIT_EXCEEDED, lambda request: len(request.writes) > 0)
    async with asked(tmp_path, monkeypatch, record, entries) as (services, server):
        await services.act()
        loop = await ended(services)
    assert (loop.status, loop.reason, len(server.requests)) == (500, "limit_exceeded: Never.", 1)


async def test_a_reply_that_the_store_could_not_take_at_once_is_not_asked_for_again(tmp_path, monkeypatch) -> None:
    record = Refusing("WriteEntries", Reason.DATABASE_UNAVAILABLE, lambda request: _has_reply(request) and is_away)
    is_away = True
    async with asked(tmp_path, monkeypatch, record) as (services, server):
        await services.act(budget={"turns_max": 1})
        await record.times(3)
        is_away = False
        loop = await ended(services)
        spent = (await services.client.get_run(services.project, "r")).spent
    assert (loop.status, loop.turns) == (499, 1)
    assert (len(server.requests), spent.tokens) == (1, CALL_TOKENS)


@pytest.mark.parametrize("reason", [Reason.DATABASE_UNAVAILABLE, Reason.LEASE_LOST])
async def test_a_command_whose_output_could_not_be_opened_has_not_started(tmp_path, monkeypatch, reason) -> None:
    """It starts once the store is back, or once the run is owned again: nobody is told that it may have happened."""
    opening = Refusing("WriteEntries", reason, lambda request: _has_channel(request) and not opening.refused)
    async with asked(tmp_path, monkeypatch, opening) as (services, _):
        await services.act(budget={"turns_max": 1})
        await ended(services)
        records = [entry async for entry in services.client.list_entries(services.project, "r", "log://turn_1/sh/*")]
    assert ([record.status for record in records], opening.refused) == ([200], 1)
    assert (services.files / "effects.txt").read_text() == "0\n"


async def test_what_a_command_brought_is_reported_where_the_turn_cannot_end(tmp_path, monkeypatch) -> None:
    verdict = Refusing("EndTurn", Reason.LIMIT_EXCEEDED, _goes_on)
    async with asked(tmp_path, monkeypatch, verdict) as (services, _):
        await services.act()
        await ended(services)
        records = [entry async for entry in services.client.list_entries(services.project, "r", "log://turn_1/sh/*")]
    assert [record.status for record in records] == [200]


async def test_demotions_that_are_more_than_a_request_carries_are_written_in_parts(tmp_path, monkeypatch) -> None:
    """As many as may be in one request, and some more; a store may allow fewer than the contract."""
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "38000")
    text = "A fact of some length that takes room. " * 24
    facts = "".join(f'<set path="known://{n}">{text}</set>' for n in range(90))
    async with SseServer([priced(f"{facts}{GO_ON}"), priced('<update status="200">Done.</update>')]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path, store_settings={"write_limits": WriteLimits(writes_max=20)}) as services:
            loop = await services.until(await services.act())
            shown = [
                entry.visibility async for entry in services.client.list_entries(services.project, "r", "known://**")
            ]
    assert (loop.status, loop.reason, len(server.requests)) == (200, "update", 2)
    assert shown.count(int(Visibility.SUMMARIZED)) > 20
