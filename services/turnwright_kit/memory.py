"""What a service has of its host: memory that others cannot read, and is seldom searched for cycles; and open files.

A service has the deployment's secret and the vendors' keys in its memory and often in its environment. Linux shows both
in /proc to every process of the same user, which includes the models' commands unless they are sandboxed. A process
that is not dumpable shows neither, cannot be traced, and leaves no core dump; its children decide for themselves.
Source: architecture 10, 11.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from contextlib import suppress
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


FILES: Final = 65_536
"""Open files that suffice. Most systems start a process with 1,024, and a port for HTTP lets in a thousand connections
of anybody: with those, databases and commands would find nothing left to open."""


def allow_open_files() -> None:
    """Let this process have as many open files as suffice, or as it may; what it had if that is more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Where the system has a limit of its own it stays as it was.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
