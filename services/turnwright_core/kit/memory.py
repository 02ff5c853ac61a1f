"""Hides a service's memory and environment from other processes of the same user.

A service has the deployment's secret and the vendors' keys in its memory and often in its environment. Linux shows both
in /proc to every process of the same user, which includes the models' commands unless they are sandboxed. A process
that is not dumpable shows neither, cannot be traced, and leaves no core dump; its children decide for themselves.
Source: architecture 10, 11.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
"""See prctl(2)."""


def hide_memory() -> None:
    """Make this process non-dumpable; the superuser can still read it. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
