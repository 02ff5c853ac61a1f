"""What a caller of Generate gets of a good reply, in whatever way the vendor sends it."""

import asyncio
import json

import pytest
from turnwright.types.v1.message_pb2 import ROLE_SYSTEM, ROLE_USER

from contract.provider.conftest import said
from sse_server import Answer, SseServer, chat, delta, error, events, json_answer, usage_chunk


@pytest.mark.asyncio
async def test_a_reply_comes_as_deltas_and_ends_with_finish_and_usage(provider):
    async with SseServer([chat("Hello, world, and all who sail in it.", reasoning="greet")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert (heard.text, heard.reasoning) == ("Hello, world, and all who sail in it.", "greet")
    assert heard.finish.reason == "stop"
    assert heard.finish.vendor_model == "tiny"
    assert (heard.finish.usage.prompt_tokens, heard.finish.usage.completion_tokens) == (10, 10)
    assert heard.finish.usage.total_tokens == 20
    assert not heard.finish.usage.HasField("cost_usd")


@pytest.mark.asyncio
async def test_the_request_carries_model_messages_settings_and_key(provider):
    async with SseServer([chat("ok")]) as server:
        client = await provider(openai_base_url=f"{server.url}/", openai_api_key="key-of-tests")
        messages = [said(ROLE_SYSTEM, "rules"), said(ROLE_USER, "grüße")]
        await client.generate("openai/family/tiny", messages=messages, temperature=0.25, output_tokens_max=7)

    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer key-of-tests"
    assert request.json == {
        "model": "family/tiny",
        "messages": [{"role": "system", "content": "rules"}, {"role": "user", "content": "grüße"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.25,
        "max_tokens": 7,
    }


@pytest.mark.asyncio
async def test_a_query_of_the_base_url_stays(provider):
    async with SseServer([chat("ok")]) as server:
        await (await provider(openai_base_url=f"{server.url}/?api-version=7")).generate()

    assert server.requests[0].path == "/v1/chat/completions?api-version=7"


@pytest.mark.asyncio
@pytest.mark.parametrize("from_env", [False, True])
async def test_a_proxy_of_the_environment_never_sees_what_goes_to_loopback(provider, monkeypatch, from_env):
    async with SseServer([chat("through the proxy")]) as proxy, SseServer([chat("straight")]) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        heard = await (await provider(openai_base_url=server.url, proxy_from_env=from_env)).generate()

    assert (heard.text, proxy.requests) == ("straight", [])


@pytest.mark.asyncio
async def test_a_proxy_of_the_environment_is_used_elsewhere_when_the_operator_says_so(provider, monkeypatch):
    async with SseServer([chat("through the proxy")]) as proxy:
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        heard = await (await provider(openai_base_url="http://vendor.invalid/v1", proxy_from_env=True)).generate()

    assert heard.text == "through the proxy"


@pytest.mark.asyncio
async def test_without_a_key_and_settings_none_are_sent(provider):
    async with SseServer([chat("ok")]) as server:
        await (await provider(openai_base_url=server.url)).generate()

    assert "authorization" not in server.requests[0].headers
    assert not {"temperature", "max_tokens"} & server.requests[0].json.keys()


@pytest.mark.asyncio
async def test_native_tool_calls_come_as_the_whole_list(provider):
    fragments = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "get", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"path":'}},
        {"index": 0, "function": {"arguments": '"a"}'}},
        {"index": 1, "id": "c2", "type": "function", "function": {"name": "sh", "arguments": None}},
    ]
    chunks = events(*(delta(tool_calls=[f]) for f in fragments), delta(finish="tool_calls"))
    async with SseServer([Answer(chunks=chunks)]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    lists = [part.delta.set_tool_calls for part in heard.parts if part.delta.HasField("set_tool_calls")]
    last = [(call.index, call.id, call.name, call.arguments) for call in lists[-1].calls]
    assert last == [(0, "c1", "get", '{"path":"a"}'), (1, "c2", "sh", "{}")]
    assert heard.finish.reason == "tool_calls"


@pytest.mark.asyncio
async def test_the_first_delta_comes_before_the_second_chunk_is_sent(provider):
    gate = asyncio.Event()
    chunks = events(delta(content="first "), delta(content="second"), delta(finish="stop"))
    async with SseServer([Answer(chunks=chunks, gate=gate)]) as server:
        client = await provider(openai_base_url=server.url, flush_ms=10_000, flush_bytes=1024 * 1024)
        parts = aiter(client.open())
        first = await anext(parts)
        gate.set()
        rest = [part async for part in parts]

    assert first.delta.append_content == "first "
    assert rest[0].delta.append_content == "second"


@pytest.mark.asyncio
async def test_deltas_that_arrive_close_together_are_joined_in_order(provider):
    chunks = events(*(delta(content=f"{n},") for n in range(200)), delta(reasoning="why"), delta(content="end"), delta(finish="stop"))  # fmt: skip
    async with SseServer([Answer(chunks=chunks)]) as server:
        client = await provider(openai_base_url=server.url, flush_ms=10_000, flush_bytes=1024 * 1024)
        heard = await client.generate()

    assert heard.text == "".join(f"{n}," for n in range(200)) + "end"
    kinds = [part.delta.WhichOneof("change") for part in heard.parts if part.HasField("delta")]
    # The first at once, the rest in one batch at the end: the interval never passed.
    *joined, last = kinds
    assert joined == ["append_content", "append_content", "append_reasoning", "append_content"]
    assert last == "set_thinking_blocks"


@pytest.mark.asyncio
async def test_a_full_batch_does_not_wait_for_the_beat(provider):
    gate = asyncio.Event()
    chunks = [b"".join(events(delta(content="a"), delta(content="b" * 600), delta(content="c" * 600), done=False))]
    chunks += events(delta(finish="stop"))
    async with SseServer([Answer(chunks=chunks, gate=gate)]) as server:
        client = await provider(openai_base_url=server.url, flush_ms=10_000, flush_bytes=1024)
        parts, text = aiter(client.open()), ""
        while len(text) < 1201:
            text += (await anext(parts)).delta.append_content
        gate.set()
        rest = [part async for part in parts]

    assert text == "a" + "b" * 600 + "c" * 600
    assert [part.WhichOneof("part") for part in rest] == ["finish"]


@pytest.mark.asyncio
async def test_think_tags_in_content_are_reasoning(provider):
    # RD09
    chunks = events(*(delta(content=c) for c in "<think>two plus two</think>The answer is 4."), delta(finish="stop"))
    later = events(*(delta(content=c) for c in "I note: <think>why</think> so."), delta(finish="stop"))
    async with SseServer([Answer(chunks=chunks), Answer(chunks=later), Answer(chunks=chunks)]) as server:
        routed = await (await provider(openai_base_url=server.url)).generate()
        late = await (await provider(openai_base_url=server.url)).generate()
        raw = await (await provider(openai_base_url=server.url, think_tags="content")).generate()

    assert (routed.text, routed.reasoning) == ("The answer is 4.", "two plus two")
    assert (late.text, late.reasoning) == ("I note: <think>why</think> so.", "")
    assert (raw.text, raw.reasoning) == ("<think>two plus two</think>The answer is 4.", "")


@pytest.mark.asyncio
async def test_halves_of_characters_are_joined_or_replaced(provider):
    # RU276: JSON can name half a character, UTF-8 cannot hold one
    call = {"index": 0, "id": "c1", "function": {"name": "set", "arguments": '"\ud800"'}}
    chunks = (
        delta(reasoning_content="hm \ud83d"),
        delta(reasoning_content="\ude00"),
        delta(content="one \ud83d"),
        delta(content="\ude00 two \ud800 three \ud83d", tool_calls=[call]),
        delta(finish="stop"),
    )
    async with SseServer([Answer(chunks=events(*map(json.dumps, chunks)))]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()
    assert (heard.error, heard.text) == (None, "one \U0001f600 two \ufffd three \ufffd")
    assert heard.reasoning == "hm \U0001f600"
    lists = [part.delta.set_tool_calls for part in heard.parts if part.delta.HasField("set_tool_calls")]
    assert [call.arguments for call in lists[-1].calls] == ['"\ufffd"']


@pytest.mark.asyncio
async def test_a_json_body_instead_of_a_stream_is_one_whole_reply(provider):
    body = {
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "full"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    async with SseServer([json_answer(body)]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert (heard.text, heard.finish.reason, heard.finish.usage.total_tokens) == ("full", "stop", 3)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("chunks", "framing"),
    [
        pytest.param([c.replace(b"\n", b"\r\n") for c in events(delta(content="ok"), delta(finish="stop"))], "chunked", id="crlf"),
        pytest.param([b": hello\n\n", *events(delta(content="ok"), delta(finish="stop"), done=False)], "close", id="no-done"),
        pytest.param([b"\xef\xbb\xbf", *events(delta(content="ok")), b"junk"], "chunked", id="bom-no-finish-and-junk"),
        pytest.param([b'event: ping\ndata: {"type": "ping"}\n\n', *events(delta(content="ok"), delta(finish="stop"))], "length", id="ping"),
        pytest.param([*events(delta(content="ok"), done=False), b"data: " + json.dumps(delta(finish="stop")).encode()], "close", id="no-last-blank-line"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("content_type", ["text/event-stream; charset=utf-8", "text/plain", ""])
async def test_event_streams_are_read_whatever_their_dialect(provider, chunks, framing, content_type):
    headers = {"content-type": content_type} if content_type else {}
    async with SseServer([Answer(chunks=chunks, framing=framing, headers=headers)]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert (heard.text, heard.error) == ("ok", None)
    assert heard.finish is not None


@pytest.mark.asyncio
async def test_a_connection_that_breaks_after_the_finish_reason_loses_nothing(provider):
    chunks = events(delta(content="all"), delta(finish="stop"), usage_chunk(3, 1), done=False)
    async with SseServer([Answer(chunks=chunks, end="cut")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert (heard.text, heard.finish.reason, heard.error) == ("all", "stop", None)


@pytest.mark.asyncio
async def test_a_finished_reply_leaves_its_connection_for_the_next(provider):
    async with SseServer([chat("one"), chat("two")]) as server:
        client = await provider(openai_base_url=server.url)
        texts = [(await client.generate()).text, (await client.generate()).text]

    assert texts == ["one", "two"]
    assert [request.connection for request in server.requests] == [1, 1]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("refusal", "field", "instead"),
    [
        pytest.param(error(400, "Unrecognized request argument: stream_options"), "stream_options", None, id="usage"),
        pytest.param(error(400, "Unsupported value: 'temperature' does not support 0.1 with this model.", code="unsupported_value"), "temperature", None, id="temperature"),
        pytest.param(error(400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."), "max_tokens", "max_completion_tokens", id="max-tokens"),
    ],
)  # fmt: skip
async def test_a_field_that_the_server_refuses_gives_way_once_and_for_all(provider, refusal, field, instead):
    async with SseServer([refusal, chat("one"), chat("two")]) as server:
        client = await provider(openai_base_url=server.url)
        heard = [await client.generate(temperature=0.1, output_tokens_max=9) for _ in range(2)]

    assert [h.text for h in heard] == ["one", "two"]
    assert not heard[0].retries
    assert [field in request.json for request in server.requests] == [True, False, False]
    assert instead is None or server.requests[1].json[instead] == 9


@pytest.mark.asyncio
async def test_a_refusal_that_names_the_field_again_is_final(provider):
    refusals = [error(400, "unknown field stream_options")] * 2
    async with SseServer(refusals) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert heard.reason == "VENDOR_REJECTED"
    assert len(server.requests) == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("reason", "is_cut"),
    [
        ("stop", False), ("STOP", False), ("end_turn", False), ("tool_calls", False), ("eos", False), ("COMPLETE", False),
        ("length", True), ("max_tokens", True), ("MAX_TOKENS", True), ("model_length", True), ("content_filter", True),
        ("SAFETY", True), ("abort", True), ("insufficient_system_resource", True), ("a word of tomorrow", True),
    ],
)  # fmt: skip
async def test_the_end_of_a_reply_says_whether_the_vendor_cut_it(provider, reason, is_cut):
    # C54
    async with SseServer([chat("Hello", finish=reason)]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()
    assert (heard.finish.reason, heard.finish.cut) == (reason, is_cut)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "call",
    [
        '<tool_call>{"name": "get", "arguments": {"path": "a"}}</tool_call>',
        '[TOOL_CALLS][{"name": "get", "arguments": {"path": "a"}}]',
        "<function=get><parameter=path>a</parameter></function>",
        '<invoke name="get"><parameter name="path">a</parameter></invoke>',
        '<|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"path":"a"}<|tool_call_end|>',
        '{"name": "get", "arguments": {"path": "a"}}',
        '<get path="a"/>',
    ],
)  # fmt: skip
async def test_a_call_on_its_own_line_in_reasoning_that_was_never_closed_is_content(provider, call):
    thought = f"I should read <tool_call> it.\n{call}"
    pieces = (f"<think>{thought[:20]}", thought[20:])
    replies = [events(*(delta(content=one) for one in pieces), delta(finish=end)) for end in ("stop", "length")]
    async with SseServer([Answer(chunks=reply) for reply in replies]) as server:
        called = await provider(openai_base_url=server.url)
        whole, cut = await called.generate(), await called.generate()
    # What names a dialect before such a call may be its beginning.
    assert (whole.text.removeprefix("<tool_call> it.\n"), whole.reasoning) == (call, thought)
    assert (cut.text, cut.reasoning) == ("", thought)
