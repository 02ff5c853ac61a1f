"""Protobuf conversion of what waits in a queue."""

from __future__ import annotations

from turnwright.types.v1 import session_command_pb2
from turnwright_values.types import QueuedCommand

from turnwright_core.wire.codec import codec

queued_command_to_pb, queued_command_from_pb = codec(QueuedCommand, session_command_pb2.QueuedCommand)
