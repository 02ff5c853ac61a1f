"""Starts a command in its sandbox, below its supervisor, with pipes to it and limits.

The supervisor's standard input is a socket whose other end only we hold: when that end closes, it kills everything, so
that nothing outlives a dead service.
"""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from turnwright_kit.sandbox import bubblewrap, landlock
from turnwright_kit.sandbox.command_process import SUPERVISOR, CommandProcess, Launch, new_mark
from turnwright_kit.sandbox.sandbox import Backend, Confined, Sandbox, Shared


def confinement(
    sandbox: Sandbox, argv: Sequence[str], root: str, *, read_only: bool, network: bool, caches: str = ""
) -> Confined:
    """A command in a project's root. Raises PermissionError if it must not run, OSError.

    `caches` is the folder with the directories that it writes in the place of those that others write, too; empty: it
    writes those.
    """
    if sandbox.refusal:
        raise PermissionError(errno.EPERM, sandbox.refusal)
    if not sandbox.keeps_read_only:
        if read_only:
            raise PermissionError(errno.EPERM, "this host cannot keep it from changing the project")
        return Confined(tuple(argv))
    shared = [Shared(path, caches + path) for path in sandbox.writable]
    if caches:
        for place in shared:
            os.makedirs(place.source, mode=0o700, exist_ok=True)
    confine = bubblewrap.confined if sandbox.backend is Backend.BUBBLEWRAP else landlock.confined
    return confine(sandbox, argv, root, shared, read_only=read_only, network=network)


CHANNELS: Final = (1, 2)
"""Standard output and standard error."""


class ProcessLimits(Struct, frozen=True):
    """What the kernel limits of a command; 0 means no limit.

    CPU time, file size and open files are limited per process. `processes` counts all processes of the user while the
    command runs; the kernel does not apply it to the superuser.
    """

    cpu_s: int = 600
    """Seconds of processor time."""
    processes: int = 512
    """Processes of the user."""
    files: int = 1024
    """Open files."""
    file_mb: int = 1024
    """Largest file that is written, in MiB."""

    def words(self) -> Iterator[str]:
        """The limits for the supervisor; never above our own, which would be refused."""
        wanted = {
            resource.RLIMIT_CPU: self.cpu_s,
            resource.RLIMIT_FSIZE: self.file_mb * 1024 * 1024,
            resource.RLIMIT_NOFILE: self.files,
            resource.RLIMIT_NPROC: self.processes,
        }
        for kind, value in wanted.items():
            if value:
                hard = resource.getrlimit(kind)[1]
                yield f"limit={kind}:{value if hard == resource.RLIM_INFINITY else min(value, hard)}"
        yield f"limit={resource.RLIMIT_CORE}:0"


class Pipes:
    """The supervisor's control socket, the pipes of the two outputs, and if asked for that of the input."""

    def __init__(self, *, has_input: bool = False) -> None:
        self.control, end = socket.socketpair()
        self.control.setblocking(False)
        self.control_end = end.detach()
        self.readers: dict[int, int] = {}
        self.writers: dict[int, int] = {}
        self._open = {self.control_end}
        for channel in CHANNELS:
            self.readers[channel], self.writers[channel] = self._pipe()
        self.input_end: int | None = None
        self._input: int | None = None
        if has_input:
            self.input_end, self._input = self._pipe()

    def _pipe(self) -> tuple[int, int]:
        pair = os.pipe()
        self._open |= {*pair}
        return pair

    def take_reader(self, channel: int) -> int:
        """The reading end of an output; the caller closes it."""
        reader = self.readers[channel]
        self._open.discard(reader)
        return reader

    def take_input(self) -> int:
        """The writing end of the input; the caller closes it."""
        assert self._input is not None
        self._open.discard(self._input)
        return self._input

    def close_child_ends(self) -> None:
        inputs = set() if self.input_end is None else {self.input_end}
        self._close({self.control_end, *self.writers.values(), *inputs})

    def close(self) -> None:
        self.control.close()
        self._close(set(self._open))

    def _close(self, descriptors: set[int]) -> None:
        for descriptor in descriptors & self._open:
            os.close(descriptor)
        self._open -= descriptors


@contextmanager
def opened_pipes(*, has_input: bool = False) -> Iterator[Pipes]:
    pipes = Pipes(has_input=has_input)
    try:
        yield pipes
    finally:
        pipes.close()


class ConfinedCommand(Struct, frozen=True):
    """A command, and what it may do."""

    argv: Sequence[str]
    root: str | Path
    """Where it works, and what it may write."""
    environment: Mapping[str, str]
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    kill_s: float = 5.0
    """Seconds that its supervisor has to kill everything."""
    read_only: bool = False
    network: bool = True
    caches: str = ""
    """Folder with the directories that it writes in the place of shared ones; empty: it shares them."""

    def start(self, sandbox: Sandbox, pipes: Pipes, until_ms: int = 0) -> CommandProcess:
        """Start it; `until_ms` is its deadline (CLOCK_BOOTTIME), 0: none.

        Raises PermissionError if it must not run, OSError.
        """
        held: tuple[int, ...] = ()
        try:
            confined = confinement(
                *(sandbox, self.argv, str(self.root)),
                read_only=self.read_only,
                network=self.network,
                caches=self.caches,
            )
            held = confined.held
            kept = {name: value for name, value in self.environment.items() if name not in confined.without}
            environment = {**kept, **confined.environment}
            outputs = (pipes.writers[1], pipes.writers[2])
            given = () if pipes.input_end is None else (pipes.input_end,)
            launch = Launch(self.root, environment, pipes.control_end, outputs, (*given, *held))
            mark = new_mark()
            inputs = (f"input={end}" for end in given)
            words = (f"mark={mark}", f"until={until_ms}", *inputs, *self.limits.words(), *confined.options)
            process = launch.start((*SUPERVISOR, *words, "--", *confined.argv))
            return CommandProcess(process, pipes.control, mark, self.kill_s, sandbox.own_processes)
        finally:
            pipes.close_child_ends()
            for descriptor in held:
                os.close(descriptor)


async def exit_of(command: ConfinedCommand, sandbox: Sandbox, most_s: float) -> tuple[int | None, str]:
    """The exit code of a short command without output, and what it complains of; None: it did not end in time.

    Raises OSError if it could not be started.
    """
    with opened_pipes() as pipes:
        reader = pipes.take_reader(2)
        process = command.start(sandbox, pipes)
        try:
            async with asyncio.timeout(most_s):
                await process.wait()
        except TimeoutError:
            return None, ""
        finally:
            await process.kill()
            os.set_blocking(reader, False)
            try:
                complaint = os.read(reader, 4096).decode(errors="replace")
            except BlockingIOError:
                complaint = ""
            os.close(reader)
    return process.exit_code, complaint
