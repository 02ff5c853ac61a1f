"""Messages as proto3 JSON with the contract's field names, one per line: what `--json` prints."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message

from turnwright_cli.output import write_line


def to_line(message: Message) -> str:
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)


def show_lines(messages: Iterable[Message]) -> int:
    for message in messages:
        write_line(to_line(message))
    return 0
