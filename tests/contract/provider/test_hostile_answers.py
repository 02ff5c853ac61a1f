"""Answers that are made to cost the provider memory or time: packed, huge, nested, dripping."""

import asyncio
import gzip
import json
import zlib

import pytest
import zstandard

from sse_server import Answer, SseServer, chat, delta, events

EVENTS = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
HELLO = events(delta(content="Hel"), delta(content="lo"), delta(finish="stop"))


def packed(encoding: str, body: bytes, headers: dict[str, str] = EVENTS, status: int = 200) -> Answer:
    return Answer(status, {**headers, "content-encoding": encoding}, [body], framing="length")


def reply_of(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return json.dumps({"model": "tiny", "choices": [choice]}).encode()


async def heard_of(provider, *answers, **settings):
    """What a caller hears of these answers, and how many requests were sent."""
    async with SseServer(answers) as server:
        heard = await (await provider(openai_base_url=server.url, **settings)).generate()
    return heard, len(server.requests)


STREAM = b"".join(HELLO)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip, gzip", gzip.compress(gzip.compress(STREAM, mtime=0), mtime=0)),
        ("gzip,gzip,gzip", gzip.compress(gzip.compress(gzip.compress(STREAM, mtime=0), mtime=0), mtime=0)),
        ("identity, gzip, deflate", zlib.compress(gzip.compress(STREAM, mtime=0))),
        ("zstd", zstandard.compress(STREAM)),
        ("br", b"\x0b\x02\x80hello\x03"),
        ("deflate", zlib.compress(STREAM)),
        ("compress", STREAM),
    ],
    ids=["gzip-twice", "gzip-thrice", "gzip-in-deflate", "zstd", "br", "deflate", "compress"],
)
async def test_an_answer_packed_as_nobody_asked_is_refused_unread(provider, encoding, body):
    heard, requests = await heard_of(provider, packed(encoding, body), chat("must not be asked for"))

    assert (heard.reason, heard.text, requests) == ("VENDOR_PROTOCOL", "", 1)
    assert "not asked for" in heard.error.metadata["detail"]


@pytest.mark.asyncio
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip", "identity", "", "gzip, identity"])
async def test_a_server_that_always_packs_once_is_understood(provider, encoding):
    body = gzip.compress(STREAM, mtime=0) if "gzip" in encoding.lower() else STREAM
    heard, _ = await heard_of(provider, packed(encoding, body))

    assert (heard.text, heard.error) == ("Hello", None)


@pytest.mark.asyncio
async def test_a_packed_stream_is_read_as_it_comes(provider):
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    chunks = [packer.compress(event) + packer.flush(zlib.Z_SYNC_FLUSH) for event in HELLO]
    gate = asyncio.Event()
    answer = Answer(headers={**EVENTS, "content-encoding": "gzip"}, chunks=[*chunks, packer.flush()], gate=gate)
    async with SseServer([answer]) as server:
        call = aiter((await provider(openai_base_url=server.url)).open())
        # The server sends the rest only when the first piece has arrived.
        assert (await anext(call)).delta.append_content == "Hel"
        gate.set()
        rest = [part async for part in call]

    assert rest[-1].finish.reason == "stop"


@pytest.mark.asyncio
async def test_a_packed_stream_that_is_cut_before_a_delta_is_tried_again(provider):
    cut = packed("gzip", gzip.compress(STREAM, mtime=0)[:12])
    heard, requests = await heard_of(provider, cut, chat("whole"))

    assert (heard.text, requests, len(heard.retries)) == ("whole", 2, 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("headers", "unpacked"),
    [
        pytest.param(EVENTS, b"data: " + bytes(4_000_000), id="an-event"),
        pytest.param(EVENTS, b"data:\n" * 1_000_000, id="empty-lines-of-an-event"),
        pytest.param(EVENTS, b": x\n" * 2_000_000, id="comments"),
        pytest.param(EVENTS, b": x\n" * 1_000_000, id="fewer-comments"),
        pytest.param(JSON, reply_of("x" * 4_000_000), id="a-reply"),
        pytest.param(JSON, b"[" * 4_000_000, id="brackets"),
    ],
)
async def test_what_a_small_body_unpacks_to_is_bounded(provider, headers, unpacked):
    body = packed("gzip", gzip.compress(unpacked, mtime=0), headers)
    limits = {"event_bytes_max": 1_000_000, "response_bytes_max": 5_000_000}
    heard, requests = await heard_of(provider, body, chat("must not be asked for"), **limits)

    assert (heard.reason, requests) == ("VENDOR_PROTOCOL", 1)
    assert "bytes" in heard.error.metadata["detail"]


@pytest.mark.asyncio
async def test_a_reply_that_is_no_stream_is_read_no_further_than_an_event(provider):
    # A body of a gigabyte by its head; the connection is closed as soon as the limit is passed.
    answer = Answer(headers=JSON, chunks=[b'{"choices": ['] + [b" " * 65_536] * 16_384)
    async with SseServer([answer]) as server:
        heard = await (await provider(openai_base_url=server.url, event_bytes_max=1_000_000)).generate()
        async with asyncio.timeout(60):
            await server.requests[0].closed.wait()

    assert heard.reason == "VENDOR_PROTOCOL"
    assert "1000000 bytes" in heard.error.metadata["detail"]


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("depth", [900, 100_000])
async def test_a_body_nested_deeply_is_a_failure_in_words(provider, status, depth):
    body = b'{"error": {"message": ' + b"[" * depth + b"]" * depth + b"}}"
    heard, _ = await heard_of(provider, Answer(status, JSON, [body], framing="length"), vendor_server_deadline_s=0)

    assert heard.reason in ("VENDOR_PROTOCOL", "VENDOR_REJECTED", "VENDOR_FAILED")


@pytest.mark.asyncio
@pytest.mark.parametrize("depth", [900, 100_000])
@pytest.mark.parametrize("field", ["error", "usage", "choices", "arguments"])
async def test_an_event_nested_deeply_is_a_failure_in_words_or_ignored(provider, depth, field):
    nested = "[" * depth + "]" * depth
    if field == "arguments":
        call = f'{{"index": 0, "function": {{"name": "get", "arguments": {nested}}}}}'
        event = f'data: {{"choices": [{{"delta": {{"tool_calls": [{call}]}}}}]}}\n\n'
    else:
        event = f'data: {{"{field}": {nested}}}\n\n'
    heard, _ = await heard_of(provider, Answer(chunks=[event.encode(), *HELLO]), vendor_server_deadline_s=0)

    assert heard.reason in ("", "VENDOR_PROTOCOL", "VENDOR_REJECTED", "VENDOR_FAILED")
    assert "internal" not in (heard.error.message if heard.error else "").lower()


@pytest.mark.asyncio
async def test_a_number_of_a_million_digits_is_no_chunk(provider):
    event = b'data: {"choices": [], "created": ' + b"9" * 1_000_000 + b"}\n\n"
    heard, _ = await heard_of(provider, Answer(chunks=[event]))

    assert heard.reason == "VENDOR_PROTOCOL"


@pytest.mark.asyncio
async def test_arguments_without_end_are_given_up(provider):
    piece = events(delta(tool_calls=[{"index": 0, "function": {"name": "set", "arguments": "x" * 60_000}}]), done=False)
    heard, _ = await heard_of(provider, Answer(chunks=piece * 200))

    assert heard.reason == "VENDOR_PROTOCOL"
    assert "arguments" in heard.error.metadata["detail"]


@pytest.mark.asyncio
@pytest.mark.parametrize("framed", [False, True], ids=["body", "event"])
async def test_others_are_served_while_a_long_answer_is_parsed(provider, framed):
    # Brackets are what costs most: the parser of the standard library would hold every thread for a second.
    body = b'{"choices": [' + b"[]," * 500_000 + b"1]}"
    long = Answer(chunks=[b"data: " + body + b"\n\n", *HELLO]) if framed else Answer(headers=JSON, chunks=[body])
    async with SseServer([long]) as server:
        client = await provider(openai_base_url=server.url)
        hostile = asyncio.ensure_future(client.generate())
        request = await server.wait_for(1)
        async with asyncio.timeout(100):
            await request.answered.wait()
        served = 0
        while not hostile.done():
            served += bool((await client.generate("scripted/hello")).text)
        await hostile

    assert served > 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(gzip.compress(gzip.compress(b"{}", mtime=0), mtime=0), id="packed-twice"),
        pytest.param(b"\x1f\x8b not gzip at all", id="broken"),
    ],
)
async def test_the_status_of_a_refusal_counts_whatever_its_body(provider, body):
    heard, _ = await heard_of(provider, packed("gzip, gzip", body, JSON, 401))

    assert heard.reason == "VENDOR_AUTH"


# ---- Answers that are no HTTP

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def raw(*chunks: bytes, end: str = "clean") -> Answer:
    return Answer(chunks=chunks, framing="raw", end=end)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(raw(b"HTTP/1.1 OK 200\r\n\r\n"), id="a-status-in-words"),
        pytest.param(raw(b"HTTP/1.1 2000 OK\r\n\r\n"), id="a-status-of-four-digits"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), id="another-protocol"),
        pytest.param(raw(b"\x15\x03\x01\x00\x02\x02\x28"), id="tls"),
        pytest.param(raw(b"\r\n\r\n"), id="no-status"),
        pytest.param(raw(HEAD, b"x: ", *[bytes(65_536)] * 1024), id="a-header-of-64-MiB"),
        pytest.param(raw(HEAD, *[b"x: y\r\n" * 10_000] * 300), id="three-million-headers"),
        pytest.param(raw(HEAD + b"no header\r\n\r\n"), id="a-header-without-colon"),
        pytest.param(raw(HEAD + b"content-length: many\r\n\r\n"), id="a-length-in-words"),
        pytest.param(raw(HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\n"), id="two-lengths"),
        pytest.param(raw(HEAD + b"transfer-encoding: rot13\r\n\r\n"), id="an-unknown-transfer"),
        pytest.param(raw(CHUNKED, b"5;x=", *[b"x" * 65_536] * 16), id="a-chunk-extension-of-1-MiB"),
        pytest.param(raw(CHUNKED + b"many\r\ndata"), id="a-chunk-size-in-words"),
        pytest.param(raw(CHUNKED + b"f" * 21 + b"\r\ndata"), id="a-chunk-size-of-21-digits"),
        pytest.param(raw(CHUNKED + b"1\r\n:and more"), id="a-chunk-longer-than-its-size"),
        pytest.param(raw(CHUNKED + b"0\r\nno trailer\r\n\r\n"), id="a-broken-trailer"),
    ],
)
async def test_an_answer_that_is_no_http_is_not_tried_again(provider, answer):
    heard, requests = await heard_of(provider, answer, chat("must not be asked for"))

    assert (heard.reason, heard.text, heard.retries, requests) == ("VENDOR_PROTOCOL", "", [], 1)
    assert "HTTP" in heard.error.metadata["detail"]


@pytest.mark.asyncio
@pytest.mark.parametrize("end", ["clean", "cut"])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-ty",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        HEAD + b"content-length: 100\r\n\r\n",
        HEAD + b"content-length: 100\r\n\r\n: here",
        CHUNKED,
        CHUNKED + b"ff",
        CHUNKED + b"ff\r\n: here",
        CHUNKED + b"7\r\n: here\n\r\n",
        CHUNKED + b"7\r\n: here\n\r\n0\r\n",
    ],
    ids=["nothing", "half-a-head", "continue", "no-body", "half-a-body", "no-chunk", "half-a-size", "half-a-chunk",
         "no-last-chunk", "half-a-trailer"],
)  # fmt: skip
async def test_a_connection_lost_anywhere_before_a_delta_is_tried_again(provider, sent, end):
    heard, requests = await heard_of(provider, raw(sent, end=end), chat("whole"))

    assert (heard.text, heard.error, requests, len(heard.retries)) == ("whole", None, 2, 1)


# ---- Silence is the absence of progress


def forever(*chunks: bytes) -> Answer:
    return Answer(chunks=list(chunks) * 100_000, pause_s=0.02)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(forever(b": OPENROUTER PROCESSING\n\n"), id="comments"),
        pytest.param(forever(b"\n"), id="empty-lines"),
        pytest.param(forever(b"event: ping\ndata: {}\n\n"), id="pings"),
        pytest.param(forever(*events(delta(role="assistant", content=""), done=False)), id="empty-deltas"),
        pytest.param(forever(*events({"choices": []}, done=False)), id="no-choices"),
        pytest.param(forever(*events({"choices": [], "usage": {"prompt_tokens": 5}}, done=False)), id="usage"),
        pytest.param(forever(b"x"), id="a-line-in-bytes"),
        pytest.param(Answer(headers=JSON, chunks=[b" "] * 100_000, pause_s=0.02), id="a-body-in-bytes"),
        pytest.param(Answer(400, JSON, [b" "] * 100_000, pause_s=0.02), id="a-refusal-in-bytes"),
    ],
)
async def test_a_vendor_that_sends_anything_but_a_reply_is_given_up(provider, answer):
    heard, requests = await heard_of(provider, answer, chat("unwanted"), vendor_silence_s=0.3)

    assert heard.text == ""
    assert (heard.reason, requests) == ("VENDOR_REJECTED" if answer.status == 400 else "VENDOR_TIMEOUT", 1)
    if answer.status == 200:
        assert heard.error.metadata["timeout_s"] == "0.6"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "piece",
    [
        b": still here\n\n",
        *events(delta(content=""), done=False),
        *events({"choices": [], "usage": {"completion_tokens": 5}}, done=False),
        *events(delta(tool_calls=[{"index": 0, "function": {"name": "get", "arguments": ""}}]), done=False),
    ],
    ids=["comments", "empty-deltas", "usage", "empty-arguments"],
)
async def test_a_reply_that_stops_growing_is_given_up(provider, piece):
    answer = Answer(chunks=[b"".join(HELLO[:2]), *[piece] * 100_000], pause_s=0.1)
    # On a slow machine it takes longer until the text comes.
    for silence_s in (0.5, 5.0, 50.0):
        heard, requests = await heard_of(provider, answer, vendor_silence_s=silence_s)
        if heard.text:
            break

    assert (heard.text, heard.reason, requests) == ("Hello", "VENDOR_TIMEOUT", 1)
    assert heard.error.metadata["timeout_s"] == str(silence_s)


# ---- Cuts


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([b": OPENROUTER PROCESSING\n\n"] * 3, id="comments"),
        pytest.param(events({"choices": [], "usage": {"prompt_tokens": 5}}, done=False), id="usage"),
        pytest.param(events(delta(role="assistant", content=""), done=False), id="a-role"),
        pytest.param([b'data: {"choi'], id="half-an-event"),
    ],
)
@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_stream_that_ends_before_its_first_delta_is_tried_again(provider, chunks, framing):
    heard, requests = await heard_of(provider, Answer(chunks=chunks, framing=framing), chat("whole"))

    assert (heard.text, heard.error, requests) == ("whole", None, 2)
    assert [part.WhichOneof("part") for part in heard.parts[:2]] == ["retry", "delta"]
