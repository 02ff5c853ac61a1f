"""CountTokens: the vendor's endpoint near a limit, a count of our own otherwise. Issue 15.4."""

import json

import grpc
import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import usage_pb2
from turnwright.types.v1.message_pb2 import ROLE_SYSTEM, ROLE_USER

from contract.provider.conftest import request, said
from sse_server import Answer, SseServer, error, never
from turnwright_core.rpc.errors import from_rpc

pytestmark = pytest.mark.asyncio

TOOL = pb.Tool(name="look", description="Looks.", parameters='{"type": "object", "properties": {}}')
TEXT = "The quick brown fox jumps over the lazy dog. " * 160
SAID = [said(ROLE_SYSTEM, "Be brief."), said(ROLE_USER, TEXT)]
ESTIMATE, TOKENIZER, VENDOR = (
    usage_pb2.TOKEN_SOURCE_ESTIMATE, usage_pb2.TOKEN_SOURCE_TOKENIZER, usage_pb2.TOKEN_SOURCE_VENDOR
)  # fmt: skip
RESPONSES = '[endpoint.work]\nurl = "{url}"\nwire = "responses"\n'


async def counted(client, vendor_model: str, near: int, **fields) -> tuple[int, int]:
    asked = pb.CountTokensRequest(call=request(vendor_model, messages=SAID, tools=[TOOL], **fields), near=near)
    answer = await client.stub.CountTokens(asked, metadata=client.metadata)
    return answer.tokens, answer.source


@pytest.mark.parametrize(
    ("vendor_model", "path", "told", "fields"),
    [
        ("anthropic/claude-x", "/v1/messages/count_tokens", {"input_tokens": 1234},
         {"model", "messages", "system", "tools"}),
        ("gemini/gemini-x", "/v1beta/models/gemini-x:countTokens", {"totalTokens": 1234}, {"generateContentRequest"}),
        ("work/gpt-x", "/v1/responses/input_tokens", {"object": "response.input_tokens", "input_tokens": 1234},
         {"model", "input", "instructions", "tools"}),
        ("llamacpp/tiny", "/v1/messages/count_tokens", {"input_tokens": 1234}, {"model", "messages", "system", "tools"}),
    ],
)  # fmt: skip
async def test_a_vendor_counts_a_call_near_the_limit(provider, tmp_path, vendor_model, path, told, fields):
    async with SseServer(pages={path: told}) as server:
        (tmp_path / "endpoints.toml").write_text(RESPONSES.format(url=server.url))
        root = server.url.removesuffix("/v1")
        client = await provider(
            anthropic_base_url=server.url, gemini_base_url=f"{root}/v1beta", llamacpp_base_url=server.url
        )
        far, near = await counted(client, vendor_model, 100_000), await counted(client, vendor_model, 2000)
        [look] = server.looks
        below = await counted(client, vendor_model, 100)
    assert near == (1234, VENDOR)
    assert (far[1], below[1]) == (ESTIMATE, ESTIMATE)
    assert 1500 < far[0] < 2667
    assert (look.path, look.json.keys()) == (path, fields)
    assert TEXT in json.dumps(look.json)
    assert not server.requests


@pytest.mark.parametrize(
    "answer",
    [error(404, "Not Found"), error(429, "slow down"), error(401, "no"), Answer(chunks=[b"{"]), never(),
     Answer(headers={"content-type": "application/json"}, chunks=[b'{"input_tokens": "many"}'])],
    ids=["no such path", "rate limit", "key", "broken", "silence", "nonsense"],
)  # fmt: skip
async def test_a_vendor_that_does_not_say_is_no_error(provider, answer):
    async with SseServer(pages={"/v1/messages/count_tokens": answer}) as server:
        client = await provider(anthropic_base_url=server.url, check_timeout_s=0.2)
        tokens, source = await counted(client, "anthropic/claude-x", 2000)
    assert (1500 < tokens < 2667, source) == (True, ESTIMATE)


async def test_a_tokenizer_counts_for_its_models_and_no_vendor_without_an_endpoint_is_asked(provider):
    pytest.importorskip("bpe_openai")
    async with SseServer() as server:
        client = await provider(openai_base_url=server.url)
        tokens, source = await counted(client, "openai/gpt-5-mini", 2000)
    assert (1600 < tokens < 1800, source) == (True, TOKENIZER)
    assert server.looks == server.requests == []


async def test_what_cannot_be_called_cannot_be_counted(provider):
    client = await provider()
    reasons = []
    for vendor_model in ("unheard_of/m", "anthropic/claude-x", ""):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await counted(client, vendor_model, 0)
        reasons.append(from_rpc(failed.value, "provider", client.address).reason.name)
    assert reasons == ["VENDOR_NOT_CONFIGURED", "VENDOR_NOT_CONFIGURED", "INVALID_FIELD"]
