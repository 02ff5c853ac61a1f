"""Vendors: which there are, whether they are configured, what models they have; and what Generate refuses itself."""

import asyncio
import json
import math
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack

import grpc
import pytest
from turnwright.types.v1.message_pb2 import Message, Part

from contract.provider.conftest import SECRET, VENDOR_VARIABLES, Client
from sse_server import Answer, SseServer, chat, error, json_answer, never
from turnwright_kit.errors import code_of
from turnwright_provider.config import PACKAGED_SCRIPTS
from turnwright_provider.domain.presets import PRESETS

SERVICES = tuple(preset.name for preset in PRESETS if preset.wire == "chat")
"""The vendors that speak OpenAI's chat completions."""


@pytest.mark.asyncio
async def test_without_settings_only_the_scripts_are_configured(provider):
    # RU306: a provider without config is inert
    client = await provider()
    vendors = await client.vendors()
    heard = await client.generate("openai/tiny")

    assert [name for name, vendor in vendors.items() if vendor.configured] == ["scripted"]
    assert {name for name, vendor in vendors.items() if vendor.unset} == {preset.name for preset in PRESETS}
    assert (vendors["scripted"].problem, vendors["scripted"].endpoint) == ("", str(PACKAGED_SCRIPTS))
    for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY"):
        assert name in vendors["openai"].problem
        assert name in heard.error.message
        assert name in heard.error.metadata["setting"]
    assert heard.reason == "VENDOR_NOT_CONFIGURED"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("vendor", "named"),
    [("anthropic", {"ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"}), ("ollama", {"OLLAMA_BASE_URL"}), ("openrouter", {"OPENROUTER_BASE_URL", "OPENROUTER_API_KEY"}),
     ("xai", {"XAI_BASE_URL", "XAI_API_KEY"})],
)  # fmt: skip
async def test_a_vendor_without_settings_is_inert_and_names_them(provider, vendor, named):
    # RU306: the others stay as they are
    async with SseServer([chat("still there")]) as server:
        client = await provider(openai_base_url=server.url)
        refused = await client.generate(f"{vendor}/some/model")
        (check,) = await client.check(f"{vendor}/some/model")
        heard = await client.generate("openai/tiny")

    assert refused.reason == "VENDOR_NOT_CONFIGURED"
    assert named <= set(refused.error.metadata["setting"].split(","))
    assert all(name in refused.error.message and name in check.problem for name in named)
    assert not check.usable
    assert heard.text == "still there"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "endpoint", "problem"),
    [
        ({"openai_api_key": "k" * 20}, "https://api.openai.com/v1", ""),
        ({"anthropic_api_key": "k" * 20}, "https://api.anthropic.com/v1", ""),
        ({"anthropic_base_url": "https://api.anthropic.com"}, "https://api.anthropic.com/v1", ""),
        ({"openrouter_api_key": "k" * 20}, "https://openrouter.ai/api/v1", ""),
        ({"openrouter_base_url": "https://proxy.example"}, "https://proxy.example/api/v1", ""),
        ({"xai_api_key": "k" * 20}, "https://api.x.ai/v1", ""),
        ({"xai_base_url": "https://eu.x.ai/v1/"}, "https://eu.x.ai/v1", ""),
        ({"ollama_base_url": "http://127.0.0.1:11434/"}, "http://127.0.0.1:11434", ""),
        ({"ollama_base_url": "http://127.0.0.1:11434/api"}, "http://127.0.0.1:11434", ""),
        ({"ollama_base_url": "http://127.0.0.1:11434/v1"}, "http://127.0.0.1:11434/v1", ""),
        ({"ollama_api_key": "k" * 20}, "", "OLLAMA_BASE_URL"),
        ({"gemini_api_key": "k" * 20}, "https://generativelanguage.googleapis.com/v1beta", ""),
        ({"gemini_base_url": "https://proxy.example"}, "https://proxy.example/v1beta", ""),
        ({"deepseek_api_key": "k" * 20}, "https://api.deepseek.com/v1", ""),
        ({"ollama_base_url": "127.0.0.1:11434"}, "", "OLLAMA_BASE_URL"),
        ({"openai_base_url": "http://user:pass@127.0.0.1:9/v1/?key=1"}, "http://127.0.0.1:9/v1/", ""),
        ({"openai_base_url": "localhost:9/v1"}, "", "OPENAI_BASE_URL"),
        ({"openai_base_url": "http://[::1/v1"}, "", "OPENAI_BASE_URL"),
        ({"openai_base_url": "http://host:port/v1"}, "", "OPENAI_BASE_URL"),
        ({"openai_base_url": "http://127.0.0.1:9/v1", "openai_api_key": "ключ"}, "http://127.0.0.1:9/v1", "OPENAI_API_KEY"),
    ],
)  # fmt: skip
async def test_a_vendor_tells_where_it_is_reached_and_what_is_wrong(provider, settings, endpoint, problem):
    vendor = (await (await provider(**settings)).vendors())[next(iter(settings)).partition("_")[0]]

    assert vendor.configured is not bool(problem)
    assert problem in vendor.problem
    assert not endpoint or vendor.endpoint == endpoint


@pytest.mark.asyncio
async def test_a_scripts_folder_that_is_missing_is_named_with_its_setting(provider, tmp_path):
    client = await provider(scripted_dir=tmp_path / "gone")
    heard = await client.generate("scripted/hello")

    assert "TURNWRIGHT_SCRIPTED_DIR" in (await client.vendors())["scripted"].problem
    assert (heard.reason, heard.error.metadata["setting"]) == ("VENDOR_NOT_CONFIGURED", "TURNWRIGHT_SCRIPTED_DIR")


@pytest.mark.asyncio
async def test_an_unknown_vendor_is_refused_with_those_there_are(provider):
    # RU307: the first segment picks the vendor
    heard = await (await provider()).generate("nobody/some/model")

    assert heard.reason == "VENDOR_NOT_CONFIGURED"
    assert code_of(heard.error) is grpc.StatusCode.FAILED_PRECONDITION
    assert "ollama, openai, openrouter, perplexity, scripted" in heard.error.message
    assert heard.error.metadata["vendor"] == "nobody"


@pytest.mark.asyncio
async def test_the_first_segment_picks_the_vendor_and_the_rest_is_its_own_name(provider):
    # RU306, RU307: each has its own server and its own key
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(SseServer([chat(f"from {name}")])) for name in SERVICES}
        settings = {f"{name}_base_url": server.url for name, server in servers.items()}
        client = await provider(**settings, **{f"{name}_api_key": f"key-of-{name}" for name in SERVICES})
        heard = {name: await client.generate(f"{name}/maker/model:small") for name in SERVICES}

    assert {name: one.text for name, one in heard.items()} == {name: f"from {name}" for name in SERVICES}
    for name, server in servers.items():
        (request,) = server.requests
        assert (request.path, request.json["model"]) == ("/v1/chat/completions", "maker/model:small")
        assert request.headers["authorization"] == f"Bearer key-of-{name}"


@pytest.mark.asyncio
async def test_openrouter_is_told_of_the_application_and_nobody_else_is(provider):
    async with SseServer([chat("one"), chat("two")]) as server:
        client = await provider(
            openrouter_base_url=server.url,
            openai_base_url=server.url,
            openrouter_referer="https://app.example",
            openrouter_title="An App",
        )
        await client.generate("openrouter/m")
        await client.generate("openai/m")

    told = [(request.headers.get("http-referer"), request.headers.get("x-title")) for request in server.requests]
    assert told == [("https://app.example", "An App"), (None, None)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("vendor", "field"),
    [("openai", {"reasoning_effort": "medium"}), ("openrouter", {"reasoning": {"effort": "medium"}}),
     ("ollama", {"reasoning_effort": "medium"}), ("xai", {"reasoning_effort": "high"})],
)  # fmt: skip
async def test_a_model_is_asked_to_reason_where_that_is_set(provider, vendor, field):
    # RU303: RUMMY_THINK, 0 when nothing is said
    async with SseServer([chat("one"), chat("two")]) as server:
        quiet = await provider(**{f"{vendor}_base_url": server.url})
        await quiet.generate(f"{vendor}/m")
        thinking = await provider(**{f"{vendor}_base_url": server.url}, think=True)
        await thinking.generate(f"{vendor}/m")

    unasked, asked = (request.json for request in server.requests)
    assert {name: value for name, value in asked.items() if name not in unasked} == field
    assert unasked.keys().isdisjoint({"reasoning", "reasoning_effort"})


@pytest.mark.asyncio
async def test_a_model_that_cannot_reason_is_asked_without_it_from_then_on(provider):
    refusal = error(400, "Argument not supported on this model: reasoning_effort")
    async with SseServer([refusal, chat("first"), chat("second")]) as server:
        client = await provider(xai_base_url=server.url, think=True)
        heard = [await client.generate("xai/grok") for _ in range(2)]

    assert [one.text for one in heard] == ["first", "second"]
    assert ["reasoning_effort" in request.json for request in server.requests] == [True, False, False]


@pytest.mark.asyncio
async def test_checks_come_in_order_and_name_what_is_missing(provider):
    async with SseServer(models=["tiny", "llama3:latest"]) as server:
        client = await provider(openai_base_url=server.url)
        checks = await client.check(
            "openai/tiny", "scripted/hello", "openai/llama3", "openai/absent", "scripted/absent", "nobody/x", "tiny"
        )

    assert [check.model.alias for check in checks] == [f"m{n}" for n in range(7)]
    assert [check.usable for check in checks] == [True, True, True, False, False, False, False]
    words = [
        "",
        "",
        "",
        "does not list absent; it lists llama3:latest, tiny",
        "absent.txt",
        "no vendor nobody",
        "vendor/model",
    ]
    assert all(word in check.problem for word, check in zip(words, checks, strict=True))
    assert [bool(check.problem) for check in checks] == [not check.usable for check in checks]
    # One look for three models, and no completion.
    assert [(r.method, r.path) for r in server.looks] == [("GET", "/v1/models")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(error(404, "Not Found"), id="no-list"),
        pytest.param(error(500, "oops"), id="500"),
        pytest.param(json_answer({"object": "list", "data": []}), id="empty-list"),
        pytest.param(
            json_answer({"data": [{"id": "/models/a.gguf", "owned_by": "llamacpp"}]}), id="one-model-any-name"
        ),
        pytest.param(json_answer(["what"]), id="no-list-at-all"),
    ],
)
async def test_a_server_that_denies_nothing_makes_a_model_usable(provider, answer):
    class Lists(SseServer):
        def _choose(self, request):
            return answer

    async with Lists() as server:
        checks = await (await provider(openai_base_url=server.url)).check("openai/tiny")

    assert [(check.usable, check.problem) for check in checks] == [(True, "")]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "timeout_s", "words"),
    [(error(401, "bad key"), 60, "bad key"), (never(), 0.2, "did not answer within 0.2 s")],
)
async def test_a_server_that_refuses_the_key_or_is_silent_makes_a_model_unusable(provider, answer, timeout_s, words):
    class Refuses(SseServer):
        def _choose(self, request):
            return answer

    async with Refuses() as server:
        checks = await (await provider(openai_base_url=server.url, check_timeout_s=timeout_s)).check("openai/tiny")

    assert not checks[0].usable
    assert words in checks[0].problem


@pytest.mark.asyncio
async def test_a_server_that_is_not_there_makes_a_model_unusable(provider):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = await provider(openai_base_url=f"http://127.0.0.1:{unused.getsockname()[1]}/v1")
        checks = await client.check("openai/tiny")

    assert not checks[0].usable
    assert "refused" in checks[0].problem


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"messages": []}, "INVALID_FIELD", "messages"),
        ({"messages": [Message(parts=[Part(text="who?")])]}, "INVALID_FIELD", "messages[0].role"),
        ({"temperature": 2.1}, "INVALID_FIELD", "temperature"),
        ({"temperature": math.nan}, "INVALID_FIELD", "temperature"),
        ({"output_tokens_max": 0}, "INVALID_FIELD", "output_tokens_max"),
        ({"vendor_model": ""}, "INVALID_FIELD", "model.vendor_model"),
        ({"vendor_model": "tiny"}, "INVALID_FIELD", "model.vendor_model"),
        ({"vendor_model": "openai/"}, "INVALID_FIELD", "model.vendor_model"),
    ],
)
async def test_a_malformed_request_is_refused_before_any_vendor_is_asked(provider, fields, reason, field):
    async with SseServer([chat("no")]) as server:
        client = await provider(openai_base_url=server.url)
        heard = await client.generate(fields.pop("vendor_model", "openai/tiny"), **fields)

    assert (heard.reason, heard.error.metadata["field"], server.requests) == (reason, field, [])


@pytest.mark.asyncio
async def test_more_models_than_the_limit_are_refused(provider):
    client = await provider()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.check(*["scripted/hello"] * 101)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert len(await client.check(*["scripted/hello"] * 100)) == 100


@pytest.mark.asyncio
async def test_the_process_reads_the_usual_variables_and_stops_on_sigterm(tmp_path):
    async with SseServer([chat("from a process"), chat("again")]) as server:
        address = f"unix:{tmp_path}/provider.sock"
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")},
            **{name: "" for name in VENDOR_VARIABLES if not name.startswith("TURNWRIGHT_")},
            "TURNWRIGHT_HOME": str(tmp_path),
            "TURNWRIGHT_TOKEN": SECRET,
            "TURNWRIGHT_LISTEN": address,
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "key-of-the-environment",
            "XAI_BASE_URL": server.url,
            "XAI_API_KEY": "other-key-of-the-environment",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "turnwright_provider", env=environment, cwd=tmp_path, stderr=asyncio.subprocess.PIPE
        )
        async with grpc.aio.insecure_channel(address) as channel:
            await channel.channel_ready()
            heard = await Client(address, channel).generate()
            other = await Client(address, channel).generate("xai/tiny")
        process.send_signal(signal.SIGTERM)
        _, log = await process.communicate()

    assert (heard.text, other.text) == ("from a process", "again")
    keys = [request.headers["authorization"] for request in server.requests]
    assert keys == ["Bearer key-of-the-environment", "Bearer other-key-of-the-environment"]
    assert process.returncode == 0
    assert b"key-of-the-environment" not in log


@pytest.mark.asyncio
async def test_ollama_is_given_the_window_of_the_model_by_its_own_api(provider):
    lines = [{"message": {"content": "Hel"}, "done": False}, {"message": {"content": "lo"}, "done": True}]
    answer = Answer(
        headers={"content-type": "application/x-ndjson"}, chunks=[json.dumps(one).encode() + b"\n" for one in lines]
    )
    async with SseServer([answer]) as server:
        client = await provider(ollama_base_url=server.url.removesuffix("/v1"))
        heard = await client.generate("ollama/qwen3:8b", known={"context_length": 4096})

    assert heard.text == "Hello"
    assert server.requests[0].path == "/api/chat"
    assert server.requests[0].json["options"] == {"num_ctx": 4096}
