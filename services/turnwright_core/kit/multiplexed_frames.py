"""The frames of a multiplexed stream: the calls of one process to a service of another, over one bidirectional stream.

A message of the stream holds all frames that waited for it. Both sides know the same values, else there is no stream;
a request or an answer is a protobuf message, or for calls made in every turn its value.
Source: docs/adr/0043.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Struct, msgpack
from msgspec.inspect import multi_type_info
from turnwright.store.v1.queue_pb2 import EnqueueLoopRequest, EnqueueLoopResponse
from turnwright.types.v1.scheme_pb2 import SchemeRegistry

from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.rpc_codec import Codecs, RpcCodec

METHOD: Final = "/turnwright.multiplexing.MultiplexedStream/Open"
"""Not part of the contract: whoever has no stream makes the same calls as rpcs."""

WINDOW: Final = 16
"""Flow control: messages of a stream that its caller has not taken yet."""

PART_BYTES: Final = CHUNK_BYTES
"""Longest part of an answer in one frame, and longest request, in bytes: nobody waits long behind another one."""

CALLS_MAX: Final = 10_000
"""Calls in progress in one stream; more are refused."""

Pairs = Sequence[tuple[str, Any]]
"""Metadata; values are texts, or bytes."""


class Hello(Struct, frozen=True, array_like=True, tag=0):
    """The first frame of both sides: the values that they know. A service with other ones refuses the stream."""

    schema: str


class Call(Struct, frozen=True, array_like=True, tag=1):
    """A call begins. For a method with codecs, the data is a value, and so are its answers."""

    id: int
    method: str
    data: bytes
    metadata: Pairs
    timeout_s: float | None


class Cancel(Struct, frozen=True, array_like=True, tag=2):
    """The caller does not wait any more."""

    id: int


class WindowUpdate(Struct, frozen=True, array_like=True, tag=3):
    """The caller has taken so many messages of a stream."""

    id: int
    count: int


class InitialMetadata(Struct, frozen=True, array_like=True, tag=4):
    """The initial metadata of a call."""

    id: int
    metadata: Pairs


class AnswerPart(Struct, frozen=True, array_like=True, tag=5):
    """The answer of a call, or a message of its stream; `more`: its next part follows."""

    id: int
    data: bytes
    more: bool = False


class CallEnd(Struct, frozen=True, array_like=True, tag=6):
    """A stream has ended, or a call has failed. `code` is the number of gRPC's status code.

    `is_refused`: the call was not begun, because the service stops.
    """

    id: int
    code: int = 0
    details: str = ""
    metadata: Pairs = ()
    is_refused: bool = False


class GoAway(Struct, frozen=True, array_like=True, tag=7):
    """The service stops: no more calls are taken, those in progress go on."""


Frame = Hello | Call | Cancel | WindowUpdate | InitialMetadata | AnswerPart | CallEnd | GoAway

_encode: Final[Callable[[Sequence[Frame]], bytes]] = msgpack.Encoder().encode
decode: Final[Callable[[bytes], list[Frame]]] = msgpack.Decoder(list[Frame]).decode
"""Raises msgspec.DecodeError."""


BATCH_BYTES: Final = 4 * PART_BYTES
"""Frames that make a message, in bytes of their data."""


def batches(frames: Sequence[Frame]) -> Iterator[bytes]:
    """Frames as messages, none of which is long."""
    held: list[Frame] = []
    size = 0
    for frame in frames:
        held.append(frame)
        size += len(frame.data) if isinstance(frame, Call | AnswerPart) else 0
        if size >= BATCH_BYTES:
            yield _encode(held)
            held, size = [], 0
    if held:
        yield _encode(held)


def answers(call: int, data: bytes) -> Iterator[AnswerPart]:
    for index in range(0, len(data) or 1, PART_BYTES):
        yield AnswerPart(call, data[index : index + PART_BYTES], index + PART_BYTES < len(data))


class ValueCodecs:
    """Requests and answers as bytes, for those rpcs that have values."""

    def __init__(self, codecs: Codecs) -> None:
        types: list[Any] = [Frame, *(one for codec in codecs.values() for one in (codec.request, codec.answer))]
        self.schema = hashlib.sha256(repr(multi_type_info(types)).encode()).hexdigest()
        """What both sides must agree on."""
        self.requests = {
            method: msgpack.Decoder(codec.request, ext_hook=_message).decode for method, codec in codecs.items()
        }
        self.answers = {
            method: msgpack.Decoder(codec.answer, ext_hook=_message).decode for method, codec in codecs.items()
        }


def values_of(codecs: Codecs) -> ValueCodecs:
    """Those of a table of rpcs, made once in a process: that takes 10 ms, and every connection needs them."""
    return _values_of(tuple(codecs.items()))


@lru_cache(maxsize=4)
def _values_of(codecs: tuple[tuple[str, RpcCodec[Any, Any]], ...]) -> ValueCodecs:
    return ValueCodecs(dict(codecs))


_MESSAGES: Final = (SchemeRegistry, EnqueueLoopRequest, EnqueueLoopResponse)
"""Messages in values, by the code of their extension."""


def _extension(value: Any) -> Any:
    if type(value) in _MESSAGES:
        return msgpack.Ext(_MESSAGES.index(type(value)), value.SerializeToString())
    raise NotImplementedError(f"a {type(value)} cannot be sent as a value")


def _message(code: int, data: memoryview) -> Any:
    """Decode. Raises msgspec.DecodeError."""
    try:
        return _MESSAGES[code].FromString(bytes(data))
    except (IndexError, DecodeError) as error:
        raise msgspec.DecodeError(str(error)) from None


encode_value: Final[Callable[[Any], bytes]] = msgpack.Encoder(enc_hook=_extension).encode
"""A request or an answer."""
