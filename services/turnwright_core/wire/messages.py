"""Protobuf conversion of conversation messages."""

from __future__ import annotations

from turnwright.types.v1 import delta_pb2, message_pb2, run_message_pb2
from turnwright_values.replies import ServerBlock
from turnwright_values.types import RunMessage

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.wire.codec import codec, each

server_block_to_pb, server_block_from_pb = codec(ServerBlock, delta_pb2.ServerBlock)


def part_to_pb(part: Part) -> message_pb2.Part:
    if isinstance(part, Text):
        return message_pb2.Part(text=part.text, cache=part.cache)
    image = message_pb2.Image(mime=part.mime)
    if part.path:
        image.path = part.path
    elif part.url:
        image.url = part.url
    else:
        image.data = part.data
    return message_pb2.Part(image=image, cache=part.cache)


def part_from_pb(part: message_pb2.Part) -> Part:
    """Decode; a kind of part of a later version becomes an empty text."""
    if part.HasField("image"):
        image = part.image
        return Image(image.mime, image.data, image.url, part.cache, image.path)
    return Text(part.text, part.cache)


_ROLES = {getattr(message_pb2, f"ROLE_{role.name}"): role for role in Role}
_NUMBERS = {role: number for number, role in _ROLES.items()}


def role_to_pb(role: Role) -> message_pb2.Role.ValueType:
    number: message_pb2.Role.ValueType = _NUMBERS[role]
    return number


def role_from_pb(number: int) -> Role | None:
    return _ROLES.get(number)


message_to_pb, message_from_pb = codec(
    Message,
    message_pb2.Message,
    role=(_NUMBERS.__getitem__, _ROLES.__getitem__),
    parts=each(part_to_pb, part_from_pb),
)
run_message_to_pb = codec(RunMessage, run_message_pb2.RunMessage)[0]
