"""How many statements a phase of a turn costs: few, and no more for more writes (architecture 12.1)."""

import contextlib
from functools import partial

import psycopg
import pytest
import pytest_asyncio
from turnwright_values.store import (
    AppendEntry,
    CopyEntry,
    Durability,
    EndTurnRequest,
    EntryWrite,
    Lease,
    MoveEntry,
    NextTurn,
    RemoveEntry,
    SetEntry,
    WriteEntriesRequest,
)
from turnwright_values.types import (
    LoopSettings,
    Mode,
    Model,
    PlanKind,
    RunSettings,
    State,
    Tier,
    TurnRequest,
    TurnResult,
    Visibility,
)

from sql_counter import counted_statements, sent
from turnwright_core.plans.plan import Plan
from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_store.app import commands, leases, ledger, plans, registry
from turnwright_store.app.changes import watch_changes
from turnwright_store.app.open_store import open_store
from turnwright_store.app.read_view import find_view_delta
from turnwright_store.app.run_details import get_run_details
from turnwright_store.app.watches import Watches
from turnwright_store.app.write_entries import write_entries
from turnwright_store.config import ModelSeeds
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.edge.postgres import PostgresDatabase
from turnwright_store.edge.postgres_link import Server
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.views import Wanted

pytestmark = pytest.mark.asyncio

SYSTEM = Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)
ADDRESS = RunRef("p", "r")
OWNER = leases.Claimant("o", "", 6000)


class Store:
    """A database with a running loop, and what it spends."""

    def __init__(self, database, rules):
        self.database = database
        self.rules = rules
        self.spent = 0

    async def write(self, work, **fields):
        with counted_statements() as counted:
            result = await self.database.write(partial(work, **fields), Durability.NORMAL, {"run:p/r"})
        self.spent = sent(counted)
        return result

    async def entries(self, *writes, status=0):
        call = WriteEntriesRequest("p", "r", 1, writes, run_status=status)
        return await self.write(write_entries, rules=self.rules, caller=SYSTEM, call=call)

    async def begin(self, *writes):
        request = TurnRequest("fast", "v/m", 1, 0.1, ())
        return await self._end_turn(0, next=NextTurn(request, writes))

    async def end(self, number):
        return await self._end_turn(number, result=TurnResult())

    async def _end_turn(self, turn, **fields):
        end = EndTurnRequest("p", "r", 1, turn, **fields)
        return await self.write(ledger.end_turn, rules=self.rules, caller=SYSTEM, end=end)

    async def read(self, after):
        def query(connection):
            found = find_view_delta(connection, self.rules, ADDRESS, after, Wanted())
            return load_entries(connection, found.run, found.shown, Wanted())

        with counted_statements() as counted:
            entries = await self.database.read(query)
        self.spent = sent(counted)
        return entries


@pytest_asyncio.fixture
async def store(tmp_path):
    async with working(SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=9, batch_max=9, readers=1)) as one:
        yield one


@pytest_asyncio.fixture
async def distant(postgres_url):
    """The same behind a network."""
    server = Server(postgres_url, 5.0, 30.0, 10.0)
    async with working(PostgresDatabase(server, queue_max=9, batch_max=9, readers=1, poll_s=60)) as one:
        yield one


@contextlib.asynccontextmanager
async def working(database):
    await database.start()
    opening = partial(
        open_store,
        new_incarnation=lambda: "i",
        seeds=ModelSeeds({}, {}),
    )
    opened = await database.write(opening, Durability.NORMAL, ())
    one = Store(database, StoreRules(opened.incarnation, opened.schemes, opened.global_scope, 9, 1.0, 1.0))
    await one.write(registry.set_model, model=Model("fast", "v/m"))
    await one.write(registry.init_project, root="/p", workspace_id="w", name="p")
    settings = LoopSettings(Mode.ACT, "fast")
    fields = {"prompt": "x", "settings": settings, "run_settings": RunSettings()}
    await one.write(commands.enqueue_loop, rules=one.rules, caller=SYSTEM, address=ADDRESS, **fields)
    await one.write(leases.claim_run, rules=one.rules, address=ADDRESS, who=OWNER)
    yield one
    await database.close()


def records(turn, count, state=State.RECORDED):
    return [
        EntryWrite(f"log://turn_{turn}/get/{n}", SetEntry("b", "{}", state=state), Tier.SYSTEM) for n in range(count)
    ]


@pytest.mark.parametrize("count", [1, 64])
async def test_a_lone_write_waits_four_times_whatever_it_writes(distant, count, monkeypatch):
    """For its locks, its run, what is there, and the commit. Numbers of entries are there from the writes before."""
    trips = []
    sync = psycopg.Pipeline.sync
    monkeypatch.setattr(psycopg.Pipeline, "sync", lambda pipeline: trips.append(1) or sync(pipeline))
    for state in (State.RECORDED, State.RESOLVED):
        trips.clear()
        await distant.entries(*records(0, count, state))
        assert len(trips) == 4


async def test_a_turn_costs_few_statements(store):
    spent = {}
    begun = await store.begin(EntryWrite("prompt://{turn}", SetEntry("x"), Tier.PLUGIN))
    spent["begin"] = store.spent
    await store.entries(*records(1, 5))
    spent["record"] = store.spent
    await store.entries(*records(1, 5, State.RESOLVED))
    spent["finalise"] = store.spent
    await store.end(1)
    spent["end"] = store.spent
    changed = await store.read(begun.cursor)
    spent["read"] = store.spent
    assert len(changed) == 5
    assert spent == {"begin": 9, "record": 6, "finalise": 5, "end": 5, "read": 3}


@pytest.mark.parametrize("count", [1, 5, 900])
async def test_more_writes_cost_no_more_statements(store, count):
    await store.entries(*records(1, count))
    assert store.spent == 6
    await store.entries(*(EntryWrite(f"log://turn_1/get/{n}", SetEntry("new"), Tier.SYSTEM) for n in range(count)))
    assert store.spent == 7


@pytest.mark.parametrize("earlier", [1, 5])
async def test_a_plan_costs_few_statements_however_many_versions_are_kept(store, earlier):
    by = plans.PlanChange(SYSTEM, ADDRESS, 1, Tier.MODEL)
    plan = Plan("main", PlanKind.MARKDOWN, "Go.")
    for _ in range(earlier):
        await store.write(plans.set_plan, rules=store.rules, by=by, plan=plan)
        await store.write(plans.update_plan, rules=store.rules, by=by, plan_id="main", text="On.")
    update = store.spent
    await store.write(plans.set_plan, rules=store.rules, by=by, plan=plan)
    assert (update, store.spent) == (7, 9)


async def test_a_piece_of_a_stream_costs_few_statements(store):
    path = "sh://turn_1/x_1"
    await store.entries(EntryWrite(path, SetEntry("", state=State.STREAMING), Tier.PLUGIN))
    for _ in range(3):
        await store.entries(EntryWrite(path, AppendEntry("x"), Tier.PLUGIN))
        assert store.spent == 6


async def test_the_details_of_a_run_are_read_with_its_row_once(store):
    """Clients ask for them again and again while they wait."""
    with counted_statements() as counted:
        found = await store.database.read(
            partial(get_run_details, rules=store.rules, address=ADDRESS, turns_max=1, history_max=1)
        )
    assert found.run.run == "r"
    # The run, its loops, turns and spend, what waits, and the timeline: agents only where there are some.
    assert sent(counted) <= 8


async def test_a_read_of_nothing_new_is_one_statement(store):
    written = await store.entries(*records(1, 5))
    assert await store.read(written.cursor) == []
    assert store.spent == 1


@pytest.mark.parametrize("count", [0, 1, 50])
async def test_a_renewal_costs_the_same_however_many_leases_there_are(store, count):
    held = [Lease("p", "r", 1), *(Lease("p", f"none{n}", 1) for n in range(count))]
    states = await store.write(leases.renew_leases, who=OWNER, leases=held)
    assert [state.held for state in states] == [True, *[False] * count]
    assert store.spent == 2


class Watcher:
    """A watch of the run, and what each of its messages costs."""

    def __init__(self, store, after=None):
        self.database = store.database
        begin = partial(watch_changes, store.database, lambda: store.rules, ADDRESS, after, Wanted())
        self.changes = Watches().follow(begin, lambda: store.rules.heartbeat_s)

    async def next(self):
        with counted_statements() as counted:
            change = await anext(self.changes)
        return change, sent(counted)


async def test_a_wake_of_a_watcher_costs_few_statements(store):
    """None for what is told. Read, one for the run's head, one for the run, one for its views, one for bodies."""
    watcher = Watcher(store)
    start, spent_first = await watcher.next()
    spent, read = {"start": spent_first}, {}
    steps = {
        "records": partial(store.entries, *records(1, 5)),
        "removal": partial(store.entries, EntryWrite("log://turn_1/get/1", RemoveEntry(), Tier.SYSTEM)),
        "begin": partial(store.begin, EntryWrite("prompt://{turn}", SetEntry("x"), Tier.PLUGIN)),
        "end": partial(store.end, 1),
    }
    cursor = start.cursor
    for name, step in steps.items():
        await step()
        change, spent[name] = await watcher.next()
        late = Watcher(store, cursor)
        read[name] = (await late.next())[1]
        await late.changes.aclose()
        cursor = change.cursor
    late = Watcher(store, start.cursor)
    read["all of it, later"] = (await late.next())[1]
    assert spent == {"start": 2, "records": 0, "removal": 0, "begin": 0, "end": 0}
    assert read == {"records": 4, "removal": 3, "begin": 6, "end": 5, "all of it, later": 6}
    await watcher.changes.aclose()
    await late.changes.aclose()


async def test_a_slow_watcher_costs_no_more_than_what_it_takes(store):
    """Bodies are loaded for one message at a time, when it is taken."""
    written = await store.entries()
    start = written.cursor
    await store.entries(*(EntryWrite(f"known://{n:02}", SetEntry("x" * 200_000), Tier.PLUGIN) for n in range(20)))
    watcher = Watcher(store, start)
    costs = []
    for _ in range(20):
        change, cost = await watcher.next()
        assert len(change.entries) == 1
        costs.append(cost)
    assert costs == [4, *[1] * 19]
    await watcher.changes.aclose()


STREAM = "sh://turn_1/x_1"


@pytest.mark.parametrize("body_size_bytes", [10 * 1024, 10 * 1024 * 1024])
async def test_a_stream_costs_the_same_at_any_length(store, body_size_bytes):
    """No statement reads or rewrites the body: not at an append, a change of the view, the close, or the removal."""
    spent = {}
    for name, change in {
        "begin": SetEntry("x" * body_size_bytes, state=State.STREAMING),
        "append": AppendEntry("y"),
        "look": SetEntry(visibility=Visibility.SUMMARIZED),
        "close": SetEntry(state=State.RESOLVED),
        "remove": RemoveEntry(),
    }.items():
        await store.entries(EntryWrite(STREAM, change, Tier.PLUGIN))
        spent[name] = store.spent
    assert spent == {"begin": 6, "append": 6, "look": 5, "close": 5, "remove": 5}


CHANGES = {
    "copy": (lambda n: CopyEntry(f"known://c/{n}"), 7),
    "move": (lambda n: MoveEntry(f"known://c/{n}"), 8),
    "merge": (lambda _: SetEntry(merge_attributes_json='{"n":1}'), 8),
}


@pytest.mark.parametrize("count", [1, 400])
@pytest.mark.parametrize("kind", CHANGES)
async def test_bodies_that_are_written_again_are_read_at_once(store, kind, count):
    make, statements = CHANGES[kind]
    await store.entries(*(EntryWrite(f"known://{n}", SetEntry("x"), Tier.MODEL) for n in range(count)))
    await store.entries(*(EntryWrite(f"known://{n}", make(n), Tier.MODEL) for n in range(count)))
    assert store.spent == statements
