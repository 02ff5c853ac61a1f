"""The channel of a peer. Its methods know their names, and those with codecs take and return values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from turnwright_core.rpc_codec import Codecs


class NamedRpc:
    """What a stub has for a method."""

    __slots__ = ("_call", "name")

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        """`name` is as on the wire: `/turnwright.store.v1.StoreService/EndTurn`."""
        self.name, self._call = name, call

    def __call__(self, request: Any, **options: Any) -> Any:
        return self._call(request, **options)


class PeerChannel:
    """Has of a channel what stubs and peers use. Messages of the contract stand for values on the wire."""

    def __init__(self, channel: grpc.aio.Channel, codecs: Codecs) -> None:
        self._channel = channel
        self._codecs = codecs

    def unary_unary(self, method: str, **more: Any) -> NamedRpc:
        return NamedRpc(method, self._channel.unary_unary(method, **self._converting(method, more)))

    def unary_stream(self, method: str, **more: Any) -> NamedRpc:
        return NamedRpc(method, self._channel.unary_stream(method, **self._converting(method, more)))

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
