"""Import of a document while its bytes come: as a new run that nobody sees until it is whole, or to be staged.

Each element is checked by itself and left out if it is malformed, with a sentence in the answer. What is left is
written in transactions of bounded size, to a run that retention removes unless the last of them shows it
(sql.imported_runs). Everything stands in the run's own scope, also what other runs share where the document comes from:
an import neither changes nor reads the entries of others.
Source: rows RT01, RT03, RT04, RC08, OM38; the message RunDocument.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright.documents.v1 import document_service_pb2 as pb
from turnwright_values.store import Durability
from turnwright_values.types import Entry, Loop, Run, RunSettings, Turn

from turnwright_core.checks import check_words, invalid, over_limit
from turnwright_core.errors import TurnwrightError
from turnwright_core.json_items import JsonItem, JsonItems
from turnwright_core.limits import NAME_CHARS_MAX, PATH_CHARS_MAX, PERSONA_BYTES_MAX, WRITES_MAX
from turnwright_core.runs import COMPLETED, QUEUED
from turnwright_core.text import cut_bytes
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.document_elements import (
    ElementError,
    SeenEntry,
    check_entry,
    entry_of,
    json_value,
    loop_of,
    run_of,
    turn_of,
)
from turnwright_store.app.registry import check_alias_free, generate_alias, own_place
from turnwright_store.app.trajectories import Row, Trajectory
from turnwright_store.domain.checks import RUN_ALIAS, check_name
from turnwright_store.domain.locks import project_lock, run_lock
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import imported_runs as rows
from turnwright_store.sql.compression import DIGEST_BYTES
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.registry import ProjectRow, get_project
from turnwright_store.sql.runs import RunRow, get_run, is_taken

SCHEMA_VERSION: Final = 1
"""Version of the documents that this release writes; it reads those up to it."""

DOCUMENT_BYTES_MAX: Final = 4 * 1024**3
STAGED_BYTES_MAX: Final = 16 * 1024**2
"""Longest document that is staged: a run takes it over in one transaction."""

PART_BYTES_MAX: Final = 1024 * 1024
"""Most bytes of one message."""

SILENCE_S: Final = 20.0
"""Seconds without a part after which a document counts as cut off."""

KEEP_EVERY_S: Final = 10.0
"""Seconds after which what was written is kept for longer, though nothing was added."""

PROBLEMS_MAX: Final = 100
PROBLEM_CHARS_MAX: Final = 500
ALIASES_MAX: Final = 1000
"""Numbers that are tried behind the alias of a document."""

_BATCH_BYTES: Final = 1024 * 1024
_BATCH_ROWS: Final = 500
_BYTES_AT_ONCE: Final = 64 * 1024
"""Bytes that are read before other calls have their turn."""


class _Batch(Struct):
    """What the next transaction writes."""

    entries: list[tuple[SeenEntry, bool]] = field(default_factory=list)
    """Each with whether it is the first of its path."""
    loops: list[Loop] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    weight: int = 0

    @property
    def is_full(self) -> bool:
        return self.weight > _BATCH_BYTES or len(self.entries) + len(self.loops) + len(self.turns) >= _BATCH_ROWS


class _Numbers(Struct):
    """The highest numbers of a run, which go on from there."""

    revision: int = 1
    position: int = 0
    turn: int = 0
    loop: int = 0

    def take(self, *, revision: int = 0, position: int = 0, turn: int = 0, loop: int = 0) -> None:
        self.revision, self.position = max(self.revision, revision), max(self.position, position)
        self.turn, self.loop = max(self.turn, turn), max(self.loop, loop)


class _Path(Struct):
    """The path whose history is being read, the latest first."""

    name: str = ""
    before: int = 0
    """Revision of the element before."""
    entry: int = 0
    """Id of its entry; 0: nothing of it is written yet."""
    contents: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By revision, the length of each content and how much of it was appended."""


class Import:
    """One document on its way to be a run."""

    def __init__(self, database: Database, rules: StoreRules, caller: Caller, asked: pb.ImportRunRequest) -> None:
        """Raises InvalidError for what no import can ask for."""
        if asked.run:
            check_name("run", asked.run, RUN_ALIAS)
        if asked.run and asked.staged:
            raise invalid("run", "A staged document becomes no run: leave run empty.")
        check_words("document_id", asked.document_id, NAME_CHARS_MAX)
        self._database = database
        self._rules = rules
        self._caller = caller
        self._asked = asked
        self._owner: ProjectRow
        self._hidden: rows.HiddenRun
        self._batch, self._numbers = _Batch(), _Numbers()
        self._read_path, self._written_path = _Path(), _Path()
        self._paths: set[bytes] = set()
        self._latest = {"loops": 0, "turns": 0}
        self._count = 0
        """Paths and turns that were written."""
        self._run: Run | None = None
        self._members: dict[str, Callable[[JsonItem], None]] = {
            "schema_version": self._take_schema,
            "revision": self._take_revision,
            "run": self._take_run,
            "complete": self._take_complete,
            "id": self._take_id,
            "model": self._take_model,
            "title": self._take_title,
        }
        self._lists: dict[str, Callable[[JsonItem], None]] = {
            "loops": self._take_loop,
            "turns": self._take_turn,
            "entries": self._take_entry,
            "messages": self._take_message,
        }
        self._id = ""
        self._trajectory = Trajectory(_now_ms())
        self._schema = 0
        self._revision = 0
        self._is_complete = False
        self._written_s = 0.0
        self._bytes_max = STAGED_BYTES_MAX if asked.staged else DOCUMENT_BYTES_MAX
        self.problems: list[tuple[str, str]] = []
        self.skipped = 0

    async def read(self, parts: AsyncIterator[bytes]) -> None:
        """Write what the document has. Raises InvalidError if it is not one, or was cut off."""
        await self._begin()
        items, size = JsonItems(), 0
        async for part in _in_time(parts):
            size += len(part)
            if len(part) > PART_BYTES_MAX:
                raise over_limit("data", PART_BYTES_MAX, len(part), "bytes")
            if size > self._bytes_max:
                raise over_limit("data", self._bytes_max, size, "bytes in all")
            for begin in range(0, len(part), _BYTES_AT_ONCE):
                await self._feed(items, part[begin : begin + _BYTES_AT_ONCE])
                await asyncio.sleep(0)
            if time.monotonic() - self._written_s > KEEP_EVERY_S:
                await self._write()
        if not items.has_ended:
            raise invalid("data", "The document was cut off before its end: send all of it.")
        if not self._schema and self._id:
            self._end_trajectory()
        await self._write()
        self._check_whole()

    async def _begin(self) -> None:
        def begin(tx: Transaction) -> tuple[ProjectRow, rows.HiddenRun]:
            owner = get_project(tx.connection, self._asked.project)
            if self._asked.run:
                check_alias_free(tx.connection, self._asked.project, self._asked.run)
            return owner, rows.add_hidden_run(tx, owner, self._caller.name)

        locks = {project_lock(self._asked.project)}
        self._owner, self._hidden = await self._database.write(begin, Durability.NORMAL, locks)
        self._written_s = time.monotonic()

    async def _feed(self, items: JsonItems, data: bytes) -> None:
        try:
            for item in items.feed(data):
                self._take(item)
                if self._batch.is_full:
                    await self._write()
        except TurnwrightError:
            raise
        except ElementError as error:
            raise invalid("data", f"The document cannot be imported: {error}.") from None
        except ValueError as error:
            raise invalid("data", f"This is not a document of a run: {error}.") from None

    def _check_whole(self) -> None:
        if self._run is not None and self._id:
            return
        if not self._schema:
            raise invalid("data", "This is not a document of a run: it has no schema_version.")
        if self._run is None:
            raise invalid("data", "The document has no run: it needs one with its alias.")
        if not self._is_complete:
            raise invalid(
                "data", "The document was cut off where it was exported: it does not say that it is complete."
            )

    def _take(self, item: JsonItem) -> None:
        # What neither has is of a later release, or follows from the entries.
        if item.index is None:
            if take := self._members.get(item.name):
                take(item)
        elif take := self._lists.get(item.name):
            try:
                take(item)
            except ElementError as error:
                self._leave_out(f"{item.name}[{item.index}]", str(error))

    def _leave_out(self, place: str, problem: str) -> None:
        self.skipped += 1
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append((place, problem[:PROBLEM_CHARS_MAX]))

    # ---- The members of a document of ours. One that cannot be read fails the import, an element of a list does not.

    def _take_schema(self, item: JsonItem) -> None:
        self._schema = _whole_number(item)
        if not 0 < self._schema <= SCHEMA_VERSION:
            raise ElementError(
                f"it has the schema version {self._schema}, and this release reads 1 to {SCHEMA_VERSION}"
            )

    def _take_revision(self, item: JsonItem) -> None:
        self._revision = _whole_number(item)
        self._numbers.take(revision=self._revision)

    def _take_run(self, item: JsonItem) -> None:
        self._run = run_of(item, _now_ms())
        self._numbers.take(turn=self._run.turn)
        if self._asked.document_id not in ("", self._run.run):
            raise ElementError(f"it is of {self._run.run}, not of {self._asked.document_id}")

    def _take_complete(self, item: JsonItem) -> None:
        self._is_complete = json_value(item) is True

    def _take_loop(self, item: JsonItem) -> None:
        loop = loop_of(item, _now_ms())
        self._check_order("loops", loop.sequence)
        self._numbers.take(loop=loop.sequence, revision=loop.revision)
        self._batch.loops.append(loop)
        self._batch.weight += len(item.text)

    def _take_turn(self, item: JsonItem) -> None:
        turn = turn_of(item, _now_ms())
        self._check_order("turns", turn.number)
        self._numbers.take(turn=turn.number, loop=turn.loop, revision=turn.revision)
        self._batch.turns.append(turn)
        self._batch.weight += len(item.text)

    def _check_order(self, name: str, number: int) -> None:
        before = self._latest[name]
        if before and number >= before:
            raise ElementError(f"its number is {number}, after {before}: the latest must come first, each once")
        self._latest[name] = number

    def _take_entry(self, item: JsonItem) -> None:
        seen = entry_of(item, self._rules.limits)
        entry, path = seen.entry, self._read_path
        if entry.path != path.name:
            path = self._begin_path(entry.path)
        if path.before and not (0 < seen.end <= path.before):
            raise ElementError(f"it ends at {seen.end}, and what follows begins at {path.before}")
        if seen.content != entry.revision:
            known = path.contents.get(seen.content)
            if known is None or known[0] < entry.body_size_bytes:
                raise ElementError(f"its content is not at revision {seen.content}")
            if entry.body_size_bytes - seen.appended != known[0] - known[1]:
                raise ElementError("it is not the beginning of its content")
        else:
            path.contents[entry.revision] = entry.body_size_bytes, seen.appended
        is_first = not path.before
        path.before = entry.revision
        self._numbers.take(
            revision=max(entry.revision, seen.end), position=entry.position, turn=entry.turn, loop=entry.loop
        )
        self._batch.entries.append((seen, is_first))
        self._batch.weight += len(item.text)

    def _begin_path(self, name: str) -> _Path:
        """The path of an entry, whose history stands together. Raises ElementError."""
        key = hashlib.blake2b(name.encode(), digest_size=16).digest()
        if key in self._paths:
            raise ElementError("its path has come before: what was seen at a path must stand together")
        if len(self._paths) >= (most := self._rules.limits.run_entries_max):
            raise ElementError(f"the run has more than {most} paths")
        self._paths.add(key)
        self._read_path = _Path(name)
        return self._read_path

    # ---- The members of a trajectory

    def _take_id(self, item: JsonItem) -> None:
        name = json_value(item)
        if not isinstance(name, str) or not RUN_ALIAS.fullmatch(name):
            raise ElementError(f"its id must match {RUN_ALIAS.pattern}")
        if self._asked.document_id not in ("", name):
            raise ElementError(f"it is of {name}, not of {self._asked.document_id}")
        self._id = name

    def _take_model(self, item: JsonItem) -> None:
        model = json_value(item)
        if isinstance(model, str):
            check_words("model", model, PATH_CHARS_MAX)
            self._trajectory.model = model

    def _take_title(self, item: JsonItem) -> None:
        try:
            title = json_value(item)
        except ElementError as error:
            self._leave_out(item.name, str(error))
            return
        if isinstance(title, str):
            self._trajectory.set_title(title)

    def _take_message(self, item: JsonItem) -> None:
        if self._schema or self._paths:
            # They follow from the entries.
            return
        self._add(self._trajectory.take(json_value(item)))
        self._batch.weight += len(item.text)

    def _end_trajectory(self) -> None:
        self._add(self._trajectory.end())
        found = self._trajectory
        persona = cut_bytes(found.persona, PERSONA_BYTES_MAX) if found.persona else None
        settings = RunSettings(found.model, persona=persona)
        status = COMPLETED if found.loops else QUEUED
        self._run = Run("", self._id, settings, status, create_ms=_now_ms(), title=found.title)
        self._numbers.take(revision=found.revision, position=found.position, turn=found.turns, loop=found.loops)

    def _add(self, made: list[Row]) -> None:
        """What a message has become: each path is one of its own. Raises ElementError."""
        try:
            for row in made:
                if isinstance(row, SeenEntry):
                    check_entry(row.entry, self._rules.limits, has_content=True)
        except TurnwrightError as error:
            raise ElementError(error.message) from None
        for row in made:
            match row:
                case Loop():
                    self._batch.loops.append(row)
                case Turn():
                    self._batch.turns.append(row)
                case _:
                    self._batch.entries.append((row, True))

    # ---- Writing

    async def _write(self) -> None:
        batch, self._batch = self._batch, _Batch()
        self._count += len(batch.turns) + sum(is_first for _, is_first in batch.entries)
        if self._asked.staged and self._count > WRITES_MAX:
            raise over_limit("data", WRITES_MAX, self._count, "entries and turns")
        lock = run_lock(self._asked.project, self._hidden.alias)
        self._written_path = await self._database.write(
            partial(self._write_batch, batch=batch, path=self._written_path), Durability.NORMAL, {lock}
        )
        self._written_s = time.monotonic()

    def _write_batch(self, tx: Transaction, batch: _Batch, path: _Path) -> _Path:
        """Write a batch; returns the path that it ended in. It may run more than once."""
        self._keep(tx)
        for loop in batch.loops:
            rows.add_ended_loop(tx.connection, self._hidden, loop)
        for turn in batch.turns:
            rows.add_ended_turn(tx, self._hidden, turn)
        ids = iter(tx.entry_ids(count) if (count := sum(is_first for _, is_first in batch.entries)) else ())
        entry_rows, version_rows, view_rows = [], [], []
        entry = path.entry
        for seen, is_first in batch.entries:
            if is_first:
                entry = next(ids)
                entry_rows.append(self._entry_row(entry, seen.entry))
            if seen.content == seen.entry.revision:
                version_rows.append(self._version_row(entry, seen, tx.now_ms))
            view_rows.append(self._view_row(entry, seen, tx.now_ms))
        rows.add_entry_rows(tx, entry_rows, version_rows, view_rows)
        return _Path(entry=entry)

    def _keep(self, tx: Transaction) -> None:
        if not rows.keep_hidden_run(tx, self._hidden):
            raise invalid("data", "The import took too long and was given up: send the document again.")

    def _entry_row(self, entry: int, first: Entry) -> dict[str, Any]:
        place = {"scope_id": self._hidden.scope, "path": first.path, "scheme": first.scheme}
        return {"id": entry, **place, "head_rev": first.revision, "shared_rev": None}

    def _version_row(self, entry: int, seen: SeenEntry, now_ms: int) -> dict[str, Any]:
        one = seen.entry
        return {
            "id": version_key(entry, one.revision),
            "entry_id": entry,
            "from_rev": one.revision,
            "writer": int(one.writer),
            "actor": self._caller.name,
            "create_ms": one.update_ms or now_ms,
            "hash": hashlib.sha256(one.body.encode()).hexdigest() if one.body_size_bytes >= DIGEST_BYTES else "",
            "body_size_bytes": one.body_size_bytes - seen.appended,
            "stored_bytes": one.body_size_bytes,
            "attributes_bytes": len(one.attributes_json.encode()) + len(one.record),
            "attributes": one.attributes_json,
            "record": one.record or None,
            "body": one.body,
        }

    def _view_row(self, entry: int, seen: SeenEntry, now_ms: int) -> dict[str, Any]:
        one = seen.entry
        return {
            "run_id": self._hidden.id,
            "entry_id": entry,
            "path": one.path,
            "from_rev": one.revision,
            "to_rev": seen.end or None,
            "version_rev": seen.content,
            "chunk_bytes": seen.appended,
            "visibility": int(one.visibility),
            "state": int(one.state),
            "outcome": one.outcome,
            "turn": one.turn,
            "loop": one.loop,
            "position": one.position,
            "write_count": one.write_count,
            "create_ms": seen.begin_ms or now_ms,
        }

    # ---- The end

    def locks(self) -> set[str]:
        project = self._asked.project
        # An alias that is chosen by the transaction itself is free as long as no run is made in the project.
        return {project_lock(project), run_lock(project, self._hidden.alias), run_lock(project, self._asked.run)}

    def show(self, tx: Transaction) -> RunRow:
        """The last transaction: the run is there. Raises RUN_EXISTS."""
        run = self._run
        assert run, "a document without a run is refused"
        self._keep(tx)
        alias = self._free_alias(tx, run.run)
        numbers = self._numbers
        shown = replace(run, project=self._owner.project.name, run=alias, turn=numbers.turn, revision=numbers.revision)
        shown = replace(shown, place=own_place(run.settings, alias))
        rows.show_run(tx, self._owner, self._hidden, shown, numbers.loop, numbers.position)
        return get_run(tx.connection, self._asked.project, alias)

    def stage(self, tx: Transaction) -> tuple[str, int]:
        """The last transaction of a document that is staged: its name, and when it goes."""
        self._keep(tx)
        return rows.stage_run(tx, self._owner, self._hidden, self._caller.name)

    def _free_alias(self, tx: Transaction, wanted: str) -> str:
        if asked := self._asked.run:
            check_alias_free(tx.connection, self._asked.project, asked)
            return asked
        for number in range(1, ALIASES_MAX):
            alias = wanted if number == 1 else f"{wanted[: NAME_CHARS_MAX - 5]}-{number}"
            if not is_taken(tx.connection, self._asked.project, alias):
                return alias
        return generate_alias(tx, self._asked.project, wanted)


async def _in_time(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The parts, none of which comes too late. Raises InvalidError."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                part = await anext(parts, None)
        except TimeoutError:
            message = f"The document was cut off: no part of it has come for {SILENCE_S:g} seconds. Send it again."
            raise invalid("data", message) from None
        if part is None:
            return
        yield part


def _whole_number(item: JsonItem) -> int:
    """A number, also as the text that 64-bit numbers are in JSON. Raises ElementError."""
    value = json_value(item)
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ElementError(f"{item.name} is not a whole number")
    return int(text)


def _now_ms() -> int:
    return int(time.time() * 1000)
