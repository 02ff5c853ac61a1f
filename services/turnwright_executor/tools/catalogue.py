"""The catalogue of a loop's tools: the runtime's, plugins', its client's and those of servers, as it began with them.

What servers bring can come, change and go at any time. So a loop that begins takes a snapshot, with a version that
follows from its content; its first turn writes it as an entry of the run, and each turn names the version. Whoever goes
on with the loop has the snapshot from the cache, or from the entry. Source: architecture 6; docs/adr/0081.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol, TypeVar

import msgspec
from msgspec import Struct, field
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from turnwright_core.instructions import TOOLS_PATH
from turnwright_core.text import count_tokens
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.tool_spec import ServedTool
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.remote import RemoteTool, ToolServers, give_up
from turnwright_executor.tools.tool_search import CALL_TOOL, SEARCH_TOOLS, CallTool, SearchTools

V = TypeVar("V")

WINDOW_PART: Final = 10
"""Tools of servers that take more than one part in so many of the window are offered by names."""

CACHED_MAX: Final = 64
"""Snapshots that are remembered."""

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_DECODER: Final = msgspec.json.Decoder(tuple[ServedTool, ...])


class Snapshot(Struct, frozen=True):
    """The tools of servers as a loop keeps them. Without any the version is empty."""

    version: str = ""
    specs: tuple[ServedTool, ...] = ()
    text: str = ""
    """The content of its entry."""
    tools: Mapping[str, OutsideTool] = field(default_factory=dict)
    chars: int = 0
    """Length of what offering all of them in full sends."""

    def tokens(self, divisor: int) -> int:
        return -(-self.chars // divisor)

    def is_long(self, window: int, divisor: int) -> bool:
        return self.tokens(divisor) > window // WINDOW_PART

    def write(self) -> EntryWrite:
        return EntryWrite(TOOLS_PATH, SetEntry(body=self.text, state=State.RESOLVED), Tier.SYSTEM)


EMPTY: Final = Snapshot()


class SpecSource(Protocol):
    """What knows which tools servers bring."""

    async def specs(self, project: str) -> Sequence[ServedTool]:
        """The tools of the deployment's servers and of a project's that can be offered now. Raises nothing.

        Answers at once where it can: a server that is away keeps a loop waiting at most once, for a short time.
        """


class ToolCatalogue:
    """Snapshots of the tools of servers. Without servers there is nothing but EMPTY."""

    def __init__(self, source: SpecSource | None = None, servers: ToolServers | None = None) -> None:
        self._source, self._servers = source, servers
        self._known: dict[str, Snapshot] = {}
        self._latest: dict[str, tuple[tuple[ServedTool, ...], Snapshot]] = {}

    async def current(self, project: str) -> Snapshot:
        """What a loop of a project that begins now takes."""
        if self._source is None:
            return EMPTY
        specs = tuple(one for one in await self._source.specs(project) if not one.is_refused)
        before = self._latest.get(project)
        if before and before[0] == specs:
            return before[1]
        found = self._snapshot(specs)
        _remember(self._latest, project, (specs, found))
        return found

    async def kept(self, version: str, read: Callable[[], Awaitable[str]]) -> Snapshot:
        """The snapshot that a loop began with; `read` reads its entry.

        EMPTY if the entry is no such snapshot: then calls of its tools fail, and the model is told.
        """
        if not version or self._servers is None:
            return EMPTY
        if found := self._known.get(version):
            return found
        try:
            found = self._snapshot(_DECODER.decode(await read()))
        except msgspec.MsgspecError:
            return EMPTY
        return found if found.version == version else EMPTY

    def give_up(self, address: RunAddress, epoch: int, record: CommandRecord) -> None:
        """See tools.remote.give_up."""
        if self._servers is not None:
            give_up(self._servers, address, epoch, record)

    def _snapshot(self, specs: tuple[ServedTool, ...]) -> Snapshot:
        if not specs or self._servers is None:
            return EMPTY
        text = _ENCODER.encode(specs).decode()
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        if found := self._known.get(version):
            return found
        tools = {one.name: RemoteTool(one, self._servers) for one in specs}
        chars = sum(chars_of(one) for one in tools.values())
        found = Snapshot(version, specs, text, MappingProxyType(tools), chars)
        _remember(self._known, version, found)
        return found


def chars_of(tool: RemoteTool) -> int:
    """Length of what offering a tool in full sends, in the longer of both forms."""
    native = len(tool.native_text) + len(tool.spec.shown or tool.spec.schema)
    return max(len(tool.doc), native) + len(tool.name)


def tokens_of(tool: RemoteTool, divisor: int) -> int:
    return count_tokens("x" * chars_of(tool), divisor)


def brought(snapshot: Snapshot, *, by_names: bool, is_native: bool) -> Mapping[str, OutsideTool]:
    """The tools of a snapshot, with those that stand for them if they are offered by names."""
    if not by_names:
        return snapshot.tools
    search = SearchTools(snapshot.tools, is_native=is_native)
    more: dict[str, OutsideTool] = {SEARCH_TOOLS: search}
    if is_native:
        more[CALL_TOOL] = CallTool()
    return {**more, **snapshot.tools}


def _remember(known: dict[str, V], key: str, value: V) -> None:
    if len(known) >= CACHED_MAX:
        del known[next(iter(known))]
    known[key] = value
