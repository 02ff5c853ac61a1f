"""The provider's gRPC client."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import groupby
from typing import Final

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.provider.v1 import provider_service_pb2_grpc
from turnwright.types.v1.message_pb2 import ROLE_ASSISTANT, ROLE_SYSTEM, ROLE_USER, Message, Part

from turnwright_core.chat.message import Image, Role, Text
from turnwright_core.chat.message import Message as ChatMessage
from turnwright_core.chat.transcript import from_json_lines, merge_user_messages
from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.models import Model
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.runs import RequestKind, TokenSource, TurnRequest
from turnwright_core.wire.codec import known
from turnwright_core.wire.deltas import delta_from_pb
from turnwright_core.wire.messages import message_to_pb, part_to_pb
from turnwright_core.wire.runs import model_from_pb, model_to_pb, reasoning_to_pb, usage_from_pb
from turnwright_executor.edge.cache_marks import mark_conversation, mark_end
from turnwright_executor.ports.models import Finished, ModelEvent, RetryNotice
from turnwright_executor.ports.packets import PacketMessage

USER: Final = "user"
"""Role of the message of a packet that has its sections."""

_ROLES = {"system": ROLE_SYSTEM, "user": ROLE_USER, "assistant": ROLE_ASSISTANT}


DESCRIBE_TIMEOUT_S: Final = 5.0
"""Seconds after which a loop starts without its vendor's metadata about the model; the provider waits less."""

COUNT_TIMEOUT_S: Final = 5.0
"""Seconds after which a turn goes on without a count of its tokens; the provider waits less."""

DESCRIBED_S: Final = 60.0
"""Seconds for which model metadata is cached."""

DESCRIBED_MAX: Final = 1000
"""Maximum number of models in the cache."""

_NO_TOOL: Final = pb.ToolChoice(mode=pb.TOOL_CHOICE_MODE_NONE)

_log = get_logger("models")


class ProviderModels:
    """Implements ports.Models. `deadline_s` bounds a whole call, in seconds; `clock_s` is a monotonic clock."""

    def __init__(self, peer: Peer, deadline_s: float, clock_s: Callable[[], float]) -> None:
        self._peer = peer
        self._deadline_s = deadline_s
        self._clock_s = clock_s
        self.stub = provider_service_pb2_grpc.ProviderServiceStub(peer.channel)
        self._described: dict[Model, tuple[float, Model]] = {}

    async def describe(self, model: Model) -> Model:
        until_s, known = self._described.get(model, (0.0, model))
        if self._clock_s() < until_s:
            return known
        wanted = pb.CheckModelsRequest(models=[model_to_pb(model)], cached=True)
        try:
            answer = await self._peer.call(self.stub.CheckModels, wanted, DESCRIBE_TIMEOUT_S)
        except TurnwrightError:
            # If something is wrong, the model call will report it.
            return known
        # An older provider returns no metadata.
        known = next((model_from_pb(check.model) for check in answer.checks if check.HasField("model")), model)
        if not known.context_length and model not in self._described:
            _log.warning("context_length_assumed", model=model.vendor_model, tokens=CONTEXT_LENGTH_DEFAULT)
        if len(self._described) >= DESCRIBED_MAX:
            del self._described[next(iter(self._described))]
        self._described[model] = self._clock_s() + DESCRIBED_S, known
        return known

    async def count_tokens(
        self, model: Model, messages: Sequence[PacketMessage], images: Sequence[Image], near: int
    ) -> tuple[int, TokenSource] | None:
        call = pb.GenerateRequest(
            model=model_to_pb(model),
            messages=_sent(messages, images),
            tools=_tools(messages),
        )
        wanted = pb.CountTokensRequest(call=call, near=near)
        try:
            answer = await self._peer.call(self.stub.CountTokens, wanted, COUNT_TIMEOUT_S)
        except TurnwrightError:
            # If something is wrong, the model call will report it; an older provider does not count.
            return None
        return answer.tokens, known(TokenSource, answer.source, "source")

    async def generate(
        self,
        model: Model,
        messages: Sequence[PacketMessage],
        request: TurnRequest,
        call_index: int,
        *,
        images: Sequence[Image] = (),
        limits_cost: bool,
    ) -> AsyncGenerator[ModelEvent, None]:
        tools = _tools(messages)
        sent = _sent(messages, images)
        wanted = pb.GenerateRequest(
            model=model_to_pb(model),
            messages=sent,
            temperature=request.temperature,
            reasoning=reasoning_to_pb(request.reasoning) if request.reasoning else None,
            call_index=call_index,
            tools=tools,
            # They are offered all the same: what was called before is in the conversation, and in the vendor's cache.
            tool_choice=_NO_TOOL if tools and request.kind is RequestKind.COMPACTION else None,
            required=[
                *(["tools"] if tools else ()),
                *(["images"] if any(part.HasField("image") for message in sent for part in message.parts) else ()),
                *(["cost"] if limits_cost else ()),
            ],
        )
        async with self._peer.stream(self.stub.Generate, wanted, self._deadline_s) as parts:
            async for part in parts:
                event = _event_from_pb(part)
                if event is not None:
                    yield event


def _tools(messages: Sequence[PacketMessage]) -> list[pb.Tool]:
    tools = [tool for message in messages if message.role == "tools" for tool in tools_to_pb(message.text)]
    if tools:
        tools[-1].cache = True
    return tools


def _sent(messages: Sequence[PacketMessage], images: Sequence[Image]) -> list[Message]:
    """The messages for the provider, without tools."""
    if {USER, CONVERSATION} <= {message.role for message in messages}:
        return _edited_packet(messages, images)
    return [sent for message in messages for sent in _sent_message(message, images)]


def _edited_packet(messages: Sequence[PacketMessage], images: Sequence[Image]) -> list[Message]:
    """A packet with edits: what they added stands in conversations before and after its user message."""
    edits = [from_json_lines(message.text) for message in messages if message.role == CONVERSATION]
    paths = {part.path for added in edits for one in added for part in one.parts if isinstance(part, Image)}
    chat: list[ChatMessage] = []
    for message in messages:
        if message.role == CONVERSATION:
            chat += edits.pop(0)
        elif message.role == USER:
            own = (image for image in images if image.path not in paths)
            chat.append(ChatMessage(Role.USER, (Text(message.text), *own)))
    merged: list[ChatMessage] = []
    for is_user, group in groupby(chat, lambda one: one.role is Role.USER):
        same_role = list(group)
        merged += [merge_user_messages(same_role)] if is_user else same_role
    system = (sent for message in messages if message.role == "system" for sent in _sent_message(message, images))
    return [*system, *_with_images(merged, images)]


def _sent_message(message: PacketMessage, images: Sequence[Image]) -> list[Message]:
    """The messages for the provider; of a conversation all messages."""
    if message.role == CONVERSATION:
        conversation = _with_images(from_json_lines(message.text), images)
        mark_conversation(conversation)
        return conversation
    if message.role not in _ROLES:
        return []
    shown = images if message.role == USER else ()
    parts = [Part(text=message.text), *(part_to_pb(replace(image, path="")) for image in shown)]
    sent = Message(role=_ROLES[message.role], parts=parts)
    if message.role == "system":
        mark_end(sent)
    return [sent]


def _with_images(messages: Sequence[ChatMessage], images: Sequence[Image]) -> list[Message]:
    """The messages, with the images that could be read."""
    read = {image.path: replace(image, path="") for image in images}
    sent = []
    for message in messages:
        parts = [read.get(part.path) if isinstance(part, Image) and part.path else part for part in message.parts]
        sent.append(message_to_pb(replace(message, parts=tuple(part for part in parts if part))))
    return sent


class _Definition(Struct):
    """A tool as a packet offers it."""

    name: str
    description: str
    parameters: Raw
    """Passed to the provider unchanged."""


_DEFINITIONS: Final = Decoder(list[_Definition])


def tools_to_pb(text: str) -> list[pb.Tool]:
    """The tools in the packet's `tools` message."""
    return [
        pb.Tool(name=tool.name, description=tool.description, parameters=bytes(tool.parameters).decode())
        for tool in _DEFINITIONS.decode(text)
    ]


def _event_from_pb(part: pb.GenerateResponse) -> ModelEvent | None:
    match part.WhichOneof("part"):
        case "delta":
            return delta_from_pb(part.delta)
        case "retry":
            return RetryNotice(part.retry.wait_s, part.retry.error_class, part.retry.detail)
        case "finish":
            usage = usage_from_pb(part.finish.usage) if part.finish.HasField("usage") else None
            # Cache marks are sent to every vendor: one that takes none caches by itself.
            dropped = tuple(one.field for one in part.finish.dropped if one.field != "cache")
            return Finished(part.finish.reason, usage, part.finish.cut, part.finish.vendor_model, dropped)
        case _:
            return None
