"""Every recorded stream and error of every wire: the same however its bytes are cut, also over real sockets."""

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import NEEDS_SHARED
from sse_server import Answer, SseServer
from turnwright_core.chat.message import Message as Sent
from turnwright_core.chat.message import Role, text_message
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.endpoints import EndpointSpec
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.presets import NAMELESS
from turnwright_provider.vendors.http import HttpVendor
from turnwright_provider.vendors.transport import HttpLimits
from unit.provider import anthropic_replies
from unit.provider.damaged_replies import WIRES, reader_of
from unit.provider.recorded import EVENT_BYTES_MAX, Message, body_of, chunks_of, folded, recorded


def is_stream(case: dict[str, Any]) -> bool:
    if case["api"] == "anthropic.messages":
        return anthropic_replies.is_message(case) and anthropic_replies.is_stream(case)
    return "stream" in case["tags"]


CASES = {case_id: case for api in WIRES for case_id, case in recorded(api=api).items()}
STREAMS = {i: case for i, case in CASES.items() if case["response"]["status"] == 200 and is_stream(case)}
CALL = ModelCall("m", (text_message(Role.USER, "hi"),))


def outcome(case: dict[str, Any], pieces: list[bytes]) -> tuple[Message, Sent] | FailureClass:
    """The message, also as it goes back to its vendor, or how the stream fails."""
    wire = WIRES[case["api"]]
    try:
        message = folded(pieces, wire.fold(), reader_of(wire))
    except VendorError as error:
        return error.failure.kind
    return message, message.message


@pytest.mark.parametrize("case_id", STREAMS)
def test_a_recorded_stream_folds_the_same_byte_by_byte_and_at_once(case_id):
    case, body = STREAMS[case_id], body_of(STREAMS[case_id])
    step = 1 if len(body) < 40_000 else 7
    whole = outcome(case, [body])
    assert outcome(case, [body[i : i + step] for i in range(0, len(body), step)]) == whole
    assert outcome(case, chunks_of(case)) == whole


SMALL = [case for case in STREAMS.values() if len(body_of(case)) < 12_000]


@given(data=st.data())
def test_any_split_of_the_bytes_folds_to_the_same_message(data):
    # RD07, the provider's half
    case = data.draw(st.sampled_from(SMALL))
    body = body_of(case)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=60)))
    pieces = [body[a:b] for a, b in itertools.pairwise([0, *cuts, len(body)])]
    if data.draw(st.booleans()):
        # A CR before an LF may be cut from it too.
        pieces = [part for piece in pieces for part in piece.replace(b"\n", b"\r\n").partition(b"\n")]
    assert outcome(case, pieces) == outcome(case, [body])


@pytest.mark.asyncio
@pytest.mark.parametrize("api", WIRES)
async def test_recorded_streams_arrive_whole_over_real_sockets(api):
    wire = WIRES[api]
    found = {i: outcome(case, [body_of(case)]) for i, case in STREAMS.items() if case["api"] == api}
    wanted = {i: one[0] for i, one in found.items() if isinstance(one, tuple)}
    answers = [
        Answer(chunks=chunks_of(CASES[i]), framing=("chunked", "close", "length")[n % 3], headers=kind_of(CASES[i]))
        for n, i in enumerate(wanted)
    ]
    async with SseServer(answers) as server:
        spec = EndpointSpec("any", NAMELESS, wire.name, server.url, "key")
        vendor = HttpVendor(spec, wire, HttpLimits(100, event_bytes_max=EVENT_BYTES_MAX))
        received = {}
        async with asyncio.timeout(100):
            for case_id in wanted:
                received[case_id] = Message()
                async for event in vendor.stream(CALL, 1):
                    received[case_id].add(event)
        await vendor.close()

    assert received == wanted
    sent = wire.request(CALL, frozenset())
    for request in server.requests:
        assert request.body == sent.body
        assert request.path.endswith(sent.path)
        assert request.headers.items() >= wire.headers("key").items()


def kind_of(case: dict[str, Any]) -> dict[str, str]:
    kind = {k.lower(): v for k, v in case["response"].get("headers", {}).items()}.get("content-type")
    return {"content-type": kind} if kind else {}


@NEEDS_SHARED
def test_the_corpus_has_streams_and_errors_of_every_vendor():
    apis = [case["api"] for case in STREAMS.values()]
    assert {api: min(apis.count(api), 4) for api in WIRES} == dict.fromkeys(WIRES, 4)
    assert {i.partition("/")[0] for i in STREAMS} >= {
        "openai", "azure", "openrouter", "xai", "deepseek", "zai", "groq", "mistral", "ollama", "llamacpp", "vllm",
        "huggingface", "vercel_gateway", "real_llama_server", "real_llama_cpp_python", "real_litellm", "gemini", "vertex",
    }  # fmt: skip


@pytest.mark.parametrize("case_id", [i for i, case in STREAMS.items() if case["provenance"] == "constructed"])
def test_a_constructed_stream_has_its_outcome(case_id):
    case = STREAMS[case_id]
    try:
        message = folded(chunks_of(case), WIRES[case["api"]].fold())
        told = "complete"
        assert message.text == case["expected_text"]
    except VendorError as error:
        told = "error:retryable" if error.failure.is_retryable() else "error:fatal"
    # A cut is retryable before the first delta, an interruption after it; a stop reason is an end without its event.
    is_ended = case_id == "constructed/anthropic_cut_before_message_stop"
    assert told == ("complete" if is_ended else case["expected_outcome"].replace("incomplete", "error:retryable"))


@pytest.mark.parametrize("case_id", [i for i, case in CASES.items() if case["response"]["status"] >= 400])
def test_a_recorded_error_has_its_class(case_id):
    case, response = CASES[case_id], CASES[case_id]["response"]
    failure = classify(response["status"], response["headers"], body_of(case), 0.0)
    if "expected_outcome" in case:
        assert failure.is_retryable()
        return
    kind = case["expected_error"]["class"]
    words = dict.fromkeys(("not_found", "invalid_request"), "invalid") | {
        "context_length": "context_exceeded", "overloaded": "server"
    }  # fmt: skip
    assert failure.kind.value == words.get(kind, kind)
    assert failure.detail
