"""What the commands of a turn have written and the store has not yet: one write per phase, not one per command.

Theory of operation. A settled command's record and the entries that changed with it form a group. Groups wait here
until something must be durable (an effect on the world is next, a proposal is shown, the turn ends) or somebody
needs to read what an earlier command of the turn wrote. When the store refuses a group, that command has failed:
its record says so instead, and the other groups are not lost. A reply whose commands are all pure waits here too, in
front of them.
Source: architecture 2 ("few, fat RPCs"), 12.1; rows RU157, RP04.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry, WriteEntriesResponse
from turnwright_values.types import Cursor, Entry

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.schemes import Scheme
from turnwright_core.text import free_path, scheme_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import is_transient
from turnwright_executor.domain.footprint import Footprint
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.packets import ViewChanges
from turnwright_executor.turn.indeterminate import EFFECTS
from turnwright_executor.turn.records import moved_calls, new_record_write, record_write

REFUSALS = frozenset(
    {
        Reason.WRITER_FORBIDDEN,
        Reason.LIMIT_EXCEEDED,
        Reason.INVALID_FIELD,
        Reason.REVISION_CONFLICT,
        Reason.PLAN_ENTRY,
    }
)
"""Errors that are caused by a command's own writes."""


KEEP_TIMEOUT_S: Final = 2.0
"""Timeout for storing the results of a turn that is being stopped, in seconds."""


class _Group(Struct, frozen=True):
    record: str
    """The record of their command; empty: none."""
    writes: tuple[EntryWrite, ...]
    """Beside that record."""
    own: EntryWrite | None = None
    """The write of the record; None: it is created as it is by then, with the reply."""

    @property
    def paths(self) -> set[str]:
        return _paths_of(self.writes)

    def marks(self, record: str) -> bool:
        """Whether it marks an effect of this record that needs a grant."""
        return any(write.granted_tool and write.path == record for write in self.writes)


def _paths_of(writes: Iterable[EntryWrite]) -> set[str]:
    """Paths that writes touch, including the targets of copies and moves."""
    to = {write.change.to for write in writes if isinstance(write.change, CopyEntry | MoveEntry)}
    return to | {write.path for write in writes}


class WriteBuffer:
    """The unwritten groups of one turn (unit of work)."""

    def __init__(
        self,
        ledger: Ledger,
        address: RunAddress,
        epoch: int | None,
        turn: int,
        loop: int,
        records: dict[str, CommandRecord] | None = None,
        view_changes: ViewChanges | None = None,
        record_after_s: float = 0.0,
    ) -> None:
        """Write to this run under this claim; entries are stamped with the turn and the loop.

        `records` are the turn's by path; they are updated here as their commands end. `view_changes` collects what
        writes have changed in the view. After `record_after_s` a buffered reply is made durable.
        """
        self._record_after_s = record_after_s
        self._timer: asyncio.TimerHandle | None = None
        self._recording: asyncio.Task[None] | None = None
        self._view_changes = view_changes or ViewChanges()
        self._records: dict[str, CommandRecord] = {} if records is None else records
        self.ledger = ledger
        self.address = address
        self.epoch = epoch
        self._turn = turn
        self._loop = loop
        self._groups: list[_Group] = []
        self._flushing = asyncio.Lock()
        self._owned: tuple[str, int] | None = None
        self._reply = ""
        """The path of the reply while it is in the buffer, and with it all of its results."""
        self._unanswered: TurnwrightError | None = None
        """Why it is unknown whether the reply was written. Nothing more is written then: the next claim tells."""
        self._new: dict[str, CommandRecord] = {}
        """Records that are created after the reply in the buffer: each as it has ended by then, in one write."""
        self._changed_later: set[str] = set()
        """New records whose next states need writes of their own."""
        self._renamed: dict[str, str] = {}
        """Buffered records whose paths were taken by somebody else, with their new paths."""
        self._taken: set[str] = set()
        self.footprint = Footprint()
        """What the commands have added so far, besides their records."""
        self.cursor: Cursor | None = None
        """The moment of the latest write."""
        self.file_writes: list[EntryWrite] = []
        """Entries of project files that were or will be written."""

    def buffer_reply(self, writes: Sequence[EntryWrite]) -> None:
        """Buffer the reply as the turn's first writes, and after it the records of its commands.

        They are not durable until the first flush. If the commands take long, that is in the background: a model that
        was paid must not be asked again because of a slow page.
        """
        if writes:
            self._new = dict(self._records)
            self.add(*writes)
            self._reply = writes[0].path
            self._timer = asyncio.get_running_loop().call_later(self._record_after_s, self._record)

    @property
    def holds_reply(self) -> bool:
        """Whether the reply is in the buffer, and with it all of its results."""
        return bool(self._reply)

    def _record(self) -> None:
        if self._reply:
            self._recording = asyncio.create_task(self._try_flush(), name="record a reply")

    async def quiesce(self) -> None:
        """Write nothing in the background from now on."""
        if self._timer:
            self._timer.cancel()
        if self._recording:
            await self._recording

    async def _try_flush(self) -> None:
        try:
            await self.flush(full=True)
        except TurnwrightError as error:
            # What the store refuses now it will refuse again, in a call whose caller can find the cause.
            self._unanswered = error if is_transient(error) else None

    def require_revision(self, path: str, revision: int) -> None:
        """Write this record with optimistic locking: each write requires the revision of the previous one.

        If it has another one by now, nothing of a flush is written: that raises REVISION_CONFLICT.
        """
        self._owned = (path, revision)

    async def write_now(self, write: EntryWrite) -> None:
        async with self._flushing:
            await self._send((write,))

    async def _send(
        self, writes: Sequence[EntryWrite], *, full: bool = False, run_status: int = 0
    ) -> WriteEntriesResponse:
        path, revision = self._owned or ("", 0)
        if path:
            writes = [replace(one, expected_revision=revision) if one.path == path else one for one in writes]
        changes = self._view_changes
        ack = await self.ledger.write(
            self.address, self.epoch, writes, full=full, run_status=run_status, view_filter=changes.wanted
        )
        changes.add(ack.cursor, ack.view_change)
        if path:
            made = [now for one, now in zip(writes, ack.revisions, strict=True) if one.path == path]
            self._owned = (path, max([revision, *made]))
        return ack

    def settle(self, record: CommandRecord, done: Done) -> None:
        """Buffer the record's outcome, and what changes with it."""
        record = self._records[record.path] = record.settled(done)
        if done.writes:
            self.footprint.wrote(done.writes)
            self.file_writes += [write for write in done.writes if not scheme_of(write.path)]
        self._groups.append(_Group(record.path, tuple(map(self._stamped, done.writes)), self._ended(record)))

    def _ended(self, record: CommandRecord) -> EntryWrite | None:
        """The write of a record's outcome; None if it is created with it."""
        if record.path not in self._new or record.path in self._changed_later:
            return record_write(record)
        self._new[record.path] = record
        return None

    def _creation(self, record: CommandRecord) -> EntryWrite:
        return new_record_write(record, self._turn, self._loop, expected_revision=0)

    def move(self, record: CommandRecord, *writes: EntryWrite, granted_tool: str = "") -> None:
        """Buffer the new state of an unsettled record, and what is written with it.

        With `granted_tool` the store refuses it if that is not granted (GRANT_WITHDRAWN): move the record again then.
        """
        self._records[record.path] = record
        self._changed_later.add(record.path)
        self._groups = [group for group in self._groups if not group.marks(record.path)]
        self.add(replace(record_write(record), granted_tool=granted_tool), *writes)

    def add(self, *writes: EntryWrite) -> None:
        """Buffer writes that belong to no command."""
        self.footprint.wrote(writes)
        self._groups.append(_Group("", tuple(map(self._stamped, writes))))

    def _stamped(self, write: EntryWrite) -> EntryWrite:
        if write.turn is not None:
            return write
        return replace(write, turn=self._turn, loop=self._loop)

    def bypassed(self, cursor: Cursor) -> None:
        """A command's write has bypassed the buffer: the knowledge of the view has a gap."""
        self.footprint.mark_unknown()
        self._view_changes.add(cursor, None)
        self.cursor = cursor

    def writes(self) -> tuple[EntryWrite, ...]:
        """All buffered writes, for a call that carries them itself. Raises TurnwrightError if they may be stored."""
        if self._unanswered:
            raise self._unanswered
        writes: list[EntryWrite] = []
        for index, group in enumerate(self._groups):
            writes += (group.own, *group.writes) if group.own else group.writes
            if index == 0:
                # After the reply.
                writes += map(self._creation, self._new.values())
        return tuple(map(self.at_final_path, writes)) if self._renamed else tuple(writes)

    def at_final_path(self, write: EntryWrite) -> EntryWrite:
        """The write of a record with its new path, if it was renamed."""
        if self._renamed and scheme_of(write.path) == "assistant":
            return moved_calls(write, self._renamed)
        path = self._renamed.get(write.path)
        return replace(write, path=path) if path else write

    async def flush(self, *, full: bool = False, run_status: int = 0) -> None:
        """Write everything now. Raises TurnwrightError."""
        # One at a time: the two channels of a command grow at once, and nothing may be written twice.
        async with self._flushing:
            while self._groups or run_status:
                try:
                    await self._send_groups(full=full, run_status=run_status)
                except TurnwrightError as error:
                    if not await self.fail_refused_group(error):
                        raise
                else:
                    run_status = 0

    async def _send_groups(self, *, full: bool, run_status: int) -> None:
        """Write what is buffered by now. What arrives meanwhile is written after it, outcomes of new records too."""
        # Kept until then, so that no new group has the id of one of them.
        before = [*self._groups]
        sent = set(map(id, before))
        changed_later, self._changed_later = self._changed_later, set(self._new)
        try:
            ack = await self._send(self.writes(), full=full, run_status=run_status)
            self.cursor = ack.cursor
            self._reply, self._new = "", {}
        finally:
            arrived = [group for group in self._groups if id(group) not in sent]
            self._changed_later = changed_later.union(*({group.record, *group.paths} for group in arrived))
        self._groups = arrived

    async def flush_on_stop(self, error: BaseException | None = None) -> None:
        """Work was stopped by this exception: store the results so far. Never raises TurnwrightError.

        Otherwise the next owner would take finished commands for unfinished.
        """
        # If the store does not answer, or another executor has the run, the ledger stays as it is.
        with suppress(TurnwrightError, TimeoutError):
            async with asyncio.timeout(KEEP_TIMEOUT_S):
                await self._flush_or_save_outcomes(error)

    async def _flush_or_save_outcomes(self, error: BaseException | None) -> None:
        """Write the buffer; if the store rejects that permanently, at least the outcomes of commands."""
        await self.quiesce()
        try:
            if not isinstance(error, TurnwrightError):
                await self.flush(full=True)
        except TurnwrightError as refusal:
            error = refusal
        if isinstance(error, TurnwrightError) and not is_transient(error):
            paths = [group.record for group in self._groups if group.record]
            ended = [
                self._creation(self._new[path]) if path in self._new else record_write(self._records[path])
                for path in paths
            ]
            await self._send(list(map(self.at_final_path, ended)), full=True)

    async def fail_refused_group(self, error: TurnwrightError) -> bool:
        """Turn the group that caused a refusal into a failure of its command; False if there is none.

        If the path of a new record is taken, the record gets the next one. Raises TurnwrightError.
        """
        path = error.metadata.get("path")
        if error.reason not in REFUSALS or path is None:
            return False
        if self._reply and error.reason is Reason.REVISION_CONFLICT:
            if await self.ledger.get_entries(self.address, [self._reply]):
                # Taken by ourselves: a write that was cancelled before its answer came. It had all that is here.
                self._reply, self._new, self._groups = "", {}, []
                return True
            if self._rename(path):
                return True
        for index, group in enumerate(self._groups):
            if group.record and path in group.paths:
                record = self._records[group.record]
                # Files that it changed stay changed, and so does what a command outside has done: its mark has a key.
                is_begun = record.effect_class is EffectClass.OUTSIDE and bool(record.key)
                text = f"{error.message} {EFFECTS}" if is_begun else error.message
                done = replace(failed(error.metadata.get("outcome", "invalid:400"), text), files=record.files)
                record = self._records[group.record] = record.settled(done)
                self.file_writes = [write for write in self.file_writes if write.path not in group.paths]
                self._groups[index] = _Group(record.path, (), self._ended(record))
                return True
        return False

    def _rename(self, path: str) -> bool:
        """Move the record with a path to the next path; False if there is none."""
        for record in self._records:
            if self._renamed.get(record, record) == path:
                self._taken.add(path)
                self._renamed[record] = free_path(record, self._taken | self._records.keys())
                return True
        return False

    def _unwritten_paths(self) -> set[str]:
        """Buffered paths that a reader would miss; other commands do not read records."""
        return set(self._new).union(*(group.paths for group in self._groups))

    # ports for tools (tools.contract.Entries) ---------------------------------------------------------------------

    async def get(self, paths: Sequence[str]) -> list[Entry]:
        """The entries that exist among these paths, including buffered writes."""
        if not self._unwritten_paths().isdisjoint(paths):
            await self.flush()
        found = await self.ledger.get_entries(self.address, paths)
        self.footprint.read(found)
        return found

    async def find(
        self, pattern: str, body_pattern: str = "", *, limit: int = 1000, bodies: bool = True, files_only: bool = False
    ) -> list[Entry]:
        """The matching entries, including buffered writes."""
        if self._unwritten_paths():
            await self.flush()
        found = await self.ledger.find_entries(
            self.address, pattern, body_pattern, limit, bodies=bodies, files_only=files_only
        )
        self.footprint.read(found)
        return found

    def scheme(self, name: str) -> Scheme:
        return self.ledger.scheme(name)

    async def write(self, writes: Sequence[EntryWrite]) -> None:
        """Write at once: for output that grows while a command runs. Refused writes are dropped."""
        self.footprint.wrote(writes)
        group = _Group("", tuple(map(self._stamped, writes)))
        self._groups.append(group)
        try:
            await self.flush()
        except BaseException:
            # Another flush may have written it meanwhile.
            self._groups = [one for one in self._groups if one is not group]
            raise
