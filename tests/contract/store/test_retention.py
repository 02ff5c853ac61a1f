"""Removal of runs: at once for everybody; then nothing is left of them but what forks see."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text

from contract.store.counting import connected, row_counts
from contract.store.harness import (
    PROPOSED,
    STREAMING,
    Client,
    Run,
    append,
    new_project,
    new_run,
    remove,
    set_,
    start_store,
)
from contract.store.test_forks import fork, seen, work
from contract.store.test_packets import packet, read
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.sql.retention import RUN_ROWS
from turnwright_store.sql.tables import metadata

pytestmark = pytest.mark.asyncio

STAYS = {"idempotency", "schemes", "meta", "models", "projects", "executors", "file_constraints", "run_names", "audit",
         "grants", "tokens", "quotas", "webhooks", "tool_servers"}  # fmt: skip
"""Tables that runs have no rows of their own in, or whose rows may outlive them."""


@dataclass
class Store:
    """A store that deletes the rows of removed runs at once, and a look into its tables."""

    client: Client
    project: str
    db: str
    home: Any

    def rows(self) -> dict[str, int]:
        """Rows of the tables that runs have rows in."""
        return {name: count for name, count in row_counts(self.db, self.home).items() if name not in STAYS}

    async def settles_at(self, expected: dict[str, int]) -> None:
        """Wait until the tables hold these numbers of rows."""
        await comes_to(self.rows, expected)

    async def run(self, alias: str) -> Run:
        return await work(await new_run(self.client, self.project, alias))


@asynccontextmanager
async def serving(db, home, **settings):
    server = await start_store(home, heartbeat_s=0.2, purge_after_s=0.0, purge_every_s=0.05, **settings)
    client = Client(server.address)
    yield Store(client, await new_project(client), db, home)
    await client.close()
    await server.stop()


@pytest_asyncio.fixture
async def store(db, tmp_path):
    async with serving(db, tmp_path) as one:
        yield one


async def lived(run: Run, turns: int = 2) -> Run:
    """The run after some turns with records, packets, a stream, a removal and shared entries."""
    for _ in range(turns):
        number = (await run.begin(set_("log://turn_{turn}/get/x", "record"), set_("known://a", "text"))).next.number
        path = f"sh://turn_{number}/x_1"
        await run.write(set_(path, "", state=STREAMING), packet=packet(number, ("user", ["hello", f"{number}"])))
        await run.write(append(path, "out"))
        await run.write(set_(path, state=4), set_("file.py", "code"), set_("known://b", f"{number}"))
        await run.end(number, remove("known://b"))
    await over(run)
    return run


async def over(run: Run) -> None:
    """End the active loop."""
    await run.end(0, loop=(200, "done", "ok"))


async def removed(run: Run, **more) -> None:
    await run.client.call("DeleteRun", **run.address, **more)


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_removed_run_is_gone_at_once(run):
    await over(run)
    await removed(run)
    calls = [run.get(), run.view(), run.begin(), removed(run)]
    assert [(await refused(call)).reason for call in calls] == [Reason.RUN_NOT_FOUND] * 4
    assert list((await run.client.call("ListRuns", project=run.project)).runs) == []


async def test_the_alias_of_a_removed_run_is_free(run):
    await run.write(set_("known://a", "old"))
    await over(run)
    await removed(run)
    again = await new_run(run.client, run.project, "r1")
    assert (await again.view()).entries == []
    assert (await again.get()).turn == 0


@pytest.mark.parametrize("loops", [0, 1])
async def test_a_run_with_an_open_loop_is_not_removed(run, loops):
    """One that is running, or one that waits."""
    await run.enqueue()
    for _ in range(loops):
        await over(run)
    error = await refused(removed(run))
    assert (error.reason, error.metadata["object"]) == (Reason.TRANSITION_FORBIDDEN, "run")
    assert (await run.get()).run == "r1"


async def test_a_repeated_removal_is_answered_again(run):
    await over(run)
    await removed(run, request_id="once")
    await new_run(run.client, run.project, "r1")
    await removed(run, request_id="once")
    assert (await run.get()).run == "r1"


async def test_a_watcher_is_told_that_its_run_is_gone(run):
    await over(run)
    stream = run.client.stream("WatchChanges", **run.address)
    changes = aiter(stream)
    await anext(changes)
    await removed(run)
    with pytest.raises(TurnwrightError) as caught:
        async for _ in changes:
            pass
    assert caught.value.reason is Reason.RUN_NOT_FOUND


async def test_nothing_is_left_of_removed_runs(store):
    """No table holds more rows than before the first of them was made, but for the project's own file."""
    before = store.rows()
    one, two = await lived(await store.run("one")), await lived(await store.run("two"), turns=3)
    child = await lived(await work(await fork(one, "child")))
    grandchild = await lived(await work(await fork(child, "grandchild", turn=1)))
    for run in (child, one, grandchild, two):
        await removed(run)
    await store.settles_at({**before, "entries": 1, "versions": 1})


async def test_a_fork_of_a_removed_run_still_reads_everything(store):
    parent = await lived(await store.run("parent"))
    child = await fork(parent, "child")
    early = await fork(parent, "early", turn=1)
    shown = [seen(await run.view()) for run in (child, early)]
    await removed(parent)
    await gone(store, "parent")
    assert [seen(await run.view()) for run in (child, early)] == shown


async def gone(store: Store, alias: str) -> None:
    """Wait until the views, turns and packets of a removed run are deleted, and the chores find no more to do."""
    query = text(
        "SELECT count(*) FROM runs LEFT JOIN views ON views.run_id = runs.id LEFT JOIN turns ON turns.run_id = runs.id "
        "LEFT JOIN packets ON packets.run_id = runs.id "
        "WHERE runs.removed_ms > 0 AND (views.id > 0 OR turns.number > 0 OR packets.turn > 0)"
    )
    last = None
    for _ in range(400):
        with connected(store.db, store.home) as connection:
            left = connection.execute(query).scalar_one()
        now = store.rows()
        if not left and now == last:
            return
        last = now
        await asyncio.sleep(0.15)
    raise AssertionError(f"{alias} has rows left: {last}")


async def comes_to(look, expected) -> None:
    """Wait until the chores have left what is expected."""
    for _ in range(1200):
        if look() == expected:
            return
        await asyncio.sleep(0.05)
    assert look() == expected


async def test_only_what_a_fork_sees_stays_of_a_removed_run(store):
    parent = await store.run("parent")
    await parent.begin(set_("known://a", "v1"), set_("known://b", "v1"))
    await parent.end(1)
    child = await fork(parent, "child", turn=1)
    await parent.write(set_("known://a", "v2"), set_("known://c", "unseen"))
    await over(parent)
    await removed(parent)
    await gone(store, "parent")
    query = text(
        "SELECT path, count(*) FROM entries JOIN versions ON entry_id = entries.id GROUP BY path ORDER BY path"
    )

    def kept() -> list[tuple[str, int]]:
        with connected(store.db, store.home) as connection:
            return [tuple(row) for row in connection.execute(query)]

    await comes_to(kept, [("known://a", 1), ("known://b", 1), ("run://parent", 1)])
    assert (await child.view()).bodies == {"known://a": "v1", "known://b": "v1", "run://parent": "do it"}


async def test_what_a_fork_saw_earlier_stays_too(store):
    """A fork's own history shows inherited content that it has replaced since."""
    parent = await store.run("parent")
    await parent.begin(set_("known://a", "inherited"))
    await parent.end(1)
    child = await work(await fork(parent, "child"))
    await child.begin()
    await child.end(2)
    await child.begin(set_("known://a", "own"))
    await child.end(3)
    await over(parent)
    await removed(parent)
    await gone(store, "parent")
    earlier = await fork(child, "earlier", turn=2)
    assert (await earlier.entry("known://a")).body == "inherited"
    error = await refused(fork(child, "before", turn=1))
    assert error.reason is Reason.TURN_NOT_FOUND


async def test_a_stream_that_a_fork_saw_the_beginning_of_keeps_it(store):
    parent = await store.run("parent")
    path = "sh://turn_1/x_1"
    await parent.begin(set_(path, "", state=STREAMING))
    await parent.write(append(path, "seen"))
    child = await fork(parent, "child")
    await parent.write(append(path, " unseen"))
    await parent.end(1)
    await over(parent)
    await removed(parent)
    await gone(store, "parent")
    assert (await child.entry(path)).body == "seen"


@pytest.mark.parametrize("rpc", ["ReadPacket", "ReadView"])
async def test_whoever_reads_a_run_while_its_rows_are_deleted_is_told_that_it_is_gone(store, rpc):
    run = await store.run("slow")
    texts = [f"{number}" * 2_000_000 for number in range(8)]
    await run.begin(*(set_(f"known://{number}", text) for number, text in enumerate(texts)))
    await run.write(packet=packet(1, ("user", texts)))
    await run.end(1)
    await over(run)
    parts = store.client.stream(rpc, **run.address, **({"turn": 1} if rpc == "ReadPacket" else {}))
    await anext(parts)
    await removed(run)
    await store.settles_at(dict.fromkeys(store.rows(), 0) | {"scopes": 3})
    with pytest.raises(TurnwrightError) as caught:
        async for _ in parts:
            pass
    assert caught.value.reason is Reason.RUN_NOT_FOUND


async def test_packets_of_others_stay(store):
    one, two = await store.run("one"), await store.run("two")
    for run, own in ((one, "of one"), (two, "of two")):
        number = (await run.begin()).next.number
        await run.write(packet=packet(number, ("user", ["of both" * 200, own * 200])))
        await run.end(number)
    await lived(one)
    await lived(two, turns=3)
    packets = [await read(two, turn) for turn in (1, 2, 3, 4)]
    assert store.rows()["blocks"] == 3
    await removed(one)
    await gone(store, "one")
    assert [await read(two, turn) for turn in (1, 2, 3, 4)] == packets
    assert store.rows()["blocks"] == 2


async def test_a_family_goes_in_any_order(store):
    """The eldest first, the youngest last: until then the youngest reads all it inherited."""
    eldest = await lived(await store.run("eldest"))
    middle = await lived(await work(await fork(eldest, "middle")))
    youngest = await fork(middle, "youngest")
    shown = seen(await youngest.view())
    for run in (eldest, middle):
        await removed(run)
        await gone(store, run.alias)
        assert seen(await youngest.view()) == shown
    await removed(youngest)
    await store.settles_at(dict.fromkeys(store.rows(), 0) | {"scopes": 3, "entries": 1, "versions": 1})


async def test_an_alias_used_again_is_no_ancestor(store):
    """A fork of a removed run does not take the next run of that name for its parent."""
    parent = await lived(await store.run("parent"))
    child = await fork(parent, "child")
    await removed(parent)
    await lived(await store.run("parent"))
    error = await refused(fork(child, "grandchild", turn=1))
    assert error.reason is Reason.TURN_NOT_FOUND
    assert (await child.get()).forked_from.run == "parent"


@pytest.mark.parametrize(
    ("settings", "days", "left"),
    [
        ({"retention_days": 0}, 32, {"old", "younger", "open", "written", "emptied", "new"}),
        ({"retention_days": 2}, 3, {"younger", "open", "written", "emptied", "new"}),
        ({}, 32, {"younger", "open", "written", "emptied", "new"}),
    ],
)
async def test_runs_go_by_age(db, tmp_path, settings, days, left):
    """RU302: counted from the last write, that of an entry too; not while a loop is open, never at 0, 31 days unless said."""
    async with serving(db, tmp_path) as store:
        for alias in ("old", "younger", "open", "written", "emptied", "new"):
            run = await store.run(alias)
            if alias != "open":
                await over(run)
        aged(store, days, "old", "open", "written", "emptied")
        aged(store, days - 2, "younger")
        for alias, write in (("written", set_("file.py", "x")), ("emptied", remove("run://emptied"))):
            await store.client.call("WriteEntries", project=store.project, run=alias, writes=[write])
    async with serving(db, tmp_path, **settings) as store:
        for _ in range(20 if "old" in left else 1200):
            runs = (await store.client.call("ListRuns", project=store.project)).runs
            if "old" not in left and {run.run for run in runs} == left:
                break
            await asyncio.sleep(0.05)
    assert {run.run for run in runs} == left


@pytest.mark.parametrize("use", ["schedule", "proposal", "stream", "queued loop", "child", "grandchild", "nothing"])
async def test_a_run_that_something_can_still_make_act_is_kept(db, tmp_path, use):
    # C64
    async with serving(db, tmp_path) as store:
        run = await store.run("old")
        for one in (run, await store.run("gone")):
            await over(one)
        if use == "schedule":
            await run.client.call("SetSchedule", **run.address, schedule={"schedule_id": "s", "cron": "0 0 1 3 *"})
        elif use in ("proposal", "stream"):
            path, state = ("log://turn_1/ask/a", PROPOSED) if use == "proposal" else ("sh://turn_1/a_1", STREAMING)
            await store.client.call("WriteEntries", **run.address, writes=[set_(path, "x", state=state)])
        elif use == "queued loop":
            await run.enqueue()
        elif use == "child":
            await fork(run, "child")
        elif use == "grandchild":
            await fork(await fork(run, "between"), "child")
            aged(store, 40, "between")
        aged(store, 40, "old", "gone")
    async with serving(db, tmp_path) as store:
        for _ in range(1200):
            left = {one.run for one in (await store.client.call("ListRuns", project=store.project)).runs}
            if "gone" not in left and ("old" in left) == (use != "nothing"):
                break
            await asyncio.sleep(0.05)
    assert ("gone" in left, "old" in left) == (False, use != "nothing")


KEEPS = {
    "agents": "each of a run that is there keeps the agent's",
    "approval_rules": "no: they say what may happen, and make nothing happen",
    "loops": "while one is queued or active",
    "packets": "no: they show what was",
    "reservations": "no: their turn is open, and belongs to an active loop",
    "schedules": "each",
    "turns": "no: one that is open belongs to an active loop",
    "views": "while a proposal waits or output grows",
}
"""Whether a row of a table keeps its run: what can make a run act must (C64)."""


async def test_it_is_decided_of_every_table_whether_it_keeps_its_run():
    assert {name for name, table in metadata.tables.items() if "run_id" in table.columns} == set(KEEPS)


async def test_the_rows_of_every_table_go_with_their_run():
    assert {statement.table.name for statement in RUN_ROWS} == set(KEEPS)


def aged(store: Store, days: int, *aliases: str) -> None:
    """Make runs as if nobody had written them for some days."""
    with connected(store.db, store.home) as connection:
        for alias in aliases:
            values = {"alias": alias, "ms": days * 24 * 3600 * 1000}
            connection.execute(text("UPDATE runs SET update_ms = update_ms - :ms WHERE alias = :alias"), values)
            connection.execute(
                text(
                    "UPDATE views SET create_ms = create_ms - :ms "
                    "WHERE run_id = (SELECT id FROM runs WHERE alias = :alias)"
                ),
                values,
            )


def file_versions(store: Store) -> list[str]:
    """The stored bodies of a file, oldest first."""
    query = text(
        "SELECT body FROM versions JOIN entries ON entries.id = entry_id WHERE path = 'file.py' ORDER BY from_rev"
    )
    with connected(store.db, store.home) as connection:
        bodies = connection.execute(query).scalars().all()
    return [body if isinstance(body, str) else bytes(body).decode() for body in bodies]


async def test_old_versions_of_shared_entries_go_with_the_runs_that_could_read_them(store):
    """What stood in a file before the eldest run was made is seen by nobody; the head stays."""
    first = await store.run("first")
    for body in ("v1", "v2"):
        await first.write(set_("file.py", body))
    await asyncio.sleep(0.01)
    second = await store.run("second")
    for body in ("v3", "v4"):
        await second.write(set_("file.py", body))
    await asyncio.sleep(0.01)
    third = await store.run("third")
    await third.write(set_("file.py", "v4"))
    for run, left in ((first, ["v2", "v3", "v4"]), (second, ["v4"])):
        await over(run)
        await removed(run)
        await gone(store, run.alias)
        await comes_to(lambda: file_versions(store), left)
    assert (await third.entry("file.py")).body == "v4"


async def test_forks_removals_and_packets_at_once_lose_nothing(store, tmp_path):
    """On two replicas where the database allows for two: a fork reads all or is refused, a packet stays whole."""
    base = await lived(await store.run("base"))
    shown = seen(await base.view())
    async with second(store, tmp_path) as other:

        async def line(client: Client, name: str) -> Run:
            """Fork after fork, each of which loses its parent while it is read."""
            parent = base
            for place in range(6):
                child = await fork(Run(client, store.project, parent.alias), f"{name}-{place}")
                if place:
                    await removed(Run(store.client, store.project, parent.alias))
                assert seen(await child.view()) == shown
                parent = child
            return parent

        async def talk(client: Client, alias: str) -> Run:
            """Turns whose packets share blocks with those of removed runs."""
            run = await work(await new_run(client, store.project, alias))
            for number in range(1, 13):
                await run.begin()
                await run.write(
                    packet=packet(number, ("user", ["hello" * 300, f"{number % 3}" * 2000, f"{alias} {number}"]))
                )
                await run.end(number)
            return run

        *lines, one, two = await asyncio.gather(
            line(store.client, "a"), line(other, "b"), talk(store.client, "one"), talk(other, "two")
        )
        await removed(base)
        await gone(store, "base")
        assert [seen(await run.view()) for run in lines] == [shown, shown]
        for run in (one, two):
            expected = [
                [("user", f"{'hello' * 300}{f'{number % 3}' * 2000}{run.alias} {number}")] for number in range(1, 13)
            ]
            assert [await read(run, number) for number in range(1, 13)] == expected


@asynccontextmanager
async def second(store: Store, home):
    """A client of another replica; of the same store where the database serves only one."""
    if not store.db:
        yield store.client
        return
    async with serving(store.db, home, name="second") as other:
        yield other.client
