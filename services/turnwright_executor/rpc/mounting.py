"""Mounts: services of the store that the executor serves for clients.

A call is forwarded as it is, at its caller's tier, and a change in its caller's name, so the store decides once more
what is allowed. A watch that begins with a snapshot holds one of the store. If that one ends, the watcher only gets
heartbeats until the store answers again. Then it goes on after the last cursor; where there are none, with another
snapshot, which replaces what the watcher has: nothing is missed, and nothing is reported twice as new.
Source: architecture 7, 10; rows RU241, RU242, RU246; docs/adr/0054.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from turnwright.types.v1 import heartbeat_pb2

from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.resources import FOR_CLIENTS
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.rpc.forwarding import OpenWatches
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.peer import Around, Peer, rpc_of

MOUNTED: Final = tuple(resource.service for resource in FOR_CLIENTS)
"""The services of the store that the executor serves."""


def mounts(store: Peer, around: Mapping[str, Around], watches: OpenWatches) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers of all mounted services. `around`: what is added, by method; `watches`: where streams are kept."""
    handlers = []
    for service in MOUNTED:
        rpcs = {method.name: _handler(method, store, around.get(method.name), watches) for method in service.methods}
        handlers.append(grpc.method_handlers_generic_handler(service.full_name, rpcs))
    return tuple(handlers)


def _handler(
    method: MethodDescriptor, store: Peer, around: Around | None, watches: OpenWatches
) -> grpc.RpcMethodHandler[Any, Any]:
    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    codecs: dict[str, Any] = {
        "request_deserializer": request.FromString,
        "response_serializer": answer.SerializeToString,
    }
    if method.client_streaming:
        return grpc.stream_unary_rpc_method_handler(_uploading(method, store), **codecs)
    lasts = "heartbeat" in method.output_type.fields_by_name
    handler: Any = _forwarding(method, store, lasts=lasts)
    handler = around(method, handler) if around else handler
    if not method.server_streaming:
        return grpc.unary_unary_rpc_method_handler(handler, **codecs)

    async def keep(request: Any, context: Any) -> AsyncGenerator[Any]:
        silence_s = watches.heartbeat_s if lasts else None
        async with (
            aclosing(handler(request, context)) as answers,
            aclosing(watches.follow(answers, silence_s)) as following,
        ):
            async for message in following:
                yield _heartbeat(answer) if message is None else message

    return grpc.unary_stream_rpc_method_handler(keep, **codecs)


def _uploading(method: MethodDescriptor, store: Peer) -> Any:
    """The handler that forwards the messages of a caller as they come."""
    rpc = rpc_of(store.channel, method)

    async def forward(requests: Any, context: Any) -> Any:
        return await store.upload(rpc, requests, context.time_remaining(), current_caller())

    return forward


def _forwarding(method: MethodDescriptor, store: Peer, *, lasts: bool) -> Any:
    """The handler that forwards; one that lasts calls the store again when it is back."""
    rpc = rpc_of(store.channel, method)
    has_cursor = "cursor" in method.output_type.fields_by_name

    async def forward(request: Any, _context: Any) -> Any:
        return await store.call(rpc, request, caller=current_caller())

    async def forward_stream(request: Any, context: Any) -> AsyncGenerator[Any]:
        async with store.stream(rpc, request, context.time_remaining(), current_caller()) as answers:
            async for answer in answers:
                yield answer

    async def forward_lasting(request: Any, context: Any) -> AsyncGenerator[Any]:
        pauses = FEED_BACKOFF.pauses()
        asked = type(request)()
        asked.CopyFrom(request)
        while True:
            try:
                async with aclosing(forward_stream(asked, context)) as answers:
                    async for answer in answers:
                        pauses = FEED_BACKOFF.pauses()
                        if has_cursor and answer.cursor:
                            asked.after = answer.cursor
                        yield answer
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
            await asyncio.sleep(next(pauses))

    return forward_lasting if lasts else forward_stream if method.server_streaming else forward


def _heartbeat(answer: Callable[..., Any]) -> Any:
    message = answer(heartbeat=heartbeat_pb2.Heartbeat())
    message.time.GetCurrentTime()
    return message
