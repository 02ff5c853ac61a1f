"""Marks the processes of a command, so that they can be found after their supervisor was killed.

If a supervisor is killed, its descendants are adopted by another process, and one that left the session can no longer
be recognized. So each command gets a resource limit that nothing else uses: the hard limit of RLIMIT_RTTIME, in
microseconds, which only affects real-time processes, set to a unique value of about a hundred thousand years. It is
inherited across fork and exec, in other sessions and groups and with an empty environment, and without privileges it
can only be lowered.

Alternatives that were rejected. An environment variable is visible to the command, and `env -i` removes it. As a
subreaper, the executor itself would adopt orphans of everything it starts, could not distinguish them from its own
children, and would have to reap them. A cgroup must be delegated, which it is not in containers and for most users. A
parent-death signal reaches a child but not its descendants, and a pidfd refers to a single known process.

What remains: a process that deliberately lowers this limit, or raises it with CAP_SYS_RESOURCE, leaves its session and
kills its supervisor. Against such intent there is the sandbox.
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


def marked_processes(mark: int) -> Iterator[int]:
    """The processes with a mark, in no order."""
    names = os.listdir("/proc")
    yield from (int(name) for name in names if name.isdecimal() and _mark_of(name) == mark)


def _mark_of(process: str) -> int:
    """The mark of a process; 0 if it has none, is gone, or is inaccessible."""
    try:
        with open(f"/proc/{process}/limits", "rb") as file:
            found = next((line for line in file if line.startswith(_LINE)), b"")
        return int(found.split()[-2])
    except (OSError, IndexError, ValueError):
        return 0


def kill_marked(mark: int) -> None:
    """Kill all processes with a mark. Blocks for some milliseconds, longer if they multiply."""
    for _ in range(KILL_ROUNDS if mark else 0):
        found = list(marked_processes(mark))
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not found:
            return
        time.sleep(ROUND_S)
