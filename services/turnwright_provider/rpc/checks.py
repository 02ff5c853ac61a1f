"""What is refused before any work starts. Source: provider_service.proto; architecture 10."""

from __future__ import annotations

import math
from typing import Final

from turnwright.provider.v1 import provider_service_pb2 as pb

from turnwright_core.checks import invalid, over_limit

MESSAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Longest conversation, in bytes of UTF-8."""

MODELS_MAX: Final = 100
"""Most models of one check."""

TEMPERATURE_MAX: Final = 2.0


def check_generate(request: pb.GenerateRequest) -> None:
    """Raise InvalidError for a request that names no model, says nothing, or is over a limit."""
    if not request.model.vendor_model:
        raise invalid("model.vendor_model", "Name the model as `vendor/model`.")
    if not request.messages:
        raise invalid("messages", "Send at least one message.")
    if any(message.role == pb.ROLE_UNSPECIFIED or message.role not in pb.Role.values() for message in request.messages):
        raise invalid("messages.role", "Every message needs a role: system, user or assistant.")
    _check_limit(
        "messages", sum(len(message.content.encode()) for message in request.messages), MESSAGES_BYTES_MAX, "bytes"
    )
    temperature = request.temperature
    if math.isnan(temperature) or not 0 <= temperature <= TEMPERATURE_MAX:
        raise invalid(
            "temperature", "The temperature must be from 0 to 2: it is set with the run or by TURNWRIGHT_TEMPERATURE."
        )
    if request.HasField("output_tokens_max") and not request.output_tokens_max:
        raise invalid("output_tokens_max", "output_tokens_max must be at least 1, or absent.")


def check_models_request(request: pb.CheckModelsRequest) -> None:
    _check_limit("models", len(request.models), MODELS_MAX, "models")


def _check_limit(field: str, actual: int, limit: int, unit: str) -> None:
    if actual > limit:
        raise over_limit(field, limit, actual, unit)
