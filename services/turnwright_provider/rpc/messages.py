"""Calls and parts of replies on the wire."""

from __future__ import annotations

from typing import Final

from turnwright.provider.v1 import provider_service_pb2 as pb

from turnwright_core.wire.deltas import delta_to_pb
from turnwright_core.wire.runs import usage_to_pb
from turnwright_provider.domain.model_call import Finish, Message, ModelCall, Part, Retry, Role

_ROLES: Final[dict[int, Role]] = {
    pb.ROLE_SYSTEM: Role.SYSTEM,
    pb.ROLE_USER: Role.USER,
    pb.ROLE_ASSISTANT: Role.ASSISTANT,
}


def call_from_pb(request: pb.GenerateRequest, model: str) -> ModelCall:
    """A checked request; `model` is the vendor's own name."""
    return ModelCall(
        model=model,
        messages=tuple(Message(_ROLES[message.role], message.content) for message in request.messages),
        temperature=request.temperature if request.HasField("temperature") else None,
        output_tokens_max=request.output_tokens_max if request.HasField("output_tokens_max") else None,
        call_index=request.call_index,
    )


def part_to_pb(part: Part) -> pb.GenerateResponse:
    match part:
        case Retry():
            return pb.GenerateResponse(retry=_retry_to_pb(part))
        case Finish():
            return pb.GenerateResponse(finish=_finish_to_pb(part))
        case _:
            return pb.GenerateResponse(delta=delta_to_pb(part))


def _retry_to_pb(retry: Retry) -> pb.Retry:
    return pb.Retry(attempt=retry.attempt, wait_s=retry.wait_s, error_class=retry.error_class, detail=retry.detail)


def _finish_to_pb(finish: Finish) -> pb.Finish:
    return pb.Finish(
        reason=finish.reason,
        usage=None if finish.usage is None else usage_to_pb(finish.usage),
        vendor_model=finish.vendor_model,
        cut=finish.is_cut,
    )
