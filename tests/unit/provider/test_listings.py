"""Lists of models: which names they deny, and what each vendor's words say of a model. Rows RU307; architecture 15."""

import json

import pytest
from turnwright_values.types import Capabilities

from cases import shared_file
from turnwright_provider.app.check_models import published_info
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo, parse_model_info
from turnwright_provider.domain.model_list import COMPARED_MAX, QUESTIONS, ModelList, parse_model_list, question_of


def named(*names: str, owner: str = "") -> ModelList:
    return parse_model_list(json.dumps({"data": [{"id": name, "owned_by": owner} for name in names]}).encode())


@pytest.mark.parametrize(
    ("model", "listed"),
    [("a/b", True), ("llama3", True), ("llama3:latest", True), ("x:free", True), ("gemini-2", True), ("c", False), ("", False)],
)  # fmt: skip
def test_a_list_denies_only_names_it_does_not_have(model, listed):
    body = b'{"data":[{"id":"a/b"},{"id":"llama3:latest"},{"id":"x"},{"name":"models/gemini-2"},{},5]}'
    assert (parse_model_list(body).listed_name(model) is not None) is listed


@pytest.mark.parametrize(
    ("model", "listed"),
    [("claude-opus-4-5", True), ("claude-opus-4-5-latest", True), ("claude-sonnet-4-0", True), ("claude-sonnet-4", True),
     ("claude-opus-4-5-20251101", True), ("claude-opus-4", False), ("claude-opus-4-5-2025", False), ("claude", False)],
)  # fmt: skip
def test_a_name_without_its_date_is_listed_with_it(model, listed):
    names = named("claude-opus-4-5-20251101", "claude-sonnet-4-20250514")
    assert (names.listed_name(model) is not None) is listed


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"{}", b'{"data":[]}', b'{"data":[{"id":"any","owned_by":"llamacpp"}]}', b"[[1]]", b'{"data":7}'],
)
def test_what_is_no_list_denies_nothing(body):
    assert parse_model_list(body).denial("any-other") == ""


def test_a_mistyped_model_is_told_with_the_one_that_was_meant():
    denial = named("gpt-5-mini", "gpt-5", "o3").denial("gpt5-mini")
    assert denial == "does not list gpt5-mini (did you mean gpt-5-mini?); it lists gpt-5, gpt-5-mini, o3"


def test_a_mistyped_model_is_compared_with_the_beginning_of_a_long_list():
    listed = named(*(f"{n}" for n in range(COMPARED_MAX)), "gpt-5-mini")
    assert "did you mean" not in listed.denial("gpt5-mini")


def test_names_that_an_error_cannot_show_are_no_models():
    listing = named("x" * 10_000, "a\ud800", "b\x1b[31m", "good")
    assert list(listing.models) == ["good"]


def test_servers_of_servers_are_not_looked_at_however_deep_they_are():
    inner = '{"id":"m","context_length":5}'
    for _ in range(400):
        inner = f'{{"id":"m","providers":[{inner}]}}'
    assert parse_model_list(f'{{"data":[{inner}]}}'.encode()).models == {"m": UNKNOWN}


def test_blank_lines_in_ollamas_parameters_are_passed_over_in_one_go():
    # Looked at from each of them, they would hold the process for hours.
    body = json.dumps({"parameters": "\n" * 2_000_000 + "  num_ctx   8192  \n"}).encode()
    assert QUESTIONS["ollama"].read(body, "m").context_length == 8192
    assert QUESTIONS["ollama"].read(b'{"parameters":"num_ctx\\n8192"}', "m") == UNKNOWN


def can(**known: bool) -> Capabilities:
    return Capabilities(**known)


ITEMS = {
    "openrouter": (
        {
            "id": "m", "context_length": 200_000,
            "architecture": {"input_modalities": ["text", "image"]},
            "top_provider": {"context_length": 131_072, "max_completion_tokens": 32_000, "is_moderated": False},
            "supported_parameters": ["max_tokens", "tools", "tool_choice", "reasoning", "include_reasoning"],
        },
        ModelInfo(131_072, 32_000, can(tools=True, images=True, reasoning=True, response_format=False)),
    ),
    "openrouter without tools": (
        {"id": "m", "context_length": 8192, "top_provider": {"context_length": None, "max_completion_tokens": None},
         "architecture": {"input_modalities": ["text"]}, "supported_parameters": ["structured_outputs"]},
        ModelInfo(8192, 0, can(tools=False, images=False, reasoning=False, response_format=True)),
    ),
    "vllm": ({"id": "m", "owned_by": "vllm", "max_model_len": 40_960}, ModelInfo(40_960)),
    "llama.cpp": (
        {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 512, "n_ctx_train": 4096}}, ModelInfo(512)
    ),
    "anthropic": (
        {
            "id": "m", "type": "model", "max_input_tokens": 1_000_000, "max_tokens": 128_000,
            "capabilities": {
                "image_input": {"supported": True}, "structured_outputs": {"supported": False},
                "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
            },
        },
        ModelInfo(1_000_000, 128_000, can(images=True, reasoning=True, response_format=False)),
    ),
    "gemini": (
        {"name": "models/m", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536, "thinking": True},
        ModelInfo(1_048_576, 65_536, can(reasoning=True)),
    ),
    "groq": (
        {"id": "m", "context_window": 131_072, "max_completion_tokens": 65_536, "active": True},
        ModelInfo(131_072, 65_536),
    ),
    "mistral": (
        {"id": "m", "max_context_length": 131_072,
         "capabilities": {"completion_chat": True, "function_calling": True, "vision": False}},
        ModelInfo(131_072, 0, can(tools=True, images=False)),
    ),
    "fireworks": (
        {"id": "m", "context_length": 65_536, "supports_chat": True, "supports_image_input": False, "supports_tools": True},
        ModelInfo(65_536, 0, can(tools=True, images=False)),
    ),
    "moonshot": (
        {"id": "m", "context_length": 262_144, "supports_image_in": False, "supports_reasoning": True},
        ModelInfo(262_144, 0, can(images=False, reasoning=True)),
    ),
    "hugging face": (
        {"id": "m", "architecture": {"input_modalities": ["text"]}, "providers": [
            {"provider": "a", "context_length": 131_072, "supports_tools": True, "supports_structured_output": False},
            {"provider": "b", "context_length": 32_768}]},
        ModelInfo(32_768, 0, can(tools=True, images=False, response_format=False)),
    ),
    "litellm": (
        {"model_name": "m", "litellm_params": {}, "model_info": {
            "max_tokens": 16_384, "max_input_tokens": 128_000, "max_output_tokens": 16_384,
            "supports_function_calling": True, "supports_vision": True, "supports_reasoning": None,
            "supports_response_schema": True}},
        ModelInfo(128_000, 16_384, can(tools=True, images=True, response_format=True)),
    ),
    "lm studio": (
        {"id": "m", "type": "llm", "max_context_length": 131_072, "loaded_context_length": 4096,
         "capabilities": ["tool_use"]},
        ModelInfo(4096, 0, can(tools=True)),
    ),
    "openai": ({"id": "m", "object": "model", "owned_by": "system"}, UNKNOWN),
}  # fmt: skip


@pytest.mark.parametrize("vendor", ITEMS)
def test_what_a_list_says_of_a_model_is_known(vendor):
    item, info = ITEMS[vendor]
    assert parse_model_list(json.dumps({"data": [item]}).encode()).info("m") == info


def test_a_recorded_list_of_llama_cpp_is_read():
    recorded = json.loads(shared_file("wire/real_llama_server/models.json").read_text())
    listing = parse_model_list(recorded["response"]["body"].encode())
    assert (listing.owner, listing.is_exhaustive, listing.info("whatever it is called")) == (
        "llamacpp",
        False,
        ModelInfo(512),
    )


@pytest.mark.parametrize(
    "value", [None, True, "4096", -1, 0, 1.5, 2**31, 10**400, [], {}, float("inf")], ids=lambda value: repr(value)[:12]
)
def test_a_window_that_is_none_is_not_known(value):
    assert (
        parse_model_info({"context_length": value, "max_model_len": value, "top_provider": {"context_length": value}})
        == UNKNOWN
    )


@pytest.mark.parametrize("value", [None, 7, "tools", [7, None], [["tools"]], {"tools": {"supported": "yes"}}])
def test_a_capability_that_is_none_is_not_known(value):
    item = dict.fromkeys(("capabilities", "supported_parameters", "architecture", "providers", "thinking"), value)
    assert parse_model_info(item).capabilities == Capabilities()


PROPS = {
    "default_generation_settings": {"n_ctx": 4096, "params": {}},
    "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
    "modalities": {"vision": False, "audio": False},
}
SHOWN = {
    "parameters": 'stop  "<|im_end|>"\nnum_ctx                        16384\ntemperature 0.7',
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960},
    "capabilities": ["completion", "tools", "thinking"],
}


@pytest.mark.parametrize(
    ("preset", "answer", "info"),
    [
        ("llamacpp", PROPS, ModelInfo(4096, 0, can(tools=True, images=False))),
        ("ollama", SHOWN, ModelInfo(16_384, 0, can(tools=True, images=False, reasoning=True, response_format=True))),
        # Without a window of its own: as much as is assumed of any model, and no more than it was trained for.
        ("ollama", {**SHOWN, "parameters": ""}, ModelInfo(32_768, 0, can(tools=True, images=False, reasoning=True, response_format=True))),
        ("ollama", {"model_info": {"x.context_length": 2048}}, ModelInfo(2048)),
        ("lmstudio", {"data": [ITEMS["lm studio"][0]]}, ITEMS["lm studio"][1]),
        ("litellm", {"data": [ITEMS["litellm"][0]]}, ITEMS["litellm"][1]),
    ],
)  # fmt: skip
def test_what_a_server_says_when_it_is_asked_of_one_model(preset, answer, info):
    assert QUESTIONS[preset].read(json.dumps(answer).encode(), "m") == info


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b'{"parameters": 7, "model_info": [], "capabilities": "x"}'])
@pytest.mark.parametrize("preset", QUESTIONS)
def test_an_answer_that_is_none_says_nothing(preset, body):
    assert QUESTIONS[preset].read(body, "m") == UNKNOWN


def test_a_server_is_known_by_its_preset_or_by_what_its_list_says():
    assert question_of("llamacpp", "") == question_of("openai", "llamacpp") == QUESTIONS["llamacpp"]
    assert question_of("openai", "library") == QUESTIONS["ollama"]
    assert question_of("openai", "system") is None


@pytest.mark.parametrize(
    ("vendor", "model", "window", "tools"),
    [("openai", "gpt-5-mini", 400_000, True), ("openai", "gpt-5-chat-latest", 128_000, True), ("openai", "gpt-4.1", 1_047_576, True),
     ("openai", "gpt-4o-mini", 128_000, True), ("openai", "gpt-4", 8_192, True), ("openai", "o3", 200_000, True),
     ("anthropic", "claude-new", 200_000, True), ("perplexity", "sonar-pro", 128_000, False), ("openai", "whisper-1", 0, None),
     ("vllm", "gpt-5", 0, None)],
)  # fmt: skip
def test_what_vendors_publish_is_known_by_the_family(vendor, model, window, tools):
    info = published_info(vendor, model)
    assert (info.context_length, info.capabilities.tools) == (window, tools)
