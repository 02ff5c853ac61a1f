"""How messages are written in HTTP: binary, JSON, and as server-sent events.

What cannot be read comes as its error, as with gRPC: the guard raises it where errors are translated and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import islice
from typing import Any, Final

from connectrpc.codec import Codec
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_kit.guard import Serializer, reader

JSON_BYTES_MAX: Final = STOCK_MESSAGE_BYTES_MAX
"""Longest request in JSON, in bytes. Binary requests may be as long as with gRPC."""

JSON_VALUES_MAX: Final = 20_000
"""Most values in a request in JSON: each takes microseconds, during which nobody else is served."""

_PARTS: Final = re.compile(
    rb"""[^,\[{"]*+ (?: "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z) [^,\[{"]*+ ){0,2}+ [,\[{]?""", re.DOTALL | re.VERBOSE
)
"""A text in JSON up to the next value, with a key and a text before it; some of what is no JSON. It tries nothing
twice, so that it takes milliseconds, whatever the text."""

EVENTS: Final = "sse"
"""The name of the codec whose messages are server-sent events."""


class BinaryCodec(Codec[Any, Any]):
    """The form that gRPC has."""

    def __init__(self) -> None:
        self._serializer = Serializer(lambda message: message.SerializeToString())

    def name(self) -> str:
        return "proto"

    def encode(self, message: Any) -> bytes:
        return self._serializer(message)

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        return reader(message_class.FromString)(bytes(data))


class JsonCodec(Codec[Any, Any]):
    """The JSON form of protobuf. Fields that the contract does not have are refused: most are misspelt."""

    def __init__(self, name: str = "json", written: Callable[[Message], bytes] | None = None) -> None:
        self._name = name
        self._serializer = Serializer(written or _json)

    def name(self) -> str:
        return self._name

    def encode(self, message: Any) -> bytes:
        return self._serializer(message)

    def decode(self, data: bytes | bytearray, message_class: type[Any]) -> Any:
        if len(data) > JSON_BYTES_MAX:
            return fault(
                Reason.MESSAGE_TOO_LARGE,
                f"A request in JSON may have {JSON_BYTES_MAX} bytes, and this has {len(data)}: send it in binary form.",
                limit=JSON_BYTES_MAX,
                actual=len(data),
                unit="bytes",
            )
        return reader(lambda text: _parsed(text, message_class()))(data)


def codecs() -> tuple[Codec[Any, Any], ...]:
    return BinaryCodec(), JsonCodec(), JsonCodec(EVENTS, _event)


def _json(message: Message) -> bytes:
    return _text(MessageToDict(message))


def _text(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _event(message: Message) -> bytes:
    """A message as a server-sent event, whose id is its cursor, for a request that goes on after it."""
    shown = MessageToDict(message)
    inner = (value for value in shown.values() if isinstance(value, dict) and "cursor" in value)
    cursor = shown.get("cursor") or next((value["cursor"] for value in inner), None)
    # In JSON no text has a line break of its own.
    head = b"" if cursor is None else b"id: " + (cursor.encode() if isinstance(cursor, str) else _text(cursor)) + b"\n"
    return head + b"data: " + _text(shown) + b"\n\n"


def loaded(data: bytes | bytearray) -> Any:
    """The value of a JSON text. Raises DecodeError, for one with too many values before any of them is made."""
    if any(islice(_PARTS.finditer(data), JSON_VALUES_MAX, None)):
        raise DecodeError(f"it has more than {JSON_VALUES_MAX} values: send it in binary form")
    try:
        # Of bytes the library takes other encodings, too, in which the parts above are others.
        return json.loads(data.decode(), object_pairs_hook=_once)
    except ValueError as error:
        raise DecodeError(" ".join(str(error).split())) from None
    except RecursionError:
        raise DecodeError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise DecodeError("an object has a key twice")
    return found


def _parsed(data: bytes | bytearray, message: Message) -> Message:
    """The message of a JSON text. Raises DecodeError."""
    try:
        ParseDict(_object(loaded(data)), message)
    except DecodeError:
        raise
    except (ParseError, ValueError, TypeError, AttributeError, OverflowError) as error:
        # The library lets some of these pass for values of a wrong kind.
        raise DecodeError(" ".join(str(error).split())) from None
    except RecursionError:
        raise DecodeError("it is nested too deeply") from None
    return message


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError("it is not a JSON object")
    return value
