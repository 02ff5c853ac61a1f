"""What is known of a model: its vendor is asked, its alias knows better, and no call waits or fails for it."""

import asyncio

import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import model_pb2, settings_pb2

from sse_server import Answer, SseServer, chat, error, never

pytestmark = pytest.mark.asyncio

LISTED = {
    "data": [
        {"id": "big", "context_length": 200_000, "top_provider": {"max_completion_tokens": 32_000},
         "supported_parameters": ["tools", "reasoning"], "architecture": {"input_modalities": ["text", "image"]}},
        {"id": "small", "context_length": 8_192, "supported_parameters": ["temperature"]},
    ]
}  # fmt: skip


def model(vendor_model: str, **said) -> model_pb2.Model:
    return model_pb2.Model(alias="m", vendor_model=vendor_model, **said)


def can(**said: bool) -> model_pb2.Capabilities:
    return model_pb2.Capabilities(**said)


async def known(client, *models: model_pb2.Model, cached: bool = True) -> list[model_pb2.Model]:
    request = pb.CheckModelsRequest(models=models, cached=cached)
    answer = await client.stub.CheckModels(request, metadata=client.metadata)
    return [check.model for check in answer.checks]


async def test_a_model_has_the_window_the_limit_and_the_capabilities_that_its_vendor_says(provider):
    async with SseServer(pages={"/v1/models": LISTED}) as server:
        client = await provider(openrouter_base_url=server.url)
        big, small, absent = await known(client, *(model(f"openrouter/{name}") for name in ("big", "small", "absent")))

    assert (big.alias, big.context_length, big.output_tokens_max) == ("m", 200_000, 32_000)
    assert big.capabilities == can(tools=True, images=True, reasoning=True, response_format=False)
    assert (small.context_length, small.capabilities.tools) == (8_192, False)
    assert absent == model("openrouter/absent")
    assert len(server.looks) == 1


async def test_the_alias_knows_better_than_the_vendor(provider):
    async with SseServer(pages={"/v1/models": LISTED}) as server:
        client = await provider(openrouter_base_url=server.url)
        own = model("openrouter/big", context_length=50_000, capabilities=can(tools=False, images=True))
        (found,) = await known(client, own)

    assert (found.context_length, found.output_tokens_max) == (50_000, 32_000)
    assert found.capabilities == can(tools=False, images=True, reasoning=True, response_format=False)


@pytest.mark.parametrize(
    ("settings", "pages", "name", "found"),
    [
        ("llamacpp_base_url", {
            "/v1/models": {"data": [{"id": "/a.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 40_960}}]},
            "/props": {"default_generation_settings": {"n_ctx": 4096}, "chat_template_caps": {"supports_tools": True},
                       "modalities": {"vision": False}},
        }, "llamacpp/any", model("llamacpp/any", context_length=4096, capabilities=can(tools=True, images=False))),
        ("openai_base_url", {
            "/v1/models": {"data": [{"id": "/a.gguf", "owned_by": "llamacpp"}]},
            "/props": {"default_generation_settings": {"n_ctx": 4096}},
        }, "openai/any", model("openai/any", context_length=4096)),
        ("litellm_base_url", {
            "/v1/models": {"data": [{"id": "m", "owned_by": "openai"}]},
            "/model/info": {"data": [{"model_name": "m", "model_info": {"max_input_tokens": 9000, "supports_vision": True}}]},
        }, "litellm/m", model("litellm/m", context_length=9000, capabilities=can(images=True))),
        ("gemini_base_url", {
            "/v1beta/models": {"models": [{"name": "models/g", "inputTokenLimit": 1000, "outputTokenLimit": 100}]},
        }, "gemini/g", model("gemini/g", context_length=1000, output_tokens_max=100)),
        ("anthropic_base_url", {
            "/v1/models": {"data": [{"id": "c-20250101", "max_input_tokens": 1000, "max_tokens": 64}]},
        }, "anthropic/c", model("anthropic/c", context_length=1000, output_tokens_max=64)),
        ("vllm_base_url", {
            "/v1/models": {"data": [{"id": "q", "owned_by": "vllm", "max_model_len": 40_960}]},
        }, "vllm/q", model("vllm/q", context_length=40_960)),
    ],
    ids=["llama.cpp", "llama.cpp under another name", "litellm", "gemini", "anthropic", "vllm"],
)  # fmt: skip
async def test_each_kind_of_server_is_asked_in_its_own_way(provider, settings, pages, name, found):
    async with SseServer(pages=pages) as server:
        root = server.url.removesuffix("/v1")
        client = await provider(**{settings: f"{root}/v1beta" if "gemini" in settings else server.url})
        assert await known(client, model(name)) == [found]
        assert [request.path.partition("?")[0] for request in server.looks] == list(pages)


async def test_ollama_is_asked_for_each_model_by_its_name(provider):
    shown = {"parameters": "num_ctx 8192", "capabilities": ["completion", "tools"]}
    pages = {"/api/tags": {"models": [{"name": "q:8b"}, {"name": "r:1b"}]}, "/api/show": shown}
    async with SseServer([chat("ok")], pages=pages) as server:
        client = await provider(ollama_base_url=server.url.removesuffix("/v1"))
        q, r = await known(client, model("ollama/q:8b"), model("ollama/r:1b"))
        asked = sorted(request.json["model"] for request in server.looks if request.method == "POST")

    assert (q.context_length, r.context_length, asked) == (8192, 8192, ["q:8b", "r:1b"])
    assert q.capabilities == can(tools=True, images=False, reasoning=False, response_format=True)


async def test_of_many_that_ask_at_the_same_time_one_asks_the_vendor_and_the_answer_is_kept(provider):
    async with SseServer(pages={"/v1/models": LISTED}) as server:
        client = await provider(openrouter_base_url=server.url)
        heard = await asyncio.gather(*(known(client, model("openrouter/big")) for _ in range(20)))
        again = await known(client, model("openrouter/big"))
        looks = len(server.looks)
        await known(client, model("openrouter/big"), cached=False)

    assert {found.context_length for (found,) in (*heard, again)} == {200_000}
    # A check that is to be fresh asks anew.
    assert (looks, len(server.looks)) == (1, 2)


async def test_what_was_said_is_asked_again_when_it_is_old_and_is_not_forgotten_by_a_vendor_that_fails(provider):
    pages = {"/v1/models": LISTED}
    async with SseServer(pages=pages) as server:
        client = await provider(openrouter_base_url=server.url, model_lifetime_s=0.0)
        await known(client, model("openrouter/big"))
        pages["/v1/models"] = error(401, "no")
        (kept,) = await known(client, model("openrouter/big"))
        looks = len(server.looks)
        # A vendor that has just refused is left alone for a while.
        await known(client, model("openrouter/big"))

    assert (kept.context_length, looks, len(server.looks)) == (200_000, 2, 2)


@pytest.mark.parametrize("answer", [never(), error(500, "oops"), error(401, "no"), Answer(200, {}, [b"<html>"])])
async def test_a_vendor_that_does_not_say_delays_nobody_for_long_and_fails_nothing(provider, answer):
    async with SseServer([chat("ok")], pages={"/v1/models": answer}) as server:
        client = await provider(openai_base_url=server.url, model_wait_s=0.1)
        async with asyncio.timeout(60):
            found = await asyncio.gather(*(known(client, model("openai/m")) for _ in range(5)))
            heard = await client.generate("openai/m")
        looks = len(server.looks)

    assert [one for (one,) in found] == [model("openai/m")] * 5
    assert (heard.text, looks) == ("ok", 1)


async def test_what_vendors_publish_holds_at_their_own_address_only(provider):
    async with SseServer(models=["gpt-5-mini"]) as server:
        client = await provider(openai_base_url=server.url)
        (elsewhere,) = await known(client, model("openai/gpt-5-mini"))
    assert elsewhere == model("openai/gpt-5-mini")


async def test_a_field_that_the_model_is_known_not_to_take_is_not_sent(provider):
    form = settings_pb2.ResponseFormat(schema='{"type": "object"}')
    limits = {"capabilities": can(response_format=False, reasoning=False)}
    async with SseServer([chat("one"), chat("two")]) as server:
        client = await provider(openai_base_url=server.url)
        heard = await client.generate("openai/m", known=limits, response_format=form,
                                      reasoning=settings_pb2.Reasoning(tokens=100))  # fmt: skip
        refused = await client.generate("openai/m", known=limits, response_format=form, required=["response_format"])

    assert [one.field for one in heard.finish.dropped] == ["reasoning", "response_format"]
    assert server.requests[0].json.keys().isdisjoint({"response_format", "reasoning_effort"})
    assert (refused.reason, len(server.requests)) == ("VENDOR_REJECTED", 1)


@pytest.mark.parametrize(
    ("said", "sent"),
    [({}, 8192), ({"output_tokens_max": 64_000}, 8192), ({"output_tokens_max": 4096}, 4096),
     ({"output_tokens_max": 64_000, "context_length": 200_000}, 20_000)],
)  # fmt: skip
async def test_anthropic_is_allowed_what_the_model_can_write_and_its_window_leaves_free(provider, said, sent):
    async with SseServer([error(400, "that is enough")], models=["c"]) as server:
        await (await provider(anthropic_base_url=server.url)).generate("anthropic/c", known=said)

    assert server.requests[0].json["max_tokens"] == sent
