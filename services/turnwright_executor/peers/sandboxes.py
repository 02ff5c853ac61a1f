"""Projects on sandbox hosts: the ports of files, scans and commands, carried out by a server of tools elsewhere.

The executor decides; the host executes. What a host cannot be asked is an OSError, as of a disk that is away, and a
command of which nobody knows what became is unknown to the loop, too: it is never sent again.
Source: issue 36.7; docs/adr/0086.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from math import isinf
from typing import Any, Final, NoReturn, TypeVar
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct

from turnwright_core.constraints import Constraints
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.text import host_and_path
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.tool_result import TextPart, ToolResult
from turnwright_executor.domain.tool_servers import RegisteredServer
from turnwright_executor.peers import workspace_calls as calls
from turnwright_executor.ports.workspaces import FoundWorkspace, HostedPlace, Scan, SeenFile
from turnwright_executor.tools.contract import OutcomeUnknownError
from turnwright_executor.tools.ports import (
    CommandEnd,
    FileText,
    GatheredFiles,
    OutsideProjectError,
    ScannedFile,
    TooMuchError,
)
from turnwright_executor.tools.remote import CallFailedError, CallProgress, RemoteCall, ToolServers

ATTEMPTS_MAX: Final = 2
"""How often a call is sent that may be repeated."""

LOOK_S: Final = 0.5
"""Seconds between two tries meanwhile."""

CALL_S: Final = 60.0
"""Time limit of a call in seconds, and what one of a command may take beyond the command."""

SCAN_S: Final = 600.0
"""Time limit of a scan: the first one sends every file."""

EXTEND_S: Final = 0.25
"""Seconds between two looks whether a lease lasts longer."""

STOP_S: Final = 10.0
"""Seconds in which a command that is stopped must have ended."""

T = TypeVar("T")
OnProgress = Callable[[CallProgress], Awaitable[None]]


async def _ignored(_: CallProgress) -> None:
    """The default of a call whose progress says nothing."""


class _Host(Struct, frozen=True):
    """A project on a host, as one run calls it."""

    servers: ToolServers
    server: RegisteredServer
    address: RunAddress
    place: calls.HostPlace
    away_s: float
    """Seconds for which a loop that begins, or a turn, waits while it is away: one that restarts is soon back."""
    epoch: int = 0

    async def call(
        self,
        tool: str,
        arguments: Struct,
        on_progress: OnProgress = _ignored,
        *,
        call_id: str = "",
        timeout_s: float = CALL_S,
    ) -> Any:
        """What a tool answers, as ANSWERS reads it.

        Raises OutsideProjectError, TooMuchError, OSError, OutcomeUnknownError.
        """
        try:
            sent = calls.encoded(arguments)
        except UnicodeEncodeError as error:
            raise OutsideProjectError(f"No file there can have this name: {error}.") from None
        effect_class, _ = calls.TOOLS[tool]
        key = secrets.token_hex(16)
        call = RemoteCall(
            self.address.project, self.address.run, call_id or f"{tool}/{key}", tool, sent, self.epoch, key, "",
            registration=self.server.registration, timeout_s=timeout_s,
        )  # fmt: skip
        is_repeated = effect_class is not EffectClass.OUTSIDE and on_progress is _ignored
        for attempt in range(ATTEMPTS_MAX):
            try:
                return await self._answer(call, on_progress)
            except CallFailedError as error:
                if effect_class is EffectClass.OUTSIDE and error.is_sent and error.outcome[-3:] >= "500":
                    raise OutcomeUnknownError(str(error)) from None
                if not (error.is_lost and is_repeated) or attempt == ATTEMPTS_MAX - 1:
                    raise self._failed(error) from None
        raise AssertionError("the last attempt has raised")

    def _failed(self, error: CallFailedError) -> OSError:
        if error.is_sent and not error.is_lost:
            return OSError(errno.EPROTO, str(error))
        why = f"{error} The project is on the sandbox host {self.server.name}: start it again there, and go on"
        return OSError(errno.EHOSTDOWN, why)

    async def _answer(self, call: RemoteCall, on_progress: OnProgress) -> Any:
        async with aclosing(self.servers.dispatch(self.server.name, call)) as events:
            async for event in events:
                if isinstance(event, CallProgress):
                    await on_progress(event)
                elif isinstance(event, ToolResult):
                    return _read(event, call.tool)
        text = f"The sandbox host {self.server.name} has given no result."
        raise CallFailedError("protocol:502", text, is_sent=True, is_lost=True)

    async def once_there(self, asked: Callable[[], Awaitable[T]]) -> T:
        """Ask again for a while if the host is away."""
        end_s = time.monotonic() + self.away_s
        while True:
            try:
                return await asked()
            except OSError as error:
                if error.errno != errno.EHOSTDOWN or time.monotonic() > end_s:
                    raise
            await asyncio.sleep(LOOK_S)


def _read(result: ToolResult, tool: str) -> Any:
    text = "".join(part.text for part in result.parts if isinstance(part, TextPart))
    try:
        if result.status == calls.PROBLEM_STATUS:
            _raise(calls.PROBLEMS.decode(text))
        if not result.status:
            return calls.ANSWERS[tool].decode(text)
    except msgspec.DecodeError:
        pass
    raise OSError(errno.EPROTO, f"The sandbox host answers what is not understood: {text[:200]}")


def _raise(problem: calls.HostProblem) -> NoReturn:
    match problem.kind:
        case "outside":
            raise OutsideProjectError(problem.text)
        case "too_much":
            raise TooMuchError(problem.text)
        case _:
            raise OSError(problem.number, problem.text)


class HostedWorkspace:
    """Implements tools.ports.Workspace on a host."""

    def __init__(self, host: _Host) -> None:
        self._host = host

    async def normalise(self, path: str, *, writing: bool = False) -> str:
        found: str = await self._host.call("normalise", calls.NormaliseCall(self._host.place, path, writing))
        return found

    async def read(self, path: str) -> FileText | None:
        return (await self.find(path))[1]

    async def find(self, path: str) -> tuple[str, FileText | None]:
        found: tuple[str, FileText | None] = await self._host.call("find", calls.FindCall(self._host.place, path))
        return found

    async def gather(self, path: str, files_max: int, bytes_max: int) -> GatheredFiles | None:
        wanted = calls.GatherCall(self._host.place, path, files_max, bytes_max)
        found: GatheredFiles | None = await self._host.call("gather", wanted)
        return found

    async def replace(
        self, path: str, content: str | None, base_hash: str | None, like: str = "", encoding: str = ""
    ) -> bool:
        wanted = calls.ReplaceCall(self._host.place, path, content, base_hash, like, encoding)
        done: bool = await self._host.call("replace", wanted)
        return done


class HostedScanner:
    """Implements ports.FileScanner on a host."""

    def __init__(self, host: _Host) -> None:
        self._host = host
        self._id, self._like = secrets.token_hex(16), ""
        self._generation = 0
        self._seen: dict[str, SeenFile] = {}

    @property
    def files(self) -> Mapping[str, SeenFile]:
        return self._seen

    def copied(self) -> HostedScanner:
        made = HostedScanner(self._host)
        made._like, made._generation, made._seen = self._id, self._generation, dict(self._seen)
        return made

    async def scan(self, doubtful: Collection[str] = ()) -> Scan:
        """As the port says. What a host has forgotten it tells again, and what stayed the same is left out here."""
        return await self._host.once_there(partial(self._scan, tuple(doubtful)))

    async def _scan(self, doubtful: tuple[str, ...]) -> Scan:
        found: list[ScannedFile] = []

        async def take(progress: CallProgress) -> None:
            try:
                found.extend(calls.PIECES.decode(progress.text))
            except msgspec.DecodeError:
                raise OSError(errno.EPROTO, "The sandbox host tells of files what is not understood.") from None

        wanted = calls.ScanCall(self._host.place, self._id, self._generation, self._like, doubtful)
        end: calls.ScanEnd = await self._host.call("scan", wanted, take, timeout_s=SCAN_S)
        before, removed = self._seen, end.removed
        seen = {file.path: SeenFile(file.hash, None if file.text is None else len(file.text)) for file in found}
        if end.is_new:
            removed = tuple(sorted({*end.removed, *(before.keys() - seen.keys())}))
            same = {path for path in seen if path in before and before[path].hash == seen[path].hash}
            found = [file for file in found if file.path not in same or file.path in doubtful]
            self._seen = seen
        else:
            self._seen = {**before, **seen}
            for path in removed:
                self._seen.pop(path, None)
        self._generation, self._like = end.generation, ""
        return Scan(tuple(found), removed)


class HostedShell:
    """Implements tools.ports.Shell on a host."""

    def __init__(
        self, host: _Host, located: calls.LocatedPlace, ends_s: Callable[[], float], now_s: Callable[[], float]
    ) -> None:
        """`ends_s` says until when commands may run, by the clock `now_s`."""
        self._host, self._ends_s, self._now_s = host, ends_s, now_s
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
        host, ends_s = self._host, self._ends_s()
        wanted = calls.RunCall(host.place, command, timeout_s, read_only, is_owners, network, self._lasts_ms(ends_s))

        async def pass_on(progress: CallProgress) -> None:
            await on_output(progress.channel or 1, progress.text)

        running: asyncio.Future[CommandEnd] = asyncio.ensure_future(
            host.call("run", wanted, pass_on, call_id=call_id, timeout_s=timeout_s + CALL_S)
        )
        extending = asyncio.create_task(self._extend(call_id, ends_s))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if not running.done():
                await self._stop(call_id, running)
            raise
        finally:
            for task in (extending, running):
                task.cancel()
            await asyncio.gather(extending, running, return_exceptions=True)

    async def _stop(self, call_id: str, running: asyncio.Future[CommandEnd]) -> None:
        """Stop the command, and wait for its end: what it had written until then arrives before."""
        with suppress(OSError, OutsideProjectError):
            await self._host.call("stop", calls.StopCall(call_id), timeout_s=STOP_S)
            await asyncio.wait([running], timeout=STOP_S)

    async def _extend(self, call_id: str, known_s: float) -> None:
        """Tell the host of each renewal of the lease; without one the command ends there."""
        while True:
            await asyncio.sleep(EXTEND_S)
            if (ends_s := self._ends_s()) != known_s:
                # Lost only with the connection, and then the command ends.
                with suppress(OSError):
                    extend = calls.ExtendCall(call_id, self._lasts_ms(ends_s))
                    await self._host.call("extend", extend, timeout_s=STOP_S)
                known_s = ends_s

    def _lasts_ms(self, ends_s: float) -> int:
        # 0 would mean no end at all.
        return 0 if isinf(ends_s) and ends_s > 0 else max(1, int((max(ends_s, 0.0) - self._now_s()) * 1000))


class GrpcSandboxHosts:
    """Implements ports.SandboxHosts with the servers of the operator's file that are sandbox hosts."""

    def __init__(
        self,
        servers: ToolServers,
        registered: Callable[[], Sequence[RegisteredServer]],
        now_s: Callable[[], float],
        away_s: float,
    ) -> None:
        """`now_s` is the clock of leases, in seconds. `away_s`: how long to wait for a host that is away."""
        self._servers, self._registered, self._now_s, self._away_s = servers, registered, now_s, away_s

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
        scanner = partial(HostedScanner, self._host(address, 0, root, constraints.rules))
        return HostedPlace(HostedWorkspace(host), HostedShell(host, located, ends_s, self._now_s), scanner)

    async def _located(self, host: _Host, root: str, *, make: bool) -> calls.LocatedPlace | None:
        try:
            asked = partial(host.call, "locate", calls.LocateCall(host.place, make))
            located: calls.LocatedPlace | None = await host.once_there(asked)
        except (OSError, OutsideProjectError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise _unavailable(host.address.project, root, why or str(error)) from None
        return located

    def _host(self, address: RunAddress, epoch: int, root: str, rules: tuple[tuple[str, int], ...]) -> _Host:
        """Raises WORKSPACE_UNAVAILABLE for a host that is not registered."""
        name, path = host_and_path(root)
        found = next((one for one in self._registered() if one.name == name and one.workspaces), None)
        if found is None:
            why = (
                f"no sandbox host {name!r} is registered: a [[server]] of TURNWRIGHT_TOOL_SERVERS with this name and "
                "`workspaces = true`"
            )
            raise _unavailable(address.project, root, why)
        return _Host(self._servers, found, address, calls.HostPlace(path, rules), self._away_s, epoch)


def _unavailable(project: str, root: str, why: str) -> TurnwrightError:
    message = f"{root} cannot be worked in: {why}."
    return fault(Reason.WORKSPACE_UNAVAILABLE, message, project=project, root=root)
