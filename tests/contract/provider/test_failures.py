"""How Generate fails, for each way in which a vendor can."""

import asyncio
import contextlib
import json
import socket
from datetime import timedelta

import grpc
import pytest
from turnwright.provider.v1.provider_service_pb2 import RetryReason

from sse_server import Answer, SseServer, chat, delta, error, events, hang_up, json_answer, never, plain, usage_chunk
from turnwright_kit.errors import code_of
from turnwright_provider.vendors.transport import is_near

KEY = "unremarkable"  # of no shape: only its owner knows that it is one
HELLO = events(delta(role="assistant", content=""), delta(content="Hel"), delta(content="lo"), done=False)


async def failed(provider, *answers, **settings):
    """What a caller hears of these answers, and how many requests were sent."""
    async with SseServer(answers) as server:
        heard = await (await provider(openai_base_url=server.url, openai_api_key=KEY, **settings)).generate()
    assert heard.error is not None
    assert KEY not in heard.error.message + str(heard.error.metadata)
    return heard, len(server.requests)


@contextlib.contextmanager
def unused_port():
    """A port of this host at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@pytest.mark.asyncio
async def test_a_refused_connection_is_told_at_once_with_its_url_and_fails_after_a_while(provider):
    with unused_port() as port:
        url = f"http://user:hunter22@127.0.0.1:{port}/v1"
        heard = await (await provider(openai_base_url=url, vendor_connect_deadline_s=0.02)).generate()

    said = (
        f"Cannot connect to openai at http://127.0.0.1:{port}/v1: connection refused. Is the server running? "
        "OPENAI_BASE_URL sets its address."
    )
    assert {retry.detail for retry in heard.retries} == {said}
    assert heard.retries[0].wait.ToTimedelta() < timedelta(seconds=1)
    assert (heard.reason, heard.error.message) == ("VENDOR_UNREACHABLE", said)
    assert code_of(heard.error) is grpc.StatusCode.UNAVAILABLE
    assert heard.error.metadata["vendor"] == "openai"
    assert heard.error.metadata["detail"] == "connection refused"
    assert "hunter22" not in str(heard)


@pytest.mark.asyncio
async def test_a_server_that_restarts_answers_in_the_end(provider):
    async with SseServer([chat("back")]) as server:
        port = server.url.rpartition(":")[2].partition("/")[0]
    client = await provider(openai_base_url=f"http://127.0.0.1:{port}/v1", vendor_connect_deadline_s=60)
    call = client.open()
    assert (await call.read()).HasField("retry")
    said = ""
    async with await asyncio.start_server(answer_all, "127.0.0.1", int(port)):
        while part := await call.read():
            said += part.delta.append_content
    assert said == "back"


async def answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with the same reply."""
    await reader.readuntil(b"\r\n\r\n")
    body = b"".join(chat("back").chunks)
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()


@pytest.mark.asyncio
async def test_a_name_that_does_not_resolve_is_tried_again(provider):
    heard = await (
        await provider(openai_base_url="http://nowhere.invalid/v1", vendor_connect_deadline_s=0.02)
    ).generate()
    assert heard.reason == "VENDOR_UNREACHABLE"
    assert all("http://nowhere.invalid/v1: its name cannot be resolved" in retry.detail for retry in heard.retries)
    # Nobody who asks a hosted vendor can start its server.
    assert "Is the server running?" not in heard.error.message


@pytest.mark.parametrize(
    ("host", "near"),
    [
        *(
            (host, True)
            for host in ("localhost", "127.0.0.1", "[::1]", "192.168.1.5", "100.64.0.9", "[fd00::5]", "vllm")
        ),
        *((host, True) for host in ("host.docker.internal", "gpu.local")),
        *((host, False) for host in ("api.openai.com", "8.8.8.8", "[2001:4860:4860::8888]", "local.example.com")),
    ],
)
def test_only_a_server_of_ones_own_may_have_to_be_started(host, near):
    assert is_near(f"http://{host}:8000/v1") is near


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"HTTPS_PROXY": "http://u:hunter22@proxy:1"}, "HTTPS_PROXY is set and not used"),
        ({"all_proxy": "socks5://proxy:1"}, "ALL_PROXY is set and not used"),
        ({"HTTP_PROXY": "http://proxy:1"}, ""),
        ({"HTTPS_PROXY": "http://proxy:1", "NO_PROXY": "nowhere.invalid"}, ""),
        ({}, ""),
    ],
)
@pytest.mark.asyncio
async def test_a_proxy_that_is_ignored_is_named_where_no_connection_is_made(provider, monkeypatch, variables, told):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        for spelt in (name, name.lower()):
            monkeypatch.delenv(spelt, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    client = await provider(openai_base_url="https://nowhere.invalid/v1", vendor_connect_deadline_s=0)
    heard = await client.generate()
    assert heard.reason == "VENDOR_UNREACHABLE"
    assert told in heard.error.message
    assert ("TURNWRIGHT_PROXY_FROM_ENV=true" in heard.error.message) == bool(told)
    assert "hunter22" not in str(heard)


@pytest.mark.asyncio
async def test_a_certificate_that_nobody_trusts_fails_at_once(provider):
    async with SseServer([chat("never seen")], tls=True) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert (heard.reason, heard.parts, server.requests) == ("VENDOR_UNREACHABLE", [], [])
    assert "certificate" in heard.error.metadata["detail"]


@pytest.mark.asyncio
async def test_tls_to_a_server_without_it_fails_at_once(provider):
    async with SseServer([chat("never seen")]) as server:
        url = server.url.replace("http:", "https:")
        heard = await (await provider(openai_base_url=url)).generate()

    assert (heard.reason, heard.parts) == ("VENDOR_UNREACHABLE", [])
    assert "TLS" in heard.error.metadata["detail"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        pytest.param(error(401, f"Incorrect API key provided: {KEY}"), "VENDOR_AUTH", "refused the key", id="401"),
        pytest.param(error(403, "Country not supported"), "VENDOR_AUTH", "403", id="403"),
        pytest.param(error(400, "Incorrect API key provided. Get one at x.ai"), "VENDOR_AUTH", "400", id="xai-bad-key"),
        pytest.param(error(404, "The model does not exist", code="model_not_found"), "VENDOR_REJECTED", "tiny", id="404-model"),
        pytest.param(error(429, "You exceeded your quota", "insufficient_quota", "insufficient_quota"), "VENDOR_REJECTED", "quota", id="quota"),
        pytest.param(error(402, "Insufficient credits"), "VENDOR_REJECTED", "credits", id="402"),
        pytest.param(error(500, "[json.exception.parse_error.101] parse error at line 1"), "VENDOR_REJECTED", "parse", id="llamacpp-bad-json"),
        pytest.param(error(503, "no", headers={"x-should-retry": "false"}), "VENDOR_FAILED", "503", id="told-not-to"),
        pytest.param(Answer(307, {"location": "http://elsewhere/"}, framing="length"), "VENDOR_REJECTED", "307", id="redirect"),
        pytest.param(error(400, "request (909 tokens) exceeds the available context size (512 tokens)", "exceed_context_size_error"), "CONTEXT_EXCEEDED", "512", id="RU220-code"),
        pytest.param(error(400, "This model's maximum context length is 512 tokens."), "CONTEXT_EXCEEDED", "tiny", id="RU220-words"),
        pytest.param(plain("413 Request Entity Too Large", status=413), "CONTEXT_EXCEEDED", "413", id="413"),
        pytest.param(Answer(chunks=[]), "VENDOR_PROTOCOL", "without a single event", id="200-no-events"),
        pytest.param(Answer(chunks=[b": ping\n\n", b"data: [DONE]\n\n"]), "VENDOR_PROTOCOL", "without a single event", id="200-only-done"),
        pytest.param(plain("<html><title>Log in</title></html>"), "VENDOR_PROTOCOL", "Log in", id="html"),
        pytest.param(plain("<html><title>Log in</title></html>", "text/event-stream"), "VENDOR_PROTOCOL", "Log in", id="html-as-events"),
        pytest.param(plain("welcome to my server", "text/plain"), "VENDOR_PROTOCOL", "welcome", id="text"),
        pytest.param(json_answer({"status": "ok"}), "VENDOR_PROTOCOL", "not a chat completion", id="other-json"),
        pytest.param(plain("{half a json", "application/json"), "VENDOR_PROTOCOL", "half", id="broken-json"),
        pytest.param(Answer(chunks=[b"data: hello\n\n"]), "VENDOR_PROTOCOL", "not JSON", id="not-json-events"),
        pytest.param(json_answer({"error": {"message": "no such model", "code": 404}}), "VENDOR_REJECTED", "no such model", id="error-as-200"),
        pytest.param(json_answer({"base_resp": {"status_code": 1004, "status_msg": "login fail: carry the API secret key"}}), "VENDOR_AUTH", "login", id="base_resp-as-200"),
        pytest.param(json_answer({"code": "InvalidApiKey", "message": "Invalid API-key provided."}), "VENDOR_AUTH", "API-key", id="message-as-200"),
        pytest.param(Answer(chunks=events({"type": "error", "message": "Invalid Authentication"}, done=False)), "VENDOR_AUTH", "Authentication", id="typed-error-in-the-stream"),
        pytest.param(Answer(chunks=events({"code": 400, "msg": "bad grammar"}, done=False)), "VENDOR_REJECTED", "bad grammar", id="words-in-the-stream"),
        pytest.param(Answer(chunks=[b'error: {"code":400,"message":"bad grammar"}\n\n']), "VENDOR_REJECTED", "bad grammar", id="llamacpp-error-field"),
    ],
)  # fmt: skip
async def test_what_another_try_cannot_mend_is_not_tried_again(provider, answer, reason, words):
    heard, requests = await failed(provider, answer, chat("must not be asked for"))

    assert (heard.reason, heard.retries, requests) == (reason, [], 1)
    assert words in heard.error.message


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(error(429, "slow down"), "rate_limit", id="429"),
        pytest.param(error(429, "slow down", headers={"retry-after": "0"}), "rate_limit", id="429-zero-wait"),
        pytest.param(error(503, "Loading model", "unavailable_error"), "warmup", id="503-loading"),
        pytest.param(plain("<html><title>502 Bad Gateway</title></html>", status=502), "gateway", id="502"),
        pytest.param(error(504, "upstream timeout"), "gateway", id="504"),
        pytest.param(error(500, "oops"), "server", id="500"),
        pytest.param(error(529, "Overloaded"), "server", id="529"),
        pytest.param(hang_up(), "server", id="hang-up"),
        pytest.param(Answer(chunks=HELLO[:1], end="cut"), "server", id="cut-before-a-delta"),
        pytest.param(Answer(chunks=HELLO[:1]), "server", id="end-before-a-delta"),
        pytest.param(Answer(chunks=[*HELLO[:1], b"data: <html>502</html>\n\n"]), "gateway", id="page-in-the-stream"),
        pytest.param(Answer(chunks=events({"error": {"code": 429, "message": "rate"}})), "rate_limit", id="429-in-the-stream"),
        pytest.param(Answer(chunks=[b'event: error\ndata: {"message":"overloaded"}\n\n']), "server", id="error-event"),
    ],
)  # fmt: skip
async def test_what_passes_by_itself_is_tried_again_and_told_before(provider, answer, kind):
    # RU305
    async with SseServer([answer, answer, chat("third time lucky")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    reason = RetryReason.Value(f"RETRY_REASON_{kind.upper()}")
    assert [(retry.attempt, retry.reason) for retry in heard.retries] == [(1, reason), (2, reason)]
    assert [part.WhichOneof("part") for part in heard.parts[:3]] == ["retry", "retry", "delta"]
    assert all(retry.HasField("wait") and retry.detail for retry in heard.retries)
    assert (heard.text, heard.error) == ("third time lucky", None)


@pytest.mark.asyncio
@pytest.mark.parametrize("headers", [{"retry-after": "0.013"}, {"retry-after-ms": "13", "retry-after": "7"}])
async def test_the_wait_is_what_the_vendor_asks_for(provider, headers):
    async with SseServer([error(429, "slow down", headers=headers), chat("ok")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()

    assert [retry.wait.ToMilliseconds() for retry in heard.retries] == [13]
    assert heard.text == "ok"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "settings", "reason"),
    [
        pytest.param(error(429, "slow"), {"vendor_busy_deadline_s": 0.02}, "VENDOR_RATE_LIMIT", id="rate-limit"),
        pytest.param(error(503, "loading"), {"vendor_busy_deadline_s": 0.02}, "VENDOR_FAILED", id="warmup"),
        pytest.param(error(502, "gateway"), {"vendor_gateway_deadline_s": 0.02}, "VENDOR_FAILED", id="gateway"),
        pytest.param(error(500, "server"), {"vendor_server_deadline_s": 0.02}, "VENDOR_FAILED", id="server"),
    ],
)
async def test_each_class_has_a_deadline_after_which_it_is_a_failure(provider, answer, settings, reason):
    # RU305
    heard, requests = await failed(provider, *([answer] * 200), **settings)

    assert heard.reason == reason
    assert requests == len(heard.retries) + 1 < 200
    assert heard.error.metadata["http_status"]


@pytest.mark.asyncio
async def test_a_wait_beyond_the_deadline_is_not_begun(provider):
    heard, requests = await failed(provider, error(429, "tomorrow", headers={"retry-after": "86400"}))

    assert (heard.reason, heard.retries, requests) == ("VENDOR_RATE_LIMIT", [], 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(chunks=HELLO, end="cut"), id="connection-reset"),
        pytest.param(Answer(chunks=HELLO, framing="close"), id="end-without-finish"),
        pytest.param(Answer(chunks=[*HELLO, b'data: {"choices": [{"del'], framing="close"), id="half-an-event"),
        pytest.param(Answer(chunks=[*HELLO, *events({"error": {"code": 502, "message": "gone"}})]), id="error-object"),
    ],
)
async def test_a_stream_that_stops_in_the_middle_is_reported_after_its_deltas_and_not_repeated(provider, answer):
    heard, requests = await failed(provider, answer, chat("must not be asked for"))

    assert (heard.text, heard.reason) == ("Hello", "STREAM_INTERRUPTED")
    assert (heard.retries, heard.finish, requests) == ([], None, 1)


@pytest.mark.asyncio
async def test_what_was_held_back_is_reported_before_an_interruption(provider):
    answer = Answer(chunks=events(delta(content="a <thi"), done=False), end="cut")
    heard, _ = await failed(provider, answer)

    assert (heard.text, heard.reason) == ("a <thi", "STREAM_INTERRUPTED")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ({"code": 400, "message": "Token limit reached"}, "CONTEXT_EXCEEDED"),
        ({"status_code": 400, "message": "Tool call validation failed", "code": "tool_use_failed"}, "VENDOR_REJECTED"),
        ({"code": 429, "message": "Rate limit exceeded"}, "VENDOR_RATE_LIMIT"),
    ],
)
async def test_an_error_in_the_middle_of_a_stream_keeps_its_class(provider, failure, reason):
    # RU220 for the first
    heard, _ = await failed(provider, Answer(chunks=[*HELLO, *events({"error": failure}, done=False)]))

    assert (heard.text, heard.reason) == ("Hello", reason)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "text"),
    [(never(), ""), (Answer(chunks=[], end="hang"), ""), (Answer(chunks=HELLO, end="hang"), "Hello")],
    ids=["no-answer", "only-a-head", "in-the-middle"],
)
async def test_a_vendor_that_falls_silent_is_given_up(provider, answer, text):
    # On a slow machine it takes longer until the text comes.
    for silence_s in (0.2, 5.0, 50.0):
        heard, requests = await failed(provider, answer, vendor_silence_s=silence_s)
        if heard.text == text:
            break

    assert (heard.text, heard.reason, requests) == (text, "VENDOR_TIMEOUT", 1)
    assert code_of(heard.error) is grpc.StatusCode.DEADLINE_EXCEEDED
    assert heard.error.metadata["timeout_s"] == str(silence_s)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"event_bytes_max": 1024}, Answer(chunks=[b"data: " + b"x" * 700, b"x" * 700])),
        ({"event_bytes_max": 1024}, Answer(chunks=[b"data: " + b"x" * 700 + b"\n"] * 2)),
        ({"response_bytes_max": 1024}, Answer(chunks=[b":" + b"x" * 500 + b"\n\n"] * 3)),
    ],
    ids=["line", "event", "reply"],
)
async def test_a_vendor_cannot_fill_the_memory(provider, settings, answer):
    heard, _ = await failed(provider, answer, **settings)

    assert (heard.reason, heard.retries) == ("VENDOR_PROTOCOL", [])
    assert "1024 bytes" in heard.error.metadata["detail"]


@pytest.mark.asyncio
async def test_cancelling_closes_the_request_in_the_middle_of_a_reply(provider):
    async with SseServer([Answer(chunks=HELLO, end="hang")]) as server:
        call = (await provider(openai_base_url=server.url)).open()
        assert (await call.read()).delta.append_content == "Hel"
        call.cancel()
        async with asyncio.timeout(60):
            await server.requests[0].closed.wait()

    assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_cancelling_closes_a_request_that_has_no_answer_yet(provider):
    async with SseServer([never()]) as server:
        call = (await provider(openai_base_url=server.url)).open()
        request = await server.wait_for(1)
        call.cancel()
        async with asyncio.timeout(60):
            await request.closed.wait()

    assert not request.answered.is_set()


@pytest.mark.asyncio
async def test_cancelling_ends_the_wait_for_another_try(provider):
    async with SseServer([error(429, "wait", headers={"retry-after": "100"})]) as server:
        client = await provider(openai_base_url=server.url, vendor_busy_deadline_s=1000)
        call = client.open()
        assert (await call.read()).HasField("retry")
        before = len(asyncio.all_tasks())
        call.cancel()
        # The task of the caller ends in any case, that of the handler with its wait.
        async with asyncio.timeout(60):
            while len(asyncio.all_tasks()) >= before - 1:  # noqa: ASYNC110 - the wait tells nobody that it has ended
                await asyncio.sleep(0.01)

    assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_the_words_of_a_vendor_may_hold_half_a_character(provider):
    body = json.dumps({"error": {"message": "no \ud800 such model"}}).encode()
    refusal = Answer(400, {"content-type": "application/json"}, [body], framing="length")
    heard, _ = await failed(provider, refusal)
    assert heard.reason == "VENDOR_REJECTED"
    assert "no \ufffd such model" in heard.error.message


@pytest.mark.asyncio
async def test_details_hold_no_secret_and_are_short(provider):
    words = f"I know sk-proj-abcdef0123456789 and Bearer abcdefgh12345678, not {KEY} " + "x" * 5000
    heard, _ = await failed(provider, error(400, words))

    detail = heard.error.metadata["detail"]
    assert "abcdef" not in detail
    assert "not [redacted] x" in detail
    assert len(detail) <= 500


@pytest.mark.asyncio
async def test_each_attempt_that_reports_usage_is_told_with_it(provider):
    # A vendor charges an attempt that fails after its prompt was read.
    used = usage_chunk(31, 1)
    broken = Answer(chunks=events(used, done=False), end="cut")
    async with SseServer([broken, broken, chat("hello")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate()
    assert heard.text == "hello"
    assert [retry.usage.prompt_tokens for retry in heard.retries] == [31, 31]


@pytest.mark.asyncio
async def test_the_usage_of_the_last_attempt_is_told_before_its_error(provider):
    used = usage_chunk(31, 1)
    answers = [Answer(chunks=[*events(used, done=False), b'data: {"error": {"message": "bad request"}}\n\n'])]
    heard, _ = await failed(provider, *answers)
    assert [part.delta.set_usage.prompt_tokens for part in heard.parts] == [31]
