"""Export of a run as one JSON document, in parts, of one moment.

Every page is read by itself, so that a slow reader holds no connection. All pages are of the revision at which the
export began: views are intervals, and what has gone on of loops and turns since is shown as under way.
Source: rows RT01, OM38; the message RunDocument.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.json_format import MessageToDict
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.types.v1 import entry_pb2
from turnwright_values.types import Entry, Loop, Turn

from turnwright_core.batching import split_by_weight
from turnwright_core.entries import STATES, TIERS, VISIBILITIES
from turnwright_core.errors import run_not_found
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.runs import RUNNING
from turnwright_core.wire.entries import entry_to_pb
from turnwright_core.wire.plans import plan_to_pb
from turnwright_core.wire.runs import loop_to_pb, run_to_pb, turn_to_pb
from turnwright_core.wire.times import time_to_pb
from turnwright_store.app.plans import list_plans
from turnwright_store.app.read_view import ENTRY_BYTES, weight_of
from turnwright_store.app.registry import list_loops, turns_by_number, with_origin
from turnwright_store.app.run_details import list_messages
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.run_history import SeenInterval, intervals_after
from turnwright_store.sql.runs import RunRow, get_run, get_run_head
from turnwright_store.sql.views import Wanted

T = TypeVar("T")

SCHEMA_VERSION: Final = 1
"""Version of the document's form."""

_PAGE: Final = 100
_TURNS: Final = 20
_INTERVALS: Final = 500
_WHOLE: Final = Wanted()
_OMITTED: Final = ("loop", "held", "state", "update_time", "revision")
"""Of a run: what is derived, or belongs to the deployment."""


class Export:
    """The export of one run, as pieces of text."""

    def __init__(self, database: Database, rules: StoreRules, address: RunRef, *, files: bool) -> None:
        """`files`: with the entries of project files."""
        self._database = database
        self._rules = rules
        self._address = address
        self._files = files

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The document in parts of about 256 KiB. Raises RUN_NOT_FOUND, also if the run is deleted meanwhile."""
        pending: list[bytes] = []
        size = 0
        async for piece in self._pieces():
            for begin in range(0, len(piece), CHUNK_BYTES):
                pending.append(piece[begin : begin + CHUNK_BYTES])
                size += len(pending[-1])
                if size >= CHUNK_BYTES:
                    yield b"".join(pending)
                    pending, size = [], 0
        yield b"".join(pending)

    async def _pieces(self) -> AsyncIterator[bytes]:
        run, head = await self._database.read(self._begin)
        yield b'{"schema_version":%d,"revision":"%d","run":%s' % (SCHEMA_VERSION, run.revision_run, head)
        lists = {
            "loops": self._loops(run),
            "turns": self._turns(run),
            "entries": self._entries(run),
            "plans": self._plans(),
            "messages": self._messages(),
        }
        for name, pages in lists.items():
            before = b',\n"%s":[\n' % name.encode()
            async for page in pages:
                for item in page:
                    yield before + _json(item)
                    before = b",\n"
            yield b"\n]" if before == b",\n" else before + b"]"
        await self._database.read(partial(self._check_there, run=run))
        yield b',\n"complete":true}\n'

    def _begin(self, connection: Connection) -> tuple[RunRow, bytes]:
        run = get_run(connection, self._address.project, self._address.run)
        shown = run_to_pb(with_origin(connection, run))
        for name in _OMITTED:
            shown.ClearField(name)
        return run, _json(shown)

    def _check_there(self, connection: Connection, run: RunRow) -> None:
        now = get_run_head(connection, self._address.project, self._address.run)
        if now.id != run.id:
            raise run_not_found(run.project, run.alias)

    async def _pages(self, read: Callable[..., tuple[Iterable[T], str]]) -> AsyncIterator[Iterable[T]]:
        """The pages of a list, read by its tokens."""
        token = ""
        while True:
            page, token = await self._database.read(partial(read, token=token))
            yield page
            if not token:
                return

    async def _loops(self, run: RunRow) -> AsyncIterator[Iterable[Any]]:
        read = partial(list_loops, project=run.project, alias=run.alias, size=_PAGE)
        async for page in self._pages(read):
            yield (loop_to_pb(_loop_at(loop, run.revision_run)) for loop in page if loop.sequence <= run.loops)

    async def _turns(self, run: RunRow) -> AsyncIterator[Iterable[Any]]:
        inherited = run.run.forked_from.turn if run.run.forked_from else 0
        for last in range(run.turn, 0, -_TURNS):
            numbers = range(max(1, last - _TURNS + 1), last + 1)
            found = await self._database.read(
                partial(turns_by_number, project=run.project, alias=run.alias, numbers=numbers)
            )
            yield (turn_to_pb(_turn_at(turn, run.revision_run, inherited)) for turn in reversed(found))

    async def _entries(self, run: RunRow) -> AsyncIterator[Iterable[Any]]:
        written = _WrittenContents()
        after = ("", 0)
        while page := await self._database.read(partial(self._intervals, run=run, after=after)):
            placed = [(one, written.place_of(one)) for one in page]
            for part in split_by_weight(placed, lambda one: ENTRY_BYTES if one[1] else weight_of(one[0].shown, _WHOLE)):
                rows = [one.shown for one, content in part if not content]
                loaded = await self._database.read(partial(load_entries, run=run, shown=rows, wanted=_WHOLE))
                contents = iter(loaded)
                yield [_interval_to_pb(one, None if content else next(contents), content) for one, content in part]
            after = page[-1].shown.path, page[-1].shown.revision

    def _intervals(self, connection: Connection, run: RunRow, after: tuple[str, int]) -> list[SeenInterval]:
        self._check_there(connection, run)
        return intervals_after(connection, run, after, _INTERVALS, files=self._files)

    async def _plans(self) -> AsyncIterator[Iterable[Any]]:
        async for page in self._pages(partial(list_plans, address=self._address, size=_PAGE)):
            yield map(plan_to_pb, page)

    def _messages(self) -> AsyncIterator[Iterable[Any]]:
        def read(connection: Connection, token: str) -> tuple[Iterable[Any], str]:
            found, _, token = list_messages(connection, self._rules, self._address, _PAGE, token, _no_limit)
            return found, token

        return self._pages(read)


def _no_limit() -> None:
    """Nothing is matched against a pattern that could take long."""


class _WrittenContents:
    """Where the contents of a path stand in the document."""

    def __init__(self) -> None:
        self._path = ""
        self._found: dict[int, tuple[int, int]] = {}

    def place_of(self, one: SeenInterval) -> int:
        """The revision of the earlier element that has the content of this one; 0: it is to have it itself."""
        row = one.shown
        if row.path != self._path:
            self._path, self._found = row.path, {}
        revision, size = self._found.get(row.content, (0, 0))
        if revision and row.body_size_bytes <= size:
            return revision
        self._found[row.content] = row.revision, row.body_size_bytes
        return 0


def _interval_to_pb(one: SeenInterval, entry: Entry | None, content: int) -> entry_pb2.EntryInterval:
    row = one.shown
    if entry is None:
        entry = Entry(
            path=row.path,
            scheme=row.scheme,
            body_size_bytes=row.body_size_bytes,
            visibility=VISIBILITIES[row.visibility],
            state=STATES[row.state],
            outcome=row.outcome,
            turn=row.turn,
            loop=row.loop,
            position=row.position,
            write_count=row.write_count,
            revision=row.revision,
            writer=TIERS[0],
        )
    elif not entry.hash:
        # Of a body that has grown: it is computed later.
        entry = replace(entry, hash=hashlib.sha256(entry.body.encode()).hexdigest())
    return entry_pb2.EntryInterval(
        entry=entry_to_pb(replace(entry, scope="")),
        end_revision=one.end,
        create_time=time_to_pb(row.view_ms),
        content_revision=content,
        appended_bytes=row.chunk_bytes,
    )


def _loop_at(loop: Loop, revision: int) -> Loop:
    """A loop as it was at a revision, and nobody's; one that has gone on since was under way."""
    loop = replace(loop, by="")
    if loop.revision <= revision:
        return loop
    return replace(loop, status=RUNNING, reason="", summary="", end_ms=0, revision=revision)


def _turn_at(turn: Turn, revision: int, inherited: int) -> Turn:
    """The same for a turn. One that was inherited has no revision of this run."""
    if turn.number <= inherited:
        return replace(turn, revision=0)
    return turn if turn.revision <= revision else replace(turn, result=None, end_ms=0, revision=revision)


def _json(message: Any) -> bytes:
    return msgspec.json.encode(MessageToDict(message, preserving_proto_field_name=True))
