"""The event log of one run, for any number of watchers (fan-out).

Theory of operation. A hub folds what it publishes into a state, so that a snapshot at number N is exactly the fold of
the events up to N. What is stored comes from the store's change feed only, in the order of revisions; deltas and
progress come directly from the worker and are never stored. A hub is a tail of its newest events (see tail): a watcher
whose position it no longer has gets a snapshot.
Source: architecture 7; rows RE01-RE08, RU242-RU248.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Final

from turnwright.executor.v1 import event_pb2
from turnwright.executor.v1.executor_service_pb2 import (
    PLAN_EVENTS_LEGACY,
    PLAN_EVENTS_UNSPECIFIED,
    REPLY_FORM_PARTS,
    REPLY_FORM_RAW,
    PlanEvents,
    ReplyForm,
    WatchRunResponse,
)
from turnwright.types.v1 import cursor_pb2
from turnwright_values.store import WatchChangesResponse
from turnwright_values.types import Cursor, SessionState, State

from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, WHOLE_IN_EVENTS
from turnwright_core.plans.plan import SCHEME as PLANS
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_core.session import EDIT_SCHEME
from turnwright_core.wire.runs import run_to_pb
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY, EXPIRED_OUTCOME
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.publishing import Activity, StreamBegan, StreamBroke, StreamEvent, StreamGrew
from turnwright_executor.watching import events
from turnwright_executor.watching.change_events import ChangeEvents
from turnwright_executor.watching.plans import plan_teller, read_plan
from turnwright_executor.watching.run_fold import BeforeCall, FreshRun, RunFold, set_now
from turnwright_executor.watching.tail import Signal, Tail, TailBounds
from turnwright_kit.logs import get_logger

FEED_BACKOFF: Final = Backoff(0.1, 5.0)
"""Backoff before the change feed is opened again."""

CAUGHT_UP_TIMEOUT_S: Final = 1.0
"""Timeout of `caught_up`, in seconds: watching must not hold up a turn."""

FEED_CRASHES_MAX: Final = 2
"""Consecutive crashes of the feed after which the hub ends."""

STORE_AWAY: Final = "The store does not answer. The run goes on once it does."

Predicate = Callable[["RunHub"], bool]
"""A condition on what the hub has published; it is checked after each change."""

_log = get_logger("hub")


class HubEndedError(Exception):
    """The hub has ended; what was awaited may be published by the next one."""


class RunHub(Tail):
    """Events of one run within one epoch."""

    def __init__(
        self,
        address: RunAddress,
        epoch: str,
        ledger: Ledger,
        settings: ExecutorSettings,
        next_hub: Callable[[Predicate], Awaitable[None]],
    ) -> None:
        """`next_hub` continues the waiting of callers on the next hub when this one ends, or raises TurnwrightError."""
        bounds = TailBounds(settings.tail_events, settings.tail_bytes)
        super().__init__(bounds, epoch, heartbeat_s=settings.event_heartbeat_s)
        self._raw = Tail(bounds, epoch, heartbeat_s=settings.event_heartbeat_s)
        """The same events with the replies as the model wrote them."""
        self.address = address
        self.holders = 0
        self.active = asyncio.Event()
        """Set when the feed tells that somebody may have started to work on the run, while nobody here did."""
        self._ledger = ledger
        self._settings = settings
        self._next_hub = next_hub
        self._known = RunFold()
        self._change_events = ChangeEvents(address, ledger, self._known, self._append)
        self._fed_signal = Signal()
        """Given when the feed has brought something, and at the end."""
        self._cursor = Cursor("", 0, 0, 0)
        self._aborting = 0
        """Sequence of the loop whose abort was requested; 0: none."""
        self._report_abort: Callable[[int], None] | None = None

    async def open(self, fresh: FreshRun | None = None) -> None:
        """Load the state and follow the change feed from there.

        Of a run that was just created nothing is loaded, and all its events are numbered. Raises TurnwrightError;
        DRAINING if closed meanwhile.
        """
        if fresh:
            self._known.load(fresh.run, ())
            self._cursor = fresh.cursor
        else:
            await self._load()
        if self.has_ended:
            raise draining_error()
        self.start(self._follow(), f"feed {self.address.run}")

    async def _load(self) -> None:
        entries, cursor = await self._ledger.read_timeline(self.address, EVENT_BODY_BYTES_MAX, WHOLE_IN_EVENTS)
        run = await self._ledger.get_run(self.address)
        waits = run.loops_queued or any(entry.scheme == EDIT_SCHEME for entry in entries)
        queue = await self._ledger.list_commands(self.address) if waits else ()
        listed = await self._ledger.list_plans(self.address) if any(one.scheme == PLANS for one in entries) else ()
        plans = [await read_plan(plan, self._change_events.read_body) for plan in listed]
        # Only such a run asks for summaries.
        asks = run.status == RUNNING and run.loop is not None and run.loop.settings.summaries
        turns = await self._ledger.get_turns(self.address, [run.turn]) if asks else ()
        self._cursor = cursor
        self._known.load(run_to_pb(run), entries, queue, plans, turns)

    def end(self, cause: Exception | None = None) -> None:
        super().end(cause)
        self._raw.end(cause)
        self._fed_signal.notify()

    # Writing side ---------------------------------------------------------------------------------------------

    def publish(self, event: WatchRunResponse) -> None:
        """Number an event, fold it into the state, append it to the tail, and wake the watchers."""
        self._known.view.apply(event)
        self._send(event)

    def _send(self, event: WatchRunResponse) -> None:
        self._append(event)
        self.wake()

    def _append(self, event: WatchRunResponse, in_parts: WatchRunResponse | None = None) -> None:
        """Number an event, and keep it in both forms. `in_parts`: what they are sent who read replies in parts."""
        event.cursor.epoch, event.cursor.seq = self.epoch, self.seq + 1
        set_now(event.time)
        if in_parts:
            in_parts.cursor.CopyFrom(event.cursor)
            in_parts.time.CopyFrom(event.time)
        self.add(in_parts or event)
        self._raw.add(event)

    def forget(self) -> None:
        super().forget()
        self._raw.forget()

    def wake(self) -> None:
        super().wake()
        self._raw.wake()

    def leave(self) -> None:
        super().leave()
        self._raw.leave()

    def progress(self, activity: Activity, turn: int, detail: str, wait_s: float = 0.0) -> None:
        self._send(events.progress(activity, turn, detail, wait_s))

    def warn(self, text: str) -> None:
        self._send(WatchRunResponse(notice=event_pb2.Notice(level=event_pb2.NOTICE_LEVEL_WARNING, text=text)))

    def stream(self, turn: int, event: StreamEvent) -> None:
        self._known.stream(turn, event)
        in_parts = events.stream_grew(turn, event.parts) if isinstance(event, StreamGrew) else None
        self._append(events.stream_moved(turn, event), in_parts)
        if isinstance(event, StreamBegan | StreamBroke):
            self._change_events.publish_runtime(self.state)
        self.wake()

    @property
    def state(self) -> SessionState:
        """What the run is doing, as watchers were told."""
        return self._known.state

    def before_call(self) -> BeforeCall:
        return BeforeCall(self.cursor(), self.moment)

    async def caught_up(self, cursor: Cursor) -> None:
        """Wait until the stored changes up to `cursor` are published, so that what is published next follows them."""
        with contextlib.suppress(TimeoutError, HubEndedError):
            async with asyncio.timeout(CAUGHT_UP_TIMEOUT_S):
                await self.until(lambda hub: hub.moment >= cursor.run_revision)

    def report_abort(self, report: Callable[[int], None] | None) -> None:
        """Call this with each loop that somebody has requested to abort, as the feed reports it."""
        self._report_abort = report
        if report and self._aborting:
            report(self._aborting)

    async def ended(self, paths: Sequence[str]) -> None:
        """Wait until one of these entries ends; one that has already ended does not count.

        Raises TurnwrightError if the run has ended.
        """
        before = {path: self._known.entries[path].revision if path in self._known.entries else 0 for path in paths}
        await self._until(lambda hub: any(hub._has_ended(path, revision) for path, revision in before.items()))  # noqa: SLF001

    @property
    def moment(self) -> int:
        """The revision of the run up to which the feed was published."""
        return self._cursor.run_revision

    async def expired(self, since: int) -> None:
        """Wait until a proposal expires after the revision `since`.

        Raises TurnwrightError.
        """
        await self._until(lambda hub: hub._has_expired(since))  # noqa: SLF001

    async def until(self, condition: Predicate) -> None:
        while not condition(self):
            if self.has_ended:
                raise HubEndedError
            await self._fed_signal.next().wait()

    async def _until(self, condition: Predicate) -> None:
        """Wait until the condition holds in this hub or a later one of the run."""
        try:
            await self.until(condition)
        except HubEndedError:
            await self._next_hub(condition)

    def _has_expired(self, since: int) -> bool:
        return any(one.outcome == EXPIRED_OUTCOME and one.revision > since for one in self._known.entries.values())

    def _has_ended(self, path: str, after: int) -> bool:
        entry = self._known.entries.get(path)
        return entry is not None and entry.revision > after and State(entry.state).is_settled

    async def _follow(self) -> None:
        """Publish the change feed. If the state is stale, reload it first: watchers then get a snapshot.

        A worker publishes to this hub, too, so it stays when the feed has crashed, but not after several times.
        """
        failures, crashes, is_stale = 0, 0, False
        while True:
            try:
                if is_stale:
                    await self._load()
                    self.forget()
                    self._fed_signal.notify()
                    self.wake()
                    is_stale = False
                self._change_events.begin()
                feed = self._ledger.watch(self.address, self._cursor, EVENT_BODY_BYTES_MAX, WHOLE_IN_EVENTS)
                async with contextlib.aclosing(feed) as feed:
                    async for changes in feed:
                        await self._publish_changes(changes)
                        failures = crashes = 0
            except TurnwrightError as error:
                if error.reason is Reason.RUN_NOT_FOUND:
                    _log.warning("feed_ended", run=self.address.run, reason=error.reason.name)
                    return self.end()
                is_stale = is_stale or error.reason is Reason.CURSOR_FOREIGN
                if failures == 1 and error.reason in AWAY:
                    self.warn(STORE_AWAY)
                if error.reason not in AWAY:
                    _log.warning("feed_failed", run=self.address.run, reason=error.reason.name)
            except Exception as error:  # noqa: BLE001 - whatever it was: the hub goes on
                _log.error("feed_crashed", run=self.address.run, exc_info=error)
                crashes, is_stale = crashes + 1, True
                if crashes > FEED_CRASHES_MAX:
                    return self.end()
            failures += 1
            await asyncio.sleep(FEED_BACKOFF.pause_s(failures))

    async def _publish_changes(self, changes: WatchChangesResponse) -> None:
        try:
            await self._change_events.publish(changes, ends_round=changes.cursor != self._cursor)
        finally:
            # Watchers take all events of a message at once.
            self.wake()
        is_started = changes.run and changes.run.status in (QUEUED, RUNNING)
        if self._report_abort is None and (is_started or any(not turn.result for turn in changes.turns)):
            self.active.set()
        if changes.run:
            self._aborting = changes.run.loop.sequence if changes.run.loop and changes.abort_requested else 0
            self.report_abort(self._report_abort)
        self._cursor = changes.cursor
        self._fed_signal.notify()

    # Reading side ---------------------------------------------------------------------------------------------

    async def watch(
        self,
        after: cursor_pb2.EventCursor,
        *,
        batched: bool = False,
        plans: PlanEvents.ValueType = PLAN_EVENTS_UNSPECIFIED,
        replies: ReplyForm.ValueType = REPLY_FORM_PARTS,
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events after a position if the tail still has them, else a snapshot first. Ends when the hub closes.

        `plans`, `replies`: the forms in which these are told; the rest as in Tail.follow.
        """
        teller = plan_teller(plans, self._known.plans)
        if plans == PLAN_EVENTS_LEGACY:
            await self._known.plans.read_files(self._change_events.read_body)
        is_raw = replies == REPLY_FORM_RAW

        def missed() -> list[WatchRunResponse]:
            return self._known.snapshot(self.cursor(), teller, is_raw=is_raw)

        return (self._raw if is_raw else self).follow(after, missed, teller, batched=batched)


def draining_error() -> TurnwrightError:
    """The error for calls during shutdown."""
    return fault(Reason.DRAINING, "The executor is shutting down: retry.")
