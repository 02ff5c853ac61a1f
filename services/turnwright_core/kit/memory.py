"""What others on this host may see of a service's process: nothing but that it runs.

A service holds the deployment's secret and the vendors' keys, in its memory and often in its environment. Linux shows
both in /proc to every process of the same user, and commands of models are that where no sandbox stands between. A
process that is not dumpable shows neither, cannot be traced, and leaves no core; what it starts decides for itself.
Source: architecture 10, 11.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
"""Of prctl(2)."""


def hide_memory() -> None:
    """Close this process's memory and environment to others of its user; the superuser still sees them. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
