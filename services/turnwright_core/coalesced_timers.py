"""Coalesced timers: heartbeats of silent streams, and polls, of one process happen together.

Each wake-up of a sleeping process costs far more than one more message.
"""

from __future__ import annotations

from typing import Final

MOMENTS: Final = 8
"""Possible moments for heartbeats within the longest silence; the more there are, the fewer streams share one."""


def heartbeat_due_s(now_s: float, silence_s_max: float) -> float:
    """The last shared moment within this many seconds from now; both by one clock of the process."""
    step_s = silence_s_max / MOMENTS
    return (now_s + silence_s_max) // step_s * step_s


def next_poll_in_s(now_s: float, every_s: float) -> float:
    """Seconds to the next moment shared by all that poll at this interval, by one clock of the process."""
    return every_s - now_s % every_s if every_s else 0.0
