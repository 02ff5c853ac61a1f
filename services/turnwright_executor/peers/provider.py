"""The provider's gRPC client. Its vendors change only with its settings, so it is asked about a new one alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright_values.provider import GenerateRequest, Tool
from turnwright_values.types import Model, RequestKind, TokenSource, TurnRequest

from turnwright_core.chat.message import Image, Message, Role, Text
from turnwright_core.chat.transcript import merge_user_messages
from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT, TITLE_TOKENS_MAX
from turnwright_core.model_calls import GeneratePart, tools_digest
from turnwright_core.models import ToolChoice
from turnwright_core.suggestions import unknown_vendor
from turnwright_core.wire.codec import known
from turnwright_core.wire.model_calls import generate_to_pb
from turnwright_core.wire.runs import model_from_pb, model_to_pb
from turnwright_executor.ports.packets import AssembledMessage
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer


def mark_conversation(messages: list[Message]) -> None:
    """Mark the last message, and the one before the last reply.

    The first is the end of what the next request begins with, the second that of the request before, where the vendor's
    cache ends. Tools and system message, the same in every request of a run, are marked elsewhere; of a packet nothing
    else is, because it changes in the middle of its user message. Source: research/wire 2.2.
    """
    ends = [len(messages)]
    ends += [index for index, message in enumerate(messages) if message.role is Role.ASSISTANT][-1:]
    for end in ends:
        for index in reversed(range(end)):
            # Replies are left as they are: thinking takes no mark.
            if messages[index].role is not Role.ASSISTANT and messages[index].parts:
                messages[index] = _with_mark(messages[index])
                break


def _with_mark(message: Message) -> Message:
    return replace(message, parts=(*message.parts[:-1], replace(message.parts[-1], cache=True)))


USER: Final = Role.USER.value
"""Role of the message of a packet that has its sections."""

DESCRIBE_TIMEOUT_S: Final = 5.0
"""Seconds after which a loop starts without its vendor's metadata about the model; the provider waits less."""

COUNT_TIMEOUT_S: Final = 5.0
"""Seconds after which a turn goes on without a count of its tokens; the provider waits less."""

DESCRIBED_S: Final = 60.0
"""Seconds for which model metadata is cached."""

DESCRIBED_MAX: Final = 1000
"""Maximum number of models in the cache."""

SUMMARY_TOKENS_MAX: Final = 4096
"""Most tokens of output that a summary may take, thoughts included: its request asks for 600 words."""

SUMMARY_PART: Final = 8
"""A summary takes at most one part in this many of the context window."""

SUMMARY_TOKENS_LEAST: Final = 256
"""It may take as much in the smallest of windows."""

_NO_TOOL: Final = ToolChoice("none")

_log = get_logger("models")


class ProviderModels:
    """Implements ports.Models. `deadline_s` bounds a whole call, in seconds; `clock_s` is a monotonic clock."""

    def __init__(self, peer: Peer, deadline_s: float, clock_s: Callable[[], float]) -> None:
        self._peer = peer
        self._deadline_s = deadline_s
        self._clock_s = clock_s
        self._stub = provider_service_pb2_grpc.ProviderServiceStub(peer.channel)
        self._by_value: Any = self._stub
        self._described: dict[Model, tuple[float, Model]] = {}

    async def describe(self, model: Model) -> Model:
        until_s, known = self._described.get(model, (0.0, model))
        if self._clock_s() < until_s:
            return known
        wanted = pb.CheckModelsRequest(models=[model_to_pb(model)], cached=True)
        try:
            answer = await self._peer.call(self._stub.CheckModels, wanted, DESCRIBE_TIMEOUT_S)
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
        self, model: Model, messages: Sequence[AssembledMessage], images: Sequence[Image], near: int
    ) -> tuple[int, TokenSource] | None:
        tools, digest = _tools(messages)
        call = GenerateRequest(model, _sent(messages, images), tools_digest=digest)
        try:
            try:
                answer = await self._count(call, near)
            except TurnwrightError as error:
                if error.reason is not Reason.TOOLS_UNKNOWN:
                    raise
                answer = await self._count(replace(call, tools=tools), near)
        except TurnwrightError:
            # If something is wrong, the model call will report it; an older provider does not count.
            return None
        return answer.tokens, known(TokenSource, answer.source, "source")

    async def _count(self, call: GenerateRequest, near: int) -> pb.CountTokensResponse:
        wanted = pb.CountTokensRequest(call=generate_to_pb(call), near=near)
        return await self._peer.call(self._stub.CountTokens, wanted, COUNT_TIMEOUT_S)

    def generate(
        self,
        model: Model,
        messages: Sequence[AssembledMessage],
        request: TurnRequest,
        call_index: int,
        *,
        images: Sequence[Image] = (),
        refused: tuple[str, ...] = (),
        limits_cost: bool,
    ) -> AbstractAsyncContextManager[AsyncIterator[GeneratePart]]:
        tools, digest = _tools(messages)
        sent = _sent(messages, images)
        wanted = GenerateRequest(
            model,
            sent,
            request.temperature,
            output_tokens_max(model, request),
            call_index,
            tools_digest=digest,
            # They are offered all the same: what was called before is in the conversation, and in the vendor's cache.
            tool_choice=_NO_TOOL if tools and request.kind is RequestKind.COMPACTION else None,
            reasoning=request.reasoning,
            refused=refused,
            required=(
                *(["tools"] if tools else ()),
                *(["images"] if any(isinstance(part, Image) for message in sent for part in message.parts) else ()),
                *(["cost"] if limits_cost else ()),
            ),
        )
        return aclosing(self._parts(wanted, tools))

    def ask(
        self,
        model: Model,
        messages: Sequence[Message],
        output_tokens_max: int,
        call_index: int,
        *,
        temperature: float | None,
        limits_cost: bool,
    ) -> AbstractAsyncContextManager[AsyncIterator[GeneratePart]]:
        required = ("cost",) if limits_cost else ()
        wanted = GenerateRequest(model, tuple(messages), temperature, output_tokens_max, call_index, required=required)
        return aclosing(self._parts(wanted, ()))

    async def _parts(self, wanted: GenerateRequest, tools: tuple[Tool, ...]) -> AsyncGenerator[GeneratePart]:
        """The parts of a reply. The tools are sent where the provider does not know them by their digest."""
        try:
            async with self._peer.stream(self._by_value.Generate, wanted, self._deadline_s) as parts:
                async for part in parts:
                    yield part
            return
        except TurnwrightError as error:
            if error.reason is not Reason.TOOLS_UNKNOWN:
                raise
        async with self._peer.stream(self._by_value.Generate, replace(wanted, tools=tools), self._deadline_s) as parts:
            async for part in parts:
                yield part


def output_tokens_max(model: Model, request: TurnRequest) -> int | None:
    """The output limit of a call; None: the vendor's."""
    if request.kind is RequestKind.TITLE:
        return TITLE_TOKENS_MAX
    return summary_tokens_max(model, request) if request.kind is RequestKind.COMPACTION else None


def summary_tokens_max(model: Model, request: TurnRequest) -> int:
    """The output limit of a model that is asked for a summary."""
    share = max(SUMMARY_TOKENS_LEAST, request.context_length // SUMMARY_PART)
    return min(SUMMARY_TOKENS_MAX, share, model.output_tokens_max or SUMMARY_TOKENS_MAX)


def _sent(messages: Sequence[AssembledMessage], images: Sequence[Image]) -> tuple[Message, ...]:
    """The messages for the provider, without tools.

    What edits added to a packet stands in conversations before and after its user message.
    """
    read = {image.path: replace(image, path="") for image in images}
    parts = (part for packet in messages for message in packet.conversation for part in message.parts)
    paths = {part.path for part in parts if isinstance(part, Image) and part.path}
    system: list[Message] = []
    chat: list[Message] = []
    for message in messages:
        chat += message.conversation
        if message.role == USER:
            own = (image for path, image in read.items() if path not in paths)
            chat.append(Message(Role.USER, (Text(message.text), *own)))
        elif message.role == Role.SYSTEM.value:
            system.append(Message(Role.SYSTEM, (Text(message.text, cache=True),)))
    sent: list[Message] = []
    for is_user, group in groupby(chat, lambda one: one.role is Role.USER):
        same_role = list(group)
        sent += [merge_user_messages(same_role)] if is_user else same_role
    if paths:
        sent = [_with_images(message, read) for message in sent]
    if USER not in (message.role for message in messages):
        mark_conversation(sent)
    return (*system, *sent)


def _with_images(message: Message, read: Mapping[str, Image]) -> Message:
    """The message, with the images that could be read, by path."""
    parts = [read.get(part.path) if isinstance(part, Image) and part.path else part for part in message.parts]
    return replace(message, parts=tuple([part for part in parts if part]))


class _PacketTool(Struct):
    """A tool as a packet offers it."""

    name: str
    description: str
    parameters: Raw
    """Passed to the provider unchanged."""


_PACKET_TOOLS: Final = Decoder(list[_PacketTool])


def _tools(messages: Sequence[AssembledMessage]) -> tuple[tuple[Tool, ...], str]:
    """The tools in the `tools` message, with a cache mark at their end, and their digest; empty without one."""
    return next((_read_tools(message.pieces) for message in messages if message.role == "tools"), ((), ""))


# A run's packets have the same pieces in each turn.
@lru_cache(maxsize=32)
def _read_tools(pieces: tuple[str, ...]) -> tuple[tuple[Tool, ...], str]:
    read = _PACKET_TOOLS.decode("".join(pieces))
    tools = [Tool(one.name, one.description, bytes(one.parameters).decode()) for one in read]
    tools[-1:] = [replace(last, cache=True) for last in tools[-1:]]
    return tuple(tools), tools_digest(tools) if tools else ""


class Vendors:
    """Asks the provider for its vendors."""

    def __init__(self, provider: Peer) -> None:
        self._provider = provider
        self._stub = provider_service_pb2_grpc.ProviderServiceStub(provider.channel)
        self._known: frozenset[str] = frozenset()

    async def check(self, vendor_model: str, field: str) -> None:
        """Refuse a model of an unknown vendor; the store validates aliases and the form of names.

        Raises INVALID_FIELD.
        """
        vendor, slash, _ = vendor_model.partition("/")
        if not slash or vendor in self._known:
            return
        answer = await self._provider.call(self._stub.ListVendors, provider_service_pb2.ListVendorsRequest())
        self._known = frozenset(one.name for one in answer.vendors)
        if vendor not in self._known:
            raise invalid(field, unknown_vendor(vendor, self._known))
