"""Folding: what was appended is brought into its version, at any moment, and nobody sees a difference."""

import hashlib
import random
from functools import partial

import pytest
import pytest_asyncio
from sqlalchemy import func, select
from turnwright_values.store import AppendEntry, Durability, EntryWrite, RemoveEntry, SetEntry, WriteEntriesRequest
from turnwright_values.types import LoopSettings, Mode, Model, RunSettings, State, Tier

from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_store.app import commands, compaction, registry
from turnwright_store.app.open_store import open_store
from turnwright_store.app.write_entries import write_entries
from turnwright_store.config import ModelSeeds
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.sql.contents import load_entries
from turnwright_store.sql.runs import get_run
from turnwright_store.sql.tables import chunks
from turnwright_store.sql.views import Wanted, find_entry_rows

pytestmark = pytest.mark.asyncio

SYSTEM = Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)
ADDRESS = RunRef("p", "r")
PATH = "sh://turn_1/x_1"


class Store:
    """A database with one run."""

    def __init__(self, database, rules):
        self.database = database
        self.rules = rules

    async def write(self, *changes, path=PATH):
        writes = [EntryWrite(path, change, Tier.PLUGIN) for change in changes]
        call = WriteEntriesRequest("p", "r", writes=writes)
        work = partial(write_entries, rules=self.rules, caller=SYSTEM, call=call)
        await self.database.write(work, Durability.NORMAL, ())

    async def entry(self, path=PATH):
        def query(connection):
            run = get_run(connection, ADDRESS.project, ADDRESS.run)
            shown = find_entry_rows(connection, run.id, [path])
            return load_entries(connection, run, list(shown.values()), Wanted())

        (entry,) = await self.database.read(query)
        return entry

    async def chunks(self):
        return await self.database.read(
            lambda connection: connection.execute(select(func.count(chunks.c.offset))).scalar()
        )


@pytest_asyncio.fixture
async def store(tmp_path):
    database = SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=9, batch_max=9, readers=1)
    await database.start()
    opening = partial(open_store, new_incarnation=lambda: "i", seeds=ModelSeeds({}, {}))
    opened = await database.write(opening, Durability.NORMAL, ())
    one = Store(database, StoreRules(opened.incarnation, opened.schemes, opened.global_scope, 9, 1.0, 1.0))
    fields = {"prompt": "x", "settings": LoopSettings(Mode.ACT, "fast"), "run_settings": RunSettings()}
    for work in (
        partial(registry.set_model, model=Model("fast", "v/m")),
        partial(registry.init_project, root="/p", workspace_id="w", name="p"),
        partial(commands.enqueue_loop, rules=one.rules, caller=SYSTEM, address=ADDRESS, **fields),
    ):
        await database.write(work, Durability.NORMAL, ())
    yield one
    await database.close()


def streaming(body=""):
    return SetEntry(body, state=State.STREAMING)


CLOSED = SetEntry(state=State.RESOLVED)


@pytest.mark.parametrize("piece", ["x", "é" * 3000, "".join(map(chr, range(32, 4000)))], ids=["one", "many", "varied"])
async def test_a_closed_body_is_folded(store, piece):
    await store.write(streaming("begin"), *(AppendEntry(piece) for _ in range(3)))
    await store.write(AppendEntry(piece))
    await store.write(CLOSED)
    before = await store.entry()
    assert await compaction.compact_some(store.database) is True
    assert await store.chunks() == 0
    after = await store.entry()
    assert after.hash == hashlib.sha256(after.body.encode()).hexdigest()
    assert (after.body, after.revision, after.body_size_bytes) == (before.body, before.revision, before.body_size_bytes)
    assert await compaction.compact_some(store.database) is False


async def test_a_body_that_grows_is_left_alone(store):
    await store.write(streaming(), AppendEntry("x"))
    assert await compaction.compact_some(store.database) is False
    assert await store.chunks() == 1


async def test_a_body_that_grows_in_very_many_pieces_is_folded_as_far_as_it_has_come(store):
    await store.write(streaming("a"))
    for piece in "bcd":
        await store.write(AppendEntry(piece))
    folded = await store.database.read(partial(compaction.prepare, pieces_max=3))
    await store.write(AppendEntry("e"))
    assert await store.database.write(partial(compaction.store, folded=folded), Durability.NORMAL, ()) is True
    await store.write(AppendEntry("f"))
    assert (await store.entry()).body == "abcdef"
    assert await store.chunks() == 2
    await store.write(CLOSED)
    assert await compaction.compact_some(store.database) is True
    assert (await store.entry()).body == "abcdef"


async def test_what_was_folded_meanwhile_is_not_folded_twice(store):
    await store.write(streaming("a"), AppendEntry("b"))
    await store.write(CLOSED)
    folded = await store.database.read(compaction.prepare)
    store_it = partial(compaction.store, folded=folded)
    assert await store.database.write(store_it, Durability.NORMAL, ()) is True
    assert await store.database.write(store_it, Durability.NORMAL, ()) is False
    assert (await store.entry()).body == "ab"


async def test_a_removed_stream_is_folded_and_comes_back(store):
    await store.write(streaming("a"), AppendEntry("b"))
    await store.write(AppendEntry("c"), RemoveEntry())
    assert await compaction.compact_some(store.database) is True
    assert await store.chunks() == 0
    await store.write(SetEntry(state=State.STREAMING), AppendEntry("d"))
    assert (await store.entry()).body == "abcd"


async def test_many_bodies_are_folded_some_at_a_time(store):
    count = compaction.BODIES_MAX + 1
    for number in range(count):
        await store.write(streaming(), AppendEntry("x"), path=f"sh://turn_1/x_{number}")
        await store.write(CLOSED, path=f"sh://turn_1/x_{number}")
    assert [await compaction.compact_some(store.database) for _ in range(3)] == [True, True, False]
    assert await store.chunks() == 0


@pytest.mark.parametrize("seed", range(10))
async def test_any_order_of_appends_folds_and_changes_keeps_the_body(store, seed):
    """A body is what was written of it, whenever it was folded."""
    random_ = random.Random(seed)
    body = "é"
    await store.write(streaming(body))
    for number in range(40):
        match random_.choice(["append", "append", "fold", "view", "attributes", "close", "remove", "body"]):
            case "append":
                await store.write(SetEntry(state=State.STREAMING), AppendEntry(f"[{number}é]"))
                body += f"[{number}é]"
            case "fold":
                await compaction.compact_some(store.database, pieces_max=2)
            case "view":
                await store.write(SetEntry(visibility=random_.choice([1, 2, 3])))
            case "attributes":
                await store.write(SetEntry(merge_attributes_json=f'{{"n":{number}}}'))
            case "close":
                await store.write(CLOSED)
            case "remove":
                await store.write(RemoveEntry())
                await store.write(SetEntry(state=State.STREAMING))
            case "body":
                body = f"new {number}"
                await store.write(SetEntry(body))
        entry = await store.entry()
        assert (entry.body, entry.body_size_bytes) == (body, len(body.encode()))
        assert entry.hash in ("", hashlib.sha256(body.encode()).hexdigest())
