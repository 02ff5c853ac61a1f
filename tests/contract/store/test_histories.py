"""Random histories of concurrent requests on runs, their forks and their project, against a sequential model.

In each step several requests are made at once: at most one for each run, some of them on files that all runs share,
and forks of any run. Their answers must be those of some order of them, and what every run sees afterwards, now and at
the end of each earlier turn, must be what the model says. Architecture 3; rows RU060, RU109; C18.
"""

import asyncio
from datetime import timedelta
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from turnwright.store.v1 import ledger_pb2
from turnwright.types.v1 import cursor_pb2, entry_pb2, plan_pb2, turn_pb2
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry
from turnwright_values.types import State, Tier, Visibility

from contract.store.harness import (
    STREAMING,
    Client,
    act,
    append,
    new_project,
    new_run,
    next_turn,
    remove,
    request,
    set_,
    start_store,
)
from contract.store.history_model import (
    Append,
    Begin,
    Claim,
    Close,
    Copy,
    End,
    Enqueue,
    Fork,
    Hide,
    Release,
    Remove,
    Replan,
    RunModel,
    Seen,
    Set,
    Taken,
    World,
    Write,
    explain,
    has_work,
    is_shared,
)
from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.entries import write_to_pb

RUNS_MAX = 6
OWN = [f"known://{name}" for name in "abc"]
FILES = ["f/x.txt", "f/y.txt"]
LEASE_MS = 3_600_000
STREAMS = [f"sh://turn_0/s_{number}" for number in (1, 2)]

numbers = count(1)

any_path = st.sampled_from(OWN + FILES)
bodies = st.builds(lambda word, size: f"{word}\n" + "é" * size, st.integers(0, 99), st.sampled_from([0, 3, 400]))
sets = st.builds(Set, any_path, bodies)
changes = st.one_of(
    sets,
    st.builds(Set, st.sampled_from(FILES), bodies),
    st.builds(Set, st.sampled_from(FILES), st.just("the same")),
    st.builds(Set, st.sampled_from(STREAMS), bodies, st.just(True)),
    st.builds(Append, st.sampled_from(STREAMS), bodies),
    st.builds(Close, st.sampled_from(STREAMS)),
    st.builds(Hide, any_path),
    st.builds(Remove, st.sampled_from(OWN + FILES + STREAMS)),
    st.builds(Copy, st.sampled_from(OWN + FILES + STREAMS), any_path, st.booleans()).filter(lambda c: c.path != c.to),
)
places = st.integers(0, RUNS_MAX - 1)
KINDS = ["write"] * 4 + ["work"] * 8 + ["fork"] * 2 + ["fenced", "stale", "enqueue", "claim", "plan"]
KINDS += ["take"] * 2 + ["release"] * 2
wishes = st.tuples(st.sampled_from(KINDS), places, st.lists(changes, min_size=1, max_size=4), st.integers(0, 9))
"""What a step would like to ask of the run at a place; the state decides what that comes to."""


def wire_of(change):
    match change:
        case Set(path, body, streaming):
            return set_(path, body, state=STREAMING) if streaming else set_(path, body)
        case Append(path, text):
            return append(path, text)
        case Close(path):
            return set_(path, state=State.RESOLVED)
        case Hide(path):
            return set_(path, visibility=Visibility.ARCHIVED)
        case Remove(path):
            return remove(path)
        case Copy(path, to, moves):
            return write_to_pb(EntryWrite(path, (MoveEntry if moves else CopyEntry)(to), Tier.PLUGIN))


class Driver:
    """Makes the model's requests of a store, and gives their answers in the model's words."""

    def __init__(self, client):
        self.client = client
        self.project = ""
        self.cursors = {}

    async def begin(self, aliases):
        self.project = await new_project(self.client, f"p{next(numbers)}")
        for alias in aliases:
            await new_run(self.client, self.project, alias)

    def at(self, alias):
        return {"project": self.project, "run": alias}

    async def ask(self, asked):
        try:
            return await getattr(self, f"_{type(asked).__name__.lower()}")(asked)
        except TurnwrightError as error:
            return error.reason

    def _moment(self, alias, cursor):
        self.cursors[alias] = cursor
        return (cursor.run_revision, cursor.project_revision)

    async def _write(self, asked):
        epoch = {} if asked.epoch is None else {"epoch": asked.epoch}
        writes = [wire_of(change) for change in asked.changes]
        answer = await self.client.call("WriteEntries", **self.at(asked.alias), **epoch, writes=writes)
        return self._moment(asked.alias, answer.cursor)

    async def _replan(self, asked):
        what = {"plan": plan_pb2.Plan(body=asked.body, mode="agent"), "written_by": {"tier": entry_pb2.TIER_PLUGIN}}
        answer = await self.client.call("SetPlan", **self.at(asked.alias), **what)
        return self._moment(asked.alias, answer.cursor)

    async def _enqueue(self, asked):
        answer = await self.client.call("EnqueueLoop", **self.at(asked.alias), prompt=asked.prompt, settings=act())
        return answer.loop.sequence

    async def _claim(self, asked):
        who = {"owner": "me", "address": "here:1", "lease_duration": timedelta(milliseconds=LEASE_MS)}
        return _claimed(await self.client.call("ClaimRun", **self.at(asked.alias), **who))

    async def take(self, limit):
        """What ClaimWork gives, as requests with their answers."""
        who = {
            "owner": "me",
            "address": "here:1",
            "lease_duration": timedelta(milliseconds=LEASE_MS),
            "workspace_ids": [f"ws-{self.project}"],
        }
        answer = await self.client.call("ClaimWork", **who, limit=limit)
        return [(Taken(claim.run.run), _claimed(claim)) for claim in answer.claims]

    async def _release(self, asked):
        await self.client.call("ReleaseRun", **self.at(asked.alias), epoch=asked.epoch)

    async def _begin(self, asked):
        opened = ledger_pb2.NextTurn(request=request(), writes=[set_("prompt://{turn}", "go on")])
        answer = await self.client.call("EndTurn", **self.at(asked.alias), epoch=asked.epoch, next=opened)
        return (answer.next.number, *self._moment(asked.alias, answer.cursor))

    async def _end(self, asked):
        end = ledger_pb2.LoopEnd(status=200, reason="update", summary="done") if asked.ends_loop else None
        known = self.cursors.get(asked.alias)
        cursor = cursor_pb2.Cursor(
            incarnation=known.incarnation if known else "",
            run_revision=known.run_revision if known else 0,
            project_revision=asked.project_revision,
            global_revision=0,
        )
        answer = await self.client.call(
            "EndTurn",
            **self.at(asked.alias),
            epoch=asked.epoch,
            turn=asked.turn,
            result=turn_pb2.TurnResult(status=200 if asked.ends_loop else 102, cursor=cursor),
            loop_end=end,
            next=next_turn(set_("prompt://{turn}", "go on")) if asked.opens_next else None,
        )
        return (answer.next.number, *self._moment(asked.alias, answer.cursor))

    async def _fork(self, asked):
        made = await self.client.call("ForkRun", **self.at(asked.alias), new_run=asked.child, turn=asked.turn)
        seen, cursor, _ = await self.view(asked.child)
        assert cursor.run_revision == 1
        return (made.run.turn, {p: Seen(None, s.visibility, s.state) if is_shared(p) else s for p, s in seen.items()})

    async def view(self, alias, turn=0):
        """What a run sees now, or saw at the end of a turn."""
        at = cursor_pb2.Moment(turn=turn) if turn else None
        seen, positions, cursor = {}, {}, None
        async for part in self.client.stream("ReadView", **self.at(alias), at=at):
            for entry in part.entries:
                seen[entry.path] = Seen(entry.body, Visibility(entry.visibility), State(entry.state))
                positions[entry.path] = entry.position
            cursor = part.cursor if part.HasField("cursor") else cursor
        return seen, cursor, positions


def _claimed(claim):
    return (claim.epoch, claim.loop.sequence, claim.open_turn.number)


def request_of(world, wish, known_revision):
    """The request that a wish comes to. `known_revision` tells what a run knows of the project."""
    kind, place, changes, number = wish
    alias = list(world.runs)[place % len(world.runs)]
    run = world.at(alias)
    writes = tuple(_without_revivals(run, changes)) or (Set(OWN[0], "x"),)
    match kind:
        case "write" | "fenced" | "stale":
            return Write(alias, writes, {"write": None, "fenced": run.epoch, "stale": run.epoch + 7}[kind])
        case "plan":
            return Replan(alias, f"plan {number}")
        case "enqueue":
            return Enqueue(alias, f"task {place}")
        case "claim":
            return Claim(alias)
        case "release":
            return Release(alias, run.epoch)
        case "fork":
            turns = [0, *run.moments]
            return Fork(alias, f"f{next(numbers)}", 99 if number == 9 else turns[number % len(turns)])
    if run.turn_open:
        return End(alias, run.epoch, run.turn, known_revision(alias), number < 3, opens_next=number > 6)
    if run.active:
        return Begin(alias, run.epoch)
    return Claim(alias) if run.queued else Enqueue(alias, f"task {place}")


def _without_revivals(run, changes):
    """A change of the view alone brings back a path that was removed: the model does not keep what it held."""
    gone = set()
    for change in changes:
        if isinstance(change, Close | Hide) and (change.path not in run.seen or change.path in gone):
            continue
        if isinstance(change, Remove) or (isinstance(change, Copy) and change.moves):
            gone.add(change.path)
        yield change


def side_by_side(world, wished, known_revision):
    """The requests of one step: at most one that changes a run, and only so many forks."""
    asked = []
    for wish in wished:
        one = request_of(world, wish, known_revision)
        forks = [other for other in asked if isinstance(other, Fork)]
        if isinstance(one, Fork):
            fits = len(world.runs) + len(forks) < RUNS_MAX
        else:
            fits = one.alias not in [other.alias for other in asked if not isinstance(other, Fork)]
        asked += [one] * fits
    return asked


class Histories(RuleBasedStateMachine):
    """Steps on one store; each example has a project of its own."""

    runner: asyncio.Runner
    client: Client

    def __init__(self):
        super().__init__()
        self.driver = Driver(self.client)
        self.world = World({alias: RunModel() for alias in ("r0", "r1")})
        self.positions = {}
        self.runner.run(self.driver.begin(self.world.runs))

    def known_revision(self, alias):
        return self.driver.cursors[alias].project_revision

    @initialize()
    def there_is_something_of_everything(self):
        for alias in self.world.runs:
            own = [Set(path, f"of {alias}") for path in OWN + FILES]
            self._step([Write(alias, (*own, *(Set(path, "", streaming=True) for path in STREAMS)))])

    @rule(wished=st.lists(wishes, min_size=1, max_size=4))
    def at_once(self, wished):
        others = [wish for wish in wished if wish[0] != "take"]
        takes = [wish[3] for wish in wished if wish[0] == "take"]
        self._step(side_by_side(self.world, others, self.known_revision), takes)

    @rule(limit=st.integers(1, RUNS_MAX))
    def work_is_given_to_whoever_asks(self, limit):
        """Alone, a claim of work misses none."""
        waiting = {alias for alias, run in self.world.runs.items() if has_work(run)}
        taken = self._step([], [limit])
        assert len(taken) == min(limit, len(waiting))
        assert {one.alias for one, _ in taken} <= waiting

    def _step(self, asked, takes=()):
        """Requests and claims of work at once; what was claimed."""
        answers, taken = self.runner.run(self._ask(asked, takes))
        answered = [*zip(asked, answers, strict=True), *taken]
        after = explain(self.world, answered)
        assert after is not None, f"no order explains {answered} after {self.world}"
        self.world = after
        return taken

    async def _ask(self, asked, takes):
        answers = asyncio.gather(*(self.driver.ask(one) for one in asked))
        claims = asyncio.gather(*(self.driver.take(limit) for limit in takes))
        return await answers, [one for found in await claims for one in found]

    @invariant()
    def every_run_sees_what_the_model_says(self):
        for alias, run in self.world.runs.items():
            seen, cursor, positions = self.runner.run(self.driver.view(alias))
            self.driver.cursors[alias] = cursor
            expected = (self.world.shown(run.seen), run.revision, self.world.revision)
            assert (seen, cursor.run_revision, cursor.project_revision) == expected
            self._check_positions(alias, positions)

    def _check_positions(self, alias, positions):
        """A place in the timeline is given once; what comes later stands behind what was there."""
        before = self.positions.get(alias, positions)
        last = max(before.values(), default=0)
        assert len(set(positions.values())) == len(positions)
        # One that was removed and set again, be it in one request, enters anew.
        assert all(place == before.get(path) or place > last for path, place in positions.items())
        self.positions[alias] = positions

    @rule()
    def earlier_turns_read_as_they_were(self):
        for alias, run in self.world.runs.items():
            for turn, moment in run.moments.items():
                seen, _, _ = self.runner.run(self.driver.view(alias, turn))
                assert seen == self.world.shown(moment.seen, moment.project_revision)


def check_histories(tmp_path, examples, steps, phases=(Phase.generate,)):
    with asyncio.Runner() as runner:
        server = runner.run(start_store(tmp_path))
        client = Client(server.address)
        try:
            run_state_machine_as_test(
                type("Histories", (Histories,), {"runner": runner, "client": client}),
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                    database=None,
                    phases=phases,
                ),
            )
        finally:
            runner.run(client.close())
            runner.run(server.stop())


def test_concurrent_requests_have_an_order_that_explains_them(db, tmp_path):
    check_histories(tmp_path, *((8, 15) if db else (20, 20)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_many_histories_have_an_order_that_explains_them(db, tmp_path):
    check_histories(tmp_path, 300, 40)
