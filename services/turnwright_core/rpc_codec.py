"""Codecs between the values of an rpc and its messages.

Services of one process pass the values on as they are, because neither side changes what it has sent or received. The
caller decides which way a call goes (`Peer.call_by_value`); the handler sees it by the type of the request.
Source: docs/adr/0009, 0037.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar

from msgspec import Struct

Q = TypeVar("Q")
A = TypeVar("A")


class RpcCodec(Struct, Generic[Q, A], frozen=True):
    """The four codecs of an rpc. Decoding an invalid request raises InvalidError."""

    method: str
    """Its full name."""
    request: type[Q]
    answer: type[A] | None
    """Of the answer, or of each message of a stream; None: these are messages for everybody."""
    request_to_pb: Callable[[Q], Any]
    request_from_pb: Callable[[Any], Q]
    answer_to_pb: Callable[[A], Any]
    answer_from_pb: Callable[[Any], A]

    async def handled(self, request: Any, handle: Callable[[Q], Awaitable[A]]) -> Any:
        """The answer to a request, in the form in which the request came."""
        if isinstance(request, self.request):
            return await handle(request)
        return self.answer_to_pb(await handle(self.request_from_pb(request)))


Codecs = Mapping[str, RpcCodec[Any, Any]]
"""By method."""
