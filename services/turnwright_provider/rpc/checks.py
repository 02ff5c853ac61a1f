"""Validation of requests; the first error is reported. Limits are in provider_service.proto."""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import Any, Final

from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import message_pb2

from turnwright_core.checks import check_bytes, check_chars, check_count, invalid, over_limit
from turnwright_core.json_text import parse_json
from turnwright_core.limits import IMAGE_URL_CHARS_MAX

MESSAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of the text in a conversation, in bytes of UTF-8."""

IMAGE_BYTES_MAX: Final = 20 * 1024 * 1024
SCHEMA_BYTES_MAX: Final = 64 * 1024
TOOLS_MAX: Final = 128
CALLS_MAX: Final = 1000
STOPS_MAX: Final = 4
STOP_CHARS_MAX: Final = 256
CACHE_MARKS_MAX: Final = 4
METADATA_MAX: Final = 16
METADATA_CHARS_MAX: Final = 512

MODELS_MAX: Final = 100
"""Maximum number of models in one check."""

TEMPERATURE_MAX: Final = 2.0

OPTIONAL: Final = frozenset(
    {"temperature", "output_tokens_max", "tools", "tool_choice", "stop", "response_format", "reasoning", "metadata"}
    | {"images", "cache", "cost"}
)
"""Fields that a call may require."""

ROLES: Final = (message_pb2.ROLE_SYSTEM, message_pb2.ROLE_USER, message_pb2.ROLE_ASSISTANT, message_pb2.ROLE_TOOL)
"""Whom vendors know; events and plans are for readers of runs."""

MIMES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def check_generate(request: pb.GenerateRequest) -> None:
    """Raise InvalidError for a request without a model or message, with a bad part, or over a limit."""
    if not request.model.vendor_model:
        raise invalid("model.vendor_model", "Name the model as `vendor/model`.")
    _check_messages(request)
    _check_tools(request)
    temperature = request.temperature
    if math.isnan(temperature) or not 0 <= temperature <= TEMPERATURE_MAX:
        raise invalid(
            "temperature", "The temperature must be from 0 to 2: it is set with the run or by TURNWRIGHT_TEMPERATURE."
        )
    if request.HasField("output_tokens_max") and not request.output_tokens_max:
        raise invalid("output_tokens_max", "output_tokens_max must be at least 1, or absent.")
    _check_words(request)
    if request.response_format.schema:
        _check_schema("response_format.schema", request.response_format.schema)
    if request.response_format.name:
        _check_name("response_format.name", request.response_format.name)
    if request.extra:
        _check_object("extra", request.extra)


def _check_words(request: pb.GenerateRequest) -> None:
    check_count("stop", len(request.stop), STOPS_MAX)
    if not all(request.stop):
        raise invalid("stop", "A stop sequence cannot be empty.")
    for text in request.stop:
        check_chars("stop", text, STOP_CHARS_MAX)
    check_count("metadata", len(request.metadata), METADATA_MAX)
    for key, value in request.metadata.items():
        check_chars(f"metadata.{key}", value, METADATA_CHARS_MAX)
    if unknown := sorted(set(request.required) - OPTIONAL):
        known = ", ".join(sorted(OPTIONAL))
        raise invalid("required", f"{unknown[0]!r} cannot be required; these can: {known}.")


def _check_messages(request: pb.GenerateRequest) -> None:
    listed = list(request.messages)
    if not listed:
        raise invalid("messages", "Send at least one message.")
    for index, message in enumerate(listed):
        _check_message(f"messages[{index}]", message)
    # The texts are a part of the request.
    if request.ByteSize() > MESSAGES_BYTES_MAX and (size := sum(map(_text_bytes, listed))) > MESSAGES_BYTES_MAX:
        raise over_limit("messages", MESSAGES_BYTES_MAX, size, "bytes")
    _check_answers(listed)


def _check_message(field: str, message: message_pb2.Message) -> None:
    if message.role not in ROLES:
        raise invalid(f"{field}.role", "Every message needs a role: system, user, assistant or tool.")
    check_count(f"{field}.calls", len(message.calls), CALLS_MAX)
    if message.calls and message.role != message_pb2.ROLE_ASSISTANT:
        raise invalid(f"{field}.calls", "Only assistant messages can have calls.")
    for index, call in enumerate(message.calls):
        if not call.name:
            raise invalid(f"{field}.calls[{index}].name", "Every call needs the name of its tool.")
    for index, part in enumerate(message.parts):
        if part.HasField("image"):
            _check_image(f"{field}.parts[{index}].image", part.image)


def _check_image(field: str, image: message_pb2.Image) -> None:
    if image.path:
        raise invalid(f"{field}.path", "The provider cannot read entries: send the image as `data` with its `mime`.")
    if image.url:
        _check_url(field, image.url)
        return
    if image.mime not in MIMES:
        raise invalid(f"{field}.mime", f"{image.mime!r} is not a supported image type; use one of {', '.join(MIMES)}.")
    if not image.data:
        raise invalid(f"{field}.data", "The image is empty.")
    if len(image.data) > IMAGE_BYTES_MAX:
        raise over_limit(f"{field}.data", IMAGE_BYTES_MAX, len(image.data), "bytes")


def _check_url(field: str, url: str) -> None:
    if not url.startswith("data:"):
        if not url.startswith(("https://", "http://")):
            raise invalid(f"{field}.url", "The URL of an image must begin with https://, http:// or data:.")
        check_chars(f"{field}.url", url, IMAGE_URL_CHARS_MAX)
        return
    found = _DATA_URL.fullmatch(url)
    if found is None or found[1] not in MIMES:
        raise invalid(f"{field}.url", f"A data URL is data:<type>;base64,<image>, with a type of {', '.join(MIMES)}.")
    if len(found[2]) * 3 // 4 > IMAGE_BYTES_MAX:
        raise over_limit(f"{field}.url", IMAGE_BYTES_MAX, len(found[2]) * 3 // 4, "bytes")
    try:
        base64.b64decode(found[2], validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{field}.url", "The data URL is not base64.") from None


def _check_answers(messages: list[message_pb2.Message]) -> None:
    """Every tool answer must belong to an earlier call, and call ids in a message must be unique."""
    known: set[str] = set()
    for index, message in enumerate(messages):
        ids = [call.call_id or call.id for call in message.calls]
        given = [one for one in ids if one]
        if len(set(given)) < len(given):
            twice = next(one for one in given if given.count(one) > 1)
            raise invalid(f"messages[{index}].calls", f"Two calls of a message have the id {twice!r}.")
        known |= {one for call in message.calls for one in (call.id, call.call_id) if one}
        if message.role == message_pb2.ROLE_TOOL and message.call_id not in known:
            raise invalid(
                f"messages[{index}].call_id",
                f"No earlier call has the id {message.call_id!r} that this message answers.",
            )


def _check_tools(request: pb.GenerateRequest) -> None:
    check_count("tools", len(request.tools), TOOLS_MAX)
    names: set[str] = set()
    for index, tool in enumerate(request.tools):
        field = f"tools[{index}]"
        _check_name(f"{field}.name", tool.name)
        if tool.name in names:
            raise invalid(f"{field}.name", f"Two tools have the name {tool.name}.")
        names.add(tool.name)
        if tool.parameters:
            schema = _check_schema(f"{field}.parameters", tool.parameters)
            if schema.get("type", "object") != "object":
                raise invalid(f"{field}.parameters", "The schema of a tool's arguments must have the type `object`.")
    if request.tool_choice.tool and request.tool_choice.tool not in names:
        raise invalid("tool_choice.tool", f"There is no tool {request.tool_choice.tool} in this request.")
    marks = sum(tool.cache for tool in request.tools)
    marks += sum(part.cache for message in request.messages for part in message.parts)
    if marks > CACHE_MARKS_MAX:
        raise over_limit("cache", CACHE_MARKS_MAX, marks, "marks")


def _check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(field, f"{name[:100]!r} is not a valid name: use 1 to 64 of A-Z a-z 0-9 _ and -.")


def _check_schema(field: str, text: str) -> dict[str, Any]:
    schema = _check_object(field, text)
    kind = schema.get("type", "object")
    if not isinstance(kind, str | list) or not isinstance(schema.get("properties", {}), dict):
        raise invalid(field, "It is not a JSON Schema: `type` is a word and `properties` an object.")
    return schema


def _check_object(field: str, text: str) -> dict[str, Any]:
    check_bytes(field, text, SCHEMA_BYTES_MAX)
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"It is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid(field, "It must be a JSON object.")
    return value


def _text_bytes(message: message_pb2.Message) -> int:
    texts = [part.text for part in message.parts]
    texts += [text for call in message.calls for text in (call.name, call.arguments)]
    return sum(len(text.encode()) for text in texts)


def check_models_request(request: pb.CheckModelsRequest) -> None:
    if len(request.models) > MODELS_MAX:
        raise over_limit("models", MODELS_MAX, len(request.models), "models")
