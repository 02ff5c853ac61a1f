"""Protobuf conversion of calls and parts of replies."""

from __future__ import annotations

from typing import Any, Final

from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import settings_pb2

from turnwright_core.json_text import parse_json
from turnwright_core.models import Model
from turnwright_core.wire.deltas import delta_to_pb
from turnwright_core.wire.messages import message_from_pb
from turnwright_core.wire.runs import model_from_pb, reasoning_from_pb, usage_to_pb
from turnwright_provider.domain.model_call import (
    Finish,
    ModelCall,
    ReplyPart,
    ResponseFormat,
    Retry,
    ToolChoice,
    ToolSpec,
)
from turnwright_provider.domain.model_info import ModelInfo

_MODES: Final[dict[int, Any]] = {
    pb.TOOL_CHOICE_MODE_NONE: "none",
    pb.TOOL_CHOICE_MODE_REQUIRED: "required",
}


def call_from_pb(request: pb.GenerateRequest, model: str) -> ModelCall:
    """Decode a validated request; `model` is the vendor's own name."""
    return ModelCall(
        model=model,
        messages=tuple(map(message_from_pb, request.messages)),
        temperature=request.temperature if request.HasField("temperature") else None,
        output_tokens_max=request.output_tokens_max if request.HasField("output_tokens_max") else None,
        call_index=request.call_index,
        tools=tuple(map(_tool, request.tools)),
        tool_choice=_choice(request.tool_choice) if request.HasField("tool_choice") else None,
        stop=tuple(request.stop),
        response_format=_format(request.response_format) if request.HasField("response_format") else None,
        reasoning=reasoning_from_pb(request.reasoning) if request.HasField("reasoning") else None,
        metadata=dict(request.metadata),
        required=frozenset(request.required),
        extra=parse_json(request.extra) if request.extra else {},
        vendor_model=request.model.vendor_model,
        info=_info(model_from_pb(request.model)),
    )


def _info(model: Model) -> ModelInfo:
    return ModelInfo(model.context_length, model.output_tokens_max, model.capabilities)


def _tool(tool: pb.Tool) -> ToolSpec:
    parameters = parse_json(tool.parameters) if tool.parameters else {"type": "object", "properties": {}}
    return ToolSpec(tool.name, tool.description, parameters, tool.strict, tool.cache)


def _choice(choice: pb.ToolChoice) -> ToolChoice:
    return ToolChoice(_MODES.get(choice.mode, "auto"), choice.tool, choice.single)


def _format(form: settings_pb2.ResponseFormat) -> ResponseFormat:
    return ResponseFormat(parse_json(form.schema) if form.schema else None, form.name or "answer", form.strict)


def part_to_pb(part: ReplyPart) -> pb.GenerateResponse:
    match part:
        case Retry():
            return pb.GenerateResponse(retry=_retry_to_pb(part))
        case Finish():
            return pb.GenerateResponse(finish=_finish_to_pb(part))
        case _:
            message = pb.GenerateResponse()
            delta_to_pb(part, message.delta)
            return message


def _retry_to_pb(retry: Retry) -> pb.Retry:
    return pb.Retry(attempt=retry.attempt, wait_s=retry.wait_s, error_class=retry.error_class, detail=retry.detail)


def _finish_to_pb(finish: Finish) -> pb.Finish:
    return pb.Finish(
        reason=finish.reason,
        usage=None if finish.usage is None else usage_to_pb(finish.usage),
        vendor_model=finish.vendor_model,
        cut=finish.is_cut,
        dropped=[pb.Dropped(field=one.field, reason=one.reason) for one in finish.dropped],
    )
