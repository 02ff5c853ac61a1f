"""Messages of runs on the wire."""

from __future__ import annotations

from turnwright.types.v1 import run_message_pb2

from turnwright_core.chat.run_message import MessageResult, RunMessage
from turnwright_core.wire.codec import codec
from turnwright_core.wire.messages import message_from_pb, message_to_pb
from turnwright_core.wire.runs import usage_from_pb, usage_to_pb

run_message_to_pb, run_message_from_pb = codec(
    RunMessage,
    run_message_pb2.RunMessage,
    message=(message_to_pb, message_from_pb),
    usage=(usage_to_pb, usage_from_pb),
    result=codec(MessageResult, run_message_pb2.MessageResult),
)
