"""A run with 20 agents, while executors and the store are killed at steps of their work and anywhere else.

Each command has one agent, each agent one answer, no run goes on that nobody waits for, and what the run has spent is
what its turns and its agents' have, to the cent. ADR 83.
"""

import asyncio
import random
from collections import Counter

import pytest
import pytest_asyncio
from turnwright.types.v1 import budget_pb2, model_pb2, settings_pb2
from turnwright_values.types import State

from contract.store.harness import SECRET
from contract.store.harness import Client as StoreClient
from crash.stack import ENDURING, Stack, insisted
from draws import SEED
from turnwright_client import Client

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">All is done.</update>'
NAMES = [f"a{number}" for number in range(20)]
BACKGROUND = ' background="true"'
LIMIT_USD = 50.0
WORK_S = 200
"""What hangs takes longer than the run on a host with too much to do."""

STEPS = (
    "before start_agent 1",
    "after start_agent 1",
    "after start_agent 3",
    "before wait_agents 1",
    "after wait_agents 1",
    "after wait_agents 2",
    "before settle_agents 1",
    "after settle_agents 1",
    "after write 1",
    "after write 3",
    "after claim 1",
    "before end 1",
    "after end 1",
    "amid generate 2",
)
"""Where an executor ends: around what it asks the store for agents, and around the turns of all runs."""


def delegating(names, more=""):
    return "".join(f'<delegate name="{name}" model="helper" turns="9"{more}>Part {name}.</delegate>' for name in names)


class Work:
    """A run that starts 20 agents in three turns: 16 that it waits for, and four in the background."""

    def __init__(self, stack, number):
        self.stack = stack
        self.run = f"r{number}"
        self.loop = None

    async def begin(self):
        replies = (
            f"{delegating(NAMES[:8])}{GO_ON}",
            f"{delegating(NAMES[8:16])}{GO_ON}",
            f"{delegating(NAMES[16:], BACKGROUND)}{GO_ON}",
            f"<wait_agents/>{GO_ON}",
            DONE,
        )
        await self.stack.add_model("lead", *replies, delay_ms=0)
        await self.stack.add_model("helper", GO_ON, f"<think>Two.</think>{GO_ON}", DONE, delay_ms=5)
        store = StoreClient(self.stack.at("store0"))
        for name in ("lead", "helper"):
            price = model_pb2.Price(input_usd=3.1, cached_usd=0.7, output_usd=13.3)
            model = model_pb2.Model(alias=name, vendor_model=f"scripted/{name}", price=price)
            await insisted(lambda model=model: store.call("SetModel", model=model))
        await store.close()
        limits = budget_pb2.Budget(cost_usd_max=LIMIT_USD, turns_max=400)
        settings = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="lead", budget=limits)
        async with self.client() as client:
            await insisted(lambda: client.act(self.stack.project, "Delegate.", run=self.run, settings=settings))

    def client(self):
        return Client.connect(self.stack.at("executor0"), SECRET, policy=ENDURING)

    async def until_ended(self):
        async with self.client() as client:
            self.loop = await insisted(lambda: client.wait_loop(self.stack.project, self.run, 1), WORK_S)

    async def account(self):
        """What has become of the run and its agents."""
        assert (self.loop.status, self.loop.turns) == (200, 5)
        async with self.client() as client:
            project = self.stack.project
            # The last kill may have been the executor's that is asked now.
            await insisted(lambda: client.get_run(project, self.run))
            runs = [run async for run in client.list_runs(project) if run.run.startswith(self.run)]
            agents = {run.parent.name: run for run in runs if run.parent.run == self.run}
            assert sorted(agents) == sorted(NAMES)
            assert len(runs) == 1 + len(NAMES)
            assert {(run.loop.sequence, run.loop.status, run.loop.turns) for run in agents.values()} == {(1, 200, 3)}
            entries = [entry async for entry in client.list_entries(project, self.run, "**")]
            records = [one for one in entries if one.path.startswith("log://turn_") and one.record.HasField("ordinal")]
            assert {one.path: one.outcome for one in records if State(one.state) is not State.RESOLVED} == {}
            assert Counter(one.path.split("/")[3] for one in records)["delegate"] == len(NAMES)
            slugs = Counter(one.path.rpartition("/")[2] for one in entries if one.scheme == "event")
            assert slugs == Counter(f"agent-{name}-{change}" for name in NAMES for change in ("started", "ended"))
            assert sorted(one.path for one in entries if one.scheme == "agent") == sorted(f"agent://{n}" for n in NAMES)
            spent = (await client.get_run(project, self.run)).spent
            own = [turn.result for turn in (await client.get_run(project, self.run, turns_max=9)).turns]
            theirs = [(await client.get_run(project, run.run)).spent for run in agents.values()]
        tokens = sum(one.usage.total_tokens + one.lost_tokens for one in own)
        cost = sum(one.usage.cost_usd + one.lost_cost_usd for one in own)
        assert spent.turns == 5 + 3 * len(NAMES)
        assert spent.tokens == tokens + sum(one.tokens for one in theirs)
        assert spent.cost_usd == pytest.approx(cost + sum(one.cost_usd for one in theirs), abs=1e-9)
        assert 0 < spent.cost_usd < LIMIT_USD


async def kill(stack, work, kills, dice):
    """Kill so often while a run goes on; how many came at their steps."""
    hits = 0
    waiting = asyncio.ensure_future(work.until_ended())
    steps = dice.sample(STEPS, len(STEPS))
    points = {}
    for number in range(kills):
        if waiting.done():
            break
        is_store = number % 4 == 3
        life = dice.choice(
            [one for one in stack.lives.values() if one.service == ("store" if is_store else "executor")]
        )
        await asyncio.sleep(dice.random() * 0.3)
        hits += await life.ended(1.5 if points.get(life.name) else dice.random() * 0.5)
        points[life.name] = "" if is_store else steps[number % len(steps)]
        life.start(points[life.name])
    await waiting
    return hits


@pytest_asyncio.fixture
async def stack(request, tmp_path):
    kind, shape = request.param
    db = request.getfixturevalue("postgres_url") if kind == "postgresql" else ""
    made = Stack(tmp_path, db, **shape)
    await made.start()
    yield made
    await asyncio.to_thread(made.close)


TWO = ("sqlite", {"executors": 2})
TWO_STORES = ("postgresql", {"executors": 2, "stores": 2})


@pytest.mark.parametrize("stack", [TWO], indirect=True, ids=["sqlite"])
@pytest.mark.asyncio
@pytest.mark.timeout(240)
async def test_20_agents_are_started_once_and_paid_to_the_cent_under_kills(stack):
    work = Work(stack, 0)
    await work.begin()
    hits = await kill(stack, work, 12, random.Random(SEED))
    await work.account()
    print(f"{hits} kills at a step")
    assert stack.complaints() == {}


@pytest.mark.soak
@pytest.mark.parametrize("stack", [TWO, TWO_STORES], indirect=True, ids=["sqlite", "postgresql"])
@pytest.mark.asyncio
@pytest.mark.timeout(7200)
async def test_20_agents_are_started_once_in_200_kills(stack):
    dice, hits = random.Random(SEED), 0
    for number in range(10):
        work = Work(stack, number)
        await work.begin()
        hits += await kill(stack, work, 20, dice)
        await work.account()
    print(f"{hits} kills at a step")
    assert stack.complaints() == {}
