"""Times: integer milliseconds since 1970 in values, Timestamp in messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp


def time_to_pb(unix_ms: int) -> Timestamp | None:
    """A Timestamp, or None (absent) for 0."""
    if not unix_ms:
        return None
    return Timestamp(seconds=unix_ms // 1000, nanos=unix_ms % 1000 * 1_000_000)


def time_from_pb(time: Timestamp) -> int:
    """Milliseconds since 1970; 0 for an absent time."""
    return time.seconds * 1000 + time.nanos // 1_000_000
