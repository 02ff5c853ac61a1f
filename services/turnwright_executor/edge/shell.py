"""Shell commands on this machine: in the project's root, under limits, without the executor's secrets.

Theory of operation. A command is an own session, and so an own process group. A small fixed script sets the limits
and then becomes the command's shell; the command is an argument of the script, never a part of it. Standard input of
the script is a pipe whose other end only the executor holds: a watcher in the group waits for its end and then kills
the group, so that nothing outlives an executor that died. The watcher is nobody's child in the command's eyes, and
the command's own standard input is /dev/null.

When the command's shell has ended, the group has a moment to close the output, and is then killed: what runs in the
background ends with its command. A process that left the group with setsid is out of reach; output that it still
holds open is not waited for.
Source: architecture 6, 11; research/tooling 5; row RU163.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from turnwright_executor.edge.shell_output import Output, Stream, opened
from turnwright_executor.tools.ports import CommandEnd

SHELL: Final = "/bin/sh"

# $1 is the command; the rest are limits: seconds, blocks of 512 bytes, files, KiB of address space, processes.
# Shells disagree on the letter for processes.
_SCRIPT: Final = """
exec 3<&0 </dev/null
( ( trap '' TERM INT HUP; read -r _; kill -KILL 0 ) <&3 >/dev/null 2>&1 3<&- & )
exec 3<&-
[ "$2" = - ] || ulimit -t "$2" || exit 126
[ "$3" = - ] || ulimit -f "$3" || exit 126
[ "$4" = - ] || ulimit -n "$4" || exit 126
[ "$5" = - ] || ulimit -v "$5" || exit 126
[ "$6" = - ] || ulimit -u "$6" 2>/dev/null || ulimit -p "$6" || exit 126
ulimit -c 0
exec /bin/sh -c "$1"
"""

_PASSED_ON: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "NODE_PATH", "JAVA_HOME"),
        *("GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
    }
)

CHANNELS: Final = (1, 2)
"""Standard output and standard error."""

OnOutput = Callable[[int, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """What one command may use; 0 means that there is no limit.

    CPU time, file size, files and memory hold for each process by itself. `processes` counts all processes of the
    user while the command runs, and does not bind the superuser.
    """

    output_bytes: int = 1024 * 1024
    """Output that is kept, in bytes per channel; the rest is read and dropped."""
    cpu_s: int = 600
    """Seconds of processor time."""
    memory_mb: int = 0
    """Address space in MiB; many runtimes reserve far more than they use, so there is none by default."""
    processes: int = 512
    """Processes of the user."""
    files: int = 1024
    """Open files."""
    file_mb: int = 1024
    """Largest file that is written, in MiB."""
    term_grace_s: float = 2.0
    """Seconds between the request to end and the end."""
    close_grace_s: float = 0.5
    """Seconds that background processes have to close the output once the command has ended."""
    drain_s: float = 30.0
    """Seconds that may pass until all output is delivered once the command has ended."""


def allowed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a command sees of an environment: known harmless names, so that no key or token is among them."""
    kept = {key: value for key, value in environment.items() if key in _PASSED_ON or key.startswith("LC_")}
    return (
        {"PATH": os.defpath} | kept | {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
    )


@dataclass(slots=True)
class LocalShell:
    """Implements tools.ports.Shell in one project's root."""

    root: str | Path
    limits: ShellLimits = field(default_factory=ShellLimits)
    environment: Mapping[str, str] = field(default_factory=lambda: allowed_environment(os.environ))
    clock: Callable[[], float] = time.monotonic
    """Seconds, for the duration that is told."""

    async def run(self, command: str, timeout_s: float, on_output: OnOutput) -> CommandEnd:
        """Run to the end; output arrives as (channel, text), 1 standard output, 2 standard error.

        The whole process group is killed when the limit is reached or the call is cancelled. Raises OSError when
        nothing could be started, and whatever `on_output` raises.
        """
        began = self.clock()
        outputs = [Output(self.limits.output_bytes) for _ in CHANNELS]
        with _pipes() as pipes:
            async with opened(pipes.take_reader(1)) as first, opened(pipes.take_reader(2)) as second:
                process = await self._start(command, pipes)
                streams = (Stream(1, first, outputs[0], on_output), Stream(2, second, outputs[1], on_output))
                pumps = [asyncio.create_task(stream.pump()) for stream in streams]
                try:
                    try:
                        timed_out = await self._watch(process, pumps, timeout_s)
                    finally:
                        await self._kill(process)
                    await self._drain(streams, pumps)
                finally:
                    for task in pumps:
                        task.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        cut = any(output.is_cut for output in outputs)
        return CommandEnd(process.returncode or 0, self.clock() - began, timed_out, cut)

    async def _start(self, command: str, pipes: _Pipes) -> asyncio.subprocess.Process:
        try:
            return await asyncio.create_subprocess_exec(
                *(SHELL, "-c", _SCRIPT, "turnwright", command, *self._ulimits()),
                stdin=pipes.lifeline_reader,
                stdout=pipes.writers[1],
                stderr=pipes.writers[2],
                cwd=self.root,
                env=dict(self.environment),
                start_new_session=True,
            )
        finally:
            pipes.close_child_ends()

    def _ulimits(self) -> list[str]:
        limits = self.limits
        wanted = (
            (resource.RLIMIT_CPU, limits.cpu_s, 1),
            (resource.RLIMIT_FSIZE, limits.file_mb * 1024 * 1024, 512),
            (resource.RLIMIT_NOFILE, limits.files, 1),
            (resource.RLIMIT_AS, limits.memory_mb * 1024 * 1024, 1024),
            (resource.RLIMIT_NPROC, limits.processes, 1),
        )
        return [_ulimit(kind, value, unit) for kind, value, unit in wanted]

    async def _watch(
        self, process: asyncio.subprocess.Process, pumps: list[asyncio.Task[None]], timeout_s: float
    ) -> bool:
        """Wait for the command and then shortly for its output. Whether the time ran out; raises what a pump raised."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        ended = asyncio.create_task(process.wait())
        waiting: set[asyncio.Task[Any]] = {ended, *pumps}
        try:
            while not ended.done():
                left = max(0.0, deadline - loop.time())
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return True
                for task in done:
                    task.result()
            await asyncio.wait(pumps, timeout=self.limits.close_grace_s)
            return False
        finally:
            ended.cancel()

    async def _drain(self, streams: Sequence[Stream], pumps: list[asyncio.Task[None]]) -> None:
        """Deliver what the killed group left in the pipes; do not wait for processes that escaped with a pipe."""
        try:
            async with asyncio.timeout(self.limits.drain_s):
                while any(not task.done() for task in pumps):
                    await asyncio.wait(pumps, timeout=self.limits.close_grace_s)
                    for stream in streams:
                        if stream.is_idle:
                            stream.close()
        except TimeoutError:
            for stream in streams:
                stream.close()
        await asyncio.gather(*pumps)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        """Leave no process of the group and no zombie. Once only: the number of the group may then be another's."""
        try:
            if process.returncode is None:
                _signal_group(process, signal.SIGTERM)
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.limits.term_grace_s):
                        await process.wait()
        finally:
            _signal_group(process, signal.SIGKILL)
            await process.wait()


def _ulimit(kind: int, value: int, unit: int) -> str:
    """A limit as the script takes it; never above what the executor itself is held to, which would be refused."""
    hard = resource.getrlimit(kind)[1]
    if not value:
        return "-"
    return str((value if hard == resource.RLIM_INFINITY else min(value, hard)) // unit)


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


class _Pipes:
    """The three pipes of a command: its lifeline and its two outputs."""

    def __init__(self) -> None:
        self.lifeline_reader, self._lifeline = os.pipe()
        self.readers: dict[int, int] = {}
        self.writers: dict[int, int] = {}
        self._open = {self.lifeline_reader, self._lifeline}
        for channel in CHANNELS:
            self.readers[channel], self.writers[channel] = os.pipe()
            self._open |= {self.readers[channel], self.writers[channel]}

    def take_reader(self, channel: int) -> int:
        """The end that output is read from; whoever takes it closes it."""
        reader = self.readers[channel]
        self._open.discard(reader)
        return reader

    def close_child_ends(self) -> None:
        self._close({self.lifeline_reader, *self.writers.values()})

    def close(self) -> None:
        self._close(set(self._open))

    def _close(self, descriptors: set[int]) -> None:
        for descriptor in descriptors & self._open:
            os.close(descriptor)
        self._open -= descriptors


@contextmanager
def _pipes() -> Iterator[_Pipes]:
    pipes = _Pipes()
    try:
        yield pipes
    finally:
        pipes.close()
