"""The tools of a sandbox host, by the adapters that an executor has for its own host.

Each call names its project by a path below the root. No part of it may be a link, so a project that writes one in
place of another is not found any more. What comes from an executor that has lost the run is refused by its epoch.
Source: docs/adr/0086.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from math import inf
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.json import Decoder
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_client.tool_server import Call, ToolError, ToolServer
from turnwright_core.constraints import Constraints
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace_marker import find_workspace, known_workspace
from turnwright_executor.peers import workspace_calls as calls
from turnwright_executor.ports.workspaces import FoundWorkspace
from turnwright_executor.shell.local_host import LocalHost
from turnwright_executor.tools.ports import CommandEnd, OutsideProjectError, ScannedFile, TooMuchError

SCANNERS_MAX: Final = 256
"""Scanners that are remembered; one that is forgotten begins anew."""


class _Scanner(Struct):
    """What a scanner has seen. Mutable: it counts its scans, which come one after the other."""

    place: calls.HostPlace
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
        super().__init__()
        self._host, self._root = host, root
        self._scanners: OrderedDict[str, _Scanner] = OrderedDict()
        self._commands: dict[str, _HostedCommand] = {}
        answers: dict[str, Callable[[Any, Call], Awaitable[object]]] = {
            "locate": self._locate,
            "normalise": self._normalise,
            "find": self._find,
            "gather": self._gather,
            "scan": self._scan,
            "replace": self._replace,
            "run": self._run,
            "extend": self._extend,
            "stop": self._stop,
        }
        for name, (effect_class, text) in calls.TOOLS.items():
            offer = self.tool(name, text, effect_class=effect_class.name.lower(), open_world=name == "run")
            offer(partial(_answered, answers[name], calls.ARGUMENTS[name]))

    async def _real(self, place: calls.HostPlace) -> str:
        """The directory of a project. Raises FileNotFoundError if there is none."""
        root = await on_files(lambda _: real_place(self._root, place.path))
        if root is None:
            raise FileNotFoundError(2, f"there is no directory {place.path} on the sandbox host")
        return root

    async def _locate(self, wanted: calls.LocateCall, _call: Call) -> calls.LocatedPlace | None:
        root = await on_files(lambda _: real_place(self._root, wanted.place.path))
        if root is None:
            return None
        found = await on_files(lambda _: find_workspace(root) if wanted.make else _known(root))
        shell = self._host.shell(root, Constraints())
        path = root[len(self._root.rstrip("/")) :] or "/"
        return calls.LocatedPlace(path, found.id, found.copied_from, shell.refusal, shell.keeps_read_only)

    async def _normalise(self, wanted: calls.NormaliseCall, _call: Call) -> str:
        workspace = self._host.workspace(await self._real(wanted.place), _constraints(wanted.place.rules))
        return await workspace.normalise(wanted.path, writing=wanted.writing)

    async def _find(self, wanted: calls.FindCall, _call: Call) -> object:
        workspace = self._host.workspace(await self._real(wanted.place), _constraints(wanted.place.rules))
        return await workspace.find(wanted.path)

    async def _gather(self, wanted: calls.GatherCall, _call: Call) -> object:
        workspace = self._host.workspace(await self._real(wanted.place), _constraints(wanted.place.rules))
        return await workspace.gather(wanted.path, wanted.files_max, wanted.bytes_max)

    async def _replace(self, wanted: calls.ReplaceCall, _call: Call) -> bool:
        workspace = self._host.workspace(await self._real(wanted.place), _constraints(wanted.place.rules))
        return await workspace.replace(wanted.path, wanted.content, wanted.base_hash, wanted.like, wanted.encoding)

    async def _scan(self, wanted: calls.ScanCall, call: Call) -> calls.ScanEnd:
        found, is_new = await self._scanner(wanted)
        async with found.lock:
            # It has seen more than the executor has heard of, as long as it is not heard to the end.
            generation, found.generation = found.generation, -1
            scan = await found.scanner.scan(wanted.doubtful)
            piece: list[ScannedFile] = []
            chars = 0
            for file in scan.changed:
                piece.append(file)
                chars += len(file.path) + len(file.text or "")
                if chars >= calls.PIECE_CHARS:
                    await call.progress(calls.encoded(piece))
                    piece, chars = [], 0
            if piece:
                await call.progress(calls.encoded(piece))
            found.generation = generation + 1
        return calls.ScanEnd(found.generation, scan.removed, is_new)

    async def _scanner(self, wanted: calls.ScanCall) -> tuple[_Scanner, bool]:
        """The scanner that is meant, and whether it has seen nothing yet."""
        place, is_new = wanted.place, False
        root = await self._real(place)
        found = self._scanners.pop(wanted.scanner, None)
        if found is None and (like := self._scanners.get(wanted.like)):
            async with like.lock:
                found = _Scanner(like.place, like.scanner.copied(), like.generation)
        if found is None or (found.place, found.generation) != (place, wanted.generation):
            is_new = True
            found = _Scanner(place, self._host.scanner(root, _constraints(place.rules), watched=True))
        self._scanners[wanted.scanner] = found
        if len(self._scanners) > SCANNERS_MAX:
            self._scanners.popitem(last=False)
        return found, is_new

    async def _run(self, wanted: calls.RunCall, call: Call) -> CommandEnd:
        ends_s = [_end_s(wanted.lasts_ms)]
        root = await self._real(wanted.place)
        shell = self._host.shell(root, _constraints(wanted.place.rules), ends_s=lambda: ends_s[0])
        running = asyncio.ensure_future(
            shell.run(
                wanted.command,
                wanted.timeout_s,
                lambda channel, text: call.progress(text, channel),
                read_only=wanted.read_only,
                is_owners=wanted.is_owners,
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
            raise ToolError(499, "The command was stopped.")
        return running.result()

    async def _extend(self, wanted: calls.ExtendCall, call: Call) -> bool:
        if (found := self._commands.get(wanted.call)) and wanted.call != call.request.call_id:
            found.ends_s[0] = _end_s(wanted.lasts_ms)
        return found is not None

    async def _stop(self, wanted: calls.StopCall, _call: Call) -> bool:
        if found := self._commands.get(wanted.call):
            found.task.cancel()
        return found is not None


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


@lru_cache(64)
def _constraints(rules: tuple[tuple[str, int], ...]) -> Constraints:
    return Constraints(FileConstraint(pattern, FileConstraintKind(kind)) for pattern, kind in rules)


def _end_s(lasts_ms: int) -> float:
    """When a command ends with its lease, by the clock of supervisors."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) + lasts_ms / 1000 if lasts_ms else inf


async def _answered(answer: Callable[[Any, Call], Awaitable[object]], arguments: Decoder[Any], call: Call) -> str:
    """The JSON of what a tool answers. Raises ToolError."""
    try:
        wanted = arguments.decode(call.request.arguments)
    except msgspec.DecodeError as error:
        raise ToolError(400, f"These are not the arguments of {call.request.tool}: {error}") from None
    try:
        return calls.encoded(await answer(wanted, call))
    except OutsideProjectError as error:
        problem = calls.HostProblem("outside", str(error))
    except TooMuchError as error:
        problem = calls.HostProblem("too_much", str(error))
    except OSError as error:
        problem = calls.HostProblem("os", error.strerror or str(error), error.errno or 5)
    except UnicodeEncodeError as error:
        problem = calls.HostProblem("os", f"a name there is not in UTF-8: {error.reason}", 84)
    raise ToolError(calls.PROBLEM_STATUS, calls.encoded(problem))
