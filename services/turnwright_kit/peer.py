"""A client connection to another service: deadlines on every call, our errors instead of gRPC's.

Source: architecture 12; research/perf 1.1 (reconnect backoff).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any, Final, TypeVar, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from turnwright_values.types import Tier

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc_codec import Codecs
from turnwright_kit.certificates import Tls
from turnwright_kit.errors import call_lost_error, from_rpc
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.in_process import LocalChannel, LocalServers
from turnwright_kit.message_size import RECEIVES_ALL
from turnwright_kit.scope import TextMetadata, current_scope
from turnwright_kit.telemetry import outgoing
from turnwright_kit.transport import PLAINTEXT, open_channel, wait_for_connection

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


CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # By default gRPC waits a second before it reconnects; a restarted service is back long before.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    # Despite its name: the minimum duration of a connection attempt. A busy service accepts late.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.use_local_subchannel_pool", 1),
    # Our services are not behind the proxy that the environment names for the web.
    ("grpc.enable_http_proxy", 0),
)

UnaryHandler = Callable[[Any, Any], Awaitable[Any]]
"""Answers a request; the second argument is the context of its call."""

StreamHandler = Callable[[object, object], AsyncGenerator[Any]]
"""The same, with a stream."""

Around = Callable[[MethodDescriptor, Any], UnaryHandler | StreamHandler]
"""What the executor adds to a method: a handler around the one that forwards."""

Request = TypeVar("Request")
Response = TypeVar("Response")
ListedItem = TypeVar("ListedItem")


class Peer:
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
        self.name = name
        self.address = address
        self.channel = _channel(address, local_servers or {}, tls, codecs)
        self.timeout_s = timeout_s
        self._credentials = Credentials(token, name, tier, service, service_token)
        self._hands_over = bool(service) and address in (local_servers or {})

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None = None,
        caller: Caller | None = None,
    ) -> Response:
        """One answer, within the deadline and that of the call being handled. Raises TurnwrightError.

        `caller`: make the call on behalf of this caller.
        """
        deadline = current_scope().timeout_s(timeout_s or self.timeout_s)
        answer: Response = await self._answer(method, request, deadline, caller)
        return answer

    async def upload(
        self,
        method: grpc.aio.StreamUnaryMultiCallable[Request, Response],
        requests: AsyncIterable[Request],
        timeout_s: float | None,
        caller: Caller | None = None,
    ) -> Response:
        """One answer to a stream of messages; without a deadline the caller limits the wait. Raises TurnwrightError."""
        answer: Response = await self._answer(method, requests, timeout_s, caller)
        return answer

    async def _answer(self, method: Any, request: Any, deadline: float | None, caller: Caller | None) -> Any:
        await wait_for_connection(self.channel)
        try:
            with outgoing(_name_of(method), self.address) as trace:
                answer = await method(request, timeout=deadline, **self._sent(caller, trace))
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self.name, self.address) from None
        if answer is None:
            raise call_lost_error(self.name, self.address, "the call ended without an answer")
        return answer

    async def items(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        of: Callable[[Response], Iterable[ListedItem]],
    ) -> AsyncGenerator[ListedItem]:
        """What the pages of a list have, from the requested page to the last. Raises TurnwrightError."""
        asked: Any = request
        while True:
            page: Any = await self.call(method, request)
            for item in of(page):
                yield item
            if not page.next_page_token:
                return
            asked.page_token = page.next_page_token

    def _sent(self, caller: Caller | None, trace: TextMetadata) -> dict[str, Any]:
        """What goes with a call: who makes it, for whom, and its trace."""
        if self._hands_over:
            return {"metadata": trace, "caller": self._credentials.caller(caller)}
        return {"metadata": (*self._credentials.metadata(caller), RECEIVES_ALL, *trace)}

    def stream(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None,
        caller: Caller | None = None,
    ) -> aclosing[AsyncGenerator[Response]]:
        """A stream of answers, whose call ends with the block; without a deadline the caller limits the wait.

        `caller`: make the call on behalf of this caller. Iterating it raises TurnwrightError.
        """
        return aclosing(self._answers(method, request, timeout_s, caller))

    async def _answers(
        self,
        method: grpc.aio.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None,
        caller: Caller | None,
    ) -> AsyncGenerator[Response]:
        await wait_for_connection(self.channel)
        try:
            with outgoing(_name_of(method), self.address) as trace:
                call: Any = method(request, timeout=timeout_s, **self._sent(caller, trace))
                try:
                    async for answer in call:
                        yield answer
                finally:
                    call.cancel()
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, self.name, self.address) from None

    def cut_short(self, without: str) -> TurnwrightError:
        """The error for a streamed answer that ended with OK, but before its last message: a proxy has ended it."""
        return call_lost_error(self.name, self.address, f"the answer ended without {without}")

    async def close(self) -> None:
        await self.channel.close()


def path_of(method: MethodDescriptor) -> str:
    """Its name on the wire."""
    return f"/{method.containing_service.full_name}/{method.name}"


def rpc_of(channel: grpc.aio.Channel, method: MethodDescriptor) -> Any:
    """What a stub has for a method."""
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
