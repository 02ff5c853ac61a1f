"""Runs shell commands on this host: in the project's root, with resource limits, without the executor's secrets.

Theory of operation. A command runs in a session of its own, inside a sandbox if there is one. A supervisor outside the
sandbox sets its limits and starts it, and adopts everything that it leaves behind. The supervisor's standard input
is a socket whose other end only the executor holds: when that end closes, it kills everything, so that nothing outlives
a dead executor. The executor keeps telling it how long the run is leased, because an executor that is stopped (SIGSTOP)
cannot end a command, and another executor may continue the run. The command's own standard input is /dev/null.

When the command's shell has ended, its processes get a moment to close the output, and are then killed: background
processes end with their command.

A command that is stopped, by its time limit or by somebody, gets SIGTERM at once, a grace period, and then SIGKILL.
Output that it had written until then is delivered.
Source: architecture 6, 11; research/tooling 5; rows RU163, RU176; decision C36.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from math import inf, isinf
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from turnwright_core.errors import TurnwrightError
from turnwright_executor.files.listing import Signature
from turnwright_executor.files.scan import DiskScanner, changes
from turnwright_executor.shell.output import Output, Stream, opened
from turnwright_executor.tools.ports import CommandEnd
from turnwright_kit.sandbox.command_process import CommandProcess
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.sandbox import Sandbox
from turnwright_kit.sandbox.starting import CHANNELS, ConfinedCommand, Pipes, ProcessLimits, opened_pipes

SHELL: Final = "/bin/sh"

ALLOW_S: Final = 0.25
"""Seconds between two updates of a supervisor's deadline; leases last for seconds."""

STATES_S_MAX: Final = 5.0
"""Seconds that listing all files may delay a command; for slower projects changes are not listed."""

POLL_S: Final = 0.02
"""Seconds between checks whether a command that was told to end has processes left."""

OnOutput = Callable[[int, str], Awaitable[None]]


class ShellLimits(Struct, frozen=True):
    """Resource limits of one command; 0 means no limit.

    CPU time, file size and open files are limited per process, memory for all together. `processes` counts all
    processes of the user while the command runs. The kernel does not apply it to the superuser: then the executor
    counts the command's own processes, and kills a command that has more.
    """

    output_bytes: int = 1024 * 1024
    """Output that is kept, in bytes per channel: its beginning and its end; the middle is dropped."""
    cpu_s: int = 600
    """Seconds of processor time."""
    memory_mb: int = 0
    """Memory that all processes of the command hold together, in MiB.

    Address space is not limited, because many runtimes reserve far more than they use.
    """
    processes: int = 512
    """Processes of the user, or of the command alone if the user is the superuser."""
    files: int = 1024
    """Open files."""
    file_mb: int = 1024
    """Largest file that is written, in MiB."""
    term_grace_s: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""
    close_grace_s: float = 0.5
    """Seconds that background processes have to close the output after the command has ended."""
    drain_s: float = 30.0
    """Seconds that delivering the remaining output may take after the command has ended."""
    stop_drain_s: float = 2.0
    """The same if somebody has stopped the command and waits for that."""
    kill_s: float = 5.0
    """Seconds that a supervisor has to kill everything; unkillable processes delay it."""
    count_s: float = 0.1
    """Seconds between counts of the command's processes, if the kernel does not enforce the limit."""
    weigh_s: float = 0.5
    """Seconds between measurements of the command's memory."""


class Stop(Enum):
    """Why a command was stopped."""

    TIME = "time"
    PROCESSES = "processes"
    MEMORY = "memory"


def never() -> float:
    """When commands end that no lease ends."""
    return inf


class LocalShell(Struct):
    """Implements tools.ports.Shell in one project's root."""

    root: str | Path
    limits: ShellLimits = field(default_factory=ShellLimits)
    environment: Mapping[str, str] = field(default_factory=lambda: allowed_environment(os.environ))
    clock: Callable[[], float] = time.monotonic
    """A clock in seconds, for the reported duration."""
    sandbox: Sandbox = field(default_factory=Sandbox)
    ends_s: Callable[[], float] = never
    """Until when commands may run, according to the lease: seconds of CLOCK_BOOTTIME, infinite without one."""
    caches: str = ""
    """Folder with the directories that commands of others than the home's owner write in the place of shared ones, such
    as `~/.cache`: what one team's commands leave there, another's would run. Empty: they share them."""
    files: DiskScanner | None = None
    """Lists the project's files before and after a command, to report changed ones."""

    @property
    def refusal(self) -> str:
        return self.sandbox.refusal

    @property
    def keeps_read_only(self) -> bool:
        """Whether read-only commands can be prevented from changing the project."""
        return self.sandbox.keeps_read_only

    async def run(
        self,
        command: str,
        timeout_s: float,
        on_output: OnOutput,
        *,
        read_only: bool = False,
        is_owners: bool = True,
        network: bool = True,
    ) -> CommandEnd:
        """Run to the end; output arrives as (channel, text), 1 standard output, 2 standard error.

        All processes are killed at the time limit or on cancellation; what they have written until then still arrives.
        `read_only` prevents changes to the project, and without `network` there is none, if the sandbox can. One that
        is not the home owner's (`is_owners`) gets `caches`. Raises OSError if nothing could be started, and whatever
        `on_output` raises.
        """
        before = None if read_only else await self._states()
        began = self.clock()
        outputs = [Output(self.limits.output_bytes) for _ in CHANNELS]
        with opened_pipes() as pipes:
            async with opened(pipes.take_reader(1)) as first, opened(pipes.take_reader(2)) as second:
                caches = "" if is_owners else self.caches
                network = network and not read_only
                process = self._start(command, pipes, caches, read_only=read_only, network=network)
                streams = (Stream(1, first, outputs[0], on_output), Stream(2, second, outputs[1], on_output))
                pumps = [asyncio.create_task(stream.pump()) for stream in streams]
                allowing = asyncio.create_task(self._extend_deadline(process))
                try:
                    stopped = await self._watched(process, streams, pumps, timeout_s)
                finally:
                    for task in (allowing, *pumps):
                        task.cancel()
                    await asyncio.gather(allowing, *pumps, return_exceptions=True)
        duration_s = self.clock() - began
        after = None if before is None else await self._states()
        return CommandEnd(
            process.exit_code or 0,
            duration_s,
            timed_out=stopped is Stop.TIME,
            output_cut=any(output.is_cut for output in outputs),
            too_many_processes=stopped is Stop.PROCESSES,
            out_of_memory=stopped is Stop.MEMORY,
            changed=None if before is None or after is None else changes(before, after),
        )

    async def _states(self) -> dict[str, Signature] | None:
        """Change signatures of the project's files; None if they are unavailable, or not soon enough."""
        if self.files is None:
            return None
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(STATES_S_MAX):
                return await self.files.states()
        return None

    async def _watched(
        self,
        process: CommandProcess,
        streams: Sequence[Stream],
        pumps: list[asyncio.Task[None]],
        timeout_s: float,
    ) -> Stop | None:
        """Wait for the end, enforce the limits, and deliver the output."""
        stopped: Stop | None = None
        try:
            try:
                stopped = await self._watch(process, pumps, timeout_s)
            finally:
                # Output without end gets no more time.
                is_growing = stopped in (Stop.PROCESSES, Stop.MEMORY)
                await self._kill(process, 0.0 if is_growing else self.limits.term_grace_s)
        except asyncio.CancelledError:
            with suppress(TurnwrightError):
                await self._drain(streams, pumps, self.limits.stop_drain_s)
            raise
        await self._drain(streams, pumps, self.limits.drain_s)
        return stopped

    async def _extend_deadline(self, process: CommandProcess) -> None:
        """Keep updating the supervisor's deadline."""
        last_ms = 0
        while True:
            if (until_ms := self._until_ms()) != last_ms:
                process.allow_until(until_ms)
                last_ms = until_ms
            await asyncio.sleep(ALLOW_S)

    def _until_ms(self) -> int:
        ends_s = self.ends_s()
        # 0 would mean no end at all.
        return 0 if isinf(ends_s) and ends_s > 0 else max(1, int(max(ends_s, 0.0) * 1000))

    def _start(self, command: str, pipes: Pipes, caches: str, *, read_only: bool, network: bool) -> CommandProcess:
        limits = self.limits
        made = ConfinedCommand(
            (SHELL, "-c", command),
            self.root,
            self.environment,
            ProcessLimits(limits.cpu_s, limits.processes, limits.files, limits.file_mb),
            limits.kill_s,
            read_only=read_only,
            network=network,
            caches=caches,
        )
        return made.start(self.sandbox, pipes, self._until_ms())

    async def _watch(self, process: CommandProcess, pumps: list[asyncio.Task[None]], timeout_s: float) -> Stop | None:
        """Wait for the command and then briefly for its output; returns why it must be stopped.

        Raises what a pump raised.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        ended = asyncio.create_task(process.wait())
        over_limit = asyncio.create_task(self._too_many_processes(process))
        heavy = asyncio.create_task(self._too_much_memory(process))
        waiting: set[asyncio.Task[object]] = {ended, over_limit, heavy, *pumps}
        try:
            while not ended.done():
                left = max(0.0, deadline - loop.time())
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return Stop.TIME
                for task in done:
                    task.result()
                if over_limit in done:
                    return Stop.PROCESSES
                if heavy in done:
                    return Stop.MEMORY
            await asyncio.wait(pumps, timeout=self.limits.close_grace_s)
            return None
        finally:
            for task in (ended, over_limit, heavy):
                task.cancel()

    async def _too_many_processes(self, process: CommandProcess) -> None:
        """Wait until a command has too many processes, if the kernel does not count."""
        if not self.limits.processes or os.geteuid():
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self.limits.count_s)
            if process.over_process_limit(self.limits.processes):
                return

    async def _too_much_memory(self, process: CommandProcess) -> None:
        """Wait until a command uses too much memory."""
        if not self.limits.memory_mb:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self.limits.weigh_s)
            if await asyncio.to_thread(process.memory_bytes) > self.limits.memory_mb * 1024 * 1024:
                return

    async def _drain(self, streams: Sequence[Stream], pumps: list[asyncio.Task[None]], limit_s: float) -> None:
        """Deliver what the killed session left in the pipes, without waiting for processes that escaped with a pipe."""
        try:
            async with asyncio.timeout(limit_s):
                while any(not task.done() for task in pumps):
                    await asyncio.wait(pumps, timeout=self.limits.close_grace_s)
                    for stream in streams:
                        if stream.is_idle:
                            stream.close()
        except TimeoutError:
            for stream in streams:
                stream.close()
        await asyncio.gather(*pumps)

    async def _kill(self, process: CommandProcess, grace_s: float) -> None:
        """Kill all processes of the command, and leave no zombie."""
        try:
            if process.exit_code is None and grace_s:
                process.send(signal.SIGTERM)
                async with asyncio.timeout(grace_s) as grace:
                    await process.wait()
                    # The shell ends at once; its background processes may need the grace period.
                    while process.has_any():  # noqa: ASYNC110 - nobody tells when they are gone
                        await asyncio.sleep(POLL_S)
        except TimeoutError:
            if not grace.expired():
                raise
        finally:
            await process.kill()
