"""A loop of tools over each wire, from Generate to the server and back: what a reply held goes back with the next call."""

import json
from typing import Any

import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import message_pb2
from turnwright.types.v1.message_pb2 import ROLE_ASSISTANT, ROLE_TOOL, ROLE_USER

from contract.provider.conftest import Heard, said
from sse_server import Answer, SseServer, chat, error, events
from turnwright_core.chat.reply import PartialReply
from turnwright_core.wire.deltas import delta_from_pb
from turnwright_core.wire.messages import message_to_pb

pytestmark = pytest.mark.asyncio

TOOL = pb.Tool(name="look", description="Looks.", parameters='{"type": "object", "properties": {}}')
RESPONSES = '[endpoint.work]\nurl = "{url}"\nwire = "responses"\n'

REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "why"}],
    "encrypted_content": "e",
}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "seen"}]}


def responses(*items: dict[str, Any]) -> Answer:
    done = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
    usage = {"input_tokens": 7, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2}
    end = {"type": "response.completed", "response": {"model": "m", "status": "completed", "usage": usage}}
    return Answer(chunks=events(*done, end))


def replied(heard: Heard, vendor_model: str) -> message_pb2.Message:
    reply = PartialReply()
    for part in heard.parts:
        if part.HasField("delta"):
            reply.add(delta_from_pb(part.delta))
    return message_to_pb(reply.message(vendor_model))


async def loop(client: Any, vendor_model: str) -> list[Heard]:
    """Two calls of a model: the second answers the tool call of the first."""
    first = await client.generate(vendor_model, tools=[TOOL])
    reply = replied(first, vendor_model)
    assert (reply.role, reply.vendor_model) == (ROLE_ASSISTANT, vendor_model)
    answer = message_pb2.Message(role=ROLE_TOOL, call_id=reply.calls[0].id, parts=[message_pb2.Part(text="42")])
    return [first, await client.generate(vendor_model, tools=[TOOL], messages=[said(ROLE_USER, "hi"), reply, answer])]


async def test_a_loop_of_tools_over_responses(provider, tmp_path):
    async with SseServer([responses(REASONING, CALL), responses(MESSAGE)]) as server:
        (tmp_path / "endpoints.toml").write_text(RESPONSES.format(url=server.url))
        first, second = await loop(await provider(), "work/m")

    assert second.text == "seen"
    assert (first.finish.reason, first.finish.cut, first.finish.usage.cached_tokens) == ("completed", False, 4)
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["responses"] * 2
    output = {"type": "function_call_output", "call_id": "c1", "output": "42"}
    assert server.requests[1].json["input"][1:] == [REASONING, CALL, output]


async def test_a_loop_of_tools_over_chat_completions(provider):
    detail = {"type": "reasoning.text", "text": "why", "signature": "s", "index": 0, "format": "f"}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    deltas = [{"reasoning": "why", "reasoning_details": [detail]}, {"tool_calls": [{"index": 0, **call}]}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    async with SseServer([Answer(chunks=events(*chunks, end)), chat("seen")]) as server:
        client = await provider(openrouter_base_url=server.url)
        first, second = await loop(client, "openrouter/m")

    assert (first.finish.reason, second.text) == ("tool_calls", "seen")
    assert server.requests[1].json["messages"][1:] == [
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_details": [detail]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]


async def test_what_a_server_refuses_is_named_where_it_was_asked_for_and_an_error_where_it_is_required(provider):
    refusal = error(400, "Unsupported parameter: 'stop' is not supported with this model.")
    async with SseServer([refusal, chat("one"), chat("two")]) as server:
        client = await provider(openai_base_url=server.url)
        heard = [await client.generate(stop=["x"]), await client.generate()]
        required = await client.generate(stop=["x"], required=["stop"])

    assert [[one.field for one in each.finish.dropped] for each in heard] == [["stop"], []]
    assert (required.reason, len(server.requests)) == ("VENDOR_REJECTED", 3)
    assert ["stop" in json.loads(request.body) for request in server.requests] == [True, False, False]
