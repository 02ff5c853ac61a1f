"""What is refused before any work starts. Source: provider_service.proto; architecture 10."""

from __future__ import annotations

import math
from typing import Final

from turnwright.provider.v1 import provider_service_pb2 as pb

from turnwright_core.errors import Reason, fault

MESSAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest conversation, in bytes of UTF-8."""

MODELS_MAX: Final = 100
"""Most models of one check."""

TEMPERATURE_MAX: Final = 2.0


def check_generate(request: pb.GenerateRequest) -> None:
    """Raise InvalidError for a request that names no model, says nothing, or is over a limit."""
    if not request.model.vendor_model:
        raise fault(Reason.INVALID_FIELD, "Name the model as `vendor/model`.", field="model.vendor_model")
    if not request.messages:
        raise fault(Reason.INVALID_FIELD, "Send at least one message.", field="messages")
    if any(message.role == pb.ROLE_UNSPECIFIED or message.role not in pb.Role.values() for message in request.messages):
        raise fault(
            Reason.INVALID_FIELD, "Every message needs a role: system, user or assistant.", field="messages.role"
        )
    _check_limit(
        "messages", sum(len(message.content.encode()) for message in request.messages), MESSAGES_BYTES_MAX, "bytes"
    )
    temperature = request.temperature
    if math.isnan(temperature) or not 0 <= temperature <= TEMPERATURE_MAX:
        raise fault(
            Reason.INVALID_FIELD,
            "The temperature must be from 0 to 2: it is set with the run or by TURNWRIGHT_TEMPERATURE.",
            field="temperature",
        )
    if request.HasField("output_tokens_max") and not request.output_tokens_max:
        raise fault(Reason.INVALID_FIELD, "output_tokens_max must be at least 1, or absent.", field="output_tokens_max")


def check_models_request(request: pb.CheckModelsRequest) -> None:
    _check_limit("models", len(request.models), MODELS_MAX, "models")


def _check_limit(field: str, actual: int, limit: int, unit: str) -> None:
    if actual > limit:
        raise fault(
            Reason.LIMIT_EXCEEDED,
            f"{field} is over its limit of {limit} {unit}.",
            field=field,
            limit=limit,
            actual=actual,
            unit=unit,
        )
