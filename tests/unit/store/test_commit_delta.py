"""What a commit tells those who follow its run is what reading would give, and it costs no look at the database."""

import asyncio
import contextlib
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from turnwright_values.store import (
    AppendEntry,
    CopyEntry,
    Durability,
    EndTurnRequest,
    EntryWrite,
    LoopEnd,
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
    RunSettings,
    State,
    Tier,
    TurnRequest,
    TurnResult,
    Usage,
    ViewFilter,
    Visibility,
)

from sql_counter import counted_statements, sent
from turnwright_core.errors import TurnwrightError
from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_store.app import commands, control, forks, leases, ledger, registry
from turnwright_store.app.changes import watch_changes
from turnwright_store.app.leases import Claimant
from turnwright_store.app.open_store import open_store
from turnwright_store.app.watches import Watches
from turnwright_store.app.write_entries import write_entries
from turnwright_store.config import ModelSeeds
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.edge.database import SqliteDatabase
from turnwright_store.edge.postgres import PostgresDatabase
from turnwright_store.edge.postgres_link import Server
from turnwright_store.ports import DELTA_BYTES_MAX, DELTAS_MAX
from turnwright_store.sql.runs import get_run
from turnwright_store.sql.views import Wanted

SYSTEM = Caller("operator", Kind.PERSON, Tier.SYSTEM, Proof.SECRET)
PROJECT = "p"
REQUEST = TurnRequest("m", "scripted/a", 1000, 0.5, ("get", "set"))
RESULT = TurnResult(finish="stop", status=102, reason="continue", usage=Usage(prompt_tokens=3, cost_usd=0.25))
OWN = [f"known://{name}" for name in "abc"]
FILES = ["f/x.txt", "f/y.txt"]
STREAM = "sh://turn_1/s_1"
names = count(1)
clock = count(1_700_000_000_000)


class Deaf:
    """A database that tells nobody anything: its watchers read."""

    def __init__(self, database):
        self.read, self._database = database.read, database

    def subscribe(self, scopes, follows=0):
        del follows
        return self._database.subscribe(scopes)


class Store:
    """A database with a run whose forks are written to."""

    def __init__(self, database):
        self.database = database

    async def start(self):
        await self.database.start()
        opening = partial(open_store, new_incarnation=lambda: "i", seeds=ModelSeeds({}, {}))
        opened = await self.write(opening)
        self.rules = StoreRules(opened.incarnation, opened.schemes, opened.global_scope, 9, 3600.0, 1.0)
        await self.write(partial(registry.set_model, model=Model("m", "scripted/a", 1000)))
        await self.write(partial(registry.init_project, root="/p", workspace_id="w", name=PROJECT))
        settings = RunSettings("m")
        await self.write(partial(registry.create_run, caller=SYSTEM, project=PROJECT, alias="elder", settings=settings))
        elder = Run(self, "elder", 0)
        await elder.write([EntryWrite(path, SetEntry("elder"), Tier.PLUGIN) for path in [*OWN[:2], FILES[0]]])

    async def write(self, work):
        return await self.database.write(work, Durability.NORMAL, ("everything",))

    async def fork(self):
        """A run with a running loop, which has inherited what it sees."""
        alias = f"r{next(names)}"
        elder = RunRef(PROJECT, "elder")
        await self.write(partial(forks.fork_run, rules=self.rules, caller=SYSTEM, address=elder, alias=alias, turn=0))
        run = Run(self, alias, 0)
        await run.enqueue()
        await run.claim()
        return run


class Run:
    """A run, and the requests of its owner and of others; one that is refused changes nothing."""

    def __init__(self, store, alias, epoch):
        self.store, self.address, self.epoch = store, RunRef(PROJECT, alias), epoch

    async def _do(self, function, **more):
        work = partial(function, rules=self.store.rules, caller=SYSTEM, address=self.address, **more)
        return await self.store.write(work)

    async def enqueue(self):
        await self._do(commands.enqueue_loop, prompt="go", settings=LoopSettings(Mode.ACT), run_settings=RunSettings())

    async def claim(self):
        who = Claimant("o", "h:1", 3_600_000)
        work = partial(leases.claim_run, rules=self.store.rules, address=self.address, who=who)
        self.epoch = (await self.store.write(work)).epoch

    async def write(self, writes, run_status=0):
        await self._write(self.epoch or None, writes, run_status)

    async def write_outside(self, writes):
        await self._write(None, writes)

    async def _write(self, epoch, writes, run_status=0):
        call = WriteEntriesRequest(PROJECT, self.address.run, epoch, writes, run_status=run_status)
        await self.store.write(partial(write_entries, rules=self.store.rules, caller=SYSTEM, call=call))

    async def _end_turn(self, turn, **fields):
        end = EndTurnRequest(PROJECT, self.address.run, self.epoch, turn, **fields)
        await self.store.write(partial(ledger.end_turn, rules=self.store.rules, caller=SYSTEM, end=end))

    async def begin(self, writes):
        await self._end_turn(0, next=NextTurn(REQUEST, writes))

    async def end(self, writes, follows=None, loop_end=None):
        number = (await self.row()).turn_open
        new = None if follows is None else NextTurn(REQUEST, follows)
        await self._end_turn(number, result=RESULT, writes=writes, loop_end=loop_end, next=new)

    async def turn(self, writes, follows=None):
        """Begin one, be it of another loop, or end it, and let another one follow."""
        row = await self.row()
        if not row.loop_active:
            await self.enqueue()
            await self.claim()
        await (self.end(writes, follows) if row.turn_open else self.begin(writes))

    async def finish(self, writes):
        if (await self.row()).turn_open:
            await self.end(writes, loop_end=LoopEnd(200, "update", "done"))

    async def abort(self):
        await self.store.write(partial(control.abort_run, rules=self.store.rules, address=self.address))

    async def row(self):
        return await self.store.database.read(partial(get_run, project=PROJECT, alias=self.address.run))

    async def cursor(self):
        return (await self.row()).cursor(self.store.rules.incarnation)

    def watch(self, wanted, *, hears):
        database = self.store.database if hears else Deaf(self.store.database)
        begin = partial(watch_changes, database, lambda: self.store.rules, self.address, None, wanted)
        return Watches().follow(begin, lambda: self.store.rules.heartbeat_s)


@contextlib.asynccontextmanager
async def opened(kind, tmp_path, request):
    if kind == "sqlite":
        file = tmp_path / "x.db"
        database = SqliteDatabase(file, lambda: next(clock), queue_max=99, batch_max=99, readers=1)
    else:
        server = Server(request.getfixturevalue("postgres_url"), 5.0, 10.0, 5.0)
        database = PostgresDatabase(server, queue_max=99, batch_max=99, readers=1, poll_s=60.0)
    store = Store(database)
    await store.start()
    try:
        yield store
    finally:
        await database.close()


own = st.sampled_from(OWN)
anywhere = st.sampled_from([*OWN, *OWN, *FILES, STREAM, "user://1"])
bodies = st.one_of(st.none(), st.sampled_from(["", "x", "é" * 30, "y" * 2000]))
attributes = st.one_of(st.none(), st.sampled_from(["{}", '{"a": "é"}']))
states = st.sampled_from([State.UNSPECIFIED, State.RECORDED, State.PROPOSED, State.STREAMING, State.RESOLVED])
texts = st.integers(0, 10**6).map(str)
visibilities = st.sampled_from(Visibility)
plain = st.one_of(
    st.builds(SetEntry, texts, visibility=visibilities, state=states),
    st.builds(SetEntry, texts),
    st.just(RemoveEntry()),
)
changes = st.one_of(
    plain,
    st.builds(
        SetEntry, bodies, attributes, visibilities, visibilities, states, merge_attributes_json=st.just('{"b": 1}')
    ),
    st.builds(SetEntry, state=st.just(State.FAILED), outcome=st.just("broken:500")),
    st.builds(AppendEntry, st.sampled_from(["", "more"])),
    st.builds(CopyEntry, own),
    st.builds(MoveEntry, own),
)


def write_of(path, change):
    return EntryWrite(path, change, Tier.SYSTEM if path.startswith("user") else Tier.PLUGIN)


writes = st.lists(st.builds(write_of, anywhere, changes), min_size=1, max_size=4)
sound = st.lists(st.builds(write_of, st.sampled_from([*OWN, "user://1"]), plain), min_size=1, max_size=3)
grown = st.tuples(
    st.just(write_of(STREAM, SetEntry("", state=State.STREAMING))),
    st.builds(write_of, st.just(STREAM), st.builds(AppendEntry, texts)),
)
told = st.one_of(
    st.tuples(st.just("write"), sound), st.tuples(st.just("turn"), sound), st.tuples(st.just("turn"), sound, sound)
)
requests = st.one_of(
    st.tuples(st.just("write"), st.one_of(writes, grown)),
    st.tuples(st.just("write"), sound, st.sampled_from([102, 202])),
    st.tuples(st.just("write_outside"), writes),
    st.tuples(st.just("finish"), sound),
    st.tuples(st.sampled_from(["abort", "enqueue", "enqueue"])),
)
groups = st.one_of(
    *[st.lists(told, min_size=1, max_size=3)] * 2, st.lists(st.one_of(told, requests), min_size=1, max_size=3)
)
histories = st.lists(groups, min_size=1, max_size=15)
wishes = st.builds(Wanted, st.sampled_from([one for one in ViewFilter if one]), body_bytes_max=st.sampled_from([0, 9]))


async def check_history(store, history, wanted):
    run, other = await store.fork(), await store.fork()
    watches = [run.watch(wanted, hears=hears) for hears in (True, False)]
    try:
        at = [await anext(watch) for watch in watches]
        for group in history:
            for name, *arguments in group:
                # A neighbour writes the files that both of them see.
                target = other if name == "write_outside" else run
                with contextlib.suppress(TurnwrightError):
                    await getattr(target, name)(*arguments)
            if await run.cursor() != at[0].cursor:
                at = [await asyncio.wait_for(anext(watch), 60) for watch in watches]
            assert at[0] == at[1]
    finally:
        for watch in watches:
            await watch.aclose()


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "examples"), [("sqlite", 120), ("postgresql", 15)], ids=["sqlite", "postgresql"])
def test_what_is_reported_is_what_reading_gives(kind, examples, tmp_path, request):
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        store = runner.run(stack.enter_async_context(opened(kind, tmp_path, request)))

        @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(histories, wishes)
        @example([[("turn", known(1))], [("enqueue",)], [("finish", known(2))]], Wanted())
        def check(history, wanted):
            runner.run(check_history(store, history, wanted))

        try:
            check()
        finally:
            runner.run(stack.aclose())


def known(number, size=10):
    return [EntryWrite(f"known://n{number}", SetEntry("x" * size), Tier.PLUGIN)]


async def statements_of_a_round(store, run, act):
    """How many statements a watcher's message takes after something was done, and the message."""
    watch = run.watch(Wanted(ViewFilter.TIMELINE), hears=True)
    try:
        await anext(watch)
        await act()
        with counted_statements() as counted:
            message = await anext(watch)
        return sent(counted), message
    finally:
        await watch.aclose()


@pytest.mark.asyncio
async def test_a_turn_is_followed_without_a_statement(tmp_path, request):
    async with opened("sqlite", tmp_path, request) as store:
        run = await store.fork()

        async def turn():
            await run.begin(known(1))
            await run.write(known(2))
            # Where a file is shown from now on is told to those who want to see files.
            await run.end(
                [*known(3), EntryWrite(FILES[0], SetEntry(visibility=Visibility.VISIBLE), Tier.PLUGIN)], known(4)
            )

        statements, message = await statements_of_a_round(store, run, turn)
        assert (statements, [entry.path for entry in message.entries]) == (0, [f"known://n{n}" for n in (1, 2, 3, 4)])
        assert [(turn.number, bool(turn.result)) for turn in message.turns] == [(1, True), (2, False)]


@pytest.mark.parametrize(
    ("commits", "size", "reads"),
    [(DELTAS_MAX, 10, False), (DELTAS_MAX + 1, 10, True), (2, DELTA_BYTES_MAX // 2, True), (1, DELTA_BYTES_MAX, True)],
    ids=["as many as are kept", "more commits", "more bytes", "one that is too large"],
)
@pytest.mark.asyncio
async def test_what_a_slow_follower_does_not_keep_is_read(tmp_path, request, commits, size, reads):
    async with opened("sqlite", tmp_path, request) as store:
        run = await store.fork()

        async def write():
            for number in range(commits):
                await run.write(known(number, size))

        statements, message = await statements_of_a_round(store, run, write)
        assert (statements > 0) is reads
        assert message.entries


@pytest.mark.asyncio
async def test_behind_what_is_told_to_nobody_the_database_is_read(tmp_path, request):
    async with opened("sqlite", tmp_path, request) as store:
        run = await store.fork()

        async def write():
            await run.write(known(1))
            await run.enqueue()
            await run.write(known(2))

        statements, message = await statements_of_a_round(store, run, write)
        assert (statements > 0, [loop.sequence for loop in message.loops]) == (True, [2])
        assert [entry.path for entry in message.entries] == ["known://n1", f"run://{run.address.run}", "known://n2"]
