"""What a run and a loop may spend, and how they end when it is spent."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

import pytest
from turnwright.executor.v1 import event_pb2
from turnwright.quotas.v1 import quota_service_pb2
from turnwright.types.v1 import budget_pb2, loop_pb2, model_pb2, settings_pb2

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import expected_tokens, running
from sse_server import Answer, SseServer, chat, delta, events
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import REPLY_RESERVE_TOKENS

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'


def budget(**limits) -> budget_pb2.Budget:
    return budget_pb2.Budget(**limits)


async def limit_run(services, run="r", **limits):
    settings = settings_pb2.RunSettings(model="m", budget=budget(**limits))
    await services.client.create_run(services.project, run, settings)


def untold(text: str) -> Answer:
    """A reply whose vendor tells nothing of what it took."""
    return Answer(chunks=events(delta(role="assistant", content=text), delta(finish="stop")))


@contextlib.asynccontextmanager
async def answered(tmp_path, monkeypatch, *answers: Answer):
    """The services with a model that gives these answers."""
    async with SseServer(answers) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            yield services, server


def told(services) -> list[event_pb2.BudgetExhausted]:
    return [event.budget_exhausted for event in services.events if event.HasField("budget_exhausted")]


def word_of(loop: loop_pb2.Loop) -> tuple[int, str]:
    return loop.status, ":".join(loop.reason.split(":")[:2])


async def test_a_loop_ends_after_its_turns_and_says_so_everywhere(services) -> None:
    services.script(GO_ON, GO_ON, DONE)
    loop = await services.until(await services.act(budget=budget(turns_max=2)))
    run = (await services.client.get_run(services.project, "r")).run
    detail = "the loop has taken 2 of 2 turns"
    assert (loop.status, loop.reason, loop.turns) == (499, f"budget_exhausted:turns: {detail}", 2)
    assert (run.status, run.turn) == (499, 2)
    assert told(services) == [event_pb2.BudgetExhausted(loop=1, kind=event_pb2.BUDGET_KIND_TURNS, detail=detail)]


async def test_work_that_is_done_with_the_last_of_a_budget_is_done(services) -> None:
    services.script(GO_ON, DONE)
    loop = await services.until(await services.act(budget=budget(turns_max=2)))
    assert (loop.status, loop.reason, told(services)) == (200, "update", [])


async def test_the_limits_of_a_run_count_all_its_loops(services) -> None:
    services.script(DONE, DONE, DONE)
    await limit_run(services, turns_max=2)
    statuses = [(await services.until(await services.act())).status for _ in range(3)]
    answer = await services.client.get_run(services.project, "r")
    assert (statuses, answer.spent.turns, answer.run.turn) == ([200, 200, 499], 2, 2)
    error = await services.entry("log://turn_2/error/budget_exhausted")
    assert told(services)[0].of_run
    assert (error.body, error.outcome) == ("the run has taken 2 of 2 turns", "budget_exhausted:499")
    assert answer.run.settings.budget == budget(turns_max=2)


async def test_more_for_a_run_lets_it_go_on(services) -> None:
    services.script(DONE, DONE)
    await limit_run(services, turns_max=1)
    assert [(await services.until(await services.act())).status for _ in range(2)] == [200, 499]
    patch = settings_pb2.RunSettingsPatch(budget=budget(turns_max=2))
    await services.client.configure_run(services.project, "r", patch)
    assert (await services.until(await services.act())).status == 200


async def test_a_call_that_does_not_fit_what_is_left_is_not_made(services) -> None:
    services.script(DONE)
    loop = await services.until(await services.act(budget=budget(tokens_max=REPLY_RESERVE_TOKENS)))
    answer = await services.client.get_run(services.project, "r", turns_max=1)
    assert word_of(loop) == (499, "budget_exhausted:tokens")
    assert (answer.spent.tokens, answer.turns[0].result.reason) == (0, "budget_exhausted")
    assert [entry.path async for entry in services.client.list_entries(services.project, "r", "assistant://*")] == []
    assert not any(event.HasField("stream_started") for event in services.events)


async def test_a_quota_without_room_ends_a_loop_before_its_call(services) -> None:
    services.script(DONE)
    quota = quota_service_pb2.Quota(metric=quota_service_pb2.QUOTA_METRIC_TOKENS_MONTH, limit=10)
    await services.client.set_quota(services.project, quota)
    loop = await services.until(await services.act())
    assert (loop.status, loop.reason.partition(":")[0]) == (499, "quota_exhausted")
    assert f"The project {services.project} has used 0 of 10 tokens of this month" in loop.reason
    assert not any(event.HasField("stream_started") for event in services.events)
    quota.limit = 1_000_000
    await services.client.set_quota(services.project, quota)
    loop = await services.until(await services.act())
    (found,) = await services.client.list_quotas(services.project)
    assert (loop.status, found.reserved) == (200, 0)
    answer = await services.client.get_run(services.project, "r")
    assert found.used == answer.spent.tokens > 0


async def test_tokens_are_counted_until_the_next_call_may_not_fit(services) -> None:
    services.script(*[GO_ON] * 20)
    loop = await services.until(await services.act(budget=budget(tokens_max=12_000)))
    answer = await services.client.get_run(services.project, "r")
    assert word_of(loop) == (499, "budget_exhausted:tokens")
    assert 1 <= loop.turns < 20
    assert 0 < answer.loop_spent.tokens <= 12_000


async def test_a_limit_in_money_ends_a_loop_whose_calls_have_no_price(services) -> None:
    services.script(GO_ON, DONE)
    loop = await services.until(await services.act(budget=budget(cost_usd_max=1)))
    assert (word_of(loop), loop.turns) == ((499, "budget_exhausted:cost"), 1)


async def test_work_is_stopped_when_its_time_is_over(services) -> None:
    services.script("<sh>sleep 3000</sh>" + DONE)
    loop = await services.until(await services.act(budget=budget(wall_max=timedelta(seconds=3))))
    (record,) = [entry async for entry in services.client.list_entries(services.project, "r", "log://turn_1/sh/*")]
    assert (word_of(loop), record.status) == ((499, "budget_exhausted:wall"), 499)


async def test_waiting_for_a_decision_takes_no_time_from_the_budget(services) -> None:
    services.script('<set path="a.txt">new</set>' + GO_ON, DONE)
    queued = await services.act(yolo=False, budget=budget(wall_max=timedelta(seconds=20)))
    await services.until(queued, 202)
    before = await services.client.get_run(services.project, "r")
    time.sleep(0.5)  # noqa: ASYNC251 - nothing may happen meanwhile
    await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
    loop = await services.until(queued)
    spent = (await services.client.get_run(services.project, "r")).loop_spent
    assert (before.run.status, loop.status) == (202, 200)
    assert timedelta(0) < spent.wall.ToTimedelta() < timedelta(seconds=20)


async def test_turns_without_limits_tell_what_they_took_as_well(services) -> None:
    services.script(DONE)
    await services.until(await services.act())
    answer = await services.client.get_run(services.project, "r", turns_max=1)
    result = answer.turns[0].result
    assert answer.spent == answer.loop_spent
    assert (answer.spent.turns, answer.spent.tokens) == (1, result.usage.total_tokens)
    assert result.work_duration.ToTimedelta() > timedelta(0)
    assert answer.spent.wall == result.work_duration


async def test_the_time_of_a_turn_that_was_stopped_is_spent(services) -> None:
    pause = "=== reply after_ms=60000 ==="
    (services.root / "m.txt").write_text(f"=== reply delay_ms=0 ===\n{GO_ON}\n{pause}\n{DONE}\n")
    await limit_run(services, wall_max=timedelta(seconds=1.5))
    first = await services.until(await services.act())
    spent = (await services.client.get_run(services.project, "r")).spent
    second = await services.until(await services.act())
    assert [word_of(first), word_of(second)] == [(499, "budget_exhausted:wall")] * 2
    assert spent.wall.ToTimedelta() >= timedelta(seconds=1)


async def test_what_a_vendor_does_not_tell_is_charged_as_an_estimate(tmp_path, monkeypatch) -> None:
    async with answered(tmp_path, monkeypatch, *[untold(GO_ON)] * 3) as (services, server):
        loop = await services.until(await services.act(budget=budget(tokens_max=8_000)))
        answer = await services.client.get_run(services.project, "r", turns_max=5)
    assert (word_of(loop), len(server.requests)) == ((499, "budget_exhausted:tokens"), 1)
    first = answer.turns[-1].result
    assert first.lost_tokens == expected_tokens(first) + -(-len(GO_ON) // 2)
    assert (answer.spent.tokens, answer.spent.lost_tokens) == (first.lost_tokens, first.lost_tokens)


async def test_a_limit_in_money_is_refused_before_the_first_call_where_no_price_is_known(tmp_path, monkeypatch) -> None:
    async with answered(tmp_path, monkeypatch, untold(GO_ON), untold(DONE)) as (services, server):
        loop = await services.until(await services.act(budget=budget(cost_usd_max=1)))
    assert (word_of(loop)[0], loop.reason.partition(":")[0], len(server.requests)) == (500, "vendor_rejected", 0)
    assert "set TURNWRIGHT_PRICE_m" in loop.reason
    assert "turnwright models add m openai/" in loop.reason


async def test_a_call_whose_stream_stops_in_the_middle_is_charged(tmp_path, monkeypatch) -> None:
    cut = Answer(chunks=chat(DONE).chunks[:2], end="cut")
    async with answered(tmp_path, monkeypatch, cut, chat(DONE)) as (services, _):
        loop = await services.until(await services.act())
        answer = await services.client.get_run(services.project, "r", turns_max=1)
    result = answer.turns[0].result
    assert (loop.status, result.lost_tokens) == (200, expected_tokens(result) + REPLY_RESERVE_TOKENS)
    assert answer.spent.tokens == result.usage.total_tokens + result.lost_tokens


async def test_a_call_is_not_made_again_where_the_budget_does_not_reach(tmp_path, monkeypatch) -> None:
    cut = Answer(chunks=chat(DONE).chunks[:2], end="cut")
    async with answered(tmp_path, monkeypatch, cut, chat(DONE)) as (services, server):
        loop = await services.until(await services.act(budget=budget(tokens_max=8_000)))
        spent = (await services.client.get_run(services.project, "r")).spent
    assert (word_of(loop), len(server.requests)) == ((499, "budget_exhausted:tokens"), 1)
    assert 0 < spent.lost_tokens == spent.tokens <= 8_000


@pytest.mark.parametrize(("limit", "word", "calls"), [(1.5, "budget_exhausted:cost", 1), (100, "update", 2)])
async def test_a_limit_in_money_works_where_a_price_is_set(tmp_path, monkeypatch, limit, word, calls) -> None:
    """The vendor tells tokens and no cost."""
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", "1/1/1")
    replies = [chat(GO_ON, prompt_tokens=2_000_000), chat(DONE, prompt_tokens=2_000_000)]
    async with answered(tmp_path, monkeypatch, *replies) as (services, server):
        loop = await services.until(await services.act(budget=budget(cost_usd_max=limit)))
        spent = (await services.client.get_run(services.project, "r")).spent
    assert (word_of(loop)[1], len(server.requests)) == (word, calls)
    assert spent.cost_usd == pytest.approx(2.0 * calls, rel=0.01)


async def test_a_limit_in_money_works_where_the_model_has_a_price(tmp_path, monkeypatch) -> None:
    replies = [chat(GO_ON, prompt_tokens=2_000_000), chat(DONE, prompt_tokens=2_000_000)]
    async with answered(tmp_path, monkeypatch, *replies) as (services, server):
        (model,) = [one for one in await services.client.list_models() if one.alias == "m"]
        price = model_pb2.Price(input_usd=1, cached_usd=1, output_usd=1)
        kept = await services.client.set_model(model_pb2.Model(alias="m", vendor_model=model.vendor_model, price=price))
        assert [one.price for one in await services.client.list_models() if one.alias == "m"] == [kept.price] == [price]
        with pytest.raises(TurnwrightError) as refused:
            await services.client.set_model(
                model_pb2.Model(
                    alias="n", vendor_model=model.vendor_model, price=model_pb2.Price(cached_usd=float("nan"))
                )
            )
        assert refused.value.metadata["field"] == "price.cached_usd"
        loop = await services.until(await services.act(budget=budget(cost_usd_max=1.5)))
        spent = (await services.client.get_run(services.project, "r")).spent
    assert (word_of(loop)[1], len(server.requests)) == ("budget_exhausted:cost", 1)
    assert spent.cost_usd == pytest.approx(2.0, rel=0.01)


async def test_a_command_without_room_is_not_carried_out_and_the_model_reads_until_when(services) -> None:
    services.script('<set path="ran.txt">1</set><sh>touch ran</sh>', DONE)
    metric = quota_service_pb2.QUOTA_METRIC_COMMANDS_MINUTE
    await services.client.set_quota(services.project, quota_service_pb2.Quota(metric=metric, limit=0))
    loop = await services.until(await services.act())
    entry = await services.entry("log://turn_1/set/ran.txt")
    assert (loop.reason.partition(":")[0], entry.outcome) == ("change_failed", "quota_exhausted:429")
    assert "commands of this minute. The next minute begins at " in entry.body
    assert not (services.files / "ran.txt").exists()
    with pytest.raises(TurnwrightError) as refused:
        await services.client.call_tool(services.project, "r", "think", {}, "Hm.")
    assert refused.value.reason is Reason.QUOTA_EXCEEDED
