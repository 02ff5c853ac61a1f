"""What the system says of processes, and signals to a group of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")


def session_of(process: int) -> int:
    """The session of a process; 0 if it is gone or inaccessible."""
    try:
        return os.getsid(process)
    except (ProcessLookupError, PermissionError):
        return 0


def group_processes() -> int:
    return sum(name.isdecimal() for name in os.listdir(_PROC))  # noqa: PTH208 - thousands of names, and no need of paths


def memory_bytes(processes: Iterable[int]) -> int:
    """Memory of processes together, in bytes; shared memory counts once. 0 if unknown."""
    return sum(map(_memory_of, processes))


def _memory_of(process: int) -> int:
    try:
        lines = (_PROC / str(process) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def name_of(process: int) -> str:
    """The name of a process as truncated by the system; empty if it is gone."""
    try:
        return (_PROC / str(process) / "comm").read_text().rstrip("\n")
    except OSError:
        return ""


def send_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a group in one call, so that processes that fork meanwhile get it too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
