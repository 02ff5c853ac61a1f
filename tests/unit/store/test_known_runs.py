"""What the one writer of a file knows of runs without a statement, and when it forgets that."""

import asyncio
import contextlib
import random
from functools import partial

import pytest
import pytest_asyncio
from sqlalchemy import text, update

from turnwright_core.entries import EntryWrite, SetEntry, Tier
from turnwright_core.errors import TurnwrightError
from turnwright_core.owner_calls import StoredMessage, TurnEnd, TurnPacket, TurnStart
from turnwright_core.runs import (
    Loop,
    LoopEnd,
    LoopSettings,
    Mode,
    Run,
    RunSettings,
    TurnRequest,
    TurnResult,
    Usage,
)
from turnwright_store.app import commands, control, forks, leases, ledger, registry, retention
from turnwright_store.app.read_view import RunRef
from turnwright_store.domain.known_runs import RUNS_MAX, KnownRuns
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.ports import Durability
from turnwright_store.sql.packets import latest_packets
from turnwright_store.sql.runs import BY_ALIAS, RunRow, find_run, get_run, run_of
from turnwright_store.sql.tables import models, runs
from turnwright_store.sql.turns import find_turn
from unit.store.test_statements import ADDRESS, OWNER, SYSTEM, records, working

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def store(tmp_path):
    async with working(SqliteDatabase(tmp_path / "x.db", lambda: 1, queue_max=9, batch_max=9, readers=1)) as one:
        await one.begin()
        yield one


async def known(store):
    return await store.write(lambda tx: tx.connection.known_runs.find("p", "r"))


def compare(tx):
    """How many runs are known; of each, what is known is what statements say."""
    connection, cache = tx.connection, tx.connection.known_runs
    for alias in ALIASES:
        found = cache.find("p", alias)
        row = connection.execute(BY_ALIAS, {"project": "p", "alias": alias}).one_or_none()
        assert not found or found.row == run_of(row)
        if found and found.open_turn:
            assert found.open_turn == find_turn(connection, found.row.id, found.row.turn_open)
        if row and (packet := cache.packet(row[0])):
            assert [packet] == latest_packets(connection, row[0], 2**31, 1)
    return sum(cache.find("p", alias) is not None for alias in ALIASES)


ALIASES = ("r", "s", "t")


class Walk:
    """Writes at random to runs of a project."""

    def __init__(self, store, seed):
        self.store, self.random = store, random.Random(seed)
        self.epochs = dict.fromkeys(ALIASES, 1)

    async def step(self):
        alias = self.random.choice(ALIASES)
        steps = (self.turn, self.turn, self.end, self.entries, self.packet, self.enqueue, self.claim, self.other)
        # What a run refuses as it stands is refused.
        with contextlib.suppress(TurnwrightError):
            await self.random.choice(steps)(alias)

    def owned(self, alias):
        return {
            "rules": self.store.rules, "caller": SYSTEM, "address": RunRef("p", alias), "epoch": self.epochs[alias],
        }  # fmt: skip

    async def now(self, alias):
        return await self.store.write(lambda tx: get_run(tx.connection, "p", alias))

    def writes(self, number):
        files = [EntryWrite(f"f{self.random.randrange(3)}.txt", SetEntry(str(self.random.random())), Tier.PLUGIN)]
        return [*records(number, self.random.randrange(3)), *files[: self.random.randrange(2)]]

    async def turn(self, alias):
        run = await self.now(alias)
        start = TurnStart(TurnRequest("fast", "v/m", 1, 0.1, ()), self.writes(run.turn + 1))
        if not run.turn_open:
            await self.store.write(ledger.begin_turn, **self.owned(alias), new=start)
        else:
            result = TurnResult(usage=Usage(1, 0, 1, 0, 2), packet_digest="ab" * 32)
            end = TurnEnd(run.turn_open, result, self.writes(run.turn_open), next=start)
            await self.store.write(ledger.end_turn, **self.owned(alias), end=end)

    async def end(self, alias):
        run = await self.now(alias)
        loop_end = self.random.choice([None, LoopEnd(200, "", "done"), LoopEnd(499, "abort", "")])
        end = TurnEnd(
            run.turn_open, TurnResult(), self.writes(run.turn_open), loop_end, release=self.random.random() < 0.5
        )
        await self.store.write(ledger.end_turn, **self.owned(alias), end=end)

    async def entries(self, alias):
        status = self.random.choice([0, 0, 0, 102, 202])
        writes = self.writes((await self.now(alias)).turn)
        await self.store.write(ledger.write_entries, **self.owned(alias), writes=writes, run_status=status)

    async def packet(self, alias):
        run = await self.now(alias)
        messages = (StoredMessage("user", (str(self.random.randrange(5)),)),)
        packet = TurnPacket(run.turn_open, () if (again := self.random.random() < 0.2) else messages, again=again)
        await self.store.write(ledger.write_entries, **self.owned(alias), writes=(), run_status=0, packet=packet)

    async def enqueue(self, alias):
        mode = self.random.choice([Mode.ACT, Mode.ASK])
        fields = {"prompt": "x", "settings": LoopSettings(mode, "fast"), "run_settings": RunSettings()}
        fields |= {"rules": self.store.rules, "caller": SYSTEM, "address": RunRef("p", alias)}
        await self.store.write(commands.enqueue_loop, **fields)

    async def claim(self, alias):
        who = leases.Claimant("o", "", self.random.choice([0, 6000]))
        fields = {"rules": self.store.rules, "caller": SYSTEM, "address": RunRef("p", alias), "who": who}
        self.epochs[alias] = (await self.store.write(leases.claim_run, **fields)).epoch

    async def other(self, alias):
        address = RunRef("p", alias)
        lease = leases.Lease(address, self.epochs[alias])
        await self.store.write(
            self.random.choice([
                partial(commands.request_abort, rules=self.store.rules, caller=SYSTEM, address=address),
                partial(leases.renew_leases, who=OWNER, leases=[lease]),
                partial(leases.release_run, caller=SYSTEM, address=address, epoch=self.epochs[alias]),
                partial(control.rename_run, address=address, alias=self.random.choice(ALIASES)),
                partial(control.configure_run, address=address, patch=control.SettingsPatch(temperature=0.5)),
                partial(forks.fork_run, address=address, alias=self.random.choice(ALIASES), turn=1),
                partial(retention.remove_run, address=address),
            ])
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
async def test_what_is_known_is_what_statements_say(store, seed):
    walk, most = Walk(store, seed), 0
    for _ in range(150):
        await walk.step()
        most = max(most, await store.write(compare))
    assert most > 1


async def test_a_turn_reads_no_row_of_its_run(store):
    request = TurnRequest("fast", "v/m", 1, 0.1, ())
    fields = {"rules": store.rules, "caller": SYSTEM, "address": ADDRESS, "epoch": 1}
    for number in (1, 2, 3):
        end = TurnEnd(number, TurnResult(), records(number, 2), next=TurnStart(request))
        await store.write(ledger.end_turn, **fields, end=end)
        # Paths, entries and versions of the writes, views, the turn's end, the loop, the scope, the next turn, the run.
        assert store.spent == 10
    assert (await known(store)).open_turn.number == 4


@pytest.mark.parametrize(
    "change",
    [
        update(runs).values(summary="x"),
        update(runs).where(runs.c.alias == "nobody").values(turn=1),
        text("UPDATE runs SET summary = 'x'"),
    ],
)
async def test_a_statement_that_says_nothing_of_what_it_changes_empties_the_cache(store, change):
    assert await known(store)
    await store.write(lambda tx: tx.connection.execute(change))
    assert not await known(store)
    assert (await store.write(lambda tx: get_run(tx.connection, "p", "r"))).alias == "r"


async def test_statements_on_other_tables_leave_it(store):
    await store.write(lambda tx: tx.connection.execute(update(models).values(context_length=5)))
    assert await known(store)


async def test_what_is_undone_is_forgotten(store):
    def fails(tx, **_):
        tx.connection.known_runs.put(tx.connection.known_runs.find("p", "r").row)
        raise ValueError("undone")

    before = await known(store)
    with pytest.raises(ValueError, match="undone"):
        await store.write(fails)
    assert before
    assert not await known(store)


async def test_a_part_of_a_batch_that_is_undone_is_forgotten(store):
    def raises(tx):
        find_run(tx.connection, "p", "r")
        raise ValueError("undone")

    def looks(tx):
        return tx.connection.known_runs.find("p", "r")

    writes = (partial(store.database.write, work, Durability.NORMAL, ()) for work in (raises, looks))
    failed, seen = await asyncio.gather(*(write() for write in writes), return_exceptions=True)
    assert isinstance(failed, ValueError)
    assert seen is None


async def test_a_reader_has_none(store):
    assert await store.database.read(lambda connection: connection.known_runs) is None


async def test_a_shared_scope_is_raised_for_all_of_its_runs(store):
    first = await known(store)
    await store.write(partial(registry.init_project, root="/q", workspace_id="w2", name="q"))
    await store.write(lambda tx: tx.connection.known_runs.put(first.row))
    await store.write(lambda tx: tx.connection.known_runs.bumped(first.row.project_scope, 77, 0))
    assert (await known(store)).row.revision_project == 77


def row(number):
    run = Run("p", f"r{number}", RunSettings(), 102, 1, Loop(1, LoopSettings(Mode.ACT), "x", 102), "", 0, 1, 1, 1, None)
    fields = dict.fromkeys(RunRow.__struct_fields__, 1)
    fields |= {"id": number, "scope": number, "project": "p", "alias": f"r{number}", "run": run}
    return RunRow(**(fields | {"project_scope": -1, "global_scope": -2}))


async def test_it_has_a_bound():
    cache = KnownRuns()
    for number in range(RUNS_MAX + 5):
        cache.put(row(number))
        cache.put_packet(number, "row")
    assert cache.find("p", "r4") is None
    assert cache.find("p", "r5")
    assert (cache.packet(4), cache.packet(5)) == (None, "row")
    cache.bumped(5, 9, 7)
    assert (cache.find("p", "r5").row.revision_run, cache.find("p", "r5").row.places) == (9, 7)
    cache.drop(5)
    assert cache.find("p", "r5") is None
    cache.clear()
    assert cache.find("p", "r6") is None
