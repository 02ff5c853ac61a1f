"""Adds plans to the events of a watch, in the form that it asked for (content enricher).

Theory of operation. The events of a run report plans like any entries: numbered, and with truncated bodies. A watch
that asked for plans gets more on the way out: before each event that changes a plan, the plan as it is in the store,
without a number. So neither the tail of a hub nor a relay holds plans, all watchers have the same numbers, one that
resumes before the event gets the plan again, and a watch without plans costs no more. Of several pending changes only
the last is sent, and nothing that the watcher already has (AP43).
Source: architecture 7; rows AP03, AP07, AP21-AP25, AP29-AP33, AP43.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Final

from turnwright.executor.v1 import event_pb2
from turnwright.executor.v1.executor_service_pb2 import PLAN_EVENTS_LEGACY, PlanEvents, WatchRunResponse
from turnwright.types.v1 import heartbeat_pb2, plan_pb2
from turnwright.types.v1.cursor_pb2 import EventCursor
from turnwright.types.v1.plan_pb2 import PlanItem

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import CHUNK_BYTES, PAGE_BYTES_MAX
from turnwright_core.plans.fold import PlanHeads, PlanMove
from turnwright_core.plans.plan import SCHEME
from turnwright_core.wire.events import events_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY, GONE
from turnwright_executor.watching.events import in_batches
from turnwright_executor.watching.hub import FEED_BACKOFF
from turnwright_executor.watching.plan_cache import PlanCache, PlanMoment, ReadPlan

LIST_BYTES_MAX: Final = PAGE_BYTES_MAX
"""Maximum size of the single list, in bytes; the rest is left out."""


class PlanEnricher(ABC):
    """The plans of one watch."""

    def __init__(self, cache: PlanCache, address: RunAddress) -> None:
        self._cache = cache
        self._address = address
        self._heads = PlanHeads()
        self._knows_all = False
        """Whether the watcher has all plans, because it got a snapshot."""
        self._moved_at: dict[str, PlanMoment] = {}
        """When each plan moved last, as far as the events told it."""
        self._read: ReadPlan | None = None

    async def insert_plans(self, messages: Any) -> AsyncGenerator[WatchRunResponse]:
        """The messages, with plans inserted; closes the source. Raises TurnwrightError."""
        async with contextlib.aclosing(messages):
            async for message in messages:
                if message.HasField("snapshot"):
                    coming = self._snapshot(message)
                elif any(map(_is_of_plan, events_of(message))):
                    coming = self._plans_for(events_of(message))
                else:
                    yield message
                    continue
                async for fields in coming:
                    yield fields

    async def _snapshot(self, message: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        part, at = message.snapshot, _moment(message)
        if part.part == 0:
            self._heads.load(())
            self._moved_at.clear()
        for entry in part.entries:
            for move in self._heads.changed(entry.path, entry.position, is_new=True):
                self._moved_at[move.plan_id] = at
        if not part.last:
            yield message
            return
        self._knows_all = True
        async for fields in self._finished(message):
            yield fields

    async def _plans_for(self, fields: Iterable[WatchRunResponse]) -> AsyncIterator[WatchRunResponse]:
        waiting: list[WatchRunResponse] = []
        for event in fields:
            if moves := self._moves(event):
                for message in in_batches(waiting):
                    yield message
                waiting = []
                async for message in self._moved(moves, event):
                    yield message
            waiting.append(event)
        for message in in_batches(waiting):
            yield message

    def _moves(self, event: WatchRunResponse) -> tuple[PlanMove, ...]:
        match event.WhichOneof("event"):
            case "message_added":
                entry = event.message_added.entry
                moves = self._heads.changed(entry.path, entry.position, is_new=True)
            case "message_updated":
                entry = event.message_updated.entry
                moves = self._heads.changed(entry.path, entry.position, is_new=False)
            case "message_removed":
                moves = self._heads.left(event.message_removed.path)
            case "messages_truncated":
                moves = tuple(move for path in event.messages_truncated.paths for move in self._heads.left(path))
            case _:
                return ()
        for move in moves:
            self._moved_at[move.plan_id] = _moment(event)
        return moves

    @abstractmethod
    def _finished(self, message: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        """The last part of a snapshot, with the plans before and in it."""

    @abstractmethod
    def _moved(self, moves: Sequence[PlanMove], event: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        """The messages to send before an event that changes plans."""

    async def _find(self, plan_id: str, event: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        """Read a plan into `_read`; sends heartbeats while the store is unavailable."""
        self._read = None
        at = self._moved_at.get(plan_id) or _moment(event)

        async def read() -> None:
            self._read = await self._cache.plan(self._address, plan_id, at)

        async for beat in _read_with_heartbeats(read, event):
            yield beat


class OperationsEnricher(PlanEnricher):
    """Each plan with its id."""

    def __init__(self, cache: PlanCache, address: RunAddress) -> None:
        super().__init__(cache, address)
        self._sent: dict[str, tuple[int, int]] = {}
        """The content of each plan that the watcher has."""

    async def _finished(self, message: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        self._sent.clear()
        last, size = message.snapshot, 0
        part = event_pb2.Snapshot(part=last.part, run=last.run)
        for plan_id in self._heads.in_order():
            async for beat in self._find(plan_id, message):
                yield beat
            if not (found := self._read):
                continue
            self._sent[plan_id] = found.content
            more = found.plan.ByteSize()
            if size and size + more > CHUNK_BYTES:
                yield WatchRunResponse(cursor=message.cursor, time=message.time, snapshot=part)
                part, size = event_pb2.Snapshot(part=part.part + 1, run=last.run), 0
            part.plans.append(found.plan)
            size += more
        if size and last.ByteSize() + size > CHUNK_BYTES:
            yield WatchRunResponse(cursor=message.cursor, time=message.time, snapshot=part)
            last.part = part.part + 1
        else:
            last.part = part.part
            last.plans.extend(part.plans)
        yield message

    async def _moved(self, moves: Sequence[PlanMove], event: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        for move in moves:
            if move.is_removed:
                before = self._sent.pop(move.plan_id, None)
                if before or not self._knows_all:
                    yield _before(event, plan_removed=event_pb2.PlanRemoved(plan_id=move.plan_id))
                continue
            async for beat in self._find(move.plan_id, event):
                yield beat
            if (found := self._read) and self._sent.get(move.plan_id) != found.content:
                self._sent[move.plan_id] = found.content
                yield _before(event, plan_updated=event_pb2.PlanUpdated(plan=found.plan))


class LegacyEnricher(PlanEnricher):
    """All plans as one list."""

    def __init__(self, cache: PlanCache, address: RunAddress) -> None:
        super().__init__(cache, address)
        self._sent: list[PlanItem] | None = None
        """The list that the watcher has; None where that is not known."""
        self._texts: dict[str, str] = {}
        """The texts of Markdown plans that the watcher has."""
        self._list = event_pb2.LegacyPlan()

    async def _finished(self, message: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        self._texts.clear()
        async for beat in self._listed(message, self._heads.in_order()):
            yield beat
        self._sent = list(self._list.items)
        message.snapshot.legacy_plan.CopyFrom(self._list)
        yield message

    async def _moved(self, moves: Sequence[PlanMove], event: WatchRunResponse) -> AsyncIterator[WatchRunResponse]:
        if moves and not self._knows_all:
            async for beat in _read_with_heartbeats(self._load_known, event):
                yield beat
        async for beat in self._listed(event, {move.plan_id for move in moves}):
            yield beat
        if self._list.texts or list(self._list.items) != self._sent:
            self._sent = list(self._list.items)
            yield _before(event, legacy_plan=self._list)

    async def _load_known(self) -> None:
        """Find the plans that existed before the first event."""
        self._heads.load(await self._cache.positions(self._address))
        self._knows_all = True

    async def _listed(self, event: WatchRunResponse, moved: Collection[str]) -> AsyncIterator[WatchRunResponse]:
        """Build the current list, with the texts of changed plans."""
        made, size, texts_bytes = event_pb2.LegacyPlan(), 0, 0
        for plan_id in self._heads.in_order():
            async for beat in self._find(plan_id, event):
                yield beat
            for item in self._read.items if self._read else ():
                size += item.ByteSize()
                if size <= LIST_BYTES_MAX:
                    made.items.append(item)
            if self._read and plan_id in moved and (text := self._new_text(self._read.plan)):
                texts_bytes += len(text.encode())
                if texts_bytes <= LIST_BYTES_MAX:
                    made.texts.append(text)
        self._list = made

    def _new_text(self, plan: plan_pb2.Plan) -> str:
        """The text of a Markdown plan; empty if the watcher has it, and for plans of other kinds."""
        before = self._texts.pop(plan.plan_id, "")
        if plan.kind != plan_pb2.PLAN_KIND_MARKDOWN:
            return ""
        self._texts[plan.plan_id] = plan.body
        return "" if plan.body == before else plan.body


def plan_enricher(form: PlanEvents.ValueType, cache: PlanCache, address: RunAddress) -> PlanEnricher:
    """The enricher for the form of plans that a watch asked for."""
    return (LegacyEnricher if form == PLAN_EVENTS_LEGACY else OperationsEnricher)(cache, address)


async def _read_with_heartbeats(
    read: Callable[[], Awaitable[None]], event: WatchRunResponse
) -> AsyncIterator[WatchRunResponse]:
    """Heartbeats until the store can be read. A removed run has no plans. Raises TurnwrightError."""
    for pause_s in FEED_BACKOFF.pauses():
        try:
            await read()
            return
        except TurnwrightError as error:
            if error.reason in GONE:
                return
            if error.reason not in AWAY:
                raise
        yield _before(event, heartbeat=heartbeat_pb2.Heartbeat())
        await asyncio.sleep(pause_s)


def _is_of_plan(event: WatchRunResponse) -> bool:
    """Whether an event concerns an entry of a plan."""
    match event.WhichOneof("event"):
        case "message_added":
            return event.message_added.entry.scheme == SCHEME
        case "message_updated":
            return event.message_updated.entry.scheme == SCHEME
        case "message_removed":
            return event.message_removed.path.startswith(f"{SCHEME}://")
        case "messages_truncated":
            return any(path.startswith(f"{SCHEME}://") for path in event.messages_truncated.paths)
        case _:
            return False


def _moment(event: WatchRunResponse) -> PlanMoment:
    return PlanMoment(event.cursor.epoch, event.cursor.seq)


def _before(event: WatchRunResponse, **fields: Any) -> WatchRunResponse:
    """A message to be sent before an event, at the same moment."""
    cursor = EventCursor(epoch=event.cursor.epoch, seq=event.cursor.seq)
    if not event.HasField("snapshot"):
        cursor.seq -= 1
    return WatchRunResponse(cursor=cursor, time=event.time, **fields)
