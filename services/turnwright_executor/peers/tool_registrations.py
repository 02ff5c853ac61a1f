"""Which servers of tools are registered: those of the operator's file, read when it changes, and a project's own."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.catalogues.v1 import catalogue_service_pb2 as catalogue_pb
from turnwright.catalogues.v1 import catalogue_service_pb2_grpc
from turnwright.tool.v1 import tool_service_pb2 as pb

from turnwright_executor.domain.tool_servers import RegisteredServer, ServersFile, servers_in
from turnwright_executor.wire.tools import server_from_pb
from turnwright_kit.identity.caller import OF_CALL, Kind, current_caller
from turnwright_kit.identity.own_tokens import TokenKey, check_name, make_token
from turnwright_kit.identity.policy import Policy
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer

LOOK_S: Final = 1.0
"""Seconds between two looks whether the file has changed."""
SECRET_BYTES_MAX: Final = 4096

_log = get_logger("tools")

STORED_S: Final = 5.0
"""Seconds after which the store is asked again which servers a project has."""
PROJECTS_MAX: Final = 1024
"""Projects whose servers are remembered."""


class StoredServers:
    """The servers that are registered in the store, for all projects and for each: asked for while they are used."""

    def __init__(self, store: Peer) -> None:
        self._store = store
        self._rpcs = catalogue_service_pb2_grpc.CatalogueServiceStub(store.channel)
        self._known: dict[str, tuple[float, Sequence[RegisteredServer]]] = {}
        self._asking: dict[str, asyncio.Task[Sequence[RegisteredServer]]] = {}

    async def of(self, project: str) -> Sequence[RegisteredServer]:
        """The servers for a project, the deployment's first; what was known before, while the store is asked again.

        Raises TurnwrightError if nothing is known.
        """
        asked_s, known = self._known.get(project, (0.0, None))
        if known is not None and time.monotonic() - asked_s < STORED_S:
            return known
        asking = self._asking.get(project)
        if asking is None:
            asking = self._asking[project] = asyncio.create_task(self._asked(project), name=f"servers of {project}")
            asking.add_done_callback(partial(self._ended, project))
        return await asyncio.shield(asking) if known is None else known

    def _ended(self, project: str, task: asyncio.Task[Sequence[RegisteredServer]]) -> None:
        self._asking.pop(project, None)
        if not task.cancelled() and (error := task.exception()):
            _log.warning("tool_servers_unlisted", project=project, problem=str(error))

    async def _asked(self, project: str) -> Sequence[RegisteredServer]:
        request = catalogue_pb.ListToolServersRequest(project=project)
        answer = await self._store.call(self._rpcs.ListToolServers, request)
        found = (*_usable(answer.shared, ""), *_usable(answer.servers, project))
        if len(self._known) >= PROJECTS_MAX and project not in self._known:
            del self._known[next(iter(self._known))]
        self._known[project] = time.monotonic(), found
        return found

    async def own(self, project: str, name: str) -> RegisteredServer | None:
        """A project's own server as it is now, or the deployment's (empty), for the caller. Raises TurnwrightError."""
        request = catalogue_pb.ListToolServersRequest(project=project)
        # Services have no right in the deployment: there it is the caller's that counts.
        caller = None if project else current_caller()
        answer = await self._store.call(self._rpcs.ListToolServers, request, caller=caller)
        return next((one for one in _usable(answer.servers, project) if one.name == name), None)

    def forget(self, project: str) -> None:
        """Servers of a project have changed, or of the deployment (empty)."""
        for each in [project] if project else [*self._known]:
            self._known.pop(each, None)

    async def close(self) -> None:
        tasks = [*self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _usable(servers: Iterable[catalogue_pb.ToolServer], project: str) -> Iterator[RegisteredServer]:
    """The servers, without what another release has let in."""
    for one in servers:
        try:
            yield server_from_pb(one, project)
        except ValueError as error:
            _log.warning("tool_server_refused", server=one.name, project=project, problem=str(error))


class Registrations:
    """The servers for each project, and the secrets that they may be sent."""

    def __init__(self, name: str, stored: StoredServers) -> None:
        """Read the file of this name, if there is one. Raises ValueError with a sentence, and OSError."""
        file = Path(name).expanduser() if name else None
        self._file, self._stored = file, stored
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
        named = (one for one in self.file.servers if not one.projects or project in one.projects)
        return (*named, *(await self._stored.of(project) if project else ()))

    async def own(self, project: str, name: str) -> RegisteredServer | None:
        """A project's own server, or the deployment's (empty), for the caller. Raises TurnwrightError."""
        named = None if project else next((one for one in self.file.servers if one.name == name), None)
        return named or await self._stored.own(project, name)

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
            place = f"the variable {found.env}" if found.env else f"the file {found.file}"
            wrong = "that is not printable ASCII" if value else "nothing can be read there"
            raise ValueError(f"the secret {name} comes from {place} of the executor, and {wrong}")
        return value


class Callbacks:
    """Makes the tokens by which calls may call back: for one project and one call, with less than whoever has asked."""

    def __init__(self, key: TokenKey | None, policy: Policy) -> None:
        """`policy`: by which this executor decides on its callers."""
        self._key, self._policy = key, policy
        self._address = ""

    def reached_at(self, address: str) -> None:
        self._address = address

    @contextmanager
    def lasting(self, project: str, principal: str, lasts_s: float) -> Iterator[pb.Callback | None]:
        """A callback that ends with this context, and the least that there is: it reads, and works on files.

        None where no token can say who it is: the holder of the secret, and people of an issuer.
        """
        try:
            name = check_name(principal, Kind.PERSON)
        except ValueError:
            name = ""
        if self._key is None or not self._address or not name:
            yield None
            return
        lasts_s = max(1.0, lasts_s)
        token_id = f"{OF_CALL}{secrets.token_urlsafe(12)}"
        token = make_token(self._key, name, Kind.PERSON, lasts_s, projects=[project], token_id=token_id)
        self._policy.calls[token_id] = set()
        try:
            yield pb.Callback(
                address=self._address, token=token, expire_time=Timestamp(seconds=int(time.time() + lasts_s))
            )
        finally:
            self._policy.end_call(token_id)
