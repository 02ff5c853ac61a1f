"""Rules and tables: overflow, classes, retries, redaction, coalescing, scripts, names, settings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import expect, params
from turnwright_core.errors import Reason
from turnwright_kit.settings import SettingsError, load
from turnwright_provider.config import ProviderSettings
from turnwright_provider.domain.classify import classify, classify_in_stream
from turnwright_provider.domain.error_body import ErrorBody, read_error_bytes
from turnwright_provider.domain.failures import RETRYABLE, Failure, FailureClass, clean, redact, to_fault
from turnwright_provider.domain.overflow import is_context_exceeded, reported_token_counts
from turnwright_provider.domain.retry import RetryPolicy, retry_after_s
from turnwright_provider.domain.scripts import ScriptedReply, ScriptedSection, ScriptError, parse_script
from unit.provider.overflows import OTHERS, OVERFLOWS

# ---- Context overflow (RU220) and classes


@pytest.mark.parametrize("case", params("wire/context_errors.jsonl"))
def test_a_vendor_error_is_an_overflow_or_not(case):
    # RU220
    error = ErrorBody(case["message"], case["type"] or "", str(case["code"] or ""))
    assert is_context_exceeded(case["status"], error) is case["is_context_overflow"]


@pytest.mark.parametrize("case", params("rummy/llm_errors.jsonl"))
def test_a_message_alone_tells_its_class(case):
    failure = classify_in_stream(case["input"]["message"])
    verdicts = {
        "is_context_exceeded": failure.kind is FailureClass.CONTEXT_EXCEEDED,
        "is_transient": failure.is_retryable(),
    }
    expect(case["id"], passed=verdicts[case["input"]["fn"]] is case["expected"], exceptions={})


@pytest.mark.parametrize(
    ("message", "is_overflow"), [*((words, True) for words in OVERFLOWS), *((words, False) for words in OTHERS)]
)
def test_words_of_other_vendors_are_an_overflow_or_not(message, is_overflow):
    # RU220: not from the corpus
    assert is_context_exceeded(400, ErrorBody(message)) is is_overflow


@pytest.mark.parametrize(
    "words",
    [
        "Invalid Authentication",
        "Missing Authentication header",
        "Missing bearer authentication in header",
        "Invalid token",
        "token expired or incorrect",
        "could not validate credentials",
        "Invalid username or password.",
        "The security token included in the request is invalid.",
        "The provided key is not authorised",
        "your key is inactive",
        "login fail: Please carry the API secret key in the 'Authorization' field of the request header",
        "令牌已过期或验证不正确",
        "无效的API密钥",
        "身份验证失败",
    ],
)
def test_a_key_that_is_refused_in_words_alone_is_no_other_trouble(words):
    for body in ({"error": {"message": words}}, {"error": words}, {"message": words}, {"detail": words}):
        assert classify_in_stream(body).kind is FailureClass.AUTH
        assert classify(400, {}, json.dumps(body).encode(), 0.0).kind is FailureClass.AUTH


@pytest.mark.parametrize(
    "words",
    [
        "Invalid token in JSON at position 3",
        "Invalid token: expected '}'",
        "invalid key 'foo' in object",
        "Missing required key: messages",
        "the key 'temperature' is not valid",
        "stop token invalid",
    ],
)
def test_another_key_or_token_is_no_key_of_the_vendor(words):
    assert classify_in_stream({"error": {"message": words}}).kind is not FailureClass.AUTH
    assert classify(400, {}, json.dumps({"error": {"message": words}}).encode(), 0.0).kind is FailureClass.INVALID


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"type": "error", "error": {"type": "permission_error", "message": "no"}}, FailureClass.AUTH, 403),
        ({"type": "error", "error": {"type": "not_found_error", "message": "model: x"}}, FailureClass.INVALID, 404),
        ({"error": {"code": "insufficient_balance", "message": "Insufficient Balance"}}, FailureClass.INVALID, 402),
        ({"error": {"status": "INVALID_ARGUMENT", "message": "no"}}, FailureClass.INVALID, 400),
        ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "wait"}}, FailureClass.RATE_LIMIT, 429),
        ({"code": "1302", "msg": "您的账户已达到速率限制"}, FailureClass.RATE_LIMIT, 429),
        ({"error": {"message": "length 512 is not possible"}}, FailureClass.SERVER, 0),
        ({"error": {"message": "500 tokens were lost"}}, FailureClass.SERVER, 0),
        ({"error": {"message": "Error code: 529 - overloaded"}}, FailureClass.SERVER, 529),
    ],
)
def test_a_status_is_recognized_by_words_and_not_by_any_number(body, kind, status):
    failure = classify_in_stream(body)
    assert (failure.kind, failure.status) == (kind, status)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b'{"error":{"message":"m","type":"t","code":"c","param":"p"}}', ErrorBody("m", "t", "c", 0, "p")),
        (b'{"code":"invalid-argument","error":"text"}', ErrorBody("text", "", "invalid-argument")),
        (b'[{"error":{"code":400,"message":"m","status":"INVALID"}}]', ErrorBody("m", "INVALID", "400", 400)),
        (b'{"detail":"Not Found"}', ErrorBody("Not Found")),
        (b'{"base_resp":{"status_code":1004,"status_msg":"login fail"}}', ErrorBody("login fail")),
        (b'{"error":{"message":"m","details":[{"fieldViolations":[{"description":"too long"}]}]}}', ErrorBody("m: too long")),
        (b'{"detail":[{"loc":["x"]}]}', ErrorBody('[{"loc": ["x"]}]')),
        (b'{"error":{"code":429,"message":"Provider returned error","metadata":{"raw":"slow"}}}', ErrorBody("Provider returned error: slow", "", "429", 429)),
        (b'{"error":{"code":"429","message":"m"}}', ErrorBody("m", "", "429", 429)),
        (b'"text"', ErrorBody("text")),
        (b"<html><head><title>502 Bad Gateway</title></head>", ErrorBody("502 Bad Gateway")),
        (b"plain words", ErrorBody("plain words")),
        (b"", ErrorBody("")),
    ],
)  # fmt: skip
def test_an_error_is_read_in_each_known_shape(body, error):
    assert read_error_bytes(body) == error


@given(st.binary(max_size=300), st.integers(300, 599))
def test_any_error_body_has_a_class(body, status):
    failure = classify(status, {}, body, 0.0)
    assert failure.detail
    assert isinstance(failure.kind, FailureClass)


@pytest.mark.parametrize("kind", FailureClass)
@pytest.mark.parametrize("started", [False, True])
def test_every_class_has_a_reason_and_a_sentence(kind, started):
    error = to_fault(Failure(kind, "words", 418, timeout_s=3.0), "openai", "tiny", started=started)
    assert "words" in error.message
    assert error.metadata["vendor"] == "openai"
    interrupted = started and kind in RETRYABLE and kind is not FailureClass.RATE_LIMIT
    assert (error.reason is Reason.STREAM_INTERRUPTED) is interrupted


# ---- Retries, RU305

POLICY = RetryPolicy()


def test_the_defaults_are_those_of_the_specification(monkeypatch):
    # RU305
    for name in ("TURNWRIGHT_VENDOR_BUSY_DEADLINE_S", "TURNWRIGHT_VENDOR_BACKOFF_S_MAX"):
        monkeypatch.delenv(name, raising=False)
    settings = load(ProviderSettings)
    deadlines = (settings.vendor_busy_deadline_s, settings.vendor_gateway_deadline_s, settings.vendor_server_deadline_s)
    assert (deadlines, settings.vendor_backoff_s_max) == ((600.0, 30.0, 60.0), 30.0)


def test_a_vendor_may_be_silent_for_five_minutes(monkeypatch):
    # RU304: the timeout of a fetch
    monkeypatch.delenv("TURNWRIGHT_VENDOR_SILENCE_S", raising=False)
    assert load(ProviderSettings).vendor_silence_s == 300.0


@pytest.mark.parametrize(
    ("kind", "deadline_s"),
    [
        (FailureClass.RATE_LIMIT, 600.0),
        (FailureClass.WARMUP, 600.0),
        (FailureClass.GATEWAY, 30.0),
        (FailureClass.SERVER, 60.0),
        (FailureClass.INVALID, 0.0),
        (FailureClass.UNREACHABLE, 0.0),
    ],
)
def test_each_class_has_its_deadline(kind, deadline_s):
    # RU305
    failure = Failure(kind, "x")
    assert not POLICY.gives_up(failure, elapsed_s=0.0, wait_s=deadline_s)
    assert POLICY.gives_up(failure, elapsed_s=0.5, wait_s=deadline_s)


def test_a_connection_that_may_come_back_is_tried_for_some_seconds_at_short_intervals():
    refused = Failure(FailureClass.UNREACHABLE, "connection refused", may_retry=True)
    assert (POLICY.gives_up(refused, 9.0, 1.0), POLICY.gives_up(refused, 9.5, 1.0)) == (False, True)
    assert {POLICY.wait_s(attempt, refused, 0.0) for attempt in range(1, 9)} == {1.0}


def test_waits_double_up_to_the_maximum_and_chance_only_shortens_them():
    # RU305
    failure = Failure(FailureClass.RATE_LIMIT, "x")
    assert [POLICY.wait_s(n, failure, 0.0) for n in (1, 2, 3, 5, 6, 7, 10_000)] == [1, 2, 4, 16, 30, 30, 30]
    assert POLICY.wait_s(3, failure, 0.999) == pytest.approx(4 * 0.75, abs=0.01)


def test_a_wait_that_the_vendor_names_counts_as_it_is():
    asked = Failure(FailureClass.RATE_LIMIT, "x", retry_after_s=45.5)
    assert POLICY.wait_s(1, asked, 0.9) == 45.5
    assert POLICY.wait_s(1, Failure(FailureClass.RATE_LIMIT, "x", retry_after_s=0.0), 0.0) == 1.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "350", "retry-after": "1"}, 0.35),
        ({"retry-after-ms": "0", "retry-after": "1"}, 1.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:10 GMT"}, 10.0),
        ({"retry-after": "Wed, 21 Oct 2020 07:28:00 GMT"}, 0.0),
        ({"retry-after": "20s"}, 20.0),
        ({"retry-after": "5, 5"}, 5.0),
        ({"retry-after": "1792567690"}, 10.0),
        ({"retry-after": "1792567690000"}, 10.0),
        ({"retry-after": "1792567690.5"}, 10.5),
        ({"retry-after-ms": "1792567690000"}, 10.0),
        ({"retry-after": "1792567000"}, 0.0),
        ({"retry-after": "2026-10-21T07:28:10Z"}, 10.0),
        ({"retry-after": "2026-10-21T09:28:10.5+02:00"}, 10.5),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:10 GMT"}, 10.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "350ms"}, 0.35),
        ({"retry-after": "2 minutes"}, 120.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "-5"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_each_form(headers, seconds):
    now_s = 1792567680.0  # Wed, 21 Oct 2026 07:28:00 GMT
    assert retry_after_s(headers, now_s) == seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-tokens": "6m0s", "x-ratelimit-remaining-tokens": "900"}, 1.0),
        ({"x-ratelimit-reset-requests": "86ms"}, 0.086),
        ({"x-ratelimit-reset": "1792567690000"}, 10.0),
        ({"x-ratelimit-reset": "1792567690"}, 10.0),
        ({"x-ratelimit-reset": "30"}, 30.0),
        ({"ratelimit-reset": "30", "ratelimit-remaining": "0"}, 30.0),
        ({"anthropic-ratelimit-tokens-reset": "2026-10-21T07:28:10Z", "anthropic-ratelimit-tokens-remaining": "0"}, 10.0),
        ({"anthropic-ratelimit-requests-reset": "2026-10-21T07:28:10Z", "anthropic-ratelimit-requests-remaining": "49"}, None),
        ({"retry-after": "2", "x-ratelimit-reset": "30"}, 2.0),
        ({"x-ratelimit-limit-requests": "30"}, None),
        ({"x-ratelimit-reset": "never"}, None),
    ],
)  # fmt: skip
def test_a_used_up_limit_says_when_it_is_reset(headers, seconds):
    failure = classify(429, headers, b'{"error": {"message": "slow down"}}', 1792567680.0)
    assert (failure.kind, failure.retry_after_s) == (FailureClass.RATE_LIMIT, seconds)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 4000. Please try again in 11.054s.", 11.054),
        ("Please try again in 350ms.", 0.35),
        ("Please try again in 1m30s. Visit our site", 90.0),
        ("try again in 6m0s", 360.0),
        ("Try again in 2 minutes", 120.0),
        ("Please wait 1 minute and 30 seconds before trying again", 90.0),
        ("Please retry after 20 seconds.", 20.0),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("Requests have exceeded the rate limit of your tier. Please retry after 5 seconds, or upgrade.", 5.0),
        ("You are being rate limited, retry after: 12", 12.0),
        ("Please wait at least 10 sec.", 10.0),
        ("The limit resets in 1h2m3s", 3723.0),
        ("Service available again in about 3 min", 180.0),
        ("Limit 3 / min. Please try again in 20s. Contact us", 20.0),
        ("3 requests per 20 seconds are allowed", None),
        ("You sent 100 requests in 60 seconds", None),
        ("Please try again later.", None),
        ("Try again. 30 requests are allowed each minute", None),
        ("wait for 5 apples", None),
    ],
)  # fmt: skip
def test_a_wait_is_read_in_words(words, seconds):
    assert classify(429, {}, json.dumps({"error": {"message": words}}).encode(), 0.0).retry_after_s == seconds
    assert classify_in_stream({"error": {"message": words, "code": 429}}).retry_after_s == seconds
    assert (
        classify(429, {"retry-after": "7"}, json.dumps({"error": {"message": words}}).encode(), 0.0).retry_after_s
        == 7.0
    )


@pytest.mark.parametrize("status", [400, 403, 422, 500, 503, 429, 0])
@pytest.mark.parametrize(
    "error",
    [
        {"message": "ThrottlingException: Too many tokens, please wait before trying again."},
        {"message": "Too many requests, please wait before trying again."},
        {"message": "Rate limit exceeded: 20 requests per minute"},
        {"message": "You have hit your rate limit. Slow down."},
        {"message": "Request was throttled. Expected available in 12 seconds."},
        {"message": "no", "code": "rate_limit_exceeded"},
        {"message": "no", "code": "Throttling.RateQuota"},
        {"message": "no", "type": "TooManyRequestsException"},
        {"message": "no", "type": "rate_limit_error"},
        {"message": "Resource has been exhausted", "status": "RESOURCE_EXHAUSTED"},
        {"message": "Please reduce your request rate.", "code": "SlowDown"},
        {"message": "Rate exceeded", "__type": "ThrottlingException"},
        {"message": "Too many tokens per day, please wait before trying again."},
    ],
    ids=lambda one: one["message"] if len(one["message"]) > 3 else " ".join(one.values()),
)
def test_throttling_is_a_rate_limit_whatever_its_status(status, error):
    body = {"error": error}
    failure = classify_in_stream(body) if not status else classify(status, {}, json.dumps(body).encode(), 0.0)
    assert failure.kind is FailureClass.RATE_LIMIT


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (400, "Unknown parameter: rate_limit", FailureClass.INVALID),
        (400, "Input is too long for this field: title", FailureClass.INVALID),
        (400, "The tool's description is too long: at most 1024 characters", FailureClass.INVALID),
        (400, "metadata.user_id is too long", FailureClass.INVALID),
        (400, "Invalid 'user': input is too long, the maximum length is 64", FailureClass.INVALID),
        (400, "prompt_cache_key exceeds the maximum length of 64", FailureClass.INVALID),
        (400, "The name of the conversation is too long", FailureClass.INVALID),
        (422, "Input text for the property `label` is too long", FailureClass.INVALID),
        (400, "Input is too long for requested model.", FailureClass.CONTEXT_EXCEEDED),
        (400, "The prompt is too long.", FailureClass.CONTEXT_EXCEEDED),
        (400, "Input is too long.", FailureClass.CONTEXT_EXCEEDED),
        (400, "messages exceed the maximum length of the context window", FailureClass.CONTEXT_EXCEEDED),
        (403, "Country not supported", FailureClass.AUTH),
        (503, "The model is overloaded", FailureClass.SERVER),
        (503, "Loading model", FailureClass.WARMUP),
        (429, "You exceeded your quota, insufficient_quota", FailureClass.RATE_LIMIT),
    ],
)
def test_words_near_a_limit_have_their_own_class(status, words, kind):
    assert classify(status, {}, json.dumps({"error": {"message": words}}).encode(), 0.0).kind is kind


# ---- Redaction


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Incorrect API key provided: sk-proj-abcDEF123456.", "abcDEF"),
        ("Incorrect API key provided: test-con****-key. You can", "test-con"),
        ("Authorization: Bearer abcdefgh-12345678", "abcdefgh"),
        ('{"api_key": "0123456789abcdef"}', "0123456789"),
        ("https://user:hunter22222@host/v1", "hunter"),
        ("Cannot POST /v1/chat?api-version=1&key=hunter22222&x=1", "hunter"),
        ("https://host/v1?access_token=hunter22222", "hunter"),
        ("token eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-def", "eyJhbGciOiJIUzI1NiJ9"),
        ("AIzaSyA-1234567890 and gsk_1234567890 and xai-1234567890", "1234567890"),
    ],
)
def test_what_looks_like_a_secret_is_replaced(text, secret):
    assert secret in text
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "The model `gpt-5-mini` does not exist or you do not have access to it.",
        "This model's maximum context length is 1048565 tokens.",
        "You can find your API key at https://platform.openai.com/account/api-keys.",
        "Your API key is invalid",
        "API key not valid. Please pass a valid API key.",
    ],
)
def test_what_a_reader_needs_stays(text):
    assert redact(text) == text


@given(st.text(max_size=3000))
def test_a_detail_is_one_short_line(text):
    detail = clean(text)
    assert len(detail) <= 500
    assert "\n" not in detail


# ---- Scripts


def test_a_script_is_replies_with_their_pace_and_errors():
    text = (
        "preface\n=== reply chunk_chars=2 delay_ms=1 after_ms=3 ===\n\n a\n\nb \n\n"
        "=== error class=server attempts=2 ===\n===reply===\nc === reply ===\n=== error ===\n"
    )
    replies = parse_script(text)

    texts = [reply.sections and "".join(section.text for section in reply.sections) for reply in replies]
    assert texts == ["preface", " a\n\nb ", "c === reply ===", None]
    assert replies[1] == ScriptedReply((ScriptedSection("text", " a\n\nb "),), chunk_chars=2, delay_ms=1, after_ms=3)
    failures = [replies[2].failure_of(attempt) for attempt in (1, 2, 3)]
    assert [failure and (failure.kind, failure.status) for failure in failures] == [(FailureClass.SERVER, 500)] * 2 + [
        None
    ]
    assert replies[3].failure_of(99).kind is FailureClass.SERVER


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("=== reply chunk_chars=0 ===", "line 1"),
        ("x\n=== reply after_ms=-1 ===", "line 2: after_ms=-1"),
        ("=== error class=tired ===", "rate_limit, warmup"),
        ("=== error attempts=many ===", "attempts=many"),
        ("=== error ===\nlost text", "line 2: text may not follow an error"),
        ("=== call name=get ===", "line 1: begin a reply"),
        ("=== reply ===\n=== call id=a ===", "line 2: a call needs a name"),
        ("=== reply ===\n=== text size=3 ===", "line 2: size is not an option here; there are none"),
        ("=== reply cost_usd=cheap ===", "line 1: cost_usd=cheap"),
    ],
)
def test_a_script_that_is_written_wrong_names_the_line(text, words):
    with pytest.raises(ScriptError, match=words):
        parse_script(text)


@given(st.text(alphabet="= replyo\nx", max_size=200))
def test_any_text_is_a_script_or_told_why_not(text):
    try:
        replies = parse_script(text)
    except ScriptError as error:
        assert "line" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert all(isinstance(reply, ScriptedReply) for reply in replies)


# ---- Names and settings


def test_vendor_settings_are_read_under_both_names(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://usual/v1/")
    monkeypatch.setenv("OPENAI_API_KEY", "usual-key")
    usual = load(ProviderSettings)
    monkeypatch.setenv("TURNWRIGHT_OPENAI_BASE_URL", "http://ours/v1")
    ours = load(ProviderSettings)

    assert (usual.openai_base_url, usual.openai_api_key) == ("http://usual/v1", "usual-key")
    assert ours.openai_base_url == "http://ours/v1"
    assert "usual-key" not in repr(usual)


def test_a_setting_out_of_range_is_named(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_VENDOR_SILENCE_S", "0")
    with pytest.raises(SettingsError, match="TURNWRIGHT_VENDOR_SILENCE_S"):
        load(ProviderSettings)


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        ("prompt is too long: 213462 tokens > 200000 maximum", (200_000, 213_462)),
        ("request (909 tokens) exceeds the available context size (512 tokens), try increasing it", (512, 909)),
        ("This model's maximum context length is 4096 tokens. However, your prompt contains 5000 input tokens.", (4096, 5000)),
        ("The input token count (1,200,000) exceeds the maximum number of tokens allowed (1,048,576).", (1_048_576, 1_200_000)),
        ("Current length is 139000 while limit is 131072", (131_072, 139_000)),
        ("The context length of gpt-4.1 is 8192 tokens", (8192, 0)),
        ("Input is too long for requested model.", (0, 0)),
        ("maximum " + "9" * 4000, (0, 0)),
    ],
)  # fmt: skip
def test_a_refusal_tells_the_window_and_the_prompt(message: str, counts: tuple[int, int]) -> None:
    assert reported_token_counts(message) == counts
