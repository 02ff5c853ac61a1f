"""Calls through a LiteLLM proxy, in front of answers of its own and of a local server.

It has an environment of its own (742 MB): `pip install 'litellm[proxy]'`; TURNWRIGHT_LITELLM is its program.
Source: C35; research/wire 4.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from turnwright_values.provider import Finish
from turnwright_values.replies import ToolCall

from oracle.calls import CALLS, READ, result, user
from oracle.servers import reply, serving, vendor_at
from ports import free_ports
from sse_server import SseServer, chat
from turnwright_core.chat.message import Message
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.model_call import ModelCall, was_cut
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.wires.chat import ChatWire

PROGRAM = os.environ.get("TURNWRIGHT_LITELLM", "")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.asyncio,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not PROGRAM, reason="install 'litellm[proxy]', and name its program in TURNWRIGHT_LITELLM"),
]

KEY = "sk-local-test-only"
WIRE = ChatWire(ThinkTags.LEADING)
SAID = "One, two, three: caf\u00e9 \U0001f600."
MOCKS = {
    "said": SAID,
    "busy": "litellm.RateLimitError",
    "full": "litellm.ContextWindowExceededError",
    "broken": "litellm.InternalServerError",
}
READ_CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a.py"}'}}


@dataclass(frozen=True)
class Proxy:
    """Where it is, and where it looks for the server of the model `passed`."""

    port: int
    upstream: int

    async def said(self, call: ModelCall) -> tuple[Message, Finish]:
        async with vendor_at(f"http://127.0.0.1:{self.port}/v1", WIRE, KEY) as vendor:
            return await reply(vendor, call)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder, at = tmp_path_factory.mktemp("litellm"), Proxy(*free_ports(2))
    models = {
        name: {"model": f"openai/{name}", "api_key": "none", "mock_response": answer} for name, answer in MOCKS.items()
    }
    models["passed"] = {"model": "openai/m", "api_key": "none", "api_base": f"http://127.0.0.1:{at.upstream}/v1"}
    listed = [{"model_name": name, "litellm_params": each} for name, each in models.items()]
    listed[0]["model_info"] = {"max_input_tokens": 9000, "supports_function_calling": True}
    # JSON is YAML, but for characters in two escapes.
    config = {"model_list": listed, "litellm_settings": {"num_retries": 0}}
    Path(folder / "config.yaml").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
    command = [
        PROGRAM,
        "--config",
        "config.yaml",
        "--host",
        "127.0.0.1",
        "--port",
        str(at.port),
        "--telemetry",
        "False",
    ]
    environment = {"LITELLM_MASTER_KEY": KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with serving(command, folder, f"http://127.0.0.1:{at.port}/health/liveliness", environment):
        yield at


async def test_a_text_comes_whole(proxy: Proxy) -> None:
    said, finish = await proxy.said(ModelCall("said", (user(),)))

    assert (said.text, finish.reason, was_cut(finish)) == (SAID, "stop", False)
    assert finish.usage
    assert finish.usage.completion_tokens > 0


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("busy", FailureClass.RATE_LIMIT),
        ("full", FailureClass.CONTEXT_EXCEEDED),
        ("broken", FailureClass.SERVER),
        ("unheard", FailureClass.INVALID),
    ],
)
async def test_a_refusal_has_its_class(proxy: Proxy, model: str, kind: FailureClass) -> None:
    with pytest.raises(VendorError) as refused:
        await proxy.said(ModelCall(model, (user(),)))

    assert refused.value.failure.kind is kind


async def test_a_call_and_its_result_pass_both_ways(proxy: Proxy) -> None:
    asking = chat("I look.", reasoning="It is a file.", tool_calls=[READ_CALL], finish="tool_calls")
    async with SseServer([asking, chat("x is 1.")], port=proxy.upstream) as upstream:
        first, finish = await proxy.said(ModelCall("passed", (user(),), tools=(READ,), vendor_model="v/m"))
        answered = (user(), first, result("c1"))
        last, _ = await proxy.said(ModelCall("passed", answered, tools=(READ,), vendor_model="v/m"))

    assert first.calls == (ToolCall("read", '{"path": "a.py"}', 0, "c1"),)
    assert (first.text, first.reasoning, finish.reason) == ("I look.", "It is a file.", "tool_calls")
    assert last.text == "x is 1."
    sent = upstream.requests[-1].json
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
    assert sent["messages"][1]["tool_calls"][0]["id"] == sent["messages"][2]["tool_call_id"] == "c1"
    assert sent["tools"] == json.loads(WIRE.request(CALLS["tool"], frozenset()).body)["tools"]


async def test_what_is_set_of_a_model_there_is_known(proxy: Proxy) -> None:
    async with vendor_at(f"http://127.0.0.1:{proxy.port}/v1", WIRE, KEY, preset="litellm") as vendor:
        said, typo = await vendor.check(["said", "sadi"])

    assert (said.problem, said.info.context_length, said.info.capabilities.tools) == ("", 9000, True)
    assert "did you mean said?" in typo.problem
