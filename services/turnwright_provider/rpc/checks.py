"""Requests as calls, and their validation; the first error is reported. Limits are in provider_service.proto."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright_values import types as values
from turnwright_values.provider import GenerateRequest

from turnwright_core.chat.message import Image, Message, Role, Text
from turnwright_core.checks import check_chars, check_count, invalid, over_limit
from turnwright_core.limits import IMAGE_URL_CHARS_MAX
from turnwright_core.model_calls import REFUSABLE
from turnwright_provider.domain.model_call import ModelCall, ResponseFormat, ToolSpec
from turnwright_provider.domain.model_info import ModelInfo
from turnwright_provider.rpc.known_tools import KnownTools, check_name, object_in, schema_in

MESSAGES_BYTES_MAX: Final = 16 * 1024 * 1024
"""Maximum size of the text in a conversation, in bytes of UTF-8."""

IMAGE_BYTES_MAX: Final = 20 * 1024 * 1024
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

ROLES: Final = (Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL)
"""Whom vendors know; events and plans are for readers of runs."""

MIMES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")

_DATA_URL: Final = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,(.*)", re.DOTALL)


def checked_call(request: GenerateRequest, model: str, lists: KnownTools) -> ModelCall:
    """The call; `model` is the vendor's own name.

    Raises TOOLS_UNKNOWN, and InvalidError: no message, a bad part, or over a limit.
    """
    listed = lists.of(request)
    tools = listed.tools
    _check_messages(request.messages)
    _check_choice(request, tools)
    temperature, output_tokens_max = request.temperature, request.output_tokens_max
    if temperature is not None and (math.isnan(temperature) or not 0 <= temperature <= TEMPERATURE_MAX):
        raise invalid(
            "temperature", "The temperature must be from 0 to 2: it is set with the run or by TURNWRIGHT_TEMPERATURE."
        )
    if output_tokens_max is not None and output_tokens_max < 1:
        raise invalid("output_tokens_max", "output_tokens_max must be at least 1, or absent.")
    _check_words(request)
    known = request.model
    return ModelCall(
        model=model,
        messages=request.messages,
        temperature=temperature,
        output_tokens_max=output_tokens_max,
        call_index=request.call_index,
        tools=tools,
        tool_choice=request.tool_choice,
        stop=request.stop,
        response_format=_format(request.response_format) if request.response_format else None,
        reasoning=request.reasoning,
        metadata=request.metadata,
        required=frozenset(request.required),
        extra=object_in("extra", request.extra) if request.extra else {},
        vendor_model=known.vendor_model,
        refused=REFUSABLE.intersection(request.refused),
        alias=known.alias,
        of_tools=listed.made,
        info=ModelInfo(known.context_length, known.output_tokens_max, known.capabilities),
    )


def _check_words(request: GenerateRequest) -> None:
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


def _check_messages(messages: Sequence[Message]) -> None:
    if not messages:
        raise invalid("messages", "Send at least one message.")
    for index, message in enumerate(messages):
        _check_message(f"messages[{index}]", message)
    texts = [text for message in messages for text in _texts(message)]
    # No code point takes more than four bytes.
    chars_max = MESSAGES_BYTES_MAX // 4
    if sum(map(len, texts)) > chars_max and (size := sum(len(text.encode()) for text in texts)) > MESSAGES_BYTES_MAX:
        raise over_limit("messages", MESSAGES_BYTES_MAX, size, "bytes")
    _check_answers(messages)


def _check_message(field: str, message: Message) -> None:
    if message.role not in ROLES:
        raise invalid(f"{field}.role", "Every message needs a role: system, user, assistant or tool.")
    check_count(f"{field}.calls", len(message.calls), CALLS_MAX)
    if message.calls and message.role is not Role.ASSISTANT:
        raise invalid(f"{field}.calls", "Only assistant messages can have calls.")
    for index, call in enumerate(message.calls):
        if not call.name:
            raise invalid(f"{field}.calls[{index}].name", "Every call needs the name of its tool.")
    for index, part in enumerate(message.parts):
        if isinstance(part, Image):
            _check_image(f"{field}.parts[{index}].image", part)


def _check_image(field: str, image: Image) -> None:
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


def _check_answers(messages: Sequence[Message]) -> None:
    """Every tool answer must belong to an earlier call, and call ids in a message must be unique."""
    known: set[str] = set()
    for index, message in enumerate(messages):
        ids = [call.call_id or call.id for call in message.calls]
        given = [one for one in ids if one]
        if len(set(given)) < len(given):
            twice = next(one for one in given if given.count(one) > 1)
            raise invalid(f"messages[{index}].calls", f"Two calls of a message have the id {twice!r}.")
        known |= {one for call in message.calls for one in (call.id, call.call_id) if one}
        if message.role is Role.TOOL and message.call_id not in known:
            raise invalid(
                f"messages[{index}].call_id",
                f"No earlier call has the id {message.call_id!r} that this message answers.",
            )


def _check_choice(request: GenerateRequest, tools: Sequence[ToolSpec]) -> None:
    choice = request.tool_choice
    if choice and choice.tool and all(tool.name != choice.tool for tool in tools):
        raise invalid("tool_choice.tool", f"There is no tool {choice.tool} in this request.")
    marks = sum(tool.cache for tool in tools)
    marks += sum(part.cache for message in request.messages for part in message.parts)
    if marks > CACHE_MARKS_MAX:
        raise over_limit("cache", CACHE_MARKS_MAX, marks, "marks")


def _format(form: values.ResponseFormat) -> ResponseFormat:
    schema = schema_in("response_format.schema", form.schema) if form.schema else None
    if form.name:
        check_name("response_format.name", form.name)
    return ResponseFormat(schema, form.name or "answer", form.strict)


def _texts(message: Message) -> Iterator[str]:
    yield from (part.text for part in message.parts if isinstance(part, Text))
    for call in message.calls:
        yield call.name
        yield call.arguments


def check_models_request(request: pb.CheckModelsRequest) -> None:
    if len(request.models) > MODELS_MAX:
        raise over_limit("models", MODELS_MAX, len(request.models), "models")
