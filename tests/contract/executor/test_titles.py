"""A title of a run by a cheap model: asked for once, beside the loop, charged, and never in the place of a person's."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest
from turnwright.types.v1 import budget_pb2, model_pb2, settings_pb2

from services import running
from sse_server import SseServer, chat, error, never
from turnwright_core.limits import TITLE_TOKENS_MAX

pytestmark = pytest.mark.asyncio

DONE = (
    'I keep it.\n<set path="known://a">The secret is 42.</set>\n<update status="200">The basket counts to ten.</update>'
)
AGAIN = '<update status="200">Again.</update>'
RENDERED = "**Basket:** count the \x1b[31mtenth\u202e piece.\nMore words."


@contextlib.asynccontextmanager
async def titled(root, monkeypatch, *answers, **settings):
    """The services, with a model for titles that gives these answers."""
    async with SseServer(answers) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        monkeypatch.setenv("TURNWRIGHT_MODEL_cheap", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(root, **{"title_model": "cheap", **settings}) as services:
            services.script(DONE, AGAIN, AGAIN)
            yield services, server


async def until(services, is_so, run="r"):
    """The run, once it is so."""
    for _ in range(3000):
        answer = await services.client.get_run(services.project, run, turns_max=9)
        if is_so(answer):
            return answer
        await asyncio.sleep(0.02)
    raise AssertionError("it never was")


def tokens_of(answer) -> int:
    return sum(turn.result.usage.total_tokens + turn.result.lost_tokens for turn in answer.turns)


async def ended(services, prompt="Count to ten."):
    return await services.until(await services.act(prompt))


async def test_a_model_is_asked_once_and_charged(tmp_path, monkeypatch):
    async with titled(tmp_path, monkeypatch, chat(RENDERED, prompt_tokens=70)) as (services, server):
        await ended(services)
        answer = await until(services, lambda answer: answer.run.title != "Count to ten.")
        await ended(services, "Something else.")
        again = await services.client.get_run(services.project, "r")
        listed = [run.title async for run in services.client.list_runs(services.project)]
    assert answer.run.title == "Basket: count the tenth piece."
    assert (again.run.title, listed) == (answer.run.title, [answer.run.title])
    [asked] = server.requests
    system, user = asked.json["messages"]
    assert "title" in system["content"]
    assert user["content"] == "Count to ten.\n\nThe agent: I keep it."
    assert "tools" not in asked.json
    assert asked.json["max_tokens"] == TITLE_TOKENS_MAX
    assert answer.spent.tokens == tokens_of(answer) + 70 + -(-len(RENDERED) // 4)
    assert answer.spent.prompt_tokens == answer.turns[0].result.usage.prompt_tokens + 70
    assert (answer.spent.turns, answer.spent.lost_tokens) == (1, 0)


async def test_nobody_is_asked_without_a_setting(tmp_path, monkeypatch):
    async with titled(tmp_path, monkeypatch, chat("T"), title_model="") as (services, server):
        await ended(services)
        answer = await services.client.get_run(services.project, "r")
    assert (answer.run.title, server.requests) == ("Count to ten.", [])


async def test_a_title_of_a_person_stays(tmp_path, monkeypatch):
    gate = asyncio.Event()
    async with titled(tmp_path, monkeypatch, replace(chat("Theirs"), gate=gate)) as (services, server):
        patch = settings_pb2.RunSettingsPatch(title="Mine")
        named = settings_pb2.RunSettings(model="m", title="Named before")
        await services.client.create_run(services.project, "named", named)
        await services.until(await services.act(run="named"))
        loop = await ended(services)
        await server.wait_for(1)
        await services.client.configure_run(services.project, "r", patch)
        gate.set()
        answer = await until(services, lambda answer: answer.spent.lost_tokens == 0)
        before = await services.client.get_run(services.project, "named")
        back = await services.client.configure_run(services.project, "r", settings_pb2.RunSettingsPatch(title=""))
    assert loop.status == 200
    assert (answer.run.title, before.run.title) == ("Mine", "Named before")
    assert len(server.requests) == 1
    assert back.settings.title == ""


async def test_a_call_that_was_lost_is_charged_and_not_made_again(tmp_path, monkeypatch):
    async with titled(tmp_path, monkeypatch, never(), chat("Twice")) as (services, server):
        loop = await ended(services)
        await server.wait_for(1)
        await services.restart("executor")
        await ended(services, "And on.")
        answer = await services.client.get_run(services.project, "r", turns_max=10)
    assert loop.status == 200
    assert (len(server.requests), answer.run.title) == (1, "Count to ten.")
    lost = answer.spent.tokens - tokens_of(answer)
    assert answer.spent.lost_tokens == lost > TITLE_TOKENS_MAX


async def test_a_call_that_is_refused_costs_nothing_and_is_not_repeated(tmp_path, monkeypatch):
    async with titled(tmp_path, monkeypatch, *[error(401, "who are you")] * 3) as (services, server):
        await ended(services)
        answer = await until(services, lambda answer: server.requests and answer.spent.tokens == tokens_of(answer))
        await ended(services, "And on.")
        answer = await services.client.get_run(services.project, "r", turns_max=10)
    assert (len(server.requests), answer.run.title) == (1, "Count to ten.")
    assert answer.spent.tokens == tokens_of(answer)


async def test_a_title_whose_cost_nobody_knows_is_not_asked_for_where_cost_is_limited(tmp_path, monkeypatch):
    async with titled(tmp_path, monkeypatch, chat("T"), drain_s=30.0) as (services, server):
        price = model_pb2.Price(input_usd=1.0, cached_usd=1.0, output_usd=1.0)
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m", price=price))
        settings = settings_pb2.RunSettings(model="m", budget=budget_pb2.Budget(cost_usd_max=5.0))
        await services.client.create_run(services.project, "r", settings)
        await ended(services)
        # Its end waits for the call.
        await services.restart("executor")
        answer = await services.client.get_run(services.project, "r")
    assert (answer.run.title, server.requests) == ("Count to ten.", [])
