"""Servers that ask a model: a question like any other in the project, at the cost of whoever asked for the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mcp_types as types
from turnwright.tool.v1 import tool_service_pb2
from turnwright.types.v1 import budget_pb2, settings_pb2

from turnwright_client import Client
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import COMPLETED
from turnwright_mcp.connection import Sample

TURNS_MAX: Final = 3
PROMPT_CHARS_MAX: Final = 200_000
TOOLS: Final = ("update",)
"""What the model may use: the prompt is the server's, and must be no way to files, to the web or to other servers."""


def sampled_by(model: str, request: tool_service_pb2.DispatchRequest) -> Sample:
    """How a server's call of a model is made, within one call of a tool."""

    async def sample(params: types.CreateMessageRequestParams) -> types.CreateMessageResult | types.ErrorData:
        if not request.HasField("callback"):
            return _refused(
                "The call has no right to ask a model: no token can be made for the person behind the task."
            )
        prompt = "\n\n".join(_texts(params))
        if not prompt or len(prompt) > PROMPT_CHARS_MAX:
            return _refused(f"A model is asked texts, of at most {PROMPT_CHARS_MAX} characters.")
        try:
            async with Client.connect(request.callback.address, request.callback.token) as client:
                its_own = settings_pb2.RunSettings(private=await _is_private(client, request))
                asked = await client.ask(request.project, prompt, settings=_settings(model), run_settings=its_own)
                loop = (await client.run_to_end(asked)).loop
        except TurnwrightError as error:
            return _refused(error.message)
        if loop.status != COMPLETED:
            return _refused(f"The model gave no answer: {loop.reason or loop.status}.")
        answer = types.TextContent(type="text", text=loop.summary)
        return types.CreateMessageResult(role="assistant", content=answer, model=model, stop_reason="endTurn")

    return sample


def _settings(model: str) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(
        model=model,
        tools=TOOLS,
        no_repo=True,
        no_web=True,
        no_interaction=True,
        no_proposals=True,
        project_instructions=False,
        budget=budget_pb2.Budget(turns_max=TURNS_MAX),
    )


async def _is_private(client: Client, request: tool_service_pb2.DispatchRequest) -> bool:
    """Whether the run is whose call asks: what a server was told by it can stand in its question."""
    return (await client.get_run(request.project, request.run)).run.settings.private


def _texts(params: types.CreateMessageRequestParams) -> Iterator[str]:
    if params.system_prompt:
        yield params.system_prompt
    for message in params.messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        text = "\n".join(block.text for block in blocks if isinstance(block, types.TextContent))
        if text:
            yield text if message.role == "user" else f"(You answered: {text})"


def _refused(text: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=text)
