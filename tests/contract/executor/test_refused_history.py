"""What a vendor refuses of a conversation ends no run for good: it is left out, and stays out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from turnwright.types.v1 import loop_pb2, settings_pb2

from services import Services, running
from sse_server import Answer, SseServer, events
from strict_vendors import STRICT, RefusedError, Reply, need, serving

pytestmark = pytest.mark.asyncio

TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32


def anywhere(value: Any, has: Callable[[dict[str, Any]], bool]) -> bool:
    if isinstance(value, dict):
        return has(value) or any(anywhere(one, has) for one in value.values())
    return isinstance(value, list) and any(anywhere(one, has) for one in value)


def types(*names: str) -> Callable[[dict[str, Any]], bool]:
    return lambda block: block.get("type") in names


def silent(block: dict[str, Any]) -> bool:
    return block.get("role") == "assistant" and not block.get("reasoning_content")


def expired(part: dict[str, Any]) -> bool:
    # Not the placeholder, which tells Gemini not to look.
    return str(part.get("thoughtSignature", "")).startswith("signature-")


def with_key(name: str) -> Callable[[dict[str, Any]], bool]:
    return lambda block: name in block


BLOCKS = [
    ("responses", types("reasoning"), "Encrypted content could not be verified"),
    ("openrouter", with_key("reasoning_details"), "Invalid signature in thinking block"),
    ("chat", with_key("reasoning_details"), "Extra inputs are not permitted: messages[2].reasoning_details"),
    ("anthropic", types("thinking", "redacted_thinking"), "messages.1.content.0: Invalid `signature` in `thinking` block"),
    ("gemini", expired, "Thought signature is not valid"),
    ("ollama", with_key("thinking"), "invalid message content type: thinking"),
]  # fmt: skip
"""Of each wire which block its vendor refuses, and how it says so."""


async def done(services: Services, prompt: str, **settings: Any) -> loop_pb2.Loop:
    wanted = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, **settings)
    return await services.until(await services.client.act(services.project, prompt, run="r", settings=wanted))


async def act(services: Services, prompt: str, **settings: Any) -> int:
    return int((await done(services, prompt, **settings)).status)


class Fussy:
    """A vendor that refuses one kind of block in addition to all else that it refuses."""

    def __init__(
        self, name: str, is_refused: Callable[[dict[str, Any]], bool], words: str, *replies: Reply | Answer
    ) -> None:
        self.strict = STRICT[name](lambda number: replies[number] if number < len(replies) else Reply("Done."))
        self.is_refused, self.words, self.count = is_refused, words, 0
        check = self.strict.check

        def checked(body: dict[str, Any]) -> None:
            if anywhere(body, is_refused):
                self.count += 1
                raise RefusedError(words)
            check(body)

        self.strict.check = checked  # type: ignore[method-assign]  # the vendor's own rules, and one more


async def notes(services: Services) -> list[str]:
    entries = [entry async for entry in services.client.list_entries(services.project, "r", "log://**")]
    return [entry.path.partition("/error/")[2] for entry in entries if "/error/" in entry.path]


@pytest.mark.parametrize(
    ("name", "is_refused", "words"), BLOCKS, ids=lambda one: one if isinstance(one, str) and " " not in one else None
)
async def test_opaque_blocks_that_a_vendor_refuses_are_left_out_in_each_later_task(
    tmp_path, monkeypatch, name, is_refused, words
):
    fussy = Fussy(name, is_refused, words, Reply("Looking.", [("get", {"path": "a.txt"})]), Reply("First."))
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, name, server.url)
        async with running(tmp_path) as services:
            assert await act(services, "one") == 200
            await services.restart("executor")
            assert [await act(services, "two"), await act(services, "three")] == [200, 200]
            assert await notes(services) == ["refused_blocks"]
    # It was asked with them once.
    assert (fussy.count, set(fussy.strict.refusals)) == (1, {words})


async def test_replies_without_reasoning_are_sent_with_some_where_a_vendor_wants_it(tmp_path, monkeypatch):
    words = "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2"
    fussy = Fussy("chat", silent, words, Reply("Looking.", [("get", {"path": "a.txt"})], thinks=False))
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, "chat", server.url)
        async with running(tmp_path) as services:
            assert [await act(services, "one"), await act(services, "two")] == [200, 200]
            assert await notes(services) == ["refused_silence"]
    assert fussy.count == 1


IMAGES = {
    "chat": types("image_url"),
    "openrouter": types("image_url"),
    "responses": types("input_image"),
    "anthropic": types("image"),
    "gemini": with_key("inlineData"),
    "ollama": with_key("images"),
}
"""Of each wire what an image is."""


@pytest.mark.parametrize("name", IMAGES)
async def test_an_image_that_a_vendor_refuses_fails_its_own_task_alone_which_names_it(tmp_path, monkeypatch, name):
    fussy = Fussy(name, IMAGES[name], "Could not process it.", Reply("Done.", thinks=False))
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, name, server.url)
        async with running(tmp_path) as services:
            (services.files / "a.png").write_bytes(PNG)
            loop = await done(services, "look", images=["a.png"])
            assert (loop.status, fussy.count) == (500, 1)
            assert "Could not process it. The task brings a.png:" in loop.reason
            assert [await act(services, "two"), await act(services, "three")] == [200, 200]
            assert "refused_images" in await notes(services)
    assert fussy.count == 2


BEGUN = {
    "chat": {"choices": [{"index": 0, "delta": {"content": "And"}}]},
    "responses": {"type": "response.output_text.delta", "delta": "And"},
    "anthropic": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "And"}},
    "gemini": {"candidates": [{"content": {"role": "model", "parts": [{"text": "And"}]}}]},
    "ollama": {"message": {"role": "assistant", "content": "And"}},
}
"""The first words of a reply, by wire."""


def failing(wire: str) -> Answer:
    """A reply that breaks off with an error after which nobody tries again."""
    broken = {"error": {"message": "The key has expired.", "type": "authentication_error", "code": 401}}
    lines = [json.dumps(one).encode() for one in (BEGUN[wire], broken)]
    kind = "application/x-ndjson" if wire == "ollama" else "text/event-stream"
    return Answer(
        headers={"content-type": kind},
        chunks=[b"%s\n" % one if wire == "ollama" else b"data: %s\n\n" % one for one in lines],
    )


@pytest.mark.parametrize(
    ("name", "is_refused", "words", "part"),
    [
        *((*one, "refused_blocks") for one in BLOCKS),
        ("chat", silent, "reasoning_content is missing", "refused_silence"),
        *((name, found, "No.", "refused_images") for name, found in IMAGES.items()),
    ],
    ids=lambda one: one if isinstance(one, str) and " " not in one else "",
)
async def test_what_helped_is_kept_and_told_if_the_turn_fails_all_the_same(
    tmp_path, monkeypatch, name, is_refused, words, part
):
    is_image = part == "refused_images"
    looking = Reply("Looking.", [("get", {"path": "a.txt"})], thinks=part == "refused_blocks")
    broken = failing(STRICT[name].wire)
    replies = [broken] if is_image else [looking, broken]
    fussy = Fussy(name, is_refused, words, *replies, *[Reply("Done.", thinks=False)] * 9)
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, name, server.url)
        async with running(tmp_path) as services:
            (services.files / "a.png").write_bytes(PNG)
            if is_image:
                assert await act(services, "one", images=["a.png"]) == 500
            assert await act(services, "two") == 500
            await services.restart("executor")
            assert [await act(services, "three"), await act(services, "four")] == [200, 200]
            assert [one for one in await notes(services) if one.startswith("refused")] == [part]
    assert fussy.count == 1 + is_image


async def test_what_no_vendor_takes_is_not_sent(tmp_path, monkeypatch):
    # Reasoning that nothing follows, and thinking without a signature: replies that were cut off.
    thought = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "E"}
    incomplete = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    cut = Answer(
        chunks=events(
            {"type": "response.output_item.done", "output_index": 0, "item": thought},
            {"type": "response.incomplete", "response": incomplete},
        )
    )
    fussy = Fussy("responses", lambda _: False, "", cut, Reply("Done.", thinks=False))
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, "responses", server.url)
        async with running(tmp_path) as services:
            await act(services, "one")
            assert await act(services, "two") == 200
    assert fussy.strict.refusals == []


async def test_thinking_without_a_signature_is_not_sent(tmp_path, monkeypatch):
    thinking = {"type": "thinking", "thinking": "hm", "signature": ""}
    cut = Answer(
        chunks=events(
            {"type": "message_start", "message": {"id": "m", "model": "c", "content": []}},
            {"type": "content_block_start", "index": 0, "content_block": thinking},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        )
    )
    fussy = Fussy("anthropic", lambda _: False, "", cut, Reply("Done.", thinks=False))
    async with SseServer([fussy.strict] * 20) as server:
        serving(monkeypatch, tmp_path, "anthropic", server.url)
        async with running(tmp_path) as services:
            await act(services, "one")
            assert await act(services, "two") == 200
    assert fussy.strict.refusals == []
    need(fussy.strict.bodies, "it was asked")
