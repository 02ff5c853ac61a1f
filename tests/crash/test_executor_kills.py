"""The services of a stack are killed at every step of a turn and at random, while runs with counted effects go on.

No effect on the world happens twice, nothing that was told to have happened is lost, what was told as cancelled did not
happen, and every task comes to its end, also those that somebody aborts. Architecture 11; C63.
"""

import asyncio
import itertools
import json
import random

import pytest
import pytest_asyncio
from turnwright_values.types import State

from crash.stack import TOKEN, Stack, Worker, records_of
from draws import SEED

STEPS = (
    "after claim 1",
    "before begin 1",
    "after begin 1",
    "after assemble 1",
    "before packet 1",
    "after packet 1",
    "amid generate 1",
    "amid generate 4",
    "before write 1",
    "after write 1",
    "after write 2",
    "before write 3",
    "after write 4",
    "before shell 1",
    "after shell 1",
    "after shell 2",
    "before file 1",
    "after file 1",
    "before end 1",
    "after end 1",
    "after release 1",
)
"""Where an executor is killed: around each call that it makes, and in the middle of a reply."""


class Matrix:
    """Kills on a stack, and the account afterwards."""

    def __init__(self, stack, runs=3):
        self.stack = stack
        self.dice = random.Random()
        numbers = itertools.count(1)
        executors = [name for name in stack.lives if name.startswith("executor")]
        self.workers = [Worker(stack, f"r{place}", numbers, executors[place % len(executors)]) for place in range(runs)]
        self.hits = 0

    async def kill(self, kills, others, turns=0):
        """Kill executors at their steps, and one of the other services in every `others` kills, spread over so many turns."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for worker in self.workers:
                group.create_task(worker.work(stop))
            steps = itertools.cycle(self.dice.sample(STEPS, len(STEPS)))
            points = {}
            for number in range(kills):
                life = self._victim(is_other=number % others == others - 1)
                await self._reach(turns * number // kills)
                await asyncio.sleep(self.dice.random() * 0.2)
                self.hits += await life.ended(1.8 if points.get(life.name) else self.dice.random())
                points[life.name] = next(steps) if life.service == "executor" else ""
                life.start(points[life.name])
            await self._reach(turns)
            stop.set()

    @property
    def turns(self):
        """Turns of the tasks that have ended."""
        return sum(worker.turns for worker in self.workers)

    async def _reach(self, turns):
        while self.turns < turns:  # noqa: ASYNC110 - workers tell nobody
            await asyncio.sleep(0.05)

    def _victim(self, *, is_other):
        lives = self.stack.lives.values()
        return self.dice.choice([life for life in lives if (life.service != "executor") is is_other])

    async def account(self):
        """Every acknowledged task has ended well, every told result stands, and no effect happened twice."""
        effects = self.stack.effects
        assert {token: count for token, count in effects.items() if count > 1} == {}
        ends = {number: end for worker in self.workers for number, end in worker.ends.items()}
        aborted = set().union(*(worker.aborted for worker in self.workers))
        stopped = {number for number, end in ends.items() if (end[2], end[3]) == (499, "aborted")}
        assert {number: end for number, end in ends.items() if end[2] != 200 and number not in stopped & aborted} == {}
        settled = {place: state for worker in self.workers for place, state in worker.settled.items()}
        unknown = 0
        for run in sorted({run for run, *_ in ends.values()}):
            records = await records_of(self.stack, run)
            found = {(run, entry.path): (State(entry.state), entry.outcome) for entry in records}
            told = {place: state for place, state in settled.items() if place[0] == run}
            assert {place: found.get(place) for place in told} == told
            assert {place: state for place, (state, _) in found.items() if not state.is_settled} == {}
            unknown += sum(self._check(entry) for entry in records)
        return len(ends), unknown

    def _check(self, record):
        """The effect of a record happened as often as the record says; whether nobody knows of it."""
        if token := TOKEN.search(json.loads(record.attributes_json).get("target", "")):
            expected = {State.RESOLVED: (1,), State.CANCELLED: (0,)}.get(State(record.state), (0, 1))
            assert self.stack.effects[token[1]] in expected, (record.path, record.outcome)
        return record.outcome == "indeterminate:500"


@pytest_asyncio.fixture
async def matrix(request, tmp_path):
    kind, shape = getattr(request, "param", ("sqlite", {}))
    db = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    stack = Stack(tmp_path, db, **shape)
    await stack.start()
    made = Matrix(stack)
    made.dice.seed(SEED)
    yield made
    stack.close()


FOUR = ("sqlite", {})
TWO_EXECUTORS = ("sqlite", {"executors": 2})
TWO_EACH = ("postgresql", {"executors": 2, "stores": 2})
# Two stores have two executors, too.
SHAPES = pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(FOUR, id="four"),
        pytest.param(TWO_EXECUTORS, marks=pytest.mark.soak, id="two-executors"),
        pytest.param(TWO_EACH, id="two-stores"),
    ],
    indirect=True,
)


async def kill_and_account(matrix, kills, turns=0):
    await matrix.kill(kills, others=4, turns=turns)
    tasks, unknown = await matrix.account()
    print(
        f"{kills} kills, {matrix.hits} at a step; {tasks} tasks, {matrix.turns} turns; {unknown} effects that nobody knows of"
    )
    assert matrix.stack.complaints() == {}


@SHAPES
@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_no_effect_happens_twice_and_nothing_is_lost_in_20_kills(matrix, request):
    is_full = request.node.callspec.id == "four"
    await kill_and_account(matrix, 20 if is_full else 6)


@SHAPES
@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(7200)
async def test_no_effect_happens_twice_and_nothing_is_lost_in_200_kills_of_executors_in_1000_turns(matrix):
    # Every fourth is one of another service.
    await kill_and_account(matrix, 268, turns=1000)
