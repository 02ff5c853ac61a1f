"""When a stream that is silent gives a heartbeat, and who looks again and again looks: many of a process together.

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


def beat_in_s(now_s: float, every_s: float) -> float:
    """Seconds to the next of the moments that all share who look every so many seconds, by one clock of the process."""
    return every_s - now_s % every_s if every_s else 0.0
