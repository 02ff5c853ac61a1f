"""What a call costs where its vendor tells none: by the price that is set for the model's alias."""

import pytest
from turnwright_values.types import Usage

from sse_server import Answer, SseServer, delta, events
from turnwright_kit.settings import SettingsError, load
from turnwright_provider.app.pricing import cost_of_call
from turnwright_provider.config import ProviderSettings
from turnwright_provider.domain.usage import Price

USAGE = {
    "prompt_tokens": 1_000_000,
    "completion_tokens": 200_000,
    "total_tokens": 1_200_000,
    "prompt_tokens_details": {"cached_tokens": 600_000},
}


def answer(usage: dict) -> Answer:
    return Answer(chunks=events(delta(content="hi"), delta(finish="stop"), {"choices": [], "usage": usage}))


async def cost_of(provider, usage: dict) -> float | None:
    async with SseServer([answer(usage)]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()
    # Usage that comes together with the end is told there alone.
    told = [part.delta.set_usage for part in heard.parts if part.delta.HasField("set_usage")]
    assert {one.cost_usd for one in told} <= {heard.finish.usage.cost_usd}
    return heard.finish.usage.cost_usd if heard.finish.usage.HasField("cost_usd") else None


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("price", "cost"), [("2/0.5/10", 0.8 + 0.3 + 2), ("2 / 0.5 / 10", 3.1), ("2/10", 4.0), ("0/0/0", 0.0), (None, None)]
)
async def test_a_call_costs_what_its_tokens_do(provider, monkeypatch, price, cost):
    monkeypatch.setenv("TURNWRIGHT_PRICE_another", "1000/1000/1000")
    if price:
        monkeypatch.setenv("TURNWRIGHT_PRICE_m", price)

    assert await cost_of(provider, USAGE) == (None if cost is None else pytest.approx(cost))


@pytest.mark.asyncio
@pytest.mark.parametrize("told", [0.25, 0])
async def test_what_a_vendor_tells_wins_over_the_price(provider, monkeypatch, told):
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", "2/0.5/10")

    assert await cost_of(provider, {**USAGE, "cost": told}) == told


@pytest.mark.asyncio
async def test_more_cached_tokens_than_there_are_cost_no_less_than_nothing(provider, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", "2/0.5/10")
    usage = {"prompt_tokens": 1_000_000, "prompt_tokens_details": {"cached_tokens": 9_000_000}}

    assert await cost_of(provider, usage) == pytest.approx(0.5)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("vendor", "model", "endpoint", "known"),
    [
        ("openai", "gpt-5-mini", "https://api.openai.com/v1", True),
        ("anthropic", "claude-sonnet-4-5", "https://api.anthropic.com/v1", True),
        ("gemini", "gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta", True),
        ("xai", "grok-4", "https://api.x.ai/v1", True),
        ("openai", "gpt-5-mini", "http://127.0.0.1:8080/v1", False),
        ("openai", "no-such-model", "https://api.openai.com/v1", False),
        ("work", "gpt-5-mini", "https://models.example.com/v1", False),
    ],
)
async def test_the_table_knows_what_vendors_take_at_their_own_address(vendor, model, endpoint, known):
    cost = await cost_of_call({}, "m", vendor, model, endpoint)
    assert (cost is not None) is known


@pytest.mark.asyncio
async def test_cached_and_written_tokens_have_prices_of_their_own():
    cost = await cost_of_call({}, "m", "anthropic", "claude-sonnet-4-5", "https://api.anthropic.com/v1")
    fresh, cached, written = (
        cost(Usage(prompt_tokens=10_000, **more))
        for more in ({}, {"cached_tokens": 10_000}, {"cache_write_tokens": 10_000})
    )
    assert cached < fresh < written


@pytest.mark.asyncio
async def test_the_price_of_an_alias_goes_before_the_table():
    prices = {"m": Price(1.0, 1.0, 1.0)}
    cost = await cost_of_call(prices, "m", "openai", "gpt-5-mini", "https://api.openai.com/v1")
    assert cost(Usage(prompt_tokens=1_000_000)) == 1.0


@pytest.mark.asyncio
@pytest.mark.parametrize("vendor", ["openai", "work"])
async def test_the_price_of_a_model_applies_unless_another_is_set_here(vendor):
    usage, own = Usage(prompt_tokens=1_000_000), Price(3.0, 1.0, 1.0)
    place = (vendor, "gpt-5-mini", "https://api.openai.com/v1")
    assert (await cost_of_call({}, "m", *place, own))(usage) == 3.0
    assert (await cost_of_call({"m": Price(0.0, 0.0, 0.0)}, "m", *place, own))(usage) == 0.0


def test_prices_are_reported_among_the_settings(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", "2/10")
    assert load(ProviderSettings).more == {"TURNWRIGHT_PRICE_m": "2/10"}


@pytest.mark.parametrize("price", ["", "2", "2/3/4/5", "-1/2", "free/2", "1e3/2", "nan/2", "2//3", "1,5/2"])
def test_a_price_that_is_none_ends_the_start_and_is_named(monkeypatch, price):
    monkeypatch.setenv("TURNWRIGHT_PRICE_m", price)
    with pytest.raises(SettingsError, match=r"^TURNWRIGHT_PRICE_m: must be US dollars"):
        load(ProviderSettings)
