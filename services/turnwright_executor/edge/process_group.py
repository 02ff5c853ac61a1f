"""The processes of a session, which holds its process group and every group that was made in it.

A tool such as `timeout` puts itself into a group of its own; it stays in the session. Who leaves the session with
setsid is out of reach here; a supervisor holds it, or a namespace of its own.
Source: architecture 11 (children die with their executor).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

KILL_ROUNDS: Final = 50
"""Times that the members of a session are killed while new ones keep coming."""

_PROC: Final = Path("/proc")
_DEAD: Final = frozenset("ZX")


def members(session: int) -> Iterator[int]:
    """The living processes of a session, in no order."""
    names = os.listdir(_PROC)  # noqa: PTH208 - thousands of names, and paths cost ten times more
    yield from (int(name) for name in names if name.isdecimal() and _is_member(int(name), session))


def count(session: int, enough: int) -> int:
    """How many processes of a session live; counts to `enough`, because there may be very many."""
    return sum(1 for _ in islice(members(session), enough))


def session_of(process: int) -> int:
    """The session of a process; 0 where it is gone, or nobody may know."""
    try:
        return os.getsid(process)
    except (ProcessLookupError, PermissionError):
        return 0


def _is_member(process: int, session: int) -> bool:
    return session_of(process) == session and _is_alive(process)


def _is_alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:  # noqa: PTH123 - as above
            return file.read().rpartition(")")[2].split(maxsplit=1)[0] not in _DEAD
    except OSError:
        return False


def living() -> int:
    return sum(name.isdecimal() for name in os.listdir(_PROC))  # noqa: PTH208 - as above


def memory_bytes(processes: Iterable[int]) -> int:
    """The memory that processes hold together, in bytes; what several share counts once. 0 where nobody tells."""
    return sum(map(_memory_of, processes))


def _memory_of(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def name_of(process: int) -> str:
    """The name of a process, cut as the system does; empty where it is gone."""
    try:
        return (_PROC / str(process) / "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def kill(session: int) -> None:
    """Leave nothing of a session. Its number must still be its own: its leader has not been waited for."""
    send_group(session, signal.SIGKILL)
    for _ in range(KILL_ROUNDS):
        # The group was hit as a whole, and what is hit does not fork any more; other groups are hit one by one.
        others = [process for process in members(session) if _group_of(process) not in (session, 0)]
        for process in others:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        if not others:
            return


def _group_of(process: int) -> int:
    try:
        return os.getpgid(process)
    except ProcessLookupError:
        return 0


def send_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a group in one call: what forks meanwhile is hit too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
