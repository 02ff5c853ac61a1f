"""Servers that ask a model (sampling): what executors are asked for them, and what a server gets for an answer."""

from __future__ import annotations

import mcp_types as types
from turnwright.tool.v1 import result_pb2
from turnwright.types.v1 import message_pb2


def model_request(params: types.CreateMessageRequestParams) -> result_pb2.ToolModelRequest | types.ErrorData:
    """What an executor is asked, which decides whether a model is, and which."""
    if params.tools:
        return _refused("A model is asked without tools: what is wanted of them is for the agent to do.")
    request = result_pb2.ToolModelRequest(output_tokens_max=max(0, params.max_tokens), temperature=params.temperature)
    if params.system_prompt:
        request.messages.add(role=message_pb2.ROLE_SYSTEM).parts.add(text=params.system_prompt)
    for message in params.messages:
        role = message_pb2.ROLE_USER if message.role == "user" else message_pb2.ROLE_ASSISTANT
        added = request.messages.add(role=role)
        for block in message.content if isinstance(message.content, list) else [message.content]:
            if not isinstance(block, types.TextContent):
                return _refused(f"A model is asked texts, and no content of the type {block.type}.")
            # Half of a surrogate pair, which JSON may have, can stand in no message.
            added.parts.add(text=block.text.encode(errors="replace").decode())
    return request


def sampled(
    params: types.CreateMessageRequestParams, answer: result_pb2.ToolModelAnswer | None
) -> types.CreateMessageResult | types.ErrorData:
    """What a server gets."""
    if answer is None:
        return _refused("The model gave no answer in time.")
    if answer.problem:
        return _refused(answer.problem)
    ends = [at for stop in params.stop_sequences or () if stop and (at := answer.text.find(stop)) >= 0]
    text = answer.text[: min(ends, default=None)]
    why = "stopSequence" if ends else "maxTokens" if answer.cut else "endTurn"
    content = types.TextContent(type="text", text=text)
    return types.CreateMessageResult(role="assistant", content=content, model=answer.model, stop_reason=why)


def _refused(text: str) -> types.ErrorData:
    return types.ErrorData(code=types.INVALID_REQUEST, message=text)
