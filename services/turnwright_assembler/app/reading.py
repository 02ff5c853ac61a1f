"""Updates the cached rows of a run: from the view changes of the caller, else by reading from the store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Final, Generic, TypeVar

from turnwright_values.assembler import AssembleRequest
from turnwright_values.types import Cursor, ViewChange

from turnwright_assembler.app.run_cache import BorrowedRows, CachedRows
from turnwright_assembler.app.run_rows import OtherRulesError
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.plugin_sections import PacketPlugins, PluginFunction, watched
from turnwright_core.errors import RangeError, Reason, TurnwrightError, fault
from turnwright_kit.plugin_calls import LateError, PluginCalls, PluginError

# Time limits for work that calls plugins: it runs in a thread with a deadline.
#
# A plugin's function may take long, or never return, and the event loop serves all runs. So if there are plugins, each
# step of a packet runs in a thread. A step that is late is abandoned: its packet fails with the name of the plugin in
# charge, and nothing that it still changes is used. A thread cannot be stopped; see PluginCalls. Source: architecture
# 12.9; rows RU145.

DEADLINE_S: Final = 10.0
"""Default time limit of a step, in seconds."""

T = TypeVar("T")


class StepRunner:
    """Runs the steps of packets."""

    def __init__(self, packet_plugins: PacketPlugins, deadline_s: float = DEADLINE_S) -> None:
        """`deadline_s` limits each step, in seconds; without plugins there is no limit, and no thread."""
        self._packet_plugins = packet_plugins
        self._calls = PluginCalls(deadline_s) if packet_plugins.plugins else None

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Run the work. Raises its errors, and PLUGIN_FAILED at the deadline."""
        if self._calls is None:
            return work(*given)
        busy: list[PluginFunction] = []
        try:
            result: T = await self._calls.call(watched, busy, work, *given)
        except PluginError as error:
            if not isinstance(error.fault, LateError):
                raise error.fault from None
            part = busy[-1] if busy else PluginFunction(" ".join(self._packet_plugins.plugins), "the packet", str)
            what = f"did not finish {part.name} within {self._calls.deadline_s:g} s"
            raise part.failure(what, error.fault) from None
        return result


R = TypeVar("R", bound=CachedRows)


class RowsReader(Generic[R]):
    """Reads rows of one kind."""

    def __init__(
        self,
        kind: type[R],
        make: Callable[[], R],
        read: Callable[[AssembleRequest, R], AsyncGenerator[ViewPart, None]],
        takes: Callable[[ViewChange, R], bool],
        runner: StepRunner,
    ) -> None:
        """`make` begins empty ones, `read` reads what changed since theirs, `takes` says which changes they take."""
        self._kind = kind
        self._make = make
        self._read = read
        self._takes = takes
        self._runner = runner

    async def up_to_date(self, ask: AssembleRequest, held: BorrowedRows) -> R:
        """The rows of a run as of now. Raises TurnwrightError."""
        rows = held.rows if isinstance(held.rows, self._kind) else None
        # Where updating them fails half way, they are not kept.
        held.rows = None
        if rows is None and ask.view_changes and not ask.view_changes[0].before.run_revision:
            # The run's view was empty then.
            rows = await self._runner.run(self._make)
        if rows and ask.at_least and self._lead_to(ask.at_least, ask.view_changes, rows):
            for change in ask.view_changes:
                part = ViewPart(tuple(change.entries), tuple(change.removed_paths), change.after)
                await self._runner.run(rows.apply, part)
            held.rows = rows
            return rows
        rows = await self._refreshed(ask, rows)
        if not is_shown(rows.cursor, ask.at_least):
            rows = await self._refreshed(ask, rows)
        if not is_shown(rows.cursor, ask.at_least):
            message = "The store does not have the requested revision yet; retry."
            raise fault(Reason.SERVICE_UNAVAILABLE, message, service="store")
        held.rows = rows
        return rows

    async def _refreshed(self, ask: AssembleRequest, rows: R | None) -> R:
        """The rows, brought up to date; or a snapshot if there are none or they are unusable."""
        if rows:
            try:
                return await self._read_into(ask, rows)
            except (RangeError, OtherRulesError):
                pass
        return await self._read_into(ask, await self._runner.run(self._make))

    async def _read_into(self, ask: AssembleRequest, rows: R) -> R:
        cursor = None
        async with aclosing(self._read(ask, rows)) as parts:
            async for part in parts:
                await self._runner.run(rows.apply, part)
                cursor = part.cursor
        if cursor is None:
            raise _cut_short()
        return rows

    def _lead_to(self, wanted: Cursor, changes: Sequence[ViewChange], rows: R) -> bool:
        """Whether changes lead without a gap from the moment of the rows to one that includes `wanted`."""
        at = rows.cursor
        for change in changes:
            if change.before != (at or change.before) or not self._takes(change, rows):
                return False
            at = change.after
        return bool(changes) and is_shown(at, wanted)


def _cut_short() -> TurnwrightError:
    return fault(Reason.SERVICE_UNAVAILABLE, "The store's answer ended early; retry.", service="store")


def is_shown(cursor: Cursor | None, wanted: Cursor | None) -> bool:
    """Whether a moment includes another one. Raises RangeError for moments of different histories of the store."""
    if cursor is None or wanted is None:
        return wanted is None
    if cursor.incarnation != wanted.incarnation:
        raise fault(Reason.CURSOR_FOREIGN, "`at_least` belongs to another history of the store: read a new cursor.")
    return (
        cursor.run_revision >= wanted.run_revision
        and cursor.project_revision >= wanted.project_revision
        and cursor.global_revision >= wanted.global_revision
    )
