"""Run events in messages."""

from __future__ import annotations

from collections.abc import Iterable

from turnwright.executor.v1.executor_service_pb2 import WatchRunResponse


def events_of(message: WatchRunResponse) -> Iterable[WatchRunResponse]:
    """The events of a message: those of a batch in order, or the message itself."""
    return message.batch.events if message.HasField("batch") else (message,)
