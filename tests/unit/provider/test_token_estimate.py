"""Counts of tokens before a call, beside what vendors reported for recorded requests. Issue 15.4."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from msgspec.structs import replace
from turnwright_values.replies import ToolCall

from cases import NEEDS_SHARED
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_provider.app.count_tokens import count_tokens
from turnwright_provider.domain.model_call import ModelCall, ToolSpec
from turnwright_provider.domain.token_estimate import (
    IMAGE_TOKENS,
    KEPT_CHARS,
    SAMPLE_CHARS,
    SAMPLES,
    _estimate_cached,
    count_call_tokens,
    estimate_tokens,
    family_of,
)
from unit.provider import anthropic_requests, chat_requests, gemini_requests, responses_requests
from unit.provider.recorded import recorded, request_of

TOLERANCE = 0.15

TOKENS_MIN = 200
"""Below, what a vendor adds by itself is more than the request."""

APIS = {
    "openai.chat": chat_requests,
    "openai.responses": responses_requests,
    "anthropic.messages": anthropic_requests,
    "gemini.generate": gemini_requests,
}

EXCEPTIONS = {
    "a schema of the answer, which the vendor puts into words": ["schema_prompt", "opus_46_schema"],
    "a document or image in a field that we do not send": [
        "uploaded_file_document", "url_force_download_document", "validated_accepts_what_auto_accepts",
        "describes_images_returned_from_tools",
    ],
    "sealed reasoning, whose length only its vendor knows": [
        "can_handle_multiple_tool_calls_in_a_single_response_3", "nano_can_use_tools_with_multi_turn_streaming",
        "respects_calls_one_for_sequential_execution_1", "gemini_2_5_pro_multi_tool_streaming_1",
        "includes_thought_signatures_for_tool_calls", "sub_agent_session_id", "grok_code_fast_multi_tool_streaming_1",
        "grok_4_1_fast_non_reasoning_can_use_tools_without_parameters", "fantasy_gpt_5_multi_tool_1",
    ],
    "reasoning of an earlier turn, which the vendor leaves out": [
        "grok_3_mini_thinking_streaming_1", "gpt_oss", "nano_can_use_tools_in_multi_turn_conversations_2",
    ],
    "a small request, of which the vendor's own text is a third": [
        "deepseek_responses", "grok_tool_streaming_0", "parallel_native_tool_calling", "nested_schema",
        "tool_use_failed_error_streaming",
    ],
    "21 tools without a description, which OpenAI writes in fewer tokens than others": ["complex_agent_run_in_flow"],
    "one filler repeated, neither code nor prose": ["prompt_cache_e2e"],
}  # fmt: skip
"""Recorded requests outside of the tolerance, by parts of their ids."""


def reported(case: dict[str, Any]) -> int:
    """The input tokens of a recorded answer; Anthropic says those of its cache apart."""
    usage = case["expected_usage"]
    names = ["input_tokens"]
    names += ["cached_input_tokens", "cache_write_tokens"] if case["api"] == "anthropic.messages" else []
    return sum(usage[name] or 0 for name in names)


def known_requests() -> dict[str, tuple[ModelCall, int]]:
    """Recorded calls whose every part we would send ourselves, with what was reported for them."""
    known: dict[str, tuple[ModelCall, int]] = {}
    for api, requests in APIS.items():
        for name, case in recorded("*", api).items():
            body = request_of(case)
            if body is None or not case.get("expected_usage") or not case["expected_usage"]["input_tokens"]:
                continue
            try:
                call = requests.call_of(body)
            except (KeyError, TypeError, ValueError):
                # Of a kind that we never send.
                continue
            call = replace(call, model=call.model or case["expected_model"] or "")
            # Of the servers beside real_ one is a mock, and the model of the others has a token for each byte.
            if is_ours(call, body, api) and not name.startswith("real_") and reported(case) >= TOKENS_MIN:
                known[name] = call, reported(case)
    return known


def is_ours(call: ModelCall, body: dict[str, Any], api: str) -> bool:
    """Whether it has no images, no tools of the vendor and nothing that these wrote."""
    images = any(isinstance(part, Image) for message in call.messages for part in message.parts)
    of_vendor = len(body.get("tools") or ()) != len(call.tools) and api != "gemini.generate"
    return not (images or of_vendor or any(message.server_blocks for message in call.messages))


def is_excepted(name: str) -> bool:
    return any(part in name for part in chain.from_iterable(EXCEPTIONS.values()))


@NEEDS_SHARED
def test_an_estimate_is_within_fifteen_percent_of_what_was_reported():
    known = known_requests()
    off = {name: count_call_tokens(call, estimate_tokens) / tokens for name, (call, tokens) in known.items()}
    wrong = {name: round(ratio, 2) for name, ratio in off.items() if abs(ratio - 1) > TOLERANCE}
    assert {name: ratio for name, ratio in wrong.items() if not is_excepted(name)} == {}
    assert len(known) - len(wrong) >= 70
    # Every exception is one.
    unneeded = [part for part in chain.from_iterable(EXCEPTIONS.values()) if not any(part in name for name in wrong)]
    assert unneeded == []


@NEEDS_SHARED
@pytest.mark.asyncio
async def test_a_tokenizer_is_exact_for_the_text_of_its_models():
    pytest.importorskip("bpe_openai")
    known = known_requests()
    name = "openai/pydantic_ai_test_openai_prompt_cache_test_openai_responses_prompt_cache_e2e_0"
    call, tokens = known[name]
    told, source = await count_tokens(call, object(), 0)
    assert source.name == "TOKENIZER"
    assert abs(told / tokens - 1) < 0.005
    # It refuses long texts in one piece, and halves of a surrogate pair are no text: both are counted.
    long = ModelCall("gpt-5", (text_message(Role.USER, "word " * 100_000 + "\ud800"),))
    told, source = await count_tokens(long, object(), 0)
    assert (told, source.name) == (pytest.approx(100_000, rel=0.01), "TOKENIZER")


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "qwen3", "", "gemini-3"])
@pytest.mark.asyncio
async def test_what_has_no_tokenizer_here_is_estimated(model):
    _, source = await count_tokens(ModelCall(model, (text_message(Role.USER, "hi"),)), object(), 0)
    assert source.name == "ESTIMATE"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 100, 1000),
        ("def add(self, left: int, right: int) -> int:\n    return left + right\n\n" * 50, 1050),
        ("我们的目标是构建一个可靠的代理运行时。" * 50, 700),
        ("Съешь же ещё этих мягких французских булок. " * 50, 600),
        ("0123456789" * 100, 334),
        ("🚀" * 100, 200),
        ("\x1b[32mok\x1b[0m " * 100, 1000),
    ],
    ids=["prose", "code", "chinese", "russian", "digits", "emoji", "colours"],
)
def test_every_kind_of_text_is_estimated_by_its_characters(text, tokens):
    assert estimate_tokens(text) == pytest.approx(tokens, rel=0.2)


def test_a_long_text_is_estimated_by_samples():
    line = "for name, value in sorted(found.items()):\n    print(name, value)\n"
    short = line * (SAMPLES * SAMPLE_CHARS // len(line))
    assert estimate_tokens(short * 30) == pytest.approx(30 * estimate_tokens(short), rel=0.05)
    assert estimate_tokens("") == 0


def test_what_a_vendor_adds_depends_on_the_family_of_the_model():
    tool = ToolSpec("look", "Looks.", {"type": "object"})
    said = (text_message(Role.USER, "hi"),)
    added = {
        model: count_call_tokens(ModelCall(model, said, tools=(tool,)), estimate_tokens)
        - count_call_tokens(ModelCall(model, said), estimate_tokens)
        for model in ("anthropic/claude-sonnet-4.5", "claude-sonnet-4-20250514", "gpt-4o", "x-ai/grok-4")
    }
    sonnet_5, sonnet_4, gpt, grok = added.values()
    assert sonnet_5 > sonnet_4 > grok > gpt
    assert family_of("claude-haiku-4-5-20251001") is family_of("claude-opus-5")
    assert family_of("claude-opus-4-20250514") is family_of("claude-3-5-sonnet")


def test_calls_results_images_and_thoughts_count():
    image = Message(Role.USER, (Text("what?"), Image("image/png", b"1")))
    called = Message(Role.ASSISTANT, calls=(ToolCall("look", '{"path": "a"}', id="c"),), reasoning="I look it up.")
    plain = count_call_tokens(ModelCall("m", (text_message(Role.USER, "what?"),)), estimate_tokens)
    assert count_call_tokens(ModelCall("m", (image,)), estimate_tokens) == plain + IMAGE_TOKENS
    assert count_call_tokens(ModelCall("m", (called,)), estimate_tokens) > 25


def test_the_same_long_text_is_estimated_once():
    text = "\n".join(f"Line {number} of the instructions." for number in range(KEPT_CHARS // 16))
    _estimate_cached.cache_clear()
    assert estimate_tokens(text) == estimate_tokens(f"{text}"[:-1] + ".") > 0
    assert (_estimate_cached.cache_info().misses, _estimate_cached.cache_info().hits) == (1, 1)
    assert estimate_tokens(text[: KEPT_CHARS - 1]) > 0
    assert _estimate_cached.cache_info().misses == 1
    # Neither are the samples of one that is too long to be read whole, such as instructions with a hundred tools.
    sampled = text * (SAMPLES * SAMPLE_CHARS // len(text) + 1)
    assert estimate_tokens(sampled) == estimate_tokens(f"{sampled}"[:-1] + sampled[-1]) > 0
    assert (_estimate_cached.cache_info().misses, _estimate_cached.cache_info().hits) == (2, 2)
