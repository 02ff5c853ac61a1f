"""Which servers of tools are registered: those of the operator's file, read when it changes, and a project's own."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.tool.v1 import tool_service_pb2 as pb

from turnwright_executor.domain.tool_servers import RegisteredServer, ServersFile, servers_in
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import TokenKey, check_name, make_token
from turnwright_kit.logs import get_logger

LOOK_S: Final = 1.0
"""Seconds between two looks whether the file has changed."""
SECRET_BYTES_MAX: Final = 4096

_log = get_logger("tools")

OfProject = Callable[[str], Awaitable[Sequence[RegisteredServer]]]


async def none_of(_project: str) -> Sequence[RegisteredServer]:
    return ()


class Registrations:
    """The servers for each project, and the secrets that they may be sent."""

    def __init__(self, name: str, of_project: OfProject = none_of) -> None:
        """Read the file of this name, if there is one. Raises ValueError with a sentence, and OSError."""
        file = Path(name).expanduser() if name else None
        self._file, self._of_project = file, of_project
        self._seen = self._stamp()
        self._read = servers_in(file.read_text("utf-8")) if file else ServersFile()
        self._look_s = time.monotonic() + LOOK_S

    @property
    def file(self) -> ServersFile:
        """What the file says. One that has become unreadable leaves what was there."""
        if self._file and time.monotonic() > self._look_s:
            self._look_s = time.monotonic() + LOOK_S
            if (stamp := self._stamp()) != self._seen:
                self._seen = stamp
                try:
                    self._read = servers_in(self._file.read_text("utf-8"))
                except (OSError, ValueError) as error:
                    _log.warning("tool_servers_refused", file=str(self._file), problem=str(error))
        return self._read

    def _stamp(self) -> tuple[int, int]:
        try:
            found = self._file.stat() if self._file else None
        except OSError:
            found = None
        return (found.st_mtime_ns, found.st_size) if found else (0, 0)

    async def of(self, project: str) -> Sequence[RegisteredServer]:
        """The servers for a project, the deployment's first. Raises TurnwrightError."""
        return (*self.file.servers, *await self._of_project(project))

    def secret(self, name: str, project: str) -> str:
        """A secret for a project's server, or the deployment's (empty). Raises ValueError with a sentence."""
        found = self.file.secrets.get(name)
        if found is None or (project and project not in found.projects):
            raise ValueError(f"the operator's file has no [secret.{name}] for it")
        try:
            value = os.environ.get(found.env, "") if found.env else Path(found.file).read_text("utf-8")
        except (OSError, ValueError):
            value = ""
        value = value.strip()
        if not value or len(value) > SECRET_BYTES_MAX or not value.isascii() or not value.isprintable():
            raise ValueError(f"the secret {name} is empty here, or no header can hold it")
        return value


class Callbacks:
    """Makes the tokens by which calls may call back: for one project, as whoever has asked, until the call must end."""

    def __init__(self, key: TokenKey | None) -> None:
        self._key = key
        self._address = ""

    def reached_at(self, address: str) -> None:
        self._address = address

    def make(self, project: str, principal: str, lasts_s: float) -> pb.Callback | None:
        """None where no token can say who it is: the holder of the secret, and people of an issuer."""
        if self._key is None or not self._address or not principal:
            return None
        try:
            check_name(principal, Kind.PERSON)
        except ValueError:
            return None
        lasts_s = max(1.0, lasts_s)
        token = make_token(self._key, principal, Kind.PLUGIN, lasts_s, projects=[project])
        return pb.Callback(
            address=self._address, token=token, expire_time=Timestamp(seconds=int(time.time() + lasts_s))
        )
