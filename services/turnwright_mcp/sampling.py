"""Servers that ask a model: a question like any other in the project, at the cost of whoever asked for the task."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import mcp_types as types
from turnwright.tool.v1 import tool_service_pb2

from turnwright_client import Client
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import COMPLETED
from turnwright_mcp.connection import Sample

TURNS_MAX: Final = 1
PROMPT_CHARS_MAX: Final = 200_000


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
                loop = (await client.run_to_end(await client.ask(request.project, prompt, model=model))).loop
        except TurnwrightError as error:
            return _refused(error.message)
        if loop.status != COMPLETED:
            return _refused(f"The model gave no answer: {loop.reason or loop.status}.")
        answer = types.TextContent(type="text", text=loop.summary)
        return types.CreateMessageResult(role="assistant", content=answer, model=model, stop_reason="endTurn")

    return sample


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
