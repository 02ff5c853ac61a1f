"""What vendors say in ways of their own: of retries, of keys, in details; calls and replies of odd shapes."""

import json

import pytest
from turnwright.provider.v1.provider_service_pb2 import RETRY_REASON_SERVER

from sse_server import Answer, SseServer, chat, delta, error, events, json_answer


async def heard_of(provider, *answers, **settings):
    """What a caller hears of these answers, and how many requests were sent."""
    async with SseServer(answers) as server:
        heard = await (await provider(openai_base_url=server.url, **settings)).generate()
    return heard, len(server.requests)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "status_and_words",
    [
        (400, "a passing fault"),
        (401, "the key is being rolled out"),
        (404, "moving"),
        (422, "try again"),
        (500, "oops"),
    ],
)
@pytest.mark.parametrize("said", ["true", "True"])
async def test_a_vendor_that_asks_for_another_try_gets_one(provider, status_and_words, said):
    again = error(*status_and_words, headers={"x-should-retry": said})
    heard, requests = await heard_of(provider, again, again, chat("third time lucky"))

    assert (heard.text, requests) == ("third time lucky", 3)
    assert [retry.reason for retry in heard.retries] == [RETRY_REASON_SERVER] * 2


@pytest.mark.asyncio
async def test_a_vendor_that_asks_for_another_try_for_ever_is_given_up(provider):
    again = error(400, "a passing fault", headers={"x-should-retry": "true"})
    heard, requests = await heard_of(provider, *[again] * 500, vendor_server_deadline_s=0.02)

    assert heard.reason == "VENDOR_REJECTED"
    assert requests == len(heard.retries) + 1 < 500


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
async def test_a_vendor_that_asks_for_no_other_try_gets_none(provider, status):
    heard, requests = await heard_of(provider, error(status, "no", headers={"x-should-retry": "false"}), chat("no"))

    assert (requests, heard.retries) == (1, [])


BAD_KEYS = [
    {"message": "Incorrect API key provided: sk-****. You can find your API key at ..."},
    {"message": "Invalid API Key"},
    {"message": "invalid x-api-key", "type": "authentication_error"},
    {"message": "No auth credentials found"},
    {"message": "API key not valid. Please pass a valid API key.", "status": "INVALID_ARGUMENT"},
    {"message": "Your API key has expired"},
    {"message": "You didn't provide an API key. You need to provide your API key in an Authorization header"},
    {"message": "The API key is missing"},
    {"message": "Access denied due to invalid subscription key or wrong API endpoint."},
    {"message": "Authentication Fails, your credentials were revoked"},
    {"message": "no", "code": "invalid_api_key"},
    {"message": "Request had invalid authentication credentials."},
    {"message": "no", "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]},
]


@pytest.mark.asyncio
@pytest.mark.parametrize("body", BAD_KEYS, ids=lambda body: body["message"][:30])
@pytest.mark.parametrize("how", ["200", "400", "404", "500", "event"])
async def test_a_key_that_is_refused_in_words_is_a_refused_key(provider, body, how):
    if how == "event":
        answer = Answer(chunks=events({"error": body}, done=False))
    else:
        answer = json_answer({"error": body}, int(how))
    heard, requests = await heard_of(provider, answer, chat("unwanted"))

    assert (heard.reason, heard.retries, requests) == ("VENDOR_AUTH", [], 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        ({"error": {"message": "Bad Request", "details": "the prompt is longer than the context window"}}, "CONTEXT_EXCEEDED", "longer"),
        ({"error": {"message": "Request failed", "details": [{"description": "temperature must be 1"}]}}, "VENDOR_REJECTED", "must be 1"),
        ({"error": {"message": "no", "details": {"error_code": "enforced_spend_limit_reached"}}}, "VENDOR_REJECTED", "no"),
        ({"error": {"message": "no", "details": {"message": "out of stock"}}}, "VENDOR_REJECTED", "no: out of stock"),
        ({"error": "Bad Request", "message": "prompt is too long"}, "CONTEXT_EXCEEDED", "Bad Request: prompt is too long"),
        ({"error": "Bad Request", "details": "prompt is too long"}, "CONTEXT_EXCEEDED", "prompt is too long"),
        ({"success": False, "errors": [{"code": 7009, "message": "prompt is too long"}]}, "CONTEXT_EXCEEDED", "too long"),
        ({"Message": "Input is too long for requested model."}, "CONTEXT_EXCEEDED", "too long"),
        ({"error_code": 336007, "error_msg": "prompt tokens too long"}, "CONTEXT_EXCEEDED", "too long"),
    ],
)  # fmt: skip
async def test_what_stands_beside_a_message_is_read(provider, body, reason, words):
    heard, _ = await heard_of(provider, json_answer(body, 400))

    assert heard.reason == reason
    assert words in heard.error.metadata["detail"]


@pytest.mark.asyncio
async def test_a_wait_in_the_details_of_a_body_is_kept(provider):
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.013s"}]
    slow = json_answer({"error": {"code": 429, "message": "slow down", "details": details}}, 429)
    heard, _ = await heard_of(provider, slow, chat("ok"))

    assert [retry.wait.ToMilliseconds() for retry in heard.retries] == [13]


# ---- Odd shapes


def calls_of(heard) -> list[tuple[int, str, str]]:
    listed = [part.delta.set_tool_calls.calls for part in heard.parts if part.delta.HasField("set_tool_calls")]
    return [(call.index, call.name, call.arguments) for call in listed[-1]]


@pytest.mark.asyncio
async def test_indexes_of_calls_and_choices_may_be_text(provider):
    pieces = [("0", "get", '{"path"'), ("1", "sh", '{"co'), ("0", None, ': "a"}'), ("1", None, 'mmand": "b"}')]
    chunks = []
    for index, name, arguments in pieces:
        call = {"index": index, "function": {"name": name, "arguments": arguments}}
        chunks.append({"choices": [{"index": "0", "delta": {"tool_calls": [call]}}]})
    chunks.append({"choices": [{"index": "0", "delta": {"content": "text"}, "finish_reason": "tool_calls"}]})
    chunks.append({"choices": [{"index": "1", "delta": {"content": "another choice"}}]})
    heard, _ = await heard_of(provider, Answer(chunks=events(*chunks)))

    assert heard.text == "text"
    assert calls_of(heard) == [(0, "get", '{"path": "a"}'), (1, "sh", '{"command": "b"}')]


MESSAGE = {"role": "assistant", "content": "the reply"}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "empty", [{}, None, {"role": "assistant"}, {"content": ""}, {"content": None, "tool_calls": []}]
)
@pytest.mark.parametrize("framed", [False, True], ids=["body", "stream"])
async def test_a_message_beside_an_empty_delta_is_the_reply(provider, empty, framed):
    body = {"choices": [{"index": 0, "delta": empty, "message": MESSAGE, "finish_reason": "stop"}]}
    answer = Answer(chunks=events(body)) if framed else json_answer(body)
    heard, _ = await heard_of(provider, answer)

    assert (heard.text, heard.error) == ("the reply", None)


@pytest.mark.asyncio
async def test_a_message_that_repeats_the_deltas_counts_once(provider):
    chunks = [
        {"choices": [{"delta": {"content": "one "}, "message": {"content": "one "}}]},
        {"choices": [{"delta": {"content": "two"}, "message": {"content": "one two"}}]},
        {"choices": [{"delta": {"content": ""}, "message": {"content": "one two"}, "finish_reason": "stop"}]},
    ]
    heard, _ = await heard_of(provider, Answer(chunks=[json_event(chunk) for chunk in chunks]))

    assert heard.text == "one two"


def json_event(chunk: dict) -> bytes:
    return f"data: {json.dumps(chunk)}\r\n\r\n".encode()


@pytest.mark.asyncio
async def test_usage_before_a_reply_is_reported_with_it(provider):
    usage = {"prompt_tokens": 5, "completion_tokens": 0}
    chunks = events({"choices": [], "usage": usage}, delta(content="hi"), delta(finish="stop"))
    heard, _ = await heard_of(provider, Answer(chunks=chunks))

    assert [part.WhichOneof("part") for part in heard.parts][-1] == "finish"
    assert heard.finish.usage.prompt_tokens == 5
    assert any(part.delta.set_usage.prompt_tokens == 5 for part in heard.parts)


# ---- What people are told to do


@pytest.mark.asyncio
@pytest.mark.parametrize("vendor", ["openai", "xai", "openrouter", "ollama"])
@pytest.mark.parametrize(
    "answer", [error(401, "no"), error(400, "Incorrect API key provided"), error(403, "forbidden")]
)
async def test_a_refused_key_names_the_variable_that_holds_it(provider, vendor, answer):
    async with SseServer([answer]) as server:
        heard = await (await provider(**{f"{vendor}_base_url": server.url})).generate(f"{vendor}/tiny")

    assert f"{vendor.upper()}_API_KEY" in heard.error.message


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [404, 405])
async def test_a_server_that_has_no_such_model_says_which_it_has(provider, status):
    async with SseServer([error(status, "no such thing")], models=["large", "small"]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate("openai/tiny")

    assert heard.reason == "VENDOR_REJECTED"
    assert heard.error.message.endswith(f"no such thing. {server.url} does not list tiny; it lists large, small.")


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [400, 404])
@pytest.mark.parametrize(
    "words", ["The model `gpt5-mini` does not exist", "Model Not Exist", "gpt5-mini is not a valid model ID",
              "Unknown Model, please check the model code.", "Invalid model name passed in model=gpt5-mini"],
)  # fmt: skip
async def test_a_mistyped_model_is_told_with_the_one_that_was_meant(provider, status, words):
    async with SseServer([error(status, words)], models=["gpt-5", "gpt-5-mini"]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate("openai/gpt5-mini")

    told = f"{server.url} does not list gpt5-mini (did you mean gpt-5-mini?); it lists gpt-5, gpt-5-mini."
    assert heard.error.message.endswith(told)
    # One error is told once.
    assert (heard.error.message.count(words), heard.error.message.count("base URL")) == (1, 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("vendor", "path", "wanted"),
    [("openai", "", "/v1"), ("openai", "/api", "/v1"), ("openai", "/v1", ""), ("anthropic", "/api", "/v1"),
     ("openrouter", "/v1", "/api/v1"), ("zai", "/v1", "/api/paas/v4"), ("gemini", "/v1", "/v1beta"), ("ollama", "/x", ""),
     ("work", "/api", "/v1")],
)  # fmt: skip
async def test_an_address_that_ends_in_another_way_than_its_kind_is_asked_about(
    provider, tmp_path, vendor, path, wanted
):
    async with SseServer([error(404, "Not Found")]) as server:
        address = server.url.removesuffix("/v1") + path
        # A preset mends an address without a path by itself, but not one whose end it does not know.
        settings = {} if vendor == "work" else {f"{vendor}_base_url": address}
        (tmp_path / "endpoints.toml").write_text(f"[endpoint.work]\nurl = '{address}'\n")
        heard = await (await provider(**settings)).generate(f"{vendor}/m")

    end = f"; should it end in {wanted}?" if wanted else "."
    assert heard.error.message.endswith(f"The base URL is {address}{end}")


@pytest.mark.asyncio
async def test_a_temperature_that_is_refused_names_its_setting(provider):
    refusal = error(400, "temperature: Input should be less than or equal to 1")
    async with SseServer([refusal]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate(temperature=1.5)
        own = await (await provider(openai_base_url=server.url)).generate(temperature=2.5)

    assert "TURNWRIGHT_TEMPERATURE" in heard.error.message
    assert "TURNWRIGHT_TEMPERATURE" in own.error.message
    assert heard.error.message.count("less than or equal") == 1
