"""A connection from one service to another: for whom it calls, within which deadline and trace.

Source: architecture 12; research/perf 1.1 (reconnect backoff).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from turnwright_values.types import Tier

from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.headers import RECEIVES_ALL
from turnwright_core.rpc.remote_service import CHANNEL_OPTIONS, RemoteService, Request, Response
from turnwright_core.rpc.transport import PLAINTEXT, open_channel
from turnwright_core.rpc_codec import Codecs
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.in_process import LocalChannel, LocalServers
from turnwright_kit.scope import current_scope
from turnwright_kit.telemetry import outgoing

# The channel of a peer. Its methods know their names, and those with codecs take and return values.


class NamedRpc:
    """What a stub has for a method."""

    __slots__ = ("_call", "name")

    def __init__(self, name: str, call: Callable[..., object]) -> None:
        """`name` is as on the wire: `/turnwright.store.v1.StoreService/EndTurn`."""
        self.name, self._call = name, call

    def __call__(self, request: object, **options: object) -> object:
        return self._call(request, **options)


class PeerChannel:
    """Has of a channel what stubs and peers use. Messages of the contract stand for values on the wire."""

    def __init__(self, channel: grpc.aio.Channel, codecs: Codecs) -> None:
        self._channel = channel
        self._codecs = codecs

    def unary_unary(self, method: str, **more: object) -> NamedRpc:
        return NamedRpc(method, self._channel.unary_unary(method, **self._converting(method, more)))

    def unary_stream(self, method: str, **more: object) -> NamedRpc:
        return NamedRpc(method, self._channel.unary_stream(method, **self._converting(method, more)))

    def stream_unary(self, method: str, **more: Any) -> NamedRpc:
        return NamedRpc(method, self._channel.stream_unary(method, **more))

    def _converting(self, method: str, more: dict[str, Any]) -> dict[str, Any]:
        codec = self._codecs.get(method)
        if codec is None:
            return more
        serialize, parse = more["request_serializer"], more["response_deserializer"]
        return {
            **more,
            "request_serializer": lambda request: serialize(codec.request_to_pb(request)),
            "response_deserializer": lambda data: codec.answer_from_pb(parse(data)),
        }

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def close(self) -> None:
        await self._channel.close()


UnaryHandler = Callable[[Any, Any], Awaitable[Any]]
"""Answers a request; the second argument is the context of its call."""

StreamHandler = Callable[[object, object], AsyncGenerator[Any]]
"""The same, with a stream."""

Around = Callable[[MethodDescriptor, Any], UnaryHandler | StreamHandler]
"""What the executor adds to a method: a handler around the one that forwards."""


class Peer(RemoteService[Caller]):
    """A client of another service. `timeout_s` is the deadline of unary calls in seconds, unless a call sets one."""

    def __init__(
        self,
        name: str,
        address: str,
        token: str,
        timeout_s: float,
        tier: Tier | None = None,
        local_servers: LocalServers | None = None,
        tls: Tls = PLAINTEXT,
        codecs: Codecs | None = None,
        service: str = "",
        service_token: str = "",
    ) -> None:
        """Prepare the channel; nothing is sent before the first call. One in this process needs no connection.

        `codecs`: the rpcs that take and return values. `service`: the name of the service that calls, with
        `service_token`, or with tokens that it makes from the deployment's secret, `token`.

        Raises TurnwrightError if it would send the token in plaintext to another host.
        """
        super().__init__(name, address, _channel(address, local_servers or {}, tls, codecs), timeout_s, ())
        self._credentials = Credentials(token, name, tier, service, service_token)
        self._hands_over = bool(service) and address in (local_servers or {})

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None = None,
        caller: Caller | None = None,
    ) -> Response:
        """Also within the deadline of the call being handled."""
        return await super().call(method, request, current_scope().timeout_s(timeout_s or self.timeout_s), caller)

    @contextmanager
    def _sent(self, method: object, caller: Caller | None) -> Iterator[dict[str, Any]]:
        """Who makes the call, for whom, and its trace."""
        with outgoing(_name_of(method), self.address) as trace:
            if self._hands_over:
                yield {"metadata": trace, "caller": self._credentials.caller(caller)}
            else:
                yield {"metadata": (*self._credentials.metadata(caller), RECEIVES_ALL, *trace)}


def path_of(method: MethodDescriptor) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def rpc_of(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    kind = f"{_flow(streams=method.client_streaming)}_{_flow(streams=method.server_streaming)}"
    return getattr(channel, kind)(
        path_of(method),
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )


def _flow(*, streams: bool) -> str:
    return "stream" if streams else "unary"


def _name_of(method: object) -> str:
    assert isinstance(method, NamedRpc), "stubs stand on the channel of a peer"
    return method.name


def _channel(address: str, local_servers: LocalServers, tls: Tls, codecs: Codecs | None) -> grpc.aio.Channel:
    """It has everything that stubs and peers use of a channel."""
    if address in local_servers:
        channel = PeerChannel(cast("grpc.aio.Channel", LocalChannel(local_servers[address])), {})
    else:
        channel = PeerChannel(open_channel(address, CHANNEL_OPTIONS, tls), codecs or {})
    return cast("grpc.aio.Channel", channel)
