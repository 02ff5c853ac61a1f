"""Every recorded chat completions stream, folded: the message is what the vendor meant, however the bytes are cut."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sse_server import Answer, SseServer
from turnwright_core.chat.message import Role, text_message
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.edge.http import HttpLimits, HttpxTransport
from turnwright_provider.vendors.http import Endpoint, HttpVendor
from unit.provider.recorded import (
    EVENT_BYTES_MAX,
    Message,
    body_of,
    chat_fold,
    chunks_of,
    expected,
    folded,
    recorded,
    tags_of,
)

STREAMS = {i: c for i, c in recorded().items() if "stream" in c["tags"]}
BROKEN = {
    "groq/pydantic_ai_test_groq_test_tool_use_failed_error_streaming_0": FailureClass.INVALID,
    "groq/pydantic_ai_test_groq_test_tool_use_failed_error_streaming_with_text_0": FailureClass.INVALID,
    "openrouter/pydantic_ai_test_openrouter_test_openrouter_stream_error_0": FailureClass.CONTEXT_EXCEEDED,
    "real_aimock/chat_disconnect": FailureClass.SERVER,
}
"""Streams with an error in them, or cut: what they fail as."""

WHOLE = {i: c for i, c in STREAMS.items() if i not in BROKEN}
CALL = ModelCall("tiny", (text_message(Role.USER, "hi"),))


@pytest.mark.parametrize("case_id", WHOLE)
def test_a_recorded_stream_folds_to_its_message(case_id):
    case = WHOLE[case_id]
    assert folded(chunks_of(case), chat_fold(tags_of(case))) == expected(case)


@pytest.mark.parametrize("case_id", BROKEN)
def test_a_broken_stream_fails_as_its_class(case_id):
    with pytest.raises(VendorError) as broken:
        folded(chunks_of(STREAMS[case_id]))
    assert broken.value.failure.kind is BROKEN[case_id]


@pytest.mark.parametrize("case_id", WHOLE)
def test_a_recorded_stream_folds_the_same_byte_by_byte_and_at_once(case_id):
    body = body_of(WHOLE[case_id])
    whole = folded([body])
    pieces = (
        [body[i : i + 1] for i in range(len(body))]
        if len(body) < 40_000
        else [body[i : i + 7] for i in range(0, len(body), 7)]
    )
    others = folded(pieces), folded(chunks_of(WHOLE[case_id]))
    assert [other == whole and other.message == whole.message for other in others] == [True, True]


SMALL = [i for i, c in WHOLE.items() if len(body_of(c)) < 12_000]


@given(data=st.data())
def test_any_split_of_the_bytes_folds_to_the_same_message(data):
    # RD07, the provider's half
    body = body_of(WHOLE[data.draw(st.sampled_from(SMALL))])
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=60)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    if data.draw(st.booleans()):
        # A CR before an LF may be cut from it too.
        pieces = [piece.replace(b"\n", b"\r\n") for piece in pieces]
        pieces = [part for piece in pieces for part in piece.partition(b"\n")]
    assert folded(pieces) == folded([body])


@pytest.mark.asyncio
async def test_recorded_streams_arrive_whole_over_real_sockets():
    answers = [
        Answer(chunks=chunks_of(case), framing=("chunked", "close", "length")[n % 3], headers=_headers(case))
        for n, case in enumerate(WHOLE.values())
    ]
    async with SseServer(answers) as server:
        transport = HttpxTransport(server.url, HttpLimits(30, 1 << 30), from_environment=False)
        wire = ChatWire(ThinkTags.ANYWHERE)
        vendor = HttpVendor(Endpoint(server.url, "", EVENT_BYTES_MAX, 100, 5), wire, transport, lambda: 0)
        received = {}
        async with asyncio.timeout(100):
            for case_id in WHOLE:
                received[case_id] = Message()
                async for event in vendor.stream(CALL, 1):
                    received[case_id].add(event)
        await transport.close()

    assert received == {case_id: folded([body_of(case)]) for case_id, case in WHOLE.items()}
    assert all(request.body == wire.request(CALL, frozenset()).body for request in server.requests)


def _headers(case: dict[str, Any]) -> dict[str, str]:
    kind = {k.lower(): v for k, v in case["response"]["headers"].items()}.get("content-type")
    return {"content-type": kind} if kind else {}


def test_every_expected_vendor_is_in_the_corpus():
    assert len(STREAMS) >= 90
    assert {i.partition("/")[0] for i in STREAMS} >= {
        "openai", "azure", "openrouter", "xai", "deepseek", "zai", "groq", "mistral", "ollama", "llamacpp", "vllm",
        "huggingface", "vercel_gateway", "real_llama_server", "real_llama_cpp_python", "real_litellm",
    }  # fmt: skip


CONSTRUCTED = recorded("constructed")


@pytest.mark.parametrize(
    "case_id", [i for i, c in CONSTRUCTED.items() if c["response"]["status"] == 200 and "json_instead" not in i]
)
def test_a_constructed_stream_has_its_outcome(case_id):
    case = CONSTRUCTED[case_id]
    try:
        folded(chunks_of(case))
        outcome = "complete"
    except VendorError as error:
        outcome = "error:retryable" if error.failure.is_retryable() else "error:fatal"
    # A cut is retryable before the first delta, an interruption after it.
    assert outcome == case["expected_outcome"].replace("incomplete", "error:retryable")


@pytest.mark.parametrize("case_id", [i for i, c in recorded().items() if c["response"]["status"] >= 400])
def test_a_recorded_error_has_its_class(case_id):
    case = recorded()[case_id]
    response = case["response"]
    failure = classify(response["status"], response["headers"], body_of(case), 0.0)
    if "expected_outcome" in case:
        assert failure.is_retryable()
        return
    words = {"not_found": "invalid", "invalid_request": "invalid", "context_length": "context_exceeded"}
    assert failure.kind.value == words.get(case["expected_error"]["class"], case["expected_error"]["class"])
    assert failure.detail
