"""The tools of a sandbox host, by the adapters that an executor has for its own host.

Each call names its project by a path below the root. No part of it may be a link, so a project that writes one in
place of another is not found any more.
Source: docs/adr/0086.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial
from math import inf
from typing import Any, Final

import msgspec
from google.protobuf.duration_pb2 import Duration
from msgspec import Struct
from turnwright.tool.v1 import result_pb2, workspace_command_pb2, workspace_pb2
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_client.tool_server import Call, ToolError, ToolServer
from turnwright_core.constraints import Constraints
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.files.workspace_marker import find_workspace, known_workspace
from turnwright_executor.ports.workspaces import FoundWorkspace
from turnwright_executor.shell.local_host import FileLimits, LocalHost
from turnwright_executor.tools.ports import CommandEnd, FileText, OutsideProjectError, TooMuchError

SCANNERS_MAX: Final = 256
"""Scanners that are remembered; one that is forgotten begins anew."""

PIECE_CHARS: Final = 256 * 1024
"""Characters of files in one message of a scan; the text of a single one may be longer."""

PROBLEM_STATUS: Final = 500
STOPPED_STATUS: Final = 499

TOOLS: Final[Mapping[str, tuple[str, str]]] = {
    "locate": ("idempotent", "The workspace of a directory, and how commands run there."),
    "normalise": ("pure", "Where a path of a project leads."),
    "find": ("pure", "Reads a file of a project."),
    "gather": ("pure", "Reads all files below a folder of a project."),
    "scan": ("pure", "The files of a project that have changed since the scan before."),
    "replace": ("idempotent", "Writes or deletes a file of a project that is as it was."),
    "run": ("outside", "Runs a command in a project."),
    "extend": ("pure", "Says how long a running command may go on."),
    "stop": ("pure", "Stops a running command."),
}
"""The tools, with their effect classes."""

_Place = workspace_pb2.WorkspacePlace


class _Scanner(Struct):
    """What a scanner has seen. Mutable: it counts its scans, which come one after the other."""

    place: _Place
    scanner: DiskScanner
    generation: int = 0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class _HostedCommand(Struct):
    """A command under way. Mutable: its lease is extended."""

    task: asyncio.Future[CommandEnd]
    ends_s: list[float]


class SandboxHost(ToolServer):
    """Serves ToolService for the projects below one directory."""

    def __init__(self, host: LocalHost, root: str) -> None:
        """`root` is a real path."""
        # The clock of supervisors.
        super().__init__(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
        self._host, self._root = host, root
        self._scanners: OrderedDict[str, _Scanner] = OrderedDict()
        self._commands: dict[str, _HostedCommand] = {}
        for name, (effect_class, text) in TOOLS.items():
            offer = self.tool(name, text, effect_class=effect_class, open_world=name == "run")
            offer(partial(self._answered, name, getattr(self, f"_{name}")))

    async def _answered(
        self, tool: str, answer: Callable[[Any, _Place, Call], Awaitable[object]], call: Call
    ) -> result_pb2.ToolResult:
        """What a tool answers, or its problem. Raises ToolError."""
        wanted = call.request.workspace
        if wanted.WhichOneof("call") != tool:
            raise ToolError(400, f"`workspace` has no arguments of {tool}.")
        result = workspace_pb2.WorkspaceResult()
        try:
            getattr(result, tool).MergeFrom(await answer(getattr(wanted, tool), wanted.place, call))
            # Without a field it would not be there.
            getattr(result, tool).SetInParent()
        except OutsideProjectError as error:
            result.problem.CopyFrom(_problem(workspace_pb2.WORKSPACE_PROBLEM_KIND_OUTSIDE, str(error)))
        except TooMuchError as error:
            result.problem.CopyFrom(_problem(workspace_pb2.WORKSPACE_PROBLEM_KIND_TOO_MUCH, str(error)))
        except OSError as error:
            text = error.strerror or str(error)
            result.problem.CopyFrom(_problem(workspace_pb2.WORKSPACE_PROBLEM_KIND_OS, text, error.errno or 5))
        except UnicodeEncodeError as error:
            text = f"a name there is not in UTF-8: {error.reason}"
            result.problem.CopyFrom(_problem(workspace_pb2.WORKSPACE_PROBLEM_KIND_OS, text, 84))
        status = PROBLEM_STATUS if result.HasField("problem") else 0
        return result_pb2.ToolResult(workspace=result, status=status)

    async def _real(self, place: _Place) -> str:
        """The directory of a project. Raises FileNotFoundError if there is none."""
        root = await on_files(lambda _: real_place(self._root, place.path))
        if root is None:
            raise FileNotFoundError(2, f"there is no directory {place.path} on the sandbox host")
        return root

    async def _workspace(self, place: _Place) -> DiskWorkspace:
        return self._host.workspace(await self._real(place), _constraints_of(place), _limits(place))

    async def _locate(
        self, wanted: workspace_pb2.LocateArguments, place: _Place, _call: Call
    ) -> workspace_pb2.LocateResult:
        root = await on_files(lambda _: real_place(self._root, place.path))
        if root is None:
            return workspace_pb2.LocateResult()
        found = await on_files(lambda _: find_workspace(root) if wanted.make else _known(root))
        shell = self._host.shell(root, Constraints())
        located = workspace_pb2.LocatedWorkspace(
            path=root[len(self._root.rstrip("/")) :] or "/",
            id=found.id,
            copied_from=found.copied_from,
            refusal=shell.refusal,
            keeps_read_only=shell.keeps_read_only,
        )
        return workspace_pb2.LocateResult(workspace=located)

    async def _normalise(
        self, wanted: workspace_pb2.NormaliseArguments, place: _Place, _call: Call
    ) -> workspace_pb2.NormaliseResult:
        workspace = await self._workspace(place)
        return workspace_pb2.NormaliseResult(path=await workspace.normalise(wanted.path, writing=wanted.writing))

    async def _find(self, wanted: workspace_pb2.FindArguments, place: _Place, _call: Call) -> workspace_pb2.FindResult:
        path, file = await (await self._workspace(place)).find(wanted.path)
        return workspace_pb2.FindResult(path=path, file=_file(file) if file else None)

    async def _gather(
        self, wanted: workspace_pb2.GatherArguments, place: _Place, _call: Call
    ) -> workspace_pb2.GatherResult:
        found = await (await self._workspace(place)).gather(wanted.path, wanted.files_max, wanted.bytes_max)
        if found is None:
            return workspace_pb2.GatherResult()
        files = workspace_pb2.WorkspaceFiles(folder=found.is_folder, content=found.files, left_out=found.left_out)
        return workspace_pb2.GatherResult(files=files)

    async def _replace(
        self, wanted: workspace_pb2.ReplaceArguments, place: _Place, _call: Call
    ) -> workspace_pb2.ReplaceResult:
        content = wanted.content if wanted.HasField("content") else None
        base_hash = wanted.base_hash if wanted.HasField("base_hash") else None
        workspace = await self._workspace(place)
        done = await workspace.replace(wanted.path, content, base_hash, wanted.like, wanted.encoding)
        return workspace_pb2.ReplaceResult(replaced=done)

    async def _scan(self, wanted: workspace_pb2.ScanArguments, place: _Place, call: Call) -> workspace_pb2.ScanResult:
        found, is_new = await self._scanner(wanted, place)
        async with found.lock:
            # It has seen more than the executor has heard of, as long as it is not heard to the end.
            generation, found.generation = found.generation, -1
            scan = await found.scanner.scan(wanted.doubtful)
            piece, chars = workspace_pb2.ScanPiece(), 0
            for file in scan.changed:
                piece.files.add(
                    path=file.path, text=file.text, hash=file.hash, size_bytes=file.bytes_, added=file.is_added
                )
                chars += len(file.path) + len(file.text or "")
                if chars >= PIECE_CHARS:
                    await call.progress("", files=piece)
                    piece, chars = workspace_pb2.ScanPiece(), 0
            if piece.files:
                await call.progress("", files=piece)
            found.generation = generation + 1
        return workspace_pb2.ScanResult(generation=found.generation, removed=scan.removed, complete=is_new)

    async def _scanner(self, wanted: workspace_pb2.ScanArguments, place: _Place) -> tuple[_Scanner, bool]:
        """The scanner that is meant, and whether it has seen nothing yet."""
        root, is_new = await self._real(place), False
        found = self._scanners.pop(wanted.scanner, None)
        if found is None and (like := self._scanners.get(wanted.like)):
            async with like.lock:
                found = _Scanner(like.place, like.scanner.copied(), like.generation)
        if found is None or (found.place, found.generation) != (place, wanted.generation):
            is_new, watched = True, bool(wanted.scanner)
            found = _Scanner(place, self._host.scanner(root, _constraints_of(place), _limits(place), watched=watched))
        if wanted.scanner:
            self._scanners[wanted.scanner] = found
        if len(self._scanners) > SCANNERS_MAX:
            self._scanners.popitem(last=False)
        return found, is_new

    async def _run(
        self, wanted: workspace_command_pb2.RunArguments, place: _Place, call: Call
    ) -> workspace_command_pb2.RunResult:
        ends_s = [_end_s(call)]
        root = await self._real(place)
        shell = self._host.shell(
            root, _constraints_of(place), ends_s=lambda: ends_s[0], output_bytes=wanted.output_bytes_max
        )
        running = asyncio.ensure_future(
            shell.run(
                wanted.command,
                wanted.timeout.ToNanoseconds() / 1e9,
                lambda channel, text: call.progress(text, channel),
                read_only=wanted.read_only,
                is_owners=wanted.owners,
                network=wanted.network,
            )
        )
        self._commands[call.request.call_id] = _HostedCommand(running, ends_s)
        try:
            await asyncio.wait([running])
        finally:
            del self._commands[call.request.call_id]
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        if running.cancelled():
            raise ToolError(STOPPED_STATUS, "The command was stopped.")
        return _run_result(running.result())

    async def _extend(
        self, wanted: workspace_command_pb2.ExtendArguments, _place: _Place, call: Call
    ) -> workspace_command_pb2.ExtendResult:
        if (found := self._commands.get(wanted.call)) and wanted.call != call.request.call_id:
            found.ends_s[0] = _end_s(call)
        return workspace_command_pb2.ExtendResult(running=found is not None)

    async def _stop(
        self, wanted: workspace_command_pb2.StopArguments, _place: _Place, _call: Call
    ) -> workspace_command_pb2.StopResult:
        if found := self._commands.get(wanted.call):
            found.task.cancel()
        return workspace_command_pb2.StopResult(running=found is not None)


def real_place(root: str, path: str) -> str | None:
    """The directory at a path below the root, which is a real one; None if there is none, or a link is in the way."""
    names = path.strip("/").split("/") if path.strip("/") else []
    if not path.startswith("/") or "\0" in path or any(name in ("", ".", "..") for name in names):
        return None
    place = os.path.join(root, *names)  # noqa: PTH118 - a text that is compared
    is_there = os.path.isdir(place) and os.path.realpath(place) == place  # noqa: PTH112
    return place if is_there else None


def _known(root: str) -> FoundWorkspace:
    return FoundWorkspace(root, known_workspace(root))


def _constraints_of(place: _Place) -> Constraints:
    return _constraints(tuple((rule.pattern, int(rule.kind)) for rule in place.constraints))


@lru_cache(64)
def _constraints(rules: tuple[tuple[str, int], ...]) -> Constraints:
    return Constraints(FileConstraint(pattern, FileConstraintKind(kind)) for pattern, kind in rules)


def _limits(place: _Place) -> FileLimits:
    return FileLimits(place.file_bytes_max, place.files_max)


def _end_s(call: Call) -> float:
    """When a command ends with its lease, by the clock of supervisors."""
    return call.request.lease_end.ToNanoseconds() / 1e9 if call.request.HasField("lease_end") else inf


def _file(file: FileText) -> workspace_pb2.WorkspaceFile:
    return workspace_pb2.WorkspaceFile(
        text=file.text, hash=file.hash, size_bytes=file.bytes_, encoding=file.encoding, foreign_encoding=file.foreign
    )


def _run_result(end: CommandEnd) -> workspace_command_pb2.RunResult:
    duration = Duration()
    duration.FromNanoseconds(round(end.duration_s * 1e9))
    result = workspace_command_pb2.RunResult(
        exit_code=end.exit_code,
        duration=duration,
        timed_out=end.timed_out,
        output_cut=end.output_cut,
        too_many_processes=end.too_many_processes,
        out_of_memory=end.out_of_memory,
    )
    if end.changed is not None:
        result.changes.SetInParent()
        for file in end.changed:
            result.changes.files.add(path=file.path, kind=file.kind)
    return result


def _problem(
    kind: workspace_pb2.WorkspaceProblemKind.ValueType, text: str, number: int = 0
) -> workspace_pb2.WorkspaceProblem:
    return workspace_pb2.WorkspaceProblem(
        kind=kind, text=text.encode(errors="replace").decode(errors="replace"), number=number
    )
