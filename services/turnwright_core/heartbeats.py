"""When a stream that is silent gives a heartbeat: many streams of a process at the same moments.

A process that sleeps pays for each time it wakes, far more than for one message more.
"""

from __future__ import annotations

from typing import Final

MOMENTS: Final = 8
"""Moments for heartbeats in the longest silence; the more, the fewer streams tell at one of them."""


def heartbeat_due_s(now_s: float, silence_s_max: float) -> float:
    """The last moment for it within so many seconds from now; both by one clock of the process."""
    step_s = silence_s_max / MOMENTS
    return (now_s + silence_s_max) // step_s * step_s
