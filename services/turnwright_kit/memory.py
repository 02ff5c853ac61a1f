"""The memory of a service: hidden from other processes of the same user, and how often it is searched for cycles.

A service has the deployment's secret and the vendors' keys in its memory and often in its environment. Linux shows both
in /proc to every process of the same user, which includes the models' commands unless they are sandboxed. A process
that is not dumpable shows neither, cannot be traced, and leaves no core dump; its children decide for themselves.
Source: architecture 10, 11.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
"""See prctl(2)."""

_GC_OBJECTS: Final = 20_000
"""New objects after which garbage is collected. A thousand watchers have many times Python's 700 while one event is
sent to them, and each of these collections traverses what lives on. Few of our objects are cycles."""


def hide_memory() -> None:
    """Make this process non-dumpable; the superuser can still read it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def freeze_loaded() -> None:
    """Tell the garbage collector that what was loaded stays, and let it work less often."""
    gc.freeze()
    gc.set_threshold(_GC_OBJECTS)
