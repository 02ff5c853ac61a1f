"""`--json`: the messages of WatchRun as proto3 JSON with the contract's field names, one per line, nothing else.

The last line is always a `run_state` whose `loop.status` says how the loop ended, or 202 if a proposal waits. Source:
architecture 15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import Message
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import loop_pb2, run_pb2

from turnwright_cli.output import write_line
from turnwright_cli.render import Screen
from turnwright_core.wire.run_view import Event


def to_line(message: Message) -> str:
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)


def show_lines(messages: Iterable[Message]) -> int:
    for message in messages:
        write_line(to_line(message))
    return 0


class JsonScreen(Screen):
    """Prints every event. Notes for people go nowhere, or to standard error by the caller."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._last: Event | None = None

    def show(self, event: Event) -> None:
        self._last = event
        self._write_line(to_line(event))

    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None:
        """Repeat the state as a run_state, unless the last line was that."""
        last = self._last
        printed = last is not None and last.WhichOneof("event") == "run_state" and last.run_state.loop
        if printed and (printed.sequence, printed.status) == (loop.sequence, loop.status):
            return
        cursor, time = (last.cursor, last.time) if last is not None else (None, None)
        self.show(Event(cursor=cursor, time=time, run_state=event_pb2.RunState(run=run, loop=loop)))
