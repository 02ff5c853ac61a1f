"""Schedules that begin new runs: one run for each time, as whoever set it, or a reason why not. ADR 79."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from turnwright.quotas.v1 import quota_service_pb2
from turnwright.types.v1 import grant_pb2, rule_pb2, schedule_pb2, settings_pb2

from contract.store.harness import POSTGRESQL_ONLY, Client, Run, start_store
from contract.store.test_failing_schedules import events, execute, until
from services import token_for
from turnwright_core.errors import TurnwrightError

pytestmark = pytest.mark.asyncio

TIME_MS = 1_764_471_600_000
ALIAS = "nightly-20251130T030000Z"
"""The run of that time."""
DAY_MS = 24 * 3600 * 1000
LOOKS_MAX = 600


async def home_of(client: Client, project: str, **settings) -> Run:
    wanted = settings_pb2.RunSettings(**{"model": "fast", **settings})
    await client.call("CreateRun", project=project, run="home", settings=wanted)
    return Run(client, project, "home")


async def set_nightly(run: Run, **fields) -> schedule_pb2.Schedule:
    given = {"cron": "0 3 * * *", "prompt": "Look at the build.", "new_run": True}
    schedule = schedule_pb2.Schedule(schedule_id="nightly", **{**given, **fields})
    return (await run.client.call("SetSchedule", **run.address, schedule=schedule)).schedule


def comes(db, home, day: int = 0) -> None:
    """Its next time is one that has passed."""
    time_ms = TIME_MS + day * DAY_MS
    execute(db, home, f"update schedules set due_ms = {time_ms}, next_ms = {time_ms} where schedule_id = 'nightly'")


async def listed(run: Run) -> schedule_pb2.Schedule:
    (one,) = (await run.client.call("ListSchedules", **run.address)).schedules
    return one


async def passed(run: Run, times: int) -> schedule_pb2.Schedule:
    """The schedule, once so many of its times have passed."""
    for _ in range(LOOKS_MAX):
        if len((one := await listed(run)).latest) >= times:
            return one
        await asyncio.sleep(0.05)
    raise AssertionError(f"not {times} times: {one}")


async def at(run: Run, alias: str):
    return (await run.client.call("GetRun", project=run.project, run=alias)).run


async def runs_of(client: Client, project: str) -> set[str]:
    return {one.run for one in (await client.call("ListRuns", project=project)).runs}


async def end(run: Run, alias: str, status: int = 200) -> None:
    """Have the loop of a run one turn."""
    began = Run(run.client, run.project, alias)
    await began.claim()
    turn = (await began.begin()).next.number
    await began.end(turn, loop=(status, "update", ""), release=True)


async def as_person(server, name: str) -> Client:
    return Client(server.address, token_for(name, audience="store", secret="s3cret"))


async def test_each_time_begins_a_run_with_the_settings_and_rules_of_its_own(db, client, project, tmp_path) -> None:
    home = await home_of(client, project, temperature=0.7, persona="Be brief.", yolo=True, title="Nightly")
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_DENY, tool="sh", target="git push *")
    await client.call("SetRule", **home.address, rule=rule)
    own = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ASK, budget={"turns_max": 3})
    await set_nightly(home, settings=own)
    comes(db, tmp_path)
    one = await passed(home, 1)
    assert [(row.run, row.time.seconds * 1000, row.reason) for row in one.latest] == [(ALIAS, TIME_MS, "")]
    assert (one.fired, one.last_time.seconds * 1000, one.by) == (1, TIME_MS, "operator")
    assert await runs_of(client, project) == {"home", ALIAS}
    began = await at(home, ALIAS)
    assert (began.settings.persona, began.settings.title, began.settings.yolo) == ("Be brief.", "Nightly", False)
    assert (began.loop.prompt, began.loop.settings.mode, began.loop.settings.synthetic) == (
        "Look at the build.",
        settings_pb2.MODE_ASK,
        True,
    )
    assert began.loop.settings.budget.turns_max == 3
    held = (await client.call("ListRules", project=project, run=ALIAS)).set.rules
    assert [(row.level, row.target) for row in held] == [(rule_pb2.RULE_LEVEL_RUN, "git push *")]
    assert (await at(home, "home")).loops_queued == 0
    assert await until(home, "/cron_fire/nightly_run") == f"The schedule nightly has begun the run {ALIAS}."


async def test_what_was_missed_begins_one_run(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    await set_nightly(home, cron="", every=timedelta(seconds=3600))
    comes(db, tmp_path)
    one = await passed(home, 1)
    await asyncio.sleep(2.5)
    assert (await listed(home)).fired == one.fired == 1
    assert one.next_time.seconds - one.last_time.seconds > 3600


async def test_no_run_begins_beside_one_that_works_unless_that_is_wanted(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    await set_nightly(home)
    comes(db, tmp_path)
    await passed(home, 1)
    comes(db, tmp_path, 1)
    one = await passed(home, 2)
    assert (one.latest[0].run, one.latest[0].reason) == ("", "OVERLAP")
    assert one.latest[0].message == f"the run {ALIAS} still works"
    assert (one.fired, one.failures, one.paused) == (1, 0, False)
    told = await until(home, "/system_notice/nightly_missed")
    assert told == f"The schedule nightly has begun no run at 2025-12-01 03:00:00 UTC: the run {ALIAS} still works."
    await set_nightly(home, overlap=schedule_pb2.SCHEDULE_OVERLAP_ALLOW)
    comes(db, tmp_path, 2)
    one = await passed(home, 3)
    assert one.latest[0].run == "nightly-20251202T030000Z"
    # Set again as it was, it knows the runs of before.
    await set_nightly(home)
    await end(home, "nightly-20251202T030000Z")
    comes(db, tmp_path, 3)
    assert (await passed(home, 4)).latest[0].reason == "OVERLAP"
    await end(home, ALIAS)
    comes(db, tmp_path, 4)
    assert (await passed(home, 5)).latest[0].run == "nightly-20251204T030000Z"


async def test_a_time_that_a_quota_refuses_is_missed_and_the_next_one_tried(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    quota = quota_service_pb2.Quota(metric=quota_service_pb2.QUOTA_METRIC_RUNS, limit=0)
    made = (await client.call("SetQuota", project=project, quota=quota)).quota
    await set_nightly(home)
    for day in range(7):
        comes(db, tmp_path, day)
        one = await passed(home, day + 1)
    assert {(row.run, row.reason) for row in one.latest} == {("", "QUOTA_EXCEEDED")}
    assert (one.fired, one.failures, one.paused) == (0, 0, False)
    assert await runs_of(client, project) == {"home"}
    # One entry tells of all of them.
    assert [path for path in await events(home) if "_missed" in path] == ["event://turn_0/system_notice/nightly_missed"]
    await client.call("DeleteQuota", project=project, metric=made.metric)
    comes(db, tmp_path, 7)
    assert (await passed(home, 8)).latest[0].run == "nightly-20251207T030000Z"


async def test_it_works_as_who_set_it_and_not_once_that_person_has_left(server, db, client, project, tmp_path) -> None:
    await client.call("DeleteGrant", project=project, subject="*")
    mine = grant_pb2.Grant(subject="user:ann", role=grant_pb2.GRANT_ROLE_OWNER)
    await client.call("SetGrant", project=project, grant=mine)
    home = await home_of(client, project)
    ann = await as_person(server, "ann")
    one = await set_nightly(Run(ann, project, "home"))
    assert one.by == "ann"
    comes(db, tmp_path)
    await passed(home, 1)
    assert (await at(home, ALIAS)).loop.by == "ann"
    await end(home, ALIAS)
    await client.call("DeleteGrant", project=project, subject="user:ann")
    for day in range(1, 6):
        comes(db, tmp_path, day)
        one = await passed(home, day + 1)
    assert {(row.run, row.reason) for row in one.latest} == {(ALIAS, ""), ("", "RIGHT_MISSING")}
    assert one.latest[0].message.startswith("ann has set this, and does not have `run` in the project")
    assert (one.failures, one.paused) == (5, True)
    assert "its last 5 runs failed or could not begin" in await until(home, "/system_notice/nightly_paused")
    # Whoever resumes it does not lend it any right.
    await client.call("ResumeSchedule", **home.address, schedule_id="nightly")
    comes(db, tmp_path, 6)
    assert (await passed(home, 7)).latest[0].reason == "RIGHT_MISSING"
    await ann.close()


async def test_yolo_is_asked_of_who_set_it_at_each_time(server, db, client, project, tmp_path) -> None:
    mine = grant_pb2.Grant(subject="user:ann", role=grant_pb2.GRANT_ROLE_OWNER)
    await client.call("SetGrant", project=project, grant=mine)
    home = await home_of(client, project)
    ann = await as_person(server, "ann")
    await set_nightly(Run(ann, project, "home"), settings=settings_pb2.LoopSettings(yolo=True))
    await client.call("DeleteGrant", project=project, subject="*")
    less = grant_pb2.Grant(subject="user:ann", role=grant_pb2.GRANT_ROLE_OWNER, without=["RIGHT_COMMAND"])
    await client.call("SetGrant", project=project, grant=less)
    comes(db, tmp_path)
    one = await passed(home, 1)
    assert (one.latest[0].run, one.latest[0].reason) == ("", "RIGHT_MISSING")
    assert "yolo" in one.latest[0].message
    await ann.close()


async def test_runs_that_fail_pause_it_and_runs_that_succeed_count_from_0(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    await set_nightly(home)
    ends = [500, 200, 500, 500, 500, 500, 500]
    for day, status in enumerate(ends):
        comes(db, tmp_path, day)
        one = await passed(home, day + 1)
        await end(home, one.latest[0].run, status)
    comes(db, tmp_path, len(ends))
    await until(home, "/system_notice/nightly_paused")
    one = await listed(home)
    assert (one.fired, one.failures, one.paused) == (len(ends), 5, True)


async def test_a_paused_one_lets_its_times_pass(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    await set_nightly(home)
    key = {**home.address, "schedule_id": "nightly"}
    assert (await client.call("PauseSchedule", **key)).schedule.paused
    execute(db, tmp_path, f"update schedules set next_ms = {TIME_MS}")
    await asyncio.sleep(2.5)
    assert await runs_of(client, project) == {"home"}
    going = (await client.call("ResumeSchedule", **key)).schedule
    assert (going.paused, going.fired, going.next_time.seconds * 1000 > TIME_MS) == (False, 0, True)
    comes(db, tmp_path)
    assert (await passed(home, 1)).latest[0].run == ALIAS
    for rpc in ("PauseSchedule", "ResumeSchedule"):
        with pytest.raises(TurnwrightError) as missing:
            await client.call(rpc, **{**key, "schedule_id": "other"})
        assert missing.value.reason.name == "ENTRY_NOT_FOUND"


async def test_a_private_run_begins_private_ones_that_others_are_not_told_of(
    server, db, client, project, tmp_path
) -> None:
    await client.call("DeleteGrant", project=project, subject="*")
    for name in ("ann", "bob"):
        given = grant_pb2.Grant(subject=f"user:{name}", role=grant_pb2.GRANT_ROLE_MEMBER)
        await client.call("SetGrant", project=project, grant=given)
    home = await home_of(client, project)
    ann, bob = await as_person(server, "ann"), await as_person(server, "bob")
    owner = grant_pb2.Grant(subject="user:ann", role=grant_pb2.GRANT_ROLE_OWNER)
    await client.call("SetGrant", project=project, grant=owner)
    await set_nightly(Run(ann, project, "home"))
    comes(db, tmp_path)
    await passed(home, 1)
    execute(db, tmp_path, f"update runs set private = 1 where alias = '{ALIAS}'")
    assert [row.run for row in (await listed(Run(ann, project, "home"))).latest] == [ALIAS]
    assert [row.run for row in (await listed(Run(bob, project, "home"))).latest] == [""]
    await ann.close()
    await bob.close()


async def test_an_alias_that_is_taken_gets_a_number_and_a_run_that_is_gone_is_named_no_more(
    db, client, project, tmp_path
) -> None:
    home = await home_of(client, project)
    await client.call("CreateRun", project=project, run=ALIAS, settings=settings_pb2.RunSettings(model="fast"))
    await set_nightly(home)
    comes(db, tmp_path)
    assert (await passed(home, 1)).latest[0].run == f"{ALIAS}-2"
    await end(home, f"{ALIAS}-2")
    await client.call("RenameRun", project=project, run=f"{ALIAS}-2", new_run="kept")
    assert (await listed(home)).latest[0].run == "kept"
    await client.call("DeleteRun", project=project, run="kept")
    one = (await listed(home)).latest[0]
    assert (one.run, one.reason) == ("", "")


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"time_zone": "Europe/Berlim"}, "schedule.time_zone", "did you mean Europe/Berlin?"),
        ({"time_zone": "europe/berlin"}, "schedule.time_zone", "did you mean Europe/Berlin?"),
        ({"time_zone": "../../etc/passwd"}, "schedule.time_zone", "no time zone"),
        ({"cron": "", "every": timedelta(hours=1), "time_zone": "UTC"}, "schedule.time_zone", "for cron"),
        ({"prompt": ""}, "schedule.prompt", "needs a prompt"),
        ({"new_run": False, "overlap": 2}, "schedule.overlap", "new runs"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(client, project, fields, field, words) -> None:
    home = await home_of(client, project)
    with pytest.raises(TurnwrightError) as refused:
        await set_nightly(home, **fields)
    assert refused.value.metadata["field"] == field
    assert words in refused.value.message


@POSTGRESQL_ONLY
async def test_of_two_stores_one_begins_the_run(db, client, project, tmp_path) -> None:
    home = await home_of(client, project)
    other = await start_store(tmp_path, "other")
    try:
        await set_nightly(home)
        for day in range(5):
            comes(db, tmp_path, day)
            one = await passed(home, day + 1)
            await end(home, one.latest[0].run)
        await asyncio.sleep(2.5)
        one = await listed(home)
    finally:
        await other.stop()
    assert one.fired == len(one.latest) == 5
    assert await runs_of(client, project) == {"home", *(row.run for row in one.latest)}
