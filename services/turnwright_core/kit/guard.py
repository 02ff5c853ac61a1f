"""Stands around every handler of every service: who calls is checked before, and whatever it raises is translated.

The handlers are wrapped once, when they are registered: an interceptor would build a wrapper for each call, which
costs a fifth of a small one.
Source: architecture 10, 14.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from turnwright_core.kit.auth import Gate
from turnwright_core.kit.errors import abort, translate
from turnwright_core.kit.neighbours import LocalServer

if TYPE_CHECKING:  # generic in the stubs only
    Handler = grpc.RpcMethodHandler[Any, Any]
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Handler = grpc.RpcMethodHandler
    Context = grpc.aio.ServicerContext


class OpenStreams:
    """How many calls that are answered by a stream are under way."""

    count = 0


class GuardedServer:
    """What servicers are registered with: passes their handlers on to the server, each behind the gate."""

    def __init__(self, server: grpc.aio.Server, local: LocalServer, gate: Gate, streams: OpenStreams) -> None:
        """Guard handlers of this server; callers of this process reach them by `local`. `streams` are counted."""
        self._server = server
        self._local = local
        self._gate = gate
        self._streams = streams

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Register handlers, as grpc.aio.Server does."""
        guarded = tuple(_Guarded(handler, self._gate, self._streams) for handler in handlers)
        self._server.add_generic_rpc_handlers(guarded)
        self._local.add(*guarded)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Nothing: the server of grpc.aio looks at generic handlers only."""


class _Guarded(grpc.GenericRpcHandler):
    """The handlers of one service, each wrapped at its first call."""

    def __init__(self, inner: grpc.GenericRpcHandler, gate: Gate, streams: OpenStreams) -> None:
        self._inner = inner
        self._gate = gate
        self._streams = streams
        self._wrapped: dict[str, Handler] = {}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The guarded handler of a method; None for one that is not ours."""
        method = handler_call_details.method
        found = self._wrapped.get(method)
        if found is None:
            inner = self._inner.service(handler_call_details)
            if inner is None:
                return None
            found = self._wrapped[method] = _guarded(inner, self._gate, self._streams, method)
        return found


def _guarded(handler: Handler, gate: Gate, streams: OpenStreams, method: str) -> Handler:
    codecs = {
        "request_deserializer": handler.request_deserializer,
        "response_serializer": handler.response_serializer,
    }
    if handler.unary_unary:
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, gate, method), **codecs)
    if handler.unary_stream:
        return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream, gate, streams, method), **codecs)
    if handler.stream_stream:
        return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream, gate, streams, method), **codecs)
    raise NotImplementedError(f"{method} takes a stream and gives one answer; no handler of ours does")


def _unary(inner: Any, gate: Gate, method: str) -> Any:
    async def call(request: Any, context: Context) -> Any:
        try:
            gate.admit(method, context.invocation_metadata() or ())
            return await inner(request, context)
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001 - the one place that translates whatever a handler raises
            await abort(context, translate(error, method))

    return call


def _stream(inner: Any, gate: Gate, streams: OpenStreams, method: str) -> Any:
    async def call(request: Any, context: Context) -> AsyncIterator[Any]:
        stream: Any = None
        streams.count += 1
        try:
            gate.admit(method, context.invocation_metadata() or ())
            stream = inner(request, context)
            async for message in stream:
                yield message
        except (asyncio.CancelledError, grpc.aio.AbortError):
            raise
        except Exception as error:  # noqa: BLE001 - the one place that translates whatever a handler raises
            await abort(context, translate(error, method))
        finally:
            streams.count -= 1
            if hasattr(stream, "aclose"):
                await stream.aclose()

    return call
