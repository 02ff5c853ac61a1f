"""Our own key, wherever a vendor says it: callers never hear it, nor part of it."""

import pytest

from sse_server import Answer, SseServer, chat, delta, error, events, plain

KEY = "unremarkable-5eNtEnCe/0123456789=of+its~owner"  # of no known shape
CALL = [{"index": 0, "id": f"call_{KEY}", "function": {"name": "get", "arguments": "{}"}}]


def everything(heard) -> str:
    said = [str(part) for part in heard.parts]
    if heard.error:
        said += [heard.error.message, str(heard.error.metadata)]
    return " ".join(said)


def parts_of(secret: str, size: int = 8) -> list[str]:
    return [secret[at : at + size] for at in range(len(secret) - size + 1)]


ECHOES = [
    pytest.param(Answer(chunks=events(delta(KEY, content="hi"), delta(KEY, finish="stop"))), id="model"),
    pytest.param(Answer(chunks=events(delta("x" * 300 + KEY, content="hi"), delta(finish="stop"))), id="long-model"),
    pytest.param(Answer(chunks=events(delta(content="hi"), delta(finish=KEY))), id="finish-reason"),
    pytest.param(Answer(chunks=events(delta(content="hi"), delta(finish="x" * 50 + KEY))), id="finish-reason-cut"),
    pytest.param(Answer(chunks=events(delta(tool_calls=CALL), delta(finish="tool_calls"))), id="call-id"),
    pytest.param(error(400, f"bad {KEY}"), id="message"),
    pytest.param(error(400, f"bad {KEY.upper()}"), id="message-in-capitals"),
    pytest.param(error(400, "no", code=KEY), id="code"),
    pytest.param(error(400, f"key starting with {KEY[:12]} is unknown"), id="beginning"),
    pytest.param(error(400, f"key ending in {KEY[-9:]} is unknown"), id="end"),
    pytest.param(error(400, f"key {KEY[:9]}********{KEY[-5:]} is unknown"), id="masked"),
    pytest.param(error(400, "x" * 300 + f" {KEY} " * 40), id="often"),
    pytest.param(plain(f"<title>{KEY}</title>", status=502), id="html-title"),
    pytest.param(plain(f"welcome {KEY}", "text/plain"), id="text"),
    pytest.param(plain("x" * 190 + KEY, "text/plain"), id="text-that-is-cut"),
    pytest.param(plain("hello", f"text/{KEY}"), id="content-type"),
    pytest.param(Answer(200, {"content-encoding": KEY}, [b"x"], framing="length"), id="content-encoding"),
    pytest.param(Answer(chunks=[f"data: {KEY}\n\n".encode()]), id="event"),
    pytest.param(Answer(chunks=events({"error": {"message": "no", "metadata": {"raw": KEY}}})), id="raw"),
    pytest.param(error(429, f"slow down, {KEY}"), id="retry"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", ECHOES)
async def test_a_key_that_a_vendor_repeats_is_not_passed_on(provider, answer):
    async with SseServer([answer, answer, chat("done")]) as server:
        settings = {"openai_base_url": server.url, "openai_api_key": KEY, "vendor_server_deadline_s": 0}
        heard = await (await provider(**settings)).generate()

    said = everything(heard).lower()
    assert not [part for part in parts_of(KEY.lower()) if part in said]


@pytest.mark.asyncio
async def test_secrets_in_the_address_of_a_vendor_are_not_passed_on(provider):
    secrets = ("pass/word-of-mine", "query-secret-of-mine")
    async with SseServer([error(404, "Cannot POST /v1 with " + " and ".join(secrets))], models=["tiny"]) as server:
        address = (
            server.url.replace("://", "://me:pass%2Fword-of-mine@") + "?api-version=1&api_key=query-secret-of-mine"
        )
        client = await provider(openai_base_url=address)
        heard = await client.generate()
        checks = await client.check("openai/absent")

    for said in (everything(heard), checks[0].problem):
        assert not [secret for secret in (*secrets, "pass%2Fword-of-mine") if secret in said]


@pytest.mark.asyncio
async def test_a_key_that_a_vendor_lists_as_a_model_is_not_told(provider):
    async with SseServer(models=["tiny", KEY]) as server:
        checks = await (await provider(openai_base_url=server.url, openai_api_key=KEY)).check("openai/absent")

    assert KEY not in checks[0].problem
    assert "tiny" in checks[0].problem


@pytest.mark.asyncio
async def test_what_looks_a_little_like_the_key_is_reported(provider):
    answer = Answer(chunks=events(delta("unmarked-model-5e", content="hi"), delta(finish="stop")))
    async with SseServer([answer]) as server:
        heard = await (await provider(openai_base_url=server.url, openai_api_key=KEY)).generate()

    assert heard.finish.vendor_model == "unmarked-model-5e"
