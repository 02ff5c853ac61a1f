"""An executor is killed at each step of the commands of a plan, and another one ends the turn.

Wherever the kill came, each command happened once: one version or delta, one event in the transaction of it, and a
record that says so. Rows RP01, RH04; ADR 29.
"""

import contextlib
import json
import random

import pytest
from turnwright_values.types import State, Tier

from contract.store.harness import SECRET, Run
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, insisted
from draws import SEED
from turnwright_client import Client

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">All is done.</update>'
ROUNDS = 100

POINTS = {
    "before write 1": ("", "", 0),
    "after write 1": ("recorded", "recorded", 0),
    "after write 2": ("dispatched", "recorded", 0),
    "after set_plan 1": ("dispatched", "recorded", 1),
    "after write 3": ("settled", "dispatched", 1),
    "after update_plan 1": ("settled", "dispatched", 2),
    "before end 1": ("settled", "settled", 2),
}
"""Where the executor ends, and what it leaves: the stages of both records, and how many changes of the plan there are."""

STEPS = [
    *(f"{when} {step} {number}" for when in ("before", "after") for step in ("set_plan", "update_plan") for number in (1, 2)),
    *(f"{when} write {number}" for when in ("before", "after") for number in range(1, 7)),
    *(f"{when} end 1" for when in ("before", "after")),
]  # fmt: skip


class Task:
    """A run whose model sets its plan and adds to it in the first turn, so often."""

    def __init__(self, stack, name, rounds):
        self.stack = stack
        self.name = name
        self.reply = "".join(f"<set_plan>{n}</set_plan><update_plan>more</update_plan>" for n in range(1, rounds + 1))
        told = [(tool, n) for n in range(1, rounds + 1) for tool in ("set_plan", "update_plan")]
        self.commands = {
            f"log://turn_1/{tool}/{place}": (State.RESOLVED, "", "settled", n, 1 if tool == "update_plan" else None)
            for place, (tool, n) in enumerate(told, 1)
        }
        self.plan = {f"plan://main/v{n}": f"{n}" for n in range(1, rounds)} | {"plan://main": f"{rounds}"}
        self.plan |= {f"plan://main/v{n}/1": "more" for n in range(1, rounds + 1)}
        self.changes = [f"v{n}{delta}" for n in range(1, rounds + 1) for delta in ("", "-1")]

    async def killed(self, *points, within_s):
        """An executor begins it and ends at the first point, the other one goes on and ends at the next, and so on.

        How many came to their points in time: whoever takes a turn up late may not. Afterwards another one goes on.
        """
        executors = [life for life in self.stack.lives.values() if life.service == "executor"]
        for life in executors:
            if life.process:
                life.kill()
        await self.stack.add_model(self.name, f"{self.reply}{GO_ON}", *[DONE] * 9)
        hits = 0
        for number, point in enumerate((*points, "")):
            self.last = executors[number % 2]
            self.last.start(point)
            if number == 0:
                await self._begin()
            if point:
                hits += await self.last.ended(within_s)
                self.left = await self.entries("log", "plan")
        return hits

    async def _begin(self):
        """Give the run its task through the store, so that no answer is lost with the executor."""
        async with Client.connect(self.stack.at(self.last.name), SECRET) as client:
            # It is ready to count when it answers.
            await insisted(client.list_models)
        self.last.count()
        async with self._run() as run:
            await run.enqueue("Plan it.", model=self.name, yolo=True)

    @contextlib.asynccontextmanager
    async def _run(self):
        store = StoreClient(self.stack.at("store0"), tier=Tier.SYSTEM)
        try:
            yield Run(store, self.stack.project, self.name)
        finally:
            await store.close()

    async def ended(self):
        """The loop at its end, under the executor that lives."""
        async with Client.connect(self.stack.at(self.last.name), SECRET, policy=ENDURING) as client:
            return await insisted(lambda: client.wait_loop(self.stack.project, self.name, 1))

    async def entries(self, *schemes):
        """What the run sees, by path."""
        async with self._run() as run:
            return {entry.path: entry for entry in (await run.view()).entries if entry.scheme in schemes}

    async def account(self):
        """Each command happened once and its record says so, whoever carried it out."""
        loop = await self.ended()
        assert (loop.status, loop.turns) == (200, 2)
        settled = {path: outcome_of(entry) for path, entry in (await self.entries("log")).items() if "_plan/" in path}
        assert settled == self.commands
        changes = await self.entries("plan", "event")
        assert {path: entry.body for path, entry in changes.items() if entry.scheme == "plan"} == self.plan
        events = [path.rpartition("/")[2] for path, entry in changes.items() if entry.scheme == "event"]
        assert sorted(events) == [f"main-{change}" for change in self.changes]
        told, *_ = (entry for entry in changes.values() if entry.path.endswith(f"/main-{self.changes[-1]}"))
        assert told.revision == changes[f"plan://main/{self.changes[-1].replace('-', '/')}"].revision


def outcome_of(entry):
    said = json.loads(entry.attributes_json)
    change = (said.get("version"), said.get("sequence"))
    return State(entry.state), entry.outcome, entry.record.WhichOneof("stage"), *change


def stage_of(entries, tool):
    found = [entry.record.WhichOneof("stage") for path, entry in entries.items() if f"/{tool}/" in path]
    return found[0] if found else ""


@pytest.mark.asyncio
@pytest.mark.parametrize("point", POINTS)
async def test_a_plan_changes_once_wherever_the_executor_is_killed(stack, point):
    task = Task(stack, point.replace(" ", "-"), rounds=1)
    assert await task.killed(point, within_s=60) == 1, "the executor did not come to its point"
    left = (stage_of(task.left, "set_plan"), stage_of(task.left, "update_plan"))
    assert (*left, len([path for path in task.left if path.startswith("plan://")])) == POINTS[point]
    await task.account()


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(7200)
async def test_a_plan_changes_once_in_kill_after_kill(stack):
    """Both executors end at steps of the same turn, those who go on with it too."""
    dice, hits = random.Random(SEED), 0
    for number in range(ROUNDS):
        points = dice.sample(STEPS, dice.randint(1, 4))
        print(f"seed {SEED}, {number}: {points}")
        task = Task(stack, f"r{number}", rounds=2)
        hits += await task.killed(*points, within_s=2)
        await task.account()
    print(f"{ROUNDS} turns; {hits} kills at a step")
