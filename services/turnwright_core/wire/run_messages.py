"""Messages of runs on the wire."""

from __future__ import annotations

from turnwright.types.v1 import run_message_pb2
from turnwright_values.types import RunMessage

from turnwright_core.wire.codec import codec

run_message_to_pb, run_message_from_pb = codec(RunMessage, run_message_pb2.RunMessage)
