"""The call of a model on the wire, and the parts of its reply."""

from __future__ import annotations

from typing import Any, Final

from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import message_pb2
from turnwright_values.provider import Finish, GenerateRequest, Retry

from turnwright_core.chat.deltas import AppendContent
from turnwright_core.chat.message import Message
from turnwright_core.checks import invalid
from turnwright_core.model_calls import GeneratePart
from turnwright_core.models import ToolChoice
from turnwright_core.rpc_codec import RpcCodec
from turnwright_core.wire.codec import codec, written
from turnwright_core.wire.deltas import delta_from_pb, delta_to_pb
from turnwright_core.wire.messages import message_from_pb, message_to_pb, role_from_pb

_MODES: Final[dict[int, Any]] = {
    pb.TOOL_CHOICE_MODE_AUTO: "auto",
    pb.TOOL_CHOICE_MODE_NONE: "none",
    pb.TOOL_CHOICE_MODE_REQUIRED: "required",
}
_MODE_NUMBERS: Final[dict[str, Any]] = {mode: number for number, mode in _MODES.items()}


def _choice_to_pb(choice: ToolChoice) -> pb.ToolChoice:
    if choice.tool:
        return pb.ToolChoice(tool=choice.tool, single=choice.single)
    return pb.ToolChoice(mode=_MODE_NUMBERS[choice.mode], single=choice.single)


def _choice_from_pb(choice: pb.ToolChoice) -> ToolChoice:
    return ToolChoice(_MODES.get(choice.mode, "auto"), choice.tool, choice.single)


def _message_from_pb(indexed: tuple[int, message_pb2.Message]) -> Message:
    index, message = indexed
    if role_from_pb(message.role) is None:
        raise invalid(f"messages[{index}].role", "Every message needs a role: system, user, assistant or tool.")
    return message_from_pb(message)


written(ToolChoice, _choice_to_pb, _choice_from_pb)
generate_to_pb, generate_from_pb = codec(
    GenerateRequest,
    pb.GenerateRequest,
    messages=(
        lambda messages: map(message_to_pb, messages),
        lambda messages: tuple(map(_message_from_pb, enumerate(messages))),
    ),
)
_retry_to_pb, _retry_from_pb = codec(Retry, pb.Retry)
_finish_to_pb, _finish_from_pb = codec(Finish, pb.Finish)


def generate_part_to_pb(part: GeneratePart) -> pb.GenerateResponse:
    match part:
        case Retry():
            return pb.GenerateResponse(retry=_retry_to_pb(part))
        case Finish():
            return pb.GenerateResponse(finish=_finish_to_pb(part))
        case _:
            message = pb.GenerateResponse()
            delta_to_pb(part, message.delta)
            return message


def generate_part_from_pb(part: pb.GenerateResponse) -> GeneratePart:
    """Decode; a kind of a later version appends nothing."""
    match part.WhichOneof("part"):
        case "delta":
            return delta_from_pb(part.delta) or AppendContent("")
        case "retry":
            return _retry_from_pb(part.retry)
        case "finish":
            return _finish_from_pb(part.finish)
        case _:
            return AppendContent("")


GENERATE: Final[RpcCodec[GenerateRequest, Any]] = RpcCodec(
    "/turnwright.provider.v1.ProviderService/Generate",
    GenerateRequest,
    GeneratePart,
    generate_to_pb,
    generate_from_pb,
    generate_part_to_pb,
    generate_part_from_pb,
)
