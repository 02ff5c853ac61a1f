"""The plans of a run as its feed carries them, and how each watch that asks for them is told.

Theory of operation. The events of a run report plans like any entries: numbered, and with truncated bodies. A watch
that asked for plans gets more: before each event that changes a plan, the plan as it is now, without a number. So the
tail of a hub holds no plans, all watchers have the same numbers, one that resumes before the event gets the plan again,
and a watch without plans costs no more. Of several pending changes only the last is sent, and nothing that the watcher
already has (AP43).
Source: architecture 7; rows AP03, AP07, AP21-AP25, AP29-AP33, AP43.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright.executor.v1 import event_pb2
from turnwright.executor.v1.executor_service_pb2 import PLAN_EVENTS_LEGACY, PlanEvents, WatchRunResponse
from turnwright.types.v1 import entry_pb2, plan_pb2
from turnwright.types.v1.cursor_pb2 import EventCursor
from turnwright_values.types import PlanItem, PlanKind, PlanStatus

from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import PAGE_BYTES_MAX, PLAN_BODY_BYTES_MAX, PLAN_ITEM_CHARS_MAX
from turnwright_core.plans.items import readable_items
from turnwright_core.plans.plan import Plan, part_of, plan_path
from turnwright_core.wire.plans import item_to_pb, plan_to_pb
from turnwright_core.wire.run_view import events_of
from turnwright_executor.watching.events import in_batches

REPLACED_STATUSES: Final = {PlanStatus.CANCELLED: PlanStatus.COMPLETED, PlanStatus.BLOCKED: PlanStatus.PENDING}
"""Replacements for statuses that such a list does not have (AP17)."""

_TASK: Final = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,9}[.)])[ \t]+\[([ xX])\][ \t]+(?=\S)")


def legacy_items(plan: Plan, file_text: str = "") -> list[PlanItem]:
    """The items of one plan, for clients that know one list only; `file_text` is the content of a file plan's file.

    The lists of several plans stand one after the other, as the plans first appeared. Source: rows AP17, AP29-AP33.
    """
    if plan.kind is PlanKind.ITEMS:
        return [
            replace(item, status=REPLACED_STATUSES.get(item.status, item.status)) for item in readable_items(plan.body)
        ]
    text = file_text if plan.kind is PlanKind.FILE else plan.body
    tasks = list(_tasks(text))
    places = {task.content: place for place, task in enumerate(tasks)}
    for task in (task for delta in plan.deltas for task in _tasks(delta.text)):
        # A delta may repeat a task with its new status.
        if (place := places.setdefault(task.content, len(tasks))) < len(tasks):
            tasks[place] = task
        else:
            tasks.append(task)
    if tasks:
        return tasks
    line = _first_line(text) or (_first_line(plan.body) if plan.kind is PlanKind.FILE else "")
    return [PlanItem(line)] if line else []


def _tasks(text: str) -> Iterator[PlanItem]:
    """The lines of a task list: `- [x] done`."""
    for line in text.split("\n"):
        if found := _TASK.match(line):
            status = PlanStatus.PENDING if found[1] == " " else PlanStatus.COMPLETED
            yield PlanItem(line[found.end() :].strip()[:PLAN_ITEM_CHARS_MAX], status=status)


def _first_line(text: str) -> str:
    """The first non-empty line, without heading marks."""
    lines = (line.strip().lstrip("#").strip() for line in text.split("\n"))
    return next((line[:PLAN_ITEM_CHARS_MAX] for line in lines if line), "")


LIST_BYTES_MAX: Final = PAGE_BYTES_MAX
"""Maximum size of the single list, in bytes; the rest is left out."""

PLAN_EVENTS: Final = ("plan_updated", "plan_removed", "legacy_plan")
"""The events that have no number: they belong to the one that follows them."""

ReadPart = Callable[[str, int, int], Awaitable[str]]
"""(path, offset in bytes, maximum bytes) -> that part of a body."""


class FedPlan(Struct, frozen=True):
    """A plan, and its items in the single list."""

    value: Plan
    plan: plan_pb2.Plan
    items: tuple[plan_pb2.PlanItem, ...]


async def read_plan(value: Plan, read_body: ReadPart) -> FedPlan:
    """A plan of the feed, with the items of its file if it names one: a plan may name what is not there."""
    text = ""
    if value.kind is PlanKind.FILE:
        try:
            text = await read_body(value.body, 0, PLAN_BODY_BYTES_MAX)
        except TurnwrightError:
            text = ""
    return FedPlan(value, plan_to_pb(value), tuple(map(item_to_pb, legacy_items(value, text))))


class FedPlans(Struct):
    """The plans of a run. Those whose entries are published count, in the order of their positions (AP25)."""

    entries: Mapping[str, entry_pb2.Entry] = field(default_factory=dict)
    """The published entries of the run, by path."""
    known: dict[str, FedPlan] = field(default_factory=dict)
    """By id, as the feed has carried them."""

    def position(self, plan_id: str) -> int:
        """Position of a plan; another one if it was deleted and set again. 0: there is no such plan."""
        entry = self.entries.get(plan_path(plan_id))
        return entry.position if entry and plan_id in self.known else 0

    def in_order(self) -> list[FedPlan]:
        """The plans, in the order in which they first appeared."""
        return [self.known[plan_id] for plan_id in sorted(filter(self.position, self.known), key=self.position)]

    async def read_files(self, read_body: ReadPart) -> None:
        """Read the files again that plans name: the feed does not tell of them."""
        for plan_id, one in list(self.known.items()):
            if one.value.kind is PlanKind.FILE:
                self.known[plan_id] = await read_plan(one.value, read_body)


class PlanTeller(ABC):
    """What one watch is told of plans."""

    def __init__(self, plans: FedPlans) -> None:
        self._plans = plans

    @abstractmethod
    def begin(self) -> event_pb2.Snapshot:
        """The plans of a snapshot, all of them: `plans`, or `legacy_plan`."""

    @abstractmethod
    def events_for(self, touched: Iterable[str], removed: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The events to send before one that touches plans; `removed` are those that it says to be deleted."""

    def insert(self, messages: Iterable[WatchRunResponse], *, batched: bool) -> Iterator[WatchRunResponse]:
        """The messages of a watch, with what it is told of plans."""
        for message in messages:
            given = tuple(events_of(message))
            events = [one for event in given for one in (*self._before(event), event)]
            if len(events) == len(given):
                yield message
            else:
                yield from in_batches(events) if batched else events

    def _before(self, event: WatchRunResponse) -> Iterator[WatchRunResponse]:
        touched, removed = _plans_in(event)
        cursor = EventCursor(epoch=event.cursor.epoch, seq=event.cursor.seq - 1)
        for fields in self.events_for(touched, removed) if touched else ():
            yield WatchRunResponse(cursor=cursor, time=event.time, **fields)


_State = tuple[int, int, int]
"""Position of a plan, its version and latest delta: while none of them changes, the plan does not."""

_ABSENT: Final[_State] = (0, 0, 0)


class OperationsTeller(PlanTeller):
    """Each plan with its id."""

    def __init__(self, plans: FedPlans) -> None:
        super().__init__(plans)
        self._has: dict[str, _State] = {}
        """What the watcher has of each plan."""
        self._has_all = False
        """Whether there is no other: it got a snapshot."""

    def begin(self) -> event_pb2.Snapshot:
        found = [one.plan for one in self._plans.in_order()]
        self._has, self._has_all = {plan.plan_id: self._state(plan.plan_id) for plan in found}, True
        return event_pb2.Snapshot(plans=found)

    def events_for(self, touched: Iterable[str], removed: Iterable[str]) -> Iterator[dict[str, Any]]:
        for plan_id in touched:
            before, now = self._has.get(plan_id, _ABSENT if self._has_all else None), self._state(plan_id)
            if before != _ABSENT and (plan_id in removed or not now[0] or (before and before[0] != now[0])):
                before = _ABSENT
                yield {"plan_removed": plan_id}
            if now not in (_ABSENT, before):
                yield {"plan_updated": self._plans.known[plan_id].plan}
            self._has[plan_id] = now

    def _state(self, plan_id: str) -> _State:
        position = self._plans.position(plan_id)
        if not position:
            return _ABSENT
        plan = self._plans.known[plan_id].plan
        return position, plan.version, plan.deltas[-1].sequence if plan.deltas else 0


class LegacyTeller(PlanTeller):
    """All plans as one list."""

    def __init__(self, plans: FedPlans) -> None:
        super().__init__(plans)
        self._items: list[plan_pb2.PlanItem] | None = None
        """The list that the watcher has; None where that is not known."""
        self._texts: dict[str, str] = {}
        """The texts of Markdown plans that the watcher has."""
        self._has_all = False
        """Whether it has those of all plans as they were: it got a snapshot."""

    def begin(self) -> event_pb2.Snapshot:
        self._texts.clear()
        self._has_all = True
        return event_pb2.Snapshot(legacy_plan=self._listed(self._plans.known))

    def events_for(self, touched: Iterable[str], removed: Iterable[str]) -> Iterator[dict[str, Any]]:  # noqa: ARG002 - as others
        before = self._items
        listed = self._listed(self._plans.known if self._has_all else touched)
        if listed.texts or self._items != before:
            yield {"legacy_plan": listed}

    def _listed(self, touched: Iterable[str]) -> event_pb2.LegacyPlan:
        """The current list, with the texts of these plans as far as the watcher does not have them."""
        made, size, texts_bytes = event_pb2.LegacyPlan(), 0, 0
        for one in self._plans.in_order():
            for item in one.items:
                size += item.ByteSize()
                if size <= LIST_BYTES_MAX:
                    made.items.append(item)
            if one.plan.plan_id in touched and (text := self._new_text(one.plan)):
                texts_bytes += len(text.encode())
                if texts_bytes <= LIST_BYTES_MAX:
                    made.texts.append(text)
        self._items = list(made.items)
        return made

    def _new_text(self, plan: plan_pb2.Plan) -> str:
        """The text of a Markdown plan; empty if the watcher has it, and for plans of other kinds."""
        before = self._texts.pop(plan.plan_id, "")
        if plan.kind != plan_pb2.PLAN_KIND_MARKDOWN:
            return ""
        self._texts[plan.plan_id] = plan.body
        return "" if plan.body == before else plan.body


def plan_teller(form: PlanEvents.ValueType, plans: FedPlans) -> PlanTeller | None:
    """For the form of plans that a watch asked for; None if it asked for none."""
    if not form:
        return None
    return (LegacyTeller if form == PLAN_EVENTS_LEGACY else OperationsTeller)(plans)


def _plans_in(event: WatchRunResponse) -> tuple[list[str], list[str]]:
    """The ids of plans that an event touches, and of those among them that it says to be deleted."""
    is_gone = False
    match event.WhichOneof("event"):
        case "message_added":
            paths = [event.message_added.entry.path]
        case "message_updated":
            paths = [event.message_updated.entry.path]
        case "message_removed":
            paths, is_gone = [event.message_removed.path], True
        case "messages_truncated":
            paths, is_gone = list(event.messages_truncated.paths), True
        case _:
            return [], []
    # An earlier version that is kept changes nothing.
    parts = [part for part in map(part_of, paths) if part.plan_id and (part.sequence or not part.version)]
    touched = list(dict.fromkeys(part.plan_id for part in parts))
    return touched, [part.plan_id for part in parts if is_gone and not part.version]
