"""A schedule whose time cannot be carried out holds up no other one: it is put off, told, counted and paused. Row RE07."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from datetime import timedelta

import psycopg
import pytest
from turnwright.types.v1 import schedule_pb2

from contract.store.harness import Run, new_run

pytestmark = pytest.mark.asyncio

BROKEN = {
    "an expression that has become wrong": "cron = 'x', every_s = 0",
    "settings that cannot be read": "settings = '['",
}
LOOKS_MAX = 600


def execute(db, home, statement: str) -> None:
    """Change rows as no call does."""
    with contextlib.closing(psycopg.connect(db) if db else sqlite3.connect(home / "turnwright.db")) as connection:
        connection.execute(statement)
        connection.commit()


async def set_schedule(run: Run, name: str, prompt: str = "") -> None:
    schedule = schedule_pb2.Schedule(schedule_id=name, every=timedelta(hours=1), prompt=prompt)
    await run.client.call("SetSchedule", **run.address, schedule=schedule)


async def events(run: Run) -> dict[str, str]:
    paths = [path for path in (await run.view()).paths if path.startswith("event://")]
    return {path: (await run.entry(path)).body for path in paths}


async def until(run: Run, wanted: str) -> str:
    """The body of the event whose path ends so."""
    for _ in range(LOOKS_MAX):
        if found := [body for path, body in (await events(run)).items() if path.endswith(wanted)]:
            return found[0]
        await asyncio.sleep(0.05)
    raise AssertionError(f"no event {wanted}")


@pytest.mark.parametrize("broken", BROKEN)
async def test_it_is_put_off_told_and_paused_and_others_go_on(db, client, project, tmp_path, broken) -> None:
    one, other = await new_run(client, project), await new_run(client, project, "other")
    for run, name in ((one, "bad"), (one, "later"), (other, "beside")):
        await set_schedule(run, name)
    again = f"update schedules set due_ms = 1, next_ms = 1, {BROKEN[broken]} where schedule_id = 'bad'"
    execute(db, tmp_path, again)
    execute(db, tmp_path, "update schedules set due_ms = 2, next_ms = 2 where schedule_id <> 'bad'")
    assert "ticked 1 times" in await until(one, "/tick/later")
    await until(other, "/tick/beside")
    assert "The schedule bad is due, but could not be carried out: " in await until(one, "/system_notice/bad_failed")
    assert not [path for path in await events(one) if "/tick/bad" in path]
    execute(db, tmp_path, f"{again} and failures = 1")
    assert "It is tried again." in await until(one, "/system_notice/bad_failed+2")
    execute(db, tmp_path, "update schedules set due_ms = 1, failures = 4 where schedule_id = 'bad'")
    assert "The schedule bad is paused: it has failed 5 times in a row" in await until(one, "/system_notice/bad_paused")
    await set_schedule(one, "bad")
    listed = (await client.call("ListSchedules", **one.address)).schedules
    assert [(row.schedule_id, row.failures, row.paused) for row in listed] == [("bad", 0, False), ("later", 0, False)]


async def test_a_time_that_is_carried_out_after_all_is_no_failure_any_more(db, client, project, tmp_path) -> None:
    run = await new_run(client, project)
    await set_schedule(run, "s")
    execute(db, tmp_path, "update schedules set due_ms = 1, next_ms = 1, failures = 4 where schedule_id = 's'")
    await until(run, "/tick/s")
    (one,) = (await client.call("ListSchedules", **run.address)).schedules
    assert (one.failures, one.paused) == (0, False)


async def test_a_run_that_cannot_be_told_keeps_no_other_waiting(db, client, project, tmp_path) -> None:
    one, other = await new_run(client, project), await new_run(client, project, "other")
    await set_schedule(one, "bad")
    await set_schedule(other, "beside")
    # No turn has this number, so no event can be written.
    execute(db, tmp_path, "update runs set turn = -5 where alias <> 'other'")
    execute(db, tmp_path, "update schedules set due_ms = 1, next_ms = 1 where schedule_id = 'bad'")
    execute(db, tmp_path, "update schedules set due_ms = 2, next_ms = 2 where schedule_id = 'beside'")
    await until(other, "/tick/beside")
    (bad,) = (await client.call("ListSchedules", **one.address)).schedules
    assert bad.failures == 1
