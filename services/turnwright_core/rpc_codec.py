"""Codecs between the values of an rpc and its messages.

Handlers take and return values. Services of one process pass these on as they are; between processes, the channel and
the guard convert them to the messages of the contract. Source: docs/adr/0009, 0037, 0055.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Generic, TypeVar

from msgspec import Struct

Q = TypeVar("Q")
A = TypeVar("A")


class RpcCodec(Struct, Generic[Q, A], frozen=True):
    """The four codecs of an rpc. Decoding an invalid request raises InvalidError."""

    method: str
    """Its full name."""
    request: type[Q]
    answer: type[A] | UnionType
    """Of the answer, or of each message of a stream."""
    request_to_pb: Callable[[Q], object]
    request_from_pb: Callable[[Any], Q]
    answer_to_pb: Callable[[A], Any]
    answer_from_pb: Callable[[Any], A]


Codecs = Mapping[str, RpcCodec[Any, object]]
"""By method."""
