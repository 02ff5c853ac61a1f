"""A mark by which the processes of a command are known when nobody holds them any more.

A supervisor that is killed takes along what it knows: its descendants become those of whoever adopts orphans, and one
that has left the session is then nobody's. What still tells them is a limit that nothing of ours needs: the hard limit
of RLIMIT_RTTIME, in microseconds, which only binds processes of a real-time class, set to a number of its own for each
command, of a hundred thousand years. It goes along with fork and exec, into other sessions and groups and with an empty
environment, and without privileges it can only be lowered.

What else there is was weighed. A variable of the environment is seen by the command, and `env -i` takes it away. As a
subreaper the executor itself would get the orphans of all that its process starts, could not tell them from children
of its own, and had to bury them. A cgroup has to be delegated, which it is not in containers and for most users. A
parent-death signal reaches one child and not those below it, and a pidfd names one process that is known already.

What is left: a process that lowers this limit on purpose, or has CAP_SYS_RESOURCE and raises it, leaves its session and
kills its supervisor; and all that kill the executor as well. Those who mean to are held by a sandbox.
Source: architecture 11 (children die with their executor).
"""

from __future__ import annotations

import os
import resource
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

KILL_ROUNDS: Final = 50
"""Rounds of killing marked processes while new ones keep appearing."""

ROUND_S: Final = 0.002
"""Seconds between two rounds, so that killed processes are gone before the next one."""

_HIGHEST: Final = 2**62
_BITS: Final = 40
_LINE: Final = b"Max realtime timeout"


def new_mark() -> int:
    """A number that no other command has; 0 if the system leaves too little room below the limit."""
    hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
    highest = _HIGHEST if hard == resource.RLIM_INFINITY else hard
    return max(0, highest - 1 - secrets.randbits(_BITS))


def marked(mark: int) -> Iterator[int]:
    """The processes with a mark, in no order."""
    names = os.listdir("/proc")  # noqa: PTH208 - thousands of names, and paths cost ten times more
    yield from (int(name) for name in names if name.isdecimal() and _mark_of(name) == mark)


def _mark_of(process: str) -> int:
    """The mark of a process; 0 if it has none, is gone, or is inaccessible."""
    try:
        with open(f"/proc/{process}/limits", "rb") as file:  # noqa: PTH123 - as above
            found = next((line for line in file if line.startswith(_LINE)), b"")
        return int(found.split()[-2])
    except (OSError, IndexError, ValueError):
        return 0


def kill_marked(mark: int) -> None:
    """Kill all processes with a mark. Blocks for some milliseconds, longer if they multiply."""
    for _ in range(KILL_ROUNDS if mark else 0):
        found = list(marked(mark))
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(ROUND_S)
