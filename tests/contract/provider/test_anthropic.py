"""Anthropic's Messages through the provider: a loop of tools with thinking, what gives way, and how it fails."""

import json
from typing import Any

import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import settings_pb2
from turnwright.types.v1.message_pb2 import ROLE_TOOL, ROLE_USER, Message, Part

from contract.provider.conftest import said
from sse_server import Answer, SseServer
from turnwright_core.chat.reply import PartialReply
from turnwright_core.wire.deltas import delta_from_pb
from turnwright_core.wire.messages import message_to_pb

MODEL = "anthropic/claude"


def stream(*blocks: tuple[dict[str, Any], list[dict[str, Any]]], reason: str = "end_turn") -> Answer:
    """A reply of blocks, each its start and its deltas."""
    usage = {"input_tokens": 5, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 5, "output_tokens": 1}
    told: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"id": "msg_1", "model": "claude-x", "content": [], "usage": usage}}
    ]
    for index, (begun, deltas) in enumerate(blocks):
        told.append({"type": "content_block_start", "index": index, "content_block": begun})
        told += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        told.append({"type": "content_block_stop", "index": index})
    told.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 20}})
    told.append({"type": "message_stop"})
    return Answer(chunks=[f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told])


def says(text: str) -> Answer:
    return stream(({"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]))


def refuses(status: int, kind: str, message: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return Answer(status, {"content-type": "application/json"}, [json.dumps(body).encode()])


THOUGHT = (
    {"type": "thinking", "thinking": "", "signature": ""},
    [{"type": "thinking_delta", "thinking": "look "}, {"type": "thinking_delta", "thinking": "it up"},
     {"type": "signature_delta", "signature": "SIG=="}],
)  # fmt: skip
CALLED = (
    {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
    [{"type": "input_json_delta", "partial_json": text} for text in ("", '{"a"', ": 1}")],
)


@pytest.mark.asyncio
async def test_a_loop_of_tools_sends_the_thinking_back_byte_for_byte(provider):
    # RD03, RD08
    async with SseServer([stream(THOUGHT, CALLED, reason="tool_use"), says("done")]) as server:
        client = await provider(anthropic_base_url=server.url, anthropic_api_key="key")
        asked = {
            "tools": [pb.Tool(name="look", parameters='{"type":"object","properties":{"a":{}}}')],
            "reasoning": settings_pb2.Reasoning(tokens=2000),
            "temperature": 0.5,
        }
        first = await client.generate(MODEL, **asked)
        reply = PartialReply()
        for part in first.parts:
            if part.HasField("delta"):
                reply.add(delta_from_pb(part.delta))
        answer = Message(role=ROLE_TOOL, call_id="toolu_1", parts=[Part(text="found")])
        history = [said(ROLE_USER, "hi"), message_to_pb(reply.message(MODEL)), answer]
        second = await client.generate(MODEL, messages=history, **asked)

    assert (first.reasoning, first.finish.reason, first.finish.cut) == ("look it up", "tool_use", False)
    assert [one.field for one in first.finish.dropped] == ["temperature"]
    usage = first.finish.usage
    assert (usage.prompt_tokens, usage.cached_tokens, usage.cache_write_tokens) == (100, 90, 5)
    assert (usage.completion_tokens, usage.total_tokens) == (20, 120)
    assert (second.text, second.finish.vendor_model) == ("done", "claude-x")
    sent = server.requests[1].json
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2000}
    assert sent["messages"][1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "look it up", "signature": "SIG=="},
                {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "found"}]}
            ],
        },
    ]
    assert {(request.path, request.headers["x-api-key"]) for request in server.requests} == {("/v1/messages", "key")}


@pytest.mark.asyncio
async def test_another_model_is_not_sent_the_thinking_and_that_is_told(provider):
    async with SseServer([says("ok")]) as server:
        client = await provider(anthropic_base_url=server.url)
        theirs = message_to_pb(PartialReply(content=["a"]).message("anthropic/other"))
        theirs.thinking.add(type="thinking", index=0, text="t", signature="s")
        heard = await client.generate(MODEL, messages=[said(ROLE_USER, "hi"), theirs, said(ROLE_USER, "go on")])

    assert [(one.field, bool(one.reason)) for one in heard.finish.dropped] == [("thinking", True)]
    assert server.requests[0].json["messages"][1] == {"role": "assistant", "content": [{"type": "text", "text": "a"}]}


@pytest.mark.asyncio
async def test_what_has_to_be_sent_and_cannot_is_refused_before_anything_is(provider):
    async with SseServer() as server:
        client = await provider(anthropic_base_url=server.url)
        heard = await client.generate(MODEL, metadata={"team": "t"}, required=["metadata"])

    assert (heard.reason, server.requests) == ("VENDOR_REJECTED", [])
    assert "metadata" in heard.error.message


@pytest.mark.asyncio
async def test_a_model_that_knows_no_budget_is_asked_for_an_effort_from_then_on(provider):
    message = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".'
    answers = [refuses(400, "invalid_request_error", message), says("one"), says("two")]
    async with SseServer(answers) as server:
        client = await provider(anthropic_base_url=server.url, think=True)
        heard = [await client.generate(MODEL) for _ in range(2)]

    assert [(one.text, list(one.finish.dropped)) for one in heard] == [("one", []), ("two", [])]
    assert [request.json["thinking"]["type"] for request in server.requests] == ["enabled", "adaptive", "adaptive"]
    assert server.requests[2].json["output_config"] == {"effort": "medium"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "first",
    [
        refuses(529, "overloaded_error", "Overloaded"),
        refuses(429, "rate_limit_error", "This request would exceed your rate limit of 5 requests per minute"),
        Answer(chunks=[b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n']),
    ],
)  # fmt: skip
async def test_what_passes_by_itself_is_tried_again(provider, first):
    async with SseServer([first, says("ok")]) as server:
        heard = await (await provider(anthropic_base_url=server.url)).generate(MODEL)

    assert (heard.text, len(heard.retries), len(server.requests)) == ("ok", 1, 2)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refuses(401, "authentication_error", "invalid x-api-key"), "VENDOR_AUTH"),
        (refuses(403, "permission_error", "Your API key does not have permission"), "VENDOR_AUTH"),
        (refuses(400, "invalid_request_error", "Your credit balance is too low"), "VENDOR_REJECTED"),
        (refuses(402, "billing_error", "Pay first"), "VENDOR_REJECTED"),
        (refuses(404, "not_found_error", "model: claude"), "VENDOR_REJECTED"),
        (refuses(413, "request_too_large", "Request exceeds the maximum size"), "CONTEXT_EXCEEDED"),
        (refuses(400, "invalid_request_error", "prompt is too long: 213462 tokens > 200000 maximum"), "CONTEXT_EXCEEDED"),
        (
            refuses(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > "
                    "200000, decrease input length or `max_tokens` and try again"), "CONTEXT_EXCEEDED",
        ),
        (Answer(200, {"content-type": "application/json"}, [b'{"choices":[]}']), "VENDOR_PROTOCOL"),
    ],
)  # fmt: skip
async def test_what_does_not_pass_is_reported_as_what_it_is(provider, answer, reason):
    async with SseServer([answer], models=["claude"]) as server:
        heard = await (await provider(anthropic_base_url=server.url)).generate(MODEL)

    assert (heard.reason, heard.retries) == (reason, [])


@pytest.mark.asyncio
async def test_a_model_is_looked_up_in_the_list(provider):
    async with SseServer(models=["claude-x"]) as server:
        client = await provider(anthropic_base_url=server.url, anthropic_api_key="key")
        there, gone = await client.check("anthropic/claude-x", "anthropic/claude-y")

    assert (there.usable, gone.usable) == (True, False)
    assert "does not list claude-y" in gone.problem
    (request,) = server.looks
    assert request.path.partition("?")[0] == "/v1/models"
    assert (request.headers["x-api-key"], request.headers["anthropic-version"]) == ("key", "2023-06-01")


@pytest.mark.asyncio
async def test_another_version_is_a_header_of_the_endpoint_and_what_it_refuses_gives_way(provider, tmp_path):
    text = "[endpoint.new]\npreset = 'anthropic'\nurl = '{url}'\nheaders = {{ anthropic-version = '2026-10-21' }}\n"
    refusal = refuses(400, "invalid_request_error", "temperature: Extra inputs are not permitted")
    async with SseServer([refusal, says("ok"), says("ok")]) as server:
        (tmp_path / "endpoints.toml").write_text(text.format(url=server.url))
        client = await provider()
        heard = [await client.generate("new/claude", temperature=0.5) for _ in range(2)]

    assert [(one.text, [gone.field for gone in one.finish.dropped]) for one in heard] == [("ok", ["temperature"])] * 2
    assert {request.headers["anthropic-version"] for request in server.requests} == {"2026-10-21"}
    assert ["temperature" in request.json for request in server.requests] == [True, False, False]
