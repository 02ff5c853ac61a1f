"""The processes of one command, as seen by the service that started it.

A supervisor process adopts whatever the command starts, so that nothing escapes (`supervisor`); if it is killed, its
processes are found by a mark (`process_mark`). In a sandbox the command can neither see nor stop it. Linux only: other
systems have no child subreapers. Source: architecture 11; row RU163; decision C36.
"""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnwright_kit.sandbox import supervisor

# Marks the processes of a command, so that they can be found after their supervisor was killed.
#
# If a supervisor is killed, its descendants are adopted by another process, and one that left the session can no longer
# be recognized. So each command gets a resource limit that nothing else uses: the hard limit of RLIMIT_RTTIME, in
# microseconds, which only affects real-time processes, set to a unique value of about a hundred thousand years. It is
# inherited across fork and exec, in other sessions and groups and with an empty environment, and without privileges it
# can only be lowered.
#
# Alternatives that were rejected. An environment variable is visible to the command, and `env -i` removes it. As a
# subreaper, the executor itself would adopt orphans of everything it starts, could not distinguish them from its own
# children, and would have to reap them. A cgroup must be delegated, which it is not in containers and for most users. A
# parent-death signal reaches a child but not its descendants, and a pidfd refers to a single known process.
#
# What remains: a process that deliberately lowers this limit, or raises it with CAP_SYS_RESOURCE, leaves its session
# and kills its supervisor. Against such intent there is the sandbox.
# Source: architecture 11 (children die with their executor).

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


# What the system says of processes, and signals to a group of them.

_PROC: Final = Path("/proc")


def session_of(process: int) -> int:
    """The session of a process; 0 if it is gone or inaccessible."""
    try:
        return os.getsid(process)
    except (ProcessLookupError, PermissionError):
        return 0


def group_processes() -> int:
    return sum(name.isdecimal() for name in os.listdir(_PROC))


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


def kill_group(group: int) -> None:
    """Kill a group in one call, so that processes that fork meanwhile get it too."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


# A child process that works with any event loop.
#
# uvloop starts children with fork, which copies the page tables of our memory, some milliseconds in which nothing else
# happens; `subprocess` uses vfork. Its end is detected with a pidfd, or with a thread if the system has none.


_running: Final[set[subprocess.Popen[bytes]]] = set()
"""Held until they are reaped: after the end of the event loop their supervisors end by themselves, and nobody looks."""


class ChildProcess:
    """A started process. We hold no pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Start to watch for its end, in the running event loop."""
        self.pid = process.pid
        self._process = process
        _running.add(process)
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            self._descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait, name=f"wait for {self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._descriptor, self._reap)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
        await self._ended.wait()

    def _reap(self) -> None:
        if self._process.poll() is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            _running.discard(self._process)
            self._ended.set()

    def _wait(self) -> None:
        self._process.wait()
        _running.discard(self._process)
        with suppress(RuntimeError):  # the loop may have ended since
            self._loop.call_soon_threadsafe(self._ended.set)


def _program(script: str) -> str:
    """The script, compiled if that is kept: else it would be compiled again for every command."""
    compiled = cache_from_source(script)
    is_fresh = os.path.exists(compiled) and os.path.getmtime(compiled) >= os.path.getmtime(script)
    return compiled if is_fresh else script


SUPERVISOR: Final = (sys.executable, "-I", "-S", _program(supervisor.__file__))
"""The supervisor program; its words, `--` and the command follow as arguments."""

_COUNT_EVERY: Final = 10
"""Looks at how many processes the host has, which are cheap, between two counts of the command's own."""


class Launch(Struct):
    """How to start a command: directory, environment, descriptors."""

    root: str | Path
    environment: Mapping[str, str]
    control: int
    """The other end is the executor's: if that is closed, the command is killed."""
    outputs: tuple[int, int]
    passed: tuple[int, ...] = ()
    """What the command has beside them."""

    def start(self, argv: Sequence[str]) -> ChildProcess:
        """Start the process in a session of its own. Raises OSError."""
        process = subprocess.Popen(  # noqa: S603 - what is started is what it is for
            argv,
            stdin=self.control,
            stdout=self.outputs[0],
            stderr=self.outputs[1],
            cwd=self.root,
            env=dict(self.environment),
            start_new_session=True,
            pass_fds=self.passed,
        )
        return ChildProcess(process)


class CommandProcess:
    """A started command, below its supervisor."""

    def __init__(
        self,
        process: ChildProcess,
        control: socket.socket,
        mark: int,
        kill_s: float,
        spared: Collection[str] = (),
    ) -> None:
        """`control` is the executor's end of the supervisor's standard input; it does not block.

        `kill_s` are the seconds that the supervisor has to kill everything. `spared` are names of processes that hold
        the sandbox: the command is killed before them.
        """
        self._spared = spared
        self._others = group_processes()
        self._process = process
        self._control = control
        self._mark = mark
        self._kill_s = kill_s
        self._partial_line = b""
        self._counts = 0
        self._group = 0
        self.exit_code: int | None = None
        """Exit code of the shell, negative for a signal; None while it runs."""

    async def wait(self) -> None:
        """Wait for the command's shell or its supervisor to exit; background processes may still run."""
        while self.exit_code is None:
            # The supervisor reports the command's group and its exit in a few bytes, once each.
            piece = await asyncio.get_running_loop().sock_recv(self._control, 32)
            self._take(piece)
            if not piece:
                await self._process.wait()
                if self.exit_code is None:
                    self.exit_code = self._process.returncode or -signal.SIGKILL

    def _take(self, piece: bytes) -> None:
        *lines, self._partial_line = (self._partial_line + piece).split(b"\n")
        for number in map(int, lines):
            if self._group:
                self.exit_code = number
            else:
                self._group = number

    def over_process_limit(self, most: int) -> bool:
        """Whether more than `most` processes run below the supervisor. Its count lags a little."""
        self._counts += 1
        # If the host has that many new processes, they may be the command's.
        is_due = self._counts % _COUNT_EVERY == 0 or group_processes() - self._others > most
        return is_due and len(self._below()) > most

    def _below(self) -> list[int]:
        below = [process for process, _ in supervisor.descendants(self._process.pid)]
        return [process for process in below if name_of(process) not in self._spared]

    def memory_bytes(self) -> int:
        """Memory of all its processes together."""
        return memory_bytes(self._below())

    def has_any(self) -> bool:
        return bool(self._below())

    def send(self, number: signal.Signals) -> None:
        if not self._spared:
            supervisor.send(self._process.pid, number)
            return
        for process in self._below():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def allow_until(self, moment_ms: int) -> None:
        """Tell the supervisor the time limit, in milliseconds of CLOCK_BOOTTIME, at which it kills the command."""
        with suppress(OSError):
            self._control.send(b"%d\n" % moment_ms)

    async def kill(self) -> None:
        """Kill all processes of the command, and leave no zombie."""
        if self.exit_code is None and self._group and session_of(self._group) == self._process.pid:
            # The supervisor must be scheduled first, among processes that may multiply meanwhile.
            kill_group(self._group)
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(self._kill_s):
                await self.wait()
                await self._process.wait()
        except TimeoutError:
            # Something cannot be killed, or the supervisor is stopped.
            kill_group(self._process.pid)
            await self._process.wait()
            if self.exit_code is None:
                self.exit_code = -signal.SIGKILL
        if self._process.returncode:
            # The supervisor was killed itself: what it held is known by its mark.
            await asyncio.to_thread(kill_marked, self._mark)
