"""Times and durations: numbers in values, Timestamp and Duration in messages."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def time_to_pb(unix_ms: int) -> Timestamp | None:
    """A Timestamp, or None (absent) for 0."""
    if not unix_ms:
        return None
    return Timestamp(seconds=unix_ms // 1000, nanos=unix_ms % 1000 * 1_000_000)


def time_from_pb(time: Timestamp) -> int:
    """Milliseconds since 1970; 0 for an absent time."""
    return time.seconds * 1000 + time.nanos // 1_000_000


def span_to_pb(span_ms: int) -> Duration | None:
    """A Duration, or None (absent) for 0."""
    return seconds_to_pb(span_ms / 1000)


def span_from_pb(span: Duration) -> int:
    """Milliseconds; 0 for an absent duration."""
    return span.seconds * 1000 + span.nanos // 1_000_000


def seconds_to_pb(span_s: float) -> Duration | None:
    """A Duration, or None (absent) for 0."""
    if not span_s:
        return None
    seconds = int(span_s)
    return Duration(seconds=seconds, nanos=round((span_s - seconds) * 1e9))


def seconds_from_pb(span: Duration) -> float:
    """Seconds; 0 for an absent duration."""
    return span.seconds + span.nanos / 1e9
