"""Lists of tools by their digest: kept where they were sent, unknown elsewhere, never another list."""

import json

import pytest
from msgspec.structs import replace
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright_values.provider import GenerateRequest, Tool

from contract.provider.conftest import request
from sse_server import SseServer, chat
from turnwright_core.errors import PreconditionError
from turnwright_core.model_calls import tools_digest
from turnwright_provider.rpc.known_tools import LISTS_CHARS_MAX, LISTS_MAX, KnownTools

SCHEMA = {"type": "object", "properties": {"städte": {"type": "array", "default": ["\ud800", 1.50]}}, "required": []}
LIST = (
    Tool("look", "Looks… or not.", json.dumps(SCHEMA), strict=True),
    Tool("now", "", "", cache=True),
)
DIGEST = "2949c77c887a9b15cfdbe820b3d1e0ea7d8a241da5fb8339546d9a272643e7cc"
FORMS = '[endpoint.work]\nurl = "{url}"\nwire = "responses"\n[endpoint.home]\nurl = "{url}"\nwire = "ollama"\n'


def wired(tools=LIST) -> list[pb.Tool]:
    return [
        pb.Tool(
            name=one.name, description=one.description, parameters=one.parameters, strict=one.strict, cache=one.cache
        )
        for one in tools
    ]


def test_the_digest_is_the_one_of_the_contract() -> None:
    assert tools_digest(LIST) == DIGEST
    first, last = LIST
    moved = replace(first, name="lookL", description="ooks… or not.")
    changed = [
        (last, first),
        (first,),
        (moved, last),
        (replace(first, strict=False), last),
        (first, replace(last, cache=False)),
    ]
    assert DIGEST not in map(tools_digest, changed)


@pytest.mark.asyncio
@pytest.mark.parametrize("extra", ["", '{"tools": [{"theirs": true}]}'])
@pytest.mark.parametrize("model", ["openai/x", "openrouter/x", "anthropic/x", "gemini/x", "work/x", "home/x"])
async def test_a_list_that_is_known_reaches_the_vendor_as_it_was_sent(provider, tmp_path, model, extra) -> None:
    async with SseServer([chat("a")] * 3) as server:
        (tmp_path / "endpoints.toml").write_text(FORMS.format(url=server.url))
        names = ("openai", "openrouter", "anthropic", "gemini")
        client = await provider(**{f"{name}_base_url": server.url for name in names})
        unknown = await client.generate(model, tools_digest=DIGEST, extra=extra)
        assert not server.requests
        await client.generate(model, tools=wired(), extra=extra)
        for tools in (wired(), ()):
            await client.generate(model, tools=tools, tools_digest=DIGEST, extra=extra)
        alone, kept, named = (one.json["tools"] for one in server.requests)
    assert (unknown.reason, unknown.error.metadata["digest"]) == ("TOOLS_UNKNOWN", DIGEST)
    assert alone == kept == named
    assert "städte" in json.dumps(named, ensure_ascii=False)
    assert ({"theirs": True} in named) == bool(extra)


@pytest.mark.asyncio
async def test_another_list_never_stands_under_a_digest(provider) -> None:
    async with SseServer([chat("a")] * 2) as server:
        client = await provider(openai_base_url=server.url)
        other = [pb.Tool(name="sh", description="Runs.")]
        for digest in (DIGEST, DIGEST.upper(), "x"):
            refused = await client.generate(tools=other, tools_digest=digest)
            assert (refused.reason, refused.error.metadata["field"]) == ("INVALID_FIELD", "tools_digest")
            assert (await client.generate(tools_digest=digest)).reason == "TOOLS_UNKNOWN"
        bad = [*wired(), *wired()]
        twice = tools_digest([*LIST, *LIST])
        assert (await client.generate(tools=bad, tools_digest=twice)).reason == "INVALID_FIELD"
        assert (await client.generate(tools_digest=twice)).reason == "TOOLS_UNKNOWN"
        # What was not named is not kept.
        assert (await client.generate(tools=wired())).finish
        assert (await client.generate(tools_digest=DIGEST)).reason == "TOOLS_UNKNOWN"
        assert len(server.requests) == 1


@pytest.mark.asyncio
async def test_tokens_are_counted_of_a_list_by_its_digest(provider) -> None:
    client = await provider(openai_base_url="http://127.0.0.1:9/v1")

    async def counted(**tools) -> int:
        wanted = pb.CountTokensRequest(call=request("openai/x", **tools))
        return (await client.stub.CountTokens(wanted, metadata=client.metadata)).tokens

    sent = await counted(tools=wired(), tools_digest=DIGEST)
    assert await counted(tools_digest=DIGEST) == sent == await counted(tools=wired())
    assert await counted() < sent


def test_those_used_last_are_kept() -> None:
    lists = KnownTools()

    def used(name: str, chars: int = 0, *, named: bool = False) -> bool:
        tools = (Tool(name, "x" * chars),)
        try:
            lists.of(GenerateRequest(tools=() if named else tools, tools_digest=tools_digest(tools)))
        except PreconditionError:
            return False
        return True

    for index in range(LISTS_MAX):
        used(f"t{index}")
    assert used("t0", named=True)
    used("more")
    assert [used(name, named=True) for name in ("t0", "t1", "t2", "more")] == [True, False, True, True]
    used("large", LISTS_CHARS_MAX + 1)
    assert [used(name, named=True) for name in ("t0", "more")] == [False, False]
    assert used("large", LISTS_CHARS_MAX + 1, named=True)
    used("small")
    assert not used("large", LISTS_CHARS_MAX + 1, named=True)
