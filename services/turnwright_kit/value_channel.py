"""A channel whose methods with codecs take and return values: it converts them to the messages of the contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from turnwright_core.rpc_codec import Codecs


class ValueChannel:
    """Has of a channel what stubs and peers use."""

    def __init__(self, channel: grpc.aio.Channel, codecs: Codecs) -> None:
        self._channel = channel
        self._codecs = codecs

    def unary_unary(self, method: str, **more: Any) -> Callable[..., Any]:
        return self._channel.unary_unary(method, **self._converting(method, more))

    def unary_stream(self, method: str, **more: Any) -> Callable[..., Any]:
        return self._channel.unary_stream(method, **self._converting(method, more))

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
