"""The processes of one command, as seen by its executor.

A supervisor process adopts whatever the command starts, so that nothing escapes (`supervisor`); if it is killed, its
processes are found by a mark (`process_mark`). In a sandbox the command can neither see nor stop it. Linux only: other
systems have no child subreapers. Source: architecture 11; row RU163; decision C36.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnwright_executor.shell import process_group, process_mark, supervisor
from turnwright_executor.shell.child_process import ChildProcess

SUPERVISOR: Final = (sys.executable, "-I", "-S", supervisor.__file__)
"""The supervisor program; the mark and the command follow as arguments."""

_COUNT_EVERY: Final = 10
"""Looks at how many processes the host has, which are cheap, between two counts of the command's own."""


class Launch(Struct):
    """How to start a command: directory, environment, descriptors."""

    root: str | Path
    environment: Mapping[str, str]
    control: int
    """The other end is the executor's: if that is closed, the command is killed."""
    outputs: tuple[int, int]

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
        self._others = process_group.group_processes()
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
        is_due = self._counts % _COUNT_EVERY == 0 or process_group.group_processes() - self._others > most
        return is_due and len(self._below()) > most

    def _below(self) -> list[int]:
        below = [process for process, _ in supervisor.descendants(self._process.pid)]
        return [process for process in below if process_group.name_of(process) not in self._spared]

    def memory_bytes(self) -> int:
        """Memory of all its processes together."""
        return process_group.memory_bytes(self._below())

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
        if self.exit_code is None and self._group and process_group.session_of(self._group) == self._process.pid:
            # The supervisor must be scheduled first, among processes that may multiply meanwhile.
            process_group.send_group(self._group, signal.SIGKILL)
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_WR)
        try:
            async with asyncio.timeout(self._kill_s):
                await self.wait()
                await self._process.wait()
        except TimeoutError:
            # Something cannot be killed, or the supervisor is stopped.
            process_group.send_group(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            if self.exit_code is None:
                self.exit_code = -signal.SIGKILL
        if self._process.returncode:
            # The supervisor was killed itself: what it held is known by its mark.
            await asyncio.to_thread(process_mark.kill_marked, self._mark)
