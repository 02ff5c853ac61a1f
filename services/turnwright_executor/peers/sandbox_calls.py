"""Calls of sandbox hosts, and what is believed of their answers.

A host is another process, perhaps of another release: fields that it does not know are ignored on either side, and what
it answers is held to what was asked before anything is kept of it. What a host cannot be asked is an OSError, as of a
disk that is away; a command of which nobody knows what became is OutcomeUnknownError, and is never sent again.
Source: issue 36.7; docs/adr/0086.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, NoReturn

from msgspec import Struct
from turnwright.tool.v1 import result_pb2, tool_service_pb2
from turnwright.tool.v1 import workspace_pb2 as pb

from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tool_servers import RegisteredServer
from turnwright_executor.files.confinement import names_of
from turnwright_executor.peers.tool_servers import GrpcToolServers
from turnwright_executor.tools.contract import OutcomeUnknownError
from turnwright_executor.tools.ports import FileText, GatheredFiles, OutsideProjectError, TooMuchError
from turnwright_executor.tools.remote import CallFailedError, RemoteCall, attempts

REPEATED: Final = frozenset({"locate", "normalise", "find", "gather", "scan", "replace"})
"""What is sent again if its connection breaks: all but what acts on a command, which the host takes with it."""

AWAITED: Final = frozenset({"locate", "scan"})
"""What waits for a host that is away: that with which a loop, or a turn, begins."""

CALL_S: Final = 60.0
"""Time limit of a call in seconds, and what one of a command may take beyond the command."""

OnProgress = Callable[[result_pb2.ToolProgress | None], Awaitable[None]]
"""Takes the progress of a call; None: it is sent again, and what came before counts no more."""


async def _ignored(_: result_pb2.ToolProgress | None) -> None:
    """The default of a call whose progress says nothing."""


class HostedProject(Struct, frozen=True):
    """A project on a host, as one run calls it."""

    servers: GrpcToolServers
    server: RegisteredServer
    address: RunAddress
    place: pb.WorkspacePlace
    away_s: float
    """Seconds for which a loop that begins, or a turn, waits while it is away: one that restarts is soon back."""
    epoch: int = 0

    async def call(
        self,
        tool: str,
        on_progress: OnProgress = _ignored,
        *,
        call_id: str = "",
        timeout_s: float = CALL_S,
        **arguments: Any,
    ) -> Any:
        """The message that a tool answers. `arguments` are those of its message.

        Raises OutsideProjectError, TooMuchError, OSError, OutcomeUnknownError.
        """
        try:
            sent = pb.WorkspaceCall(place=self.place, **{tool: arguments})  # type: ignore[arg-type]
        except UnicodeEncodeError as error:
            raise OutsideProjectError(f"No file there can have this name: {error}.") from None
        result = await self._sent(tool, sent, on_progress, call_id, timeout_s)
        if result.HasField("problem"):
            _raise(result.problem)
        return getattr(result, tool)

    async def _sent(
        self, tool: str, wanted: pb.WorkspaceCall, on_progress: OnProgress, call_id: str, timeout_s: float
    ) -> pb.WorkspaceResult:
        key = secrets.token_hex(16)
        call = RemoteCall(
            self.address.project, self.address.run, call_id or f"{tool}/{key}", tool, "", self.epoch, key, "",
            registration=self.server.registration, timeout_s=timeout_s, is_repeatable=tool in REPEATED,
            away_s=self.away_s, is_awaited=tool in AWAITED,
        )  # fmt: skip
        try:
            sent = attempts(call, lambda attempt: self.servers.responses(self.server.name, attempt, wanted))
            async with aclosing(sent) as messages:
                async for message in messages:
                    if message is not None and not message.HasField("progress"):
                        return self._read(message, tool)
                    await on_progress(None if message is None else message.progress)
        except CallFailedError as error:
            if tool == "run" and error.is_sent and not _is_refused(error):
                raise OutcomeUnknownError(str(error)) from None
            raise self._failed(error) from None
        raise AssertionError("a call without a result has raised")

    def _failed(self, error: CallFailedError) -> OSError:
        if not error.is_lost and not error.outcome.endswith("503"):
            return OSError(errno.EPROTO, str(error))
        why = f"{error} The project is on the sandbox host {self.server.name}: start it again there, and go on"
        return OSError(errno.EHOSTDOWN, why)

    def _read(self, message: tool_service_pb2.DispatchResponse, tool: str) -> pb.WorkspaceResult:
        """The result of a tool, or its problem. Raises OSError; OutcomeUnknownError for one of `run`."""
        given = message.result.workspace
        kind = given.WhichOneof("result")
        if kind == "problem" or (kind == tool and not message.result.status):
            return given
        words = " ".join(part.text for part in message.result.parts)[:200]
        text = f"The sandbox host {self.server.name} answers what is not understood: {words or kind or 'nothing'}"
        if tool == "run":
            raise OutcomeUnknownError(text)
        raise OSError(errno.EPROTO, text)

    def path(self, path: str) -> str:
        """A path of an answer. Raises OSError for one that no file of a project has."""
        try:
            if names_of(path):
                return path
        except OutsideProjectError:
            pass
        raise self.wrong(f"a path that no file has: {path[:200]!r}")

    def file(self, file: pb.WorkspaceFile) -> FileText:
        """A file of an answer. Raises OSError for one that is longer than was asked for, or has no hash."""
        text = file.text if file.HasField("text") else None
        # No text has more characters than its file has bytes.
        if text is not None and len(text) > self.place.file_bytes_max:
            raise self.wrong(f"a file of {len(text)} characters, which is more than {self.place.file_bytes_max}")
        if not file.hash:
            raise self.wrong("a file without its hash")
        return FileText(text, file.hash, file.size_bytes, file.encoding, file.foreign_encoding)

    def gathered(self, found: pb.WorkspaceFiles, files_max: int, bytes_max: int) -> GatheredFiles:
        """The files of an answer. Raises OSError for more than was asked for."""
        content = {self.path(path): found.content[path] for path in sorted(found.content)}
        if len(content) > files_max or sum(map(len, content.values())) > bytes_max:
            raise self.wrong(f"more than {files_max} files or {bytes_max} bytes")
        return GatheredFiles(found.folder, content, tuple(found.left_out))

    def wrong(self, what: str) -> OSError:
        """The error for an answer of which nothing is kept."""
        return OSError(errno.EPROTO, f"The sandbox host {self.server.name} answers with {what}")


def _is_refused(error: CallFailedError) -> bool:
    """Whether a host has done nothing for sure: not for a conflict, as which a call that was cancelled comes."""
    return error.outcome[-3:] < "500" and not error.outcome.startswith("conflict")


def _raise(problem: pb.WorkspaceProblem) -> NoReturn:
    match problem.kind:
        case pb.WORKSPACE_PROBLEM_KIND_OUTSIDE:
            raise OutsideProjectError(problem.text)
        case pb.WORKSPACE_PROBLEM_KIND_TOO_MUCH:
            raise TooMuchError(problem.text)
        case _:
            raise OSError(problem.number or errno.EIO, problem.text)
