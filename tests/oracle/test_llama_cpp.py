"""Calls to llama.cpp's own server over three wires, with a model whose replies are wired into its weights.

TURNWRIGHT_LLAMA_SERVER is its program and TURNWRIGHT_LLAMA_GGUF the model that `make_tiny_gguf.py` writes for 4,096 tokens:
the last character of a prompt decides what it says. Source: C35; research/wire 4.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from turnwright_values.provider import Finish
from turnwright_values.types import Capabilities

from oracle.calls import result, user
from oracle.servers import reply, serving, vendor_at
from ports import free_ports
from turnwright_core.chat.message import Message
from turnwright_core.models import Reasoning
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall, ToolSpec, was_cut
from turnwright_provider.domain.model_info import ModelInfo
from turnwright_provider.domain.presets import by_template
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.anthropic import AnthropicWire
from turnwright_provider.domain.wires.chat import ChatWire
from turnwright_provider.domain.wires.responses import ResponsesWire
from turnwright_provider.domain.wires.wire import Wire

PROGRAM, MODEL = os.environ.get("TURNWRIGHT_LLAMA_SERVER", ""), os.environ.get("TURNWRIGHT_LLAMA_GGUF", "")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.asyncio,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not (PROGRAM and MODEL), reason="set TURNWRIGHT_LLAMA_SERVER and TURNWRIGHT_LLAMA_GGUF"),
]

KEY = "local-test-only"
OURS = "llamacpp/tiny"
WIRES: dict[str, Wire] = {
    "chat": ChatWire(ThinkTags.LEADING, by_template),
    "responses": ResponsesWire(),
    "anthropic": AnthropicWire(),
}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "The weather of a city.", CITY)

TEMPLATE = """
{%- if tools -%}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one by
<tool_call>
{"name": <name>, "arguments": <object>}
</tool_call><|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ 'user' if message.role == 'tool' else message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content or '' }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{{ '' }}
{%- endif -%}
"""
"""Offers tools, and shows calls and reasoning: a prompt ends in a newline, to which the model thinks and calls."""


def started(folder: Path, *more: str) -> Iterator[str]:
    [port] = free_ports(1)
    command = [PROGRAM, "-m", MODEL, "--host", "127.0.0.1", "--port", str(port), "--jinja", "--temp", "0", "-np", "1"]
    with serving([*command, "--no-warmup", "--api-key", KEY, *more], folder, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1"


@pytest.fixture(scope="module")
def thinking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose model thinks and calls."""
    folder = tmp_path_factory.mktemp("thinking")
    (folder / "template.jinja").write_text(TEMPLATE)
    yield from started(folder, "-c", "4096", "--chat-template-file", "template.jinja", "--reasoning-format", "deepseek")


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with a short window; the prompt's last letter decides what its model says."""
    yield from started(tmp_path_factory.mktemp("scripted"), "-c", "512", "--reasoning-format", "none")


async def said(base_url: str, wire: str, call: ModelCall, key: str = KEY) -> tuple[Message, Finish]:
    async with vendor_at(base_url, WIRES[wire], key) as vendor:
        return await reply(vendor, call)


@pytest.mark.parametrize("wire", WIRES)
async def test_the_model_thinks_calls_a_tool_and_reads_its_result(thinking: str, wire: str) -> None:
    asking = ModelCall("tiny", (user(),), tools=(WEATHER,), vendor_model=OURS)
    first, finish = await said(thinking, wire, asking)
    answered = (*asking.messages, first, result(first.calls[0].id or first.calls[0].call_id, "Sunny."))
    _, last = await said(thinking, wire, ModelCall("tiny", answered, tools=(WEATHER,), vendor_model=OURS))

    thought = first.reasoning or "".join(block.text for block in first.thinking)
    assert (thought.strip(), first.text.strip()) == ("I should look up the weather", "Checking.")
    assert [(call.name, call.arguments.replace(" ", "")) for call in first.calls] == [
        ("get_weather", '{"city":"Paris"}')
    ]
    assert (was_cut(finish), finish.dropped, was_cut(last)) == (False, (), False)
    assert finish.usage
    assert last.usage
    # What went back was read: the second prompt holds the first, the reply and the result.
    assert last.usage.prompt_tokens > finish.usage.prompt_tokens + 40


@pytest.mark.parametrize("wire", WIRES)
async def test_a_text_of_any_script_comes_whole(scripted: str, wire: str) -> None:
    told, finish = await said(scripted, wire, ModelCall("tiny", (user("D"),)))

    assert (told.text, was_cut(finish)) == ("caf\u00e9 \U0001f600 \u4f60\u597d done", False)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_reply_that_is_cut_off_is_reported_as_cut(scripted: str, wire: str) -> None:
    told, finish = await said(scripted, wire, ModelCall("tiny", (user("F"),), output_tokens_max=20))

    assert (set(told.text.split()), was_cut(finish)) == ({"x"}, True)
    assert finish.usage
    assert finish.usage.completion_tokens == 20


@pytest.mark.parametrize(
    ("text", "key", "kind"),
    [("x" * 3000, KEY, FailureClass.CONTEXT_EXCEEDED), ("hi", "wrong", FailureClass.AUTH)],
    ids=["overlong", "wrong key"],
)
@pytest.mark.parametrize("wire", WIRES)
async def test_a_refusal_has_its_class(scripted: str, wire: str, text: str, key: str, kind: FailureClass) -> None:
    with pytest.raises(VendorError) as refused:
        await said(scripted, wire, ModelCall("tiny", (user(text),)), key)

    assert refused.value.failure.kind is kind


@pytest.mark.parametrize("wire", WIRES)
async def test_everything_that_can_be_asked_of_a_call_is_taken_or_named(thinking: str, wire: str) -> None:
    asking = ModelCall(
        "tiny", (user(),), temperature=0.0, output_tokens_max=500, tools=(WEATHER,), stop=("never",),
        reasoning=Reasoning("low"), metadata={"user_id": "u"},
    )  # fmt: skip
    told, _ = await said(thinking, wire, asking)

    assert told.calls


@pytest.mark.parametrize("wire", WIRES)
async def test_the_server_says_its_window_and_that_its_template_offers_tools(
    thinking: str, scripted: str, wire: str
) -> None:
    async with vendor_at(thinking, WIRES[wire], KEY) as able, vendor_at(scripted, WIRES[wire], KEY) as plain:
        (found,), (short,) = await able.check(["tiny"]), await plain.check(["tiny"])

    assert (found.problem, found.info) == ("", ModelInfo(4096, 0, Capabilities(tools=True, images=False)))
    assert (short.info.context_length, short.info.capabilities.tools) == (512, False)
