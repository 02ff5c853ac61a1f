"""Every recorded reply of Gemini and of Ollama's own interface: the message is what was meant, however it was cut."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sse_server import Answer, SseServer
from turnwright_core.chat.message import Role, text_message
from turnwright_provider.domain.classify import classify
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.edge.http import HttpLimits, HttpxTransport
from turnwright_provider.vendors.http import Endpoint, HttpVendor
from unit.provider.google_and_ollama import (
    BODIES,
    CASES,
    ERRORS,
    OK,
    STREAMS,
    WIRES,
    expected,
    folded_by,
    reply_of,
    told,
    wire_of,
)
from unit.provider.recorded import EVENT_BYTES_MAX, Message, body_of, chunks_of

IN_PIECES = {i for i, case in OK.items() if any(not call["name"] for call in case["expected_tool_calls"])}
"""Streams of arguments in pieces: their cases count each piece as a call, and only the first of each has a name."""


def test_there_are_replies_of_every_kind():
    assert len(STREAMS) >= 15
    assert len(BODIES) >= 15
    assert len(ERRORS) >= 4
    assert {i.partition("/")[0] for i in CASES} >= {"gemini", "vertex", "ollama"}


@pytest.mark.parametrize("case_id", OK)
def test_a_recorded_reply_folds_to_its_message(case_id):
    message, wanted = told(reply_of(OK[case_id])), expected(OK[case_id])
    if case_id in IN_PIECES:
        wanted["calls"] = [name for _, name, _ in wanted["calls"] if name]
        message["calls"] = [name for _, name, _ in message["calls"]]
    assert message == wanted


@pytest.mark.parametrize("case_id", STREAMS)
def test_a_recorded_stream_folds_the_same_byte_by_byte_and_at_once(case_id):
    case, body = STREAMS[case_id], body_of(STREAMS[case_id])
    step = 1 if len(body) < 40_000 else 7
    pieces = [body[i : i + step] for i in range(0, len(body), step)]
    whole = folded_by(wire_of(case), [body])
    assert folded_by(wire_of(case), pieces) == whole == folded_by(wire_of(case), chunks_of(case))
    assert folded_by(wire_of(case), pieces).message == whole.message


@settings(max_examples=100)
@given(data=st.data())
def test_any_split_of_the_bytes_folds_to_the_same_message(data):
    # RD07, the provider's half
    case = data.draw(st.sampled_from([case for case in STREAMS.values() if len(body_of(case)) < 12_000]))
    body = body_of(case)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=60)))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    assert folded_by(wire_of(case), pieces).message == folded_by(wire_of(case), [body]).message


@pytest.mark.asyncio
@pytest.mark.parametrize("api", WIRES)
async def test_recorded_streams_arrive_whole_over_real_sockets(api):
    cases = {i: case for i, case in STREAMS.items() if case["api"] == api}
    answers = [
        Answer(chunks=chunks_of(case), framing=("chunked", "close")[n % 2]) for n, case in enumerate(cases.values())
    ]
    call = ModelCall("m", (text_message(Role.USER, "hi"),))
    async with SseServer(answers) as server:
        transport = HttpxTransport(server.url, HttpLimits(30, 1 << 30), from_environment=False)
        vendor = HttpVendor(Endpoint(server.url, "", EVENT_BYTES_MAX, 100, 5), WIRES[api], transport, lambda: 0)
        received = {}
        async with asyncio.timeout(100):
            for case_id in cases:
                received[case_id] = Message()
                async for event in vendor.stream(call, 1):
                    received[case_id].add(event)
        await transport.close()
    assert received == {case_id: reply_of(case) for case_id, case in cases.items()}


@pytest.mark.parametrize("case_id", ERRORS)
def test_a_recorded_error_has_its_class(case_id):
    case = ERRORS[case_id]
    failure = classify(case["response"]["status"], case["response"]["headers"], body_of(case), 0.0)
    words = {"not_found": "invalid", "invalid_request": "invalid", "context_length": "context_exceeded"}
    assert failure.kind.value == words.get(case["expected_error"]["class"], case["expected_error"]["class"])
    assert failure.detail
