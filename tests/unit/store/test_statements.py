"""How many statements a phase of a turn costs: few, and no more for more writes (architecture 12.1)."""

from functools import partial

import pytest
import pytest_asyncio

from turnwright_core.entries import AppendEntry, EntryWrite, SetEntry, State, Tier
from turnwright_core.kit.auth import Caller
from turnwright_core.runs import LoopSettings, Mode, Model, RunSettings, TurnRequest, TurnResult
from turnwright_store.app import commands, ledger, registry
from turnwright_store.app.opening import open_store
from turnwright_store.app.reading import Address, find
from turnwright_store.domain.basis import Basis
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.ports import Durability
from turnwright_store.sql.views import Wanted, load_entries

pytestmark = pytest.mark.asyncio

SYSTEM = Caller("operator", Tier.SYSTEM, Tier.SYSTEM)
ADDRESS = Address("p", "r")


class Store:
    """A database with a running loop, and what it spends."""

    def __init__(self, database, basis):
        self.database = database
        self.basis = basis
        self.spent = 0

    async def write(self, work, **fields):
        before = self.database.stats().statements
        result = await self.database.write(partial(work, **fields), Durability.NORMAL, ())
        self.spent = self.database.stats().statements - before
        return result

    async def entries(self, *writes, status=0):
        fields = {"basis": self.basis, "caller": SYSTEM, "address": ADDRESS, "epoch": 1}
        return await self.write(ledger.write_entries, **fields, writes=writes, run_status=status)

    async def begin(self, *writes):
        request = TurnRequest("fast", "v/m", 1, 0.1, ())
        fields = {"basis": self.basis, "caller": SYSTEM, "address": ADDRESS, "epoch": 1, "request": request}
        return await self.write(ledger.begin_turn, **fields, writes=writes)

    async def end(self, number):
        fields = {"basis": self.basis, "caller": SYSTEM, "address": ADDRESS, "epoch": 1, "number": number}
        return await self.write(ledger.end_turn, **fields, result=TurnResult(), writes=(), end=None)

    async def read(self, after):
        before = self.database.stats().statements

        def query(connection):
            found = find(connection, self.basis, ADDRESS, after, Wanted())
            return load_entries(connection, found.run, found.shown, Wanted())

        entries = await self.database.read(query)
        self.spent = self.database.stats().statements - before
        return entries


@pytest_asyncio.fixture
async def store(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=9, batch_max=9, readers=1)
    await database.start()
    opening = partial(
        open_store,
        new_incarnation=lambda: "i",
        vendor_models={},
        context_lengths={},
        context_prefix="",
        idempotency_days=7,
    )
    opened = await database.write(opening, Durability.NORMAL, ())
    one = Store(database, Basis(opened.incarnation, opened.schemes, opened.global_scope, 9, 1.0, 1.0))
    await one.write(registry.put_models, models=[Model("fast", "v/m")])
    await one.write(registry.init_project, root="/p", workspace_id="w", name="p")
    settings = LoopSettings(Mode.ACT, "fast")
    fields = {"prompt": "x", "settings": settings, "run_settings": RunSettings()}
    await one.write(commands.enqueue_loop, basis=one.basis, caller=SYSTEM, address=ADDRESS, **fields)
    await one.write(ledger.claim_run, caller=SYSTEM, address=ADDRESS, owner="o", owner_address="")
    yield one
    await database.close()


def records(turn, count, state=State.RECORDED):
    return [
        EntryWrite(f"log://turn_{turn}/get/{n}", SetEntry("b", "{}", state=state), Tier.SYSTEM) for n in range(count)
    ]


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
    assert spent == {"begin": 10, "record": 7, "finalise": 5, "end": 5, "read": 4}


@pytest.mark.parametrize("count", [1, 5, 900])
async def test_more_writes_cost_no_more_statements(store, count):
    await store.entries(*records(1, count))
    assert store.spent == 7
    await store.entries(*(EntryWrite(f"log://turn_1/get/{n}", SetEntry("new"), Tier.SYSTEM) for n in range(count)))
    assert store.spent == 7


async def test_a_piece_of_a_stream_costs_few_statements(store):
    path = "sh://turn_1/x_1"
    await store.entries(EntryWrite(path, SetEntry("", state=State.STREAMING), Tier.PLUGIN))
    for _ in range(3):
        await store.entries(EntryWrite(path, AppendEntry("x"), Tier.PLUGIN))
        assert store.spent == 6


async def test_a_read_of_nothing_new_is_one_statement(store):
    written = await store.entries(*records(1, 5))
    assert await store.read(written.run.cursor("i")) == []
    assert store.spent == 1
