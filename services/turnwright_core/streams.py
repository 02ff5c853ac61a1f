"""Paths of stream channels: `log://turn_N/{tool}/{slug}` -> `{tool}://turn_N/{slug}_{number}`.

The record of a client's command has `call_{id}` instead of `turn_N`, and so have its channels. Numbers are as for Unix
file descriptors: 1 is standard output, 2 is standard error, others are auxiliary. Source: rows RU081, RU172, RU173,
RU178.
"""

from __future__ import annotations

import re
from typing import Final

CHANNELS: Final = (1, 2)
"""The channels of a command, and of a stream that names none."""

CHANNEL_MAX: Final = 99
"""Highest number of a channel."""

CHANNELS_MAX: Final = 16
"""Most channels of one stream."""

REASON_CHARS_MAX: Final = 1024
"""Longest reason of a stream's end, in code points."""

PRODUCER: Final = "producer"
"""Attribute of record and channels that names the producer; without it the producer is the run's owner."""

PRODUCER_LOST: Final = "producer_lost:499"
"""Outcome of channels whose producer is gone."""

CANCELLED: Final = "cancelled:499"
"""Outcome of channels ended by somebody other than their producer."""

STOPPED: Final = "stopped:499"
"""Outcome of a command that was stopped after it had begun: it may have had effects."""

_LOG: Final = "log://"
_RECORD: Final = re.compile(r"log://(turn_\d+|call_[0-9a-f]{16})/([a-z][a-z0-9_]*)/(.+)", re.DOTALL)
_CHANNEL: Final = re.compile(r"([a-z][a-z0-9_]*)://(turn_\d+|call_[0-9a-f]{16})/(.+)_([1-9]\d?)", re.DOTALL)


def is_record(path: str) -> bool:
    """Whether a path is that of a record, so that it can have channels."""
    return _RECORD.fullmatch(path) is not None


def channel_base(path: str) -> str:
    """Path of a record's channels without the number. Raises ValueError for other paths."""
    turn, tool, slug = path.removeprefix(_LOG).split("/", 2)
    return f"{tool}://{turn}/{slug}"


def channel_path(path: str, number: int) -> str:
    """Path of one channel of a record. Raises ValueError if the path is not a record's."""
    return f"{channel_base(path)}_{number}"


def record_of_channel(path: str) -> tuple[str, int] | None:
    """The record and the number of a channel; None for other paths."""
    found = _CHANNEL.fullmatch(path)
    if found is None:
        return None
    tool, turn, slug, number = found.groups()
    return f"{_LOG}{turn}/{tool}/{slug}", int(number)
