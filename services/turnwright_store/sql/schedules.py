"""Rows of schedules. `due_ms` is when one is looked at: at its next time, or earlier while its latest time waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import asdict, replace
from sqlalchemy import Connection, and_, bindparam, delete, exists, func, literal_column, or_, select, update
from turnwright_values.types import Schedule, ScheduleOverlap

from turnwright_store.domain.schedules import Firing
from turnwright_store.domain.viewers import asker_of
from turnwright_store.sql.clauses import insertion, picked
from turnwright_store.sql.dialect import DatabaseNow
from turnwright_store.sql.loops import settings_json, settings_of
from turnwright_store.sql.tables import projects, runs, schedules

_FIELDS: Final = (
    "schedule_id", "cron", "every_s", "prompt", "next_ms", "last_ms", "fired", "settings", "failures", "due_ms",
    "reader_turn", "loop", "by", "time_zone",
    "new_run", "overlap", "firings",
)  # fmt: skip
_COLUMNS: Final = tuple(schedules.c[name] for name in _FIELDS)
_OF_RUN: Final = (schedules.c.run_id == bindparam("run"), schedules.c.schedule_id == bindparam("name"))
_ONE: Final = select(*_COLUMNS).where(*_OF_RUN)
_ALL: Final = select(*_COLUMNS).where(schedules.c.run_id == bindparam("run")).order_by(schedules.c.schedule_id)
_COUNT: Final = select(func.count()).select_from(schedules).where(schedules.c.run_id == bindparam("run"))
_ADD: Final = insertion(schedules)
_REMOVE: Final = delete(schedules).where(*_OF_RUN)
_WRITTEN: Final = ("next_ms", "last_ms", "fired", "settings", "failures", "due_ms", "reader_turn", "loop", "firings")
_WRITE: Final = update(schedules).where(*_OF_RUN)
_FAILURES: Final = select(schedules.c.failures).where(*_OF_RUN)
# Subqueries in place of joins: PostgreSQL would begin with all projects and their runs.
_RUN_OF: Final = runs.c.id == schedules.c.run_id
_earlier: Final = schedules.alias("earlier")
_DUE: Final = (
    select(
        select(projects.c.name).join(runs, runs.c.project_id == projects.c.id).where(_RUN_OF).scalar_subquery(),
        select(runs.c.alias).where(_RUN_OF).scalar_subquery(),
        schedules.c.schedule_id,
    )
    .where(
        # One of each run: its other ones are looked at after those of other runs.
        ~exists(
            select(_earlier.c.id).where(
                _earlier.c.run_id == schedules.c.run_id,
                or_(
                    _earlier.c.due_ms < schedules.c.due_ms,
                    and_(_earlier.c.due_ms == schedules.c.due_ms, _earlier.c.id < schedules.c.id),
                ),
            )
        ),
        # The time is asked once, so that an index can be searched for it.
        schedules.c.due_ms <= select(DatabaseNow()).scalar_subquery(),
        select(runs.c.removed_ms).where(_RUN_OF).scalar_subquery() == literal_column("0"),
    )
    .order_by(schedules.c.due_ms, schedules.c.id)
    .limit(bindparam("page"))
)


_BEGUN: Final = select(
    runs.c.id, runs.c.alias, runs.c.private, runs.c.by, runs.c.loop_active, runs.c.loops_queued
).where(runs.c.id.in_(bindparam("ids", expanding=True)), runs.c.removed_ms == literal_column("0"))


PAUSED_MS: Final = 2**62
"""When a paused schedule is looked at: never."""

_FIRINGS: Final = json.Decoder(tuple[Firing, ...])


class BegunRun(Struct, frozen=True):
    """A run that a schedule has begun, as it is now."""

    alias: str
    private_to: str | None
    """For whom alone it is there; None: it is not private."""
    is_working: bool


class ScheduleRow(Struct, frozen=True):
    """A schedule as it is stored."""

    schedule: Schedule
    due_ms: int
    reader_turn: int = 0
    """The turn that is to read what happened last while the run was busy; 0: it needs none."""
    loop: int = 0
    """Sequence of the loop that it began last; 0: none."""
    by: str = ""
    """Who set it, as it is stored."""
    firings: tuple[Firing, ...] = ()
    """What became of its latest times, the latest first, if it begins new runs."""


def _row(values: Any) -> ScheduleRow:
    *schedule, settings, failures, due_ms, reader_turn, loop, by, zone, new_run, overlap, firings = values
    person = asker_of(by)
    shown = replace(
        Schedule(*schedule),
        settings=settings_of(settings),
        failures=failures,
        paused=due_ms == PAUSED_MS,
        time_zone=zone,
        new_run=bool(new_run),
        overlap=ScheduleOverlap(overlap),
        by=person.name if person else "",
    )
    return ScheduleRow(shown, due_ms, reader_turn, loop, by, _FIRINGS.decode(firings) if firings else ())


def find_schedule(connection: Connection, run_id: int, name: str) -> ScheduleRow | None:
    found = connection.execute(_ONE, {"run": run_id, "name": name}).one_or_none()
    return _row(found) if found else None


def list_schedules(connection: Connection, run_id: int) -> list[ScheduleRow]:
    """All schedules of a run, by id."""
    return [_row(values) for values in connection.execute(_ALL, {"run": run_id})]


def begun_runs(connection: Connection, firings: Iterable[Firing]) -> dict[int, BegunRun]:
    """The runs that began at these times and are still there, by id."""
    ids = [one.run_id for one in firings if one.run_id]
    found = connection.execute(_BEGUN, {"ids": ids}) if ids else ()
    return {
        key: BegunRun(alias, by if private else None, bool(active or queued))
        for key, alias, private, by, active, queued in found
    }


def withdraw_grants(connection: Connection, run_id: int) -> None:
    """No schedule of the run accepts proposals by itself any more."""
    for row in list_schedules(connection, run_id):
        if row.schedule.settings and row.schedule.settings.yolo:
            settings = replace(row.schedule.settings, yolo=False)
            write_schedule(connection, run_id, replace(row, schedule=replace(row.schedule, settings=settings)))


def count_schedules(connection: Connection, run_id: int) -> int:
    return int(connection.execute(_COUNT, {"run": run_id}).scalar_one())


def put_schedule(
    connection: Connection, run_id: int, schedule: Schedule, by: str, firings: Iterable[Firing] = ()
) -> bool:
    """Add a schedule, in the place of one with the same id; returns whether there was one."""
    is_again = delete_schedule(connection, run_id, schedule.schedule_id)
    row = ScheduleRow(schedule, schedule.next_ms, by=by, firings=tuple(firings))
    connection.execute(_ADD, {"run_id": run_id, **picked(_values(row), _FIELDS)})
    return is_again


def delete_schedule(connection: Connection, run_id: int, name: str) -> bool:
    """Whether there was one."""
    return connection.execute(_REMOVE, {"run": run_id, "name": name}).rowcount > 0


def write_schedule(connection: Connection, run_id: int, row: ScheduleRow) -> None:
    connection.execute(_WRITE, {"run": run_id, "name": row.schedule.schedule_id, **picked(_values(row), _WRITTEN)})


def set_aside(connection: Connection, run_id: int, name: str, due_ms: int, failures_max: int) -> int:
    """Count a failure of a schedule and look at it later; after so many, never. Nothing else of its row is read."""
    one = {"run": run_id, "name": name}
    failures = int(connection.execute(_FAILURES, one).scalar_one()) + 1
    connection.execute(
        _WRITE, {**one, "failures": failures, "due_ms": due_ms if failures < failures_max else PAUSED_MS}
    )
    return failures


def _values(row: ScheduleRow) -> dict[str, Any]:
    one = row.schedule
    settings = settings_json(one.settings) if one.settings else ""
    due_ms = PAUSED_MS if one.paused else row.due_ms
    firings = json.encode(row.firings).decode() if row.firings else ""
    stored = {"settings": settings, "due_ms": due_ms, "reader_turn": row.reader_turn, "loop": row.loop, "by": row.by}
    return {**asdict(one), **stored, "new_run": int(one.new_run), "overlap": int(one.overlap), "firings": firings}


def list_due(connection: Connection, page: int) -> list[tuple[str, str, str]]:
    """Project, run and id of the next schedule of each run that is due, by the database's clock."""
    return [(project, run, name) for project, run, name in connection.execute(_DUE, {"page": page})]
