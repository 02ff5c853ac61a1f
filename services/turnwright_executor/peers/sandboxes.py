"""Projects on sandbox hosts: the ports of files, scans and commands, carried out by a server of tools elsewhere.

The executor decides; the host executes.
Source: issue 36.7; docs/adr/0086.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct
from turnwright.tool.v1 import result_pb2, workspace_command_pb2
from turnwright.tool.v1 import workspace_pb2 as pb
from turnwright.types.v1 import project_pb2

from turnwright_core.constraints import Constraints
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.text import host_and_path
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tool_servers import RegisteredServer
from turnwright_executor.files.scan import is_usable
from turnwright_executor.peers.sandbox_calls import CALL_S, HostedProject
from turnwright_executor.peers.tool_servers import GrpcToolServers
from turnwright_executor.ports.workspaces import FoundWorkspace, HostedPlace, Scan, SeenFile
from turnwright_executor.tools.contract import OutcomeUnknownError
from turnwright_executor.tools.ports import (
    ChangedFile,
    CommandEnd,
    FileText,
    GatheredFiles,
    OutsideProjectError,
    ScannedFile,
)

SCAN_S: Final = 600.0
"""Time limit of a scan in seconds: the first one sends every file."""

EXTEND_S: Final = 0.25
"""Seconds between two looks whether a lease lasts longer."""

STOP_S: Final = 10.0
"""Seconds in which a command that is stopped must have ended."""

CUT_CHARS: Final = 1024
"""Characters with which a host may say what it has left out of an output."""

CHANGES: Final = frozenset({"create", "change", "remove"})


class HostSettings(Struct, frozen=True):
    """What an executor asks of its hosts."""

    away_s: float
    """How long to wait for one that is away."""
    file_bytes_max: int
    files_max: int
    output_bytes_max: int
    """Of a command, for each channel."""


class HostedWorkspace:
    """Implements tools.ports.Workspace on a host."""

    def __init__(self, host: HostedProject) -> None:
        self._host = host

    async def normalise(self, path: str, *, writing: bool = False) -> str:
        found: pb.NormaliseResult = await self._host.call("normalise", path=path, writing=writing)
        return self._host.path(found.path)

    async def read(self, path: str) -> FileText | None:
        return (await self.find(path))[1]

    async def find(self, path: str) -> tuple[str, FileText | None]:
        found: pb.FindResult = await self._host.call("find", path=path)
        return self._host.path(found.path), self._host.file(found.file) if found.HasField("file") else None

    async def gather(self, path: str, files_max: int, bytes_max: int) -> GatheredFiles | None:
        found: pb.GatherResult = await self._host.call("gather", path=path, files_max=files_max, bytes_max=bytes_max)
        return self._host.gathered(found.files, files_max, bytes_max) if found.HasField("files") else None

    async def replace(
        self, path: str, content: str | None, base_hash: str | None, like: str = "", encoding: str = ""
    ) -> bool:
        done: pb.ReplaceResult = await self._host.call(
            "replace", path=path, content=content, base_hash=base_hash, like=like, encoding=encoding
        )
        return done.replaced


class HostedScanner:
    """Implements ports.FileScanner on a host."""

    def __init__(self, host: HostedProject, *, is_kept: bool) -> None:
        """`is_kept`: it is for a loop, and the host remembers what it has seen."""
        self._host, self._is_kept = host, is_kept
        self._id, self._like = secrets.token_hex(16) if is_kept else "", ""
        self._generation = 0
        self._seen: dict[str, SeenFile] = {}

    @property
    def files(self) -> Mapping[str, SeenFile]:
        return self._seen

    def copied(self) -> HostedScanner:
        made = HostedScanner(self._host, is_kept=self._is_kept)
        made._like, made._generation, made._seen = self._id, self._generation, dict(self._seen)
        return made

    async def scan(self, doubtful: Collection[str] = ()) -> Scan:
        """As the port says. What a host has forgotten it tells again, and what stayed the same is left out here.

        Nothing is kept of a scan that fails, so the next one has everything.
        """
        doubtful = frozenset(doubtful)
        reported: dict[str, ScannedFile] = {}

        async def take(progress: result_pb2.ToolProgress | None) -> None:
            if progress is None:
                reported.clear()
                return
            for file in progress.files.files:
                reported[file.path] = self._file(file)
            self._check(reported)

        end: pb.ScanResult = await self._host.call(
            "scan", take, timeout_s=SCAN_S,
            scanner=self._id, generation=self._generation, like=self._like, doubtful=doubtful,
        )  # fmt: skip
        before, removed, found = self._seen, set(end.removed), list(reported.values())
        seen = {file.path: SeenFile(file.hash, None if file.text is None else len(file.text)) for file in found}
        if end.complete:
            removed |= before.keys() - seen.keys()
            same = {path for path in seen if path in before and before[path].hash == seen[path].hash}
            found = [file for file in found if file.path not in same or file.path in doubtful]
        else:
            seen = {path: file for path, file in {**before, **seen}.items() if path not in removed}
            self._check(seen)
        self._seen, self._generation, self._like = seen, end.generation, ""
        return Scan(tuple(found), tuple(sorted(removed)))

    def _file(self, file: pb.WorkspaceFile) -> ScannedFile:
        """Raises OSError for what no scan finds: its path becomes that of an entry."""
        if not is_usable(file.path):
            raise self._host.wrong(f"a path that no entry of a file has: {file.path[:200]!r}")
        read = self._host.file(file)
        return ScannedFile(file.path, read.text, read.hash, read.bytes_, file.added)

    def _check(self, files: Collection[str]) -> None:
        if len(files) > self._host.place.files_max:
            raise self._host.wrong(f"more than the {self._host.place.files_max} files that were asked for")


class HostedShell:
    """Implements tools.ports.Shell on a host."""

    def __init__(
        self, host: HostedProject, located: pb.LocatedWorkspace, output_bytes_max: int, ends_s: Callable[[], float]
    ) -> None:
        """`ends_s`: until when its run has a lease."""
        self._host, self._output_bytes_max, self._ends_s = host, output_bytes_max, ends_s
        self.refusal = located.refusal
        self.keeps_read_only = located.keeps_read_only

    async def run(
        self,
        command: str,
        timeout_s: float,
        on_output: Callable[[int, str], Awaitable[None]],
        *,
        read_only: bool = False,
        is_owners: bool = True,
        network: bool = True,
    ) -> CommandEnd:
        """As the port says. Raises OutcomeUnknownError if the host is lost, OSError if nothing was started."""
        call_id = f"run/{secrets.token_hex(16)}"
        ends_s = self._ends_s()
        # A host leaves out the middle; what it sends beyond that is dropped. No byte is more than a character.
        left = dict.fromkeys((1, 2), self._output_bytes_max + CUT_CHARS)

        async def pass_on(progress: result_pb2.ToolProgress | None) -> None:
            channel = 2 if progress and progress.channel == 2 else 1
            if progress and (text := progress.text[: left[channel]]):
                left[channel] -= len(text)
                await on_output(channel, text)

        running: asyncio.Future[workspace_command_pb2.RunResult] = asyncio.ensure_future(
            self._host.call(
                "run",
                pass_on,
                call_id=call_id,
                timeout_s=timeout_s + CALL_S,
                command=command,
                timeout=timedelta(seconds=timeout_s),
                read_only=read_only,
                owners=is_owners,
                network=network,
                output_bytes_max=self._output_bytes_max,
            )
        )
        extending = asyncio.create_task(self._extend(call_id, ends_s))
        try:
            return self._end(await asyncio.shield(running), is_cut=0 in left.values())
        except asyncio.CancelledError:
            if not running.done():
                await self._stop(call_id, running)
            raise
        finally:
            for task in (extending, running):
                task.cancel()
            await asyncio.gather(extending, running, return_exceptions=True)

    def _end(self, result: workspace_command_pb2.RunResult, *, is_cut: bool) -> CommandEnd:
        """Raises OutcomeUnknownError for a result that does not say how the command ended."""
        if not result.HasField("exit_code"):
            raise OutcomeUnknownError(str(self._host.wrong("no exit code")))
        changes = [ChangedFile(one.path, one.kind) for one in result.changes.files if one.kind in CHANGES]
        return CommandEnd(
            result.exit_code,
            result.duration.ToNanoseconds() / 1e9,
            result.timed_out,
            result.output_cut or is_cut,
            result.too_many_processes,
            result.out_of_memory,
            tuple(changes[: self._host.place.files_max]) if result.HasField("changes") else None,
        )

    async def _stop(self, call_id: str, running: asyncio.Future[workspace_command_pb2.RunResult]) -> None:
        """Stop the command, and wait for its end: what it had written until then arrives before."""
        with suppress(OSError, OutsideProjectError):
            await self._host.call("stop", timeout_s=STOP_S, call=call_id)
            await asyncio.wait([running], timeout=STOP_S)

    async def _extend(self, call_id: str, known_s: float) -> None:
        """Tell the host of each renewal of the lease; without one the command ends there."""
        while True:
            await asyncio.sleep(EXTEND_S)
            if (ends_s := self._ends_s()) != known_s:
                # Lost only with the connection, and then the command ends.
                with suppress(OSError):
                    await self._host.call("extend", timeout_s=STOP_S, call=call_id)
                known_s = ends_s


class GrpcSandboxHosts:
    """Implements ports.SandboxHosts with the servers of the operator's file that are sandbox hosts."""

    def __init__(
        self,
        servers: GrpcToolServers,
        registered: Callable[[], Sequence[RegisteredServer]],
        settings: HostSettings,
    ) -> None:
        self._servers, self._registered, self._settings = servers, registered, settings

    async def locate(self, root: str, *, make: bool = True) -> FoundWorkspace | None:
        host = self._host(RunAddress("", ""), 0, root, ())
        located = await self._located(host, root, make=make)
        if located is None:
            return None
        name = host.server.name
        # A host could name the id of any project, and that would move there.
        return FoundWorkspace(
            f"{name}:{located.path}", str(uuid5(NAMESPACE_URL, f"{name}:{located.id}")), located.copied_from
        )

    async def place(
        self, address: RunAddress, epoch: int, root: str, constraints: Constraints, ends_s: Callable[[], float]
    ) -> HostedPlace:
        host = self._host(address, epoch, root, constraints.rules)
        located = await self._located(host, root, make=False)
        if located is None:
            raise _unavailable(address.project, root, "there is no such directory on its sandbox host any more")
        # It outlasts the lease, and so reads without a fence.
        unfenced = self._host(address, 0, root, constraints.rules)
        scanner = partial(HostedScanner, unfenced, is_kept=bool(epoch))
        shell = HostedShell(host, located, self._settings.output_bytes_max, ends_s)
        return HostedPlace(HostedWorkspace(host), shell, scanner)

    async def _located(self, host: HostedProject, root: str, *, make: bool) -> pb.LocatedWorkspace | None:
        try:
            found: pb.LocateResult = await host.call("locate", make=make)
        except (OSError, OutsideProjectError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise _unavailable(host.address.project, root, why or str(error)) from None
        return found.workspace if found.HasField("workspace") else None

    def _host(self, address: RunAddress, epoch: int, root: str, rules: tuple[tuple[str, int], ...]) -> HostedProject:
        """Raises WORKSPACE_UNAVAILABLE for a host that is not registered."""
        name, path = host_and_path(root)
        found = next((one for one in self._registered() if one.name == name and one.workspaces), None)
        if found is None:
            why = (
                f"no sandbox host {name!r} is registered: a [[server]] of TURNWRIGHT_TOOL_SERVERS with this name and "
                "`workspaces = true`"
            )
            raise _unavailable(address.project, root, why)
        place = pb.WorkspacePlace(
            path=path,
            constraints=[
                project_pb2.FileConstraint(pattern=pattern, kind=project_pb2.FileConstraintKind.ValueType(kind))
                for pattern, kind in rules
            ],
            file_bytes_max=self._settings.file_bytes_max,
            files_max=self._settings.files_max,
        )
        return HostedProject(self._servers, found, address, place, self._settings.away_s, epoch)


def _unavailable(project: str, root: str, why: str) -> TurnwrightError:
    message = f"{root} cannot be worked in: {why}."
    return fault(Reason.WORKSPACE_UNAVAILABLE, message, project=project, root=root)
