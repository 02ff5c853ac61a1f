"""Workers that use a store until it dies under them, each with a model of what it must find afterwards.

Each worker has one call under way at a time. So after a crash there is exactly one question for each: was the call
that nobody answered carried out? Whatever it finds must be what was acknowledged, with that call whole or without it.
"""

import asyncio
import itertools
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from turnwright.types.v1 import entry_pb2, plan_pb2
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry
from turnwright_values.types import Tier

from contract.store.harness import STREAMING, Run, act, append, remove, set_
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb

AWAY = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING)
"""What a caller is told whose call died with the store, or before it reached it."""

numbers = itertools.count(1)


class Worker:
    """Does one step after the other until the store is away, or it is told to stop."""

    async def until_away(self, stop: asyncio.Event) -> None:
        try:
            while not stop.is_set():
                await self.step()
        except TurnwrightError as error:
            if error.reason not in AWAY:
                raise

    async def step(self) -> None:
        raise NotImplementedError


@dataclass
class Writer(Worker):
    """Writes batches of entries of its own into a run that others write too."""

    run: Run
    name: str
    dice: random.Random
    known: dict[str, str] = field(default_factory=dict)
    """Body by path, as acknowledged."""
    hoped: dict[str, str] | None = None
    """The same if the call under way is carried out."""
    repeat: tuple[str, dict[str, Any]] | None = None
    """The call under way, where it has a request id."""
    committed: int = 0
    """Calls that were carried out."""

    @property
    def plan(self) -> str:
        """Path of the plan that it keeps."""
        return f"plan://{self.name}"

    def owns(self, path: str) -> bool:
        return f"/{self.name}/" in path or path == self.plan or path.startswith(f"{self.plan}/")

    async def step(self) -> None:
        rpc, wanted, self.hoped = self._next()
        fields = {**self.run.address, **wanted}
        if rpc != "WriteEntries":
            fields["written_by"] = {"tier": entry_pb2.TIER_PLUGIN}
        if self.dice.random() < 0.3:
            fields["request_id"] = f"{self.name}-{next(numbers)}"
            self.repeat = (rpc, fields)
        answer = await self.run.client.call(rpc, **fields)
        assert answer.cursor.run_revision > 0
        self._carried_out()

    def _carried_out(self) -> None:
        assert self.hoped is not None
        self.known, self.hoped, self.repeat = self.hoped, None, None
        self.committed += 1

    def _next(self):
        """An rpc, its fields, and what is there after it."""
        if self.dice.random() < 0.1:
            return self._planned()
        writes, after = self._batch()
        return "WriteEntries", {"writes": writes, "durability": self.dice.choice((1, 2))}, after

    def _planned(self):
        """A plan that is set anew, which keeps the one before, or a delta; the version stands in the body."""
        after, text = dict(self.known), f"{next(numbers)}"
        before = after.get(self.plan)
        version = int(before.rpartition(" v")[2]) if before else 0
        if before and self.dice.random() < 0.7:
            number = 1 + sum(path.startswith(f"{self.plan}/v{version}/") for path in after)
            after[f"{self.plan}/v{version}/{number}"] = text
            return "UpdatePlan", {"plan_id": self.name, "delta": text}, after
        if before:
            after[f"{self.plan}/v{version}"] = before
        after[self.plan] = f"{text} v{version + 1}"
        return "SetPlan", {"plan": plan_pb2.Plan(plan_id=self.name, body=after[self.plan], mode="agent")}, after

    def _batch(self):
        """Several writes that commit together or not at all, and what is there after them."""
        after = dict(self.known)
        kind = self.dice.choice(("set", "set", "append", "remove", "copy", "move"))
        plain = [path for path in after if path.startswith("known://")]
        if kind == "append" or (kind != "set" and len(plain) < 4):
            return self._streamed(after), after
        if kind == "set":
            return self._set(after), after
        chosen = self.dice.sample(plain, 2)
        if kind == "remove":
            for path in chosen:
                del after[path]
            return [remove(path) for path in chosen], after
        writes = []
        for path in chosen:
            to = f"known://a/{self.name}/{kind}{next(numbers)}"
            change = CopyEntry(to) if kind == "copy" else MoveEntry(to)
            writes.append(write_to_pb(EntryWrite(path, change, Tier.PLUGIN)))
            after[to] = after[path] if kind == "copy" else after.pop(path)
        return writes, after

    def _set(self, after):
        body = f"{next(numbers)} " + "x" * self.dice.choice((10, 300, 3000))
        paths = [f"known://a/{self.name}/{self.dice.randrange(20)}" for _ in range(3)] + [f"shared/{self.name}/file"]
        paths = list(dict.fromkeys(paths))
        after.update(dict.fromkeys(paths, body))
        return [set_(path, body) for path in paths]

    def _streamed(self, after):
        writes = []
        for place in range(2):
            path = f"sh://a/{self.name}/{place}"
            text = f"{next(numbers)},"
            if path not in after:
                writes.append(set_(path, "", state=STREAMING))
            writes.append(append(path, text))
            after[path] = after.get(path, "") + text
        return writes

    async def settle(self, bodies: dict[str, str]) -> None:
        """Hold what is there against what must be; a call with a request id is repeated and takes effect once."""
        found = {path: body for path, body in bodies.items() if self.owns(path)}
        assert found in (self.known, self.hoped), f"{self.name}: {_differences(found, self.known, self.hoped)}"
        self._check_events(found, bodies)
        if self.hoped is None:
            return
        if self.repeat is not None:
            rpc, fields = self.repeat
            await self.run.client.call(rpc, **fields)
            self._carried_out()
        elif found == self.hoped:
            self._carried_out()
        self.hoped = None

    def _check_events(self, found: dict[str, str], bodies: dict[str, str]) -> None:
        """Each change of the plan is told once: there is one event for each version and for each delta."""
        told = [path.rpartition("/")[2] for path in bodies if path.startswith("event://")]
        mine = sorted(slug for slug in told if slug.startswith(f"{self.name}-v"))
        version = int(found[self.plan].rpartition(" v")[2]) if self.plan in found else 0
        below = [path.removeprefix(f"{self.plan}/") for path in found if path.startswith(f"{self.plan}/")]
        deltas = [one.replace("/", "-") for one in below if "/" in one]
        changes = [*(f"v{number}" for number in range(1, version + 1)), *deltas]
        assert mine == sorted(f"{self.name}-{change}" for change in changes)


def _differences(found, known, hoped):
    return {
        path: (found.get(path), known.get(path), (hoped or {}).get(path))
        for path in {*found, *known, *(hoped or {})}
        if not found.get(path) == known.get(path) == (hoped or known).get(path)
    }


WAITING_MAX = 20
"""Tasks that wait in a run at a time: a store takes 100."""


@dataclass(frozen=True)
class Facts:
    """What the ledger of a run says."""

    loops: int = 0
    running: int = 0
    ended: int = 0
    turns: int = 0
    open: bool = False


@dataclass
class Owner(Worker):
    """Takes a run through its loops and turns, under fences."""

    run: Run
    dice: random.Random
    known: Facts = field(default_factory=Facts)
    hoped: Facts | None = None
    repeat: dict[str, Any] | None = None
    committed: int = 0
    holds: bool = False

    async def step(self) -> None:
        known = self.known
        waiting = known.loops - known.ended
        if not waiting or (waiting < WAITING_MAX and self.dice.random() < 0.1):
            await self._enqueue()
        elif not (self.holds and known.running):
            started = 1 if known.running == 0 else 0
            await self._call(_with(known, running=known.running + started), self.run.claim(), changes=started)
            self.holds = True
        elif not known.open:
            turn = known.turns + 1
            await self._call(_with(known, turns=turn, open=True), self.run.begin(set_("prompt://{turn}", f"{turn}")))
        else:
            await self._end()

    async def _enqueue(self) -> None:
        ids = {"prompt": f"task {next(numbers)}", "request_id": f"enqueue-{next(numbers)}"}
        self.repeat = {**self.run.address, "settings": act(), **ids}
        await self._call(_with(self.known, loops=self.known.loops + 1), self._enqueued())

    async def _enqueued(self) -> None:
        assert self.repeat is not None
        await self.run.client.call("EnqueueLoop", **self.repeat)

    async def _end(self) -> None:
        known = self.known
        record = set_(f"log://turn_{known.turns}/set/x", f"{known.turns}")
        if self.dice.random() < 0.3:
            after = _with(known, open=False, running=0, ended=known.ended + 1)
            ending = self.run.end(known.turns, record, status=200, loop=(200, "update", "done"))
        else:
            after = _with(known, open=False)
            ending = self.run.end(known.turns, record, status=102)
        await self._call(after, ending)

    async def _call(self, after: Facts, call, *, changes: int = 1) -> None:
        self.hoped = after
        await call
        self._carried_out(changes)

    def _carried_out(self, changes: int = 1) -> None:
        assert self.hoped is not None
        self.committed += changes
        self.known, self.hoped, self.repeat = self.hoped, None, None

    async def settle(self) -> None:
        """Hold the ledger against what must be there."""
        found = await facts_of(self.run)
        assert found in (self.known, self.hoped), f"{self.run.alias}: {found}, not {self.known} nor {self.hoped}"
        self.holds = False
        if self.hoped is not None and self.repeat is not None:
            await self._enqueued()
            self._carried_out()
            assert await facts_of(self.run) == self.known
        elif self.hoped is not None and found != self.known:
            self._carried_out()
        self.hoped = self.repeat = None

    async def finish(self) -> None:
        """Take the run to its end: no loop is left, whatever was under way."""
        await self.run.claim()
        while (facts := await facts_of(self.run)).ended < facts.loops:
            if not facts.running:
                await self.run.claim()
            turn = facts.turns if facts.open else 0
            await self.run.end(turn, status=200, loop=(200, "update", "done"))


def _with(facts: Facts, **changes: Any) -> Facts:
    return Facts(**{**{name: getattr(facts, name) for name in Facts.__dataclass_fields__}, **changes})


async def facts_of(run: Run) -> Facts:
    """What the store says of a run."""
    loops = (await run.client.call("ListLoops", **run.address, page_size=1000)).loops
    turns = (await run.client.call("ListTurns", **run.address, page_size=1000)).turns
    statuses = [loop.status for loop in loops]
    return Facts(
        loops=max((loop.sequence for loop in loops), default=0),
        running=statuses.count(102),
        ended=len(loops) - statuses.count(100) - statuses.count(102),
        turns=max((turn.number for turn in turns), default=0),
        open=any(not turn.HasField("end_time") for turn in turns),
    )


@dataclass
class Claimer(Worker):
    """Queues loops in runs of a project of its own, claims whatever waits there, and ends it."""

    runs: list[Run]
    workspace: str
    known: dict[str, Facts] = field(default_factory=dict)
    hoped: dict[str, Facts] = field(default_factory=dict)
    """Of the runs that the call under way may change, what is there if it did."""

    CLAIMED_MAX = 2

    def of(self, run: Run) -> Facts:
        return self.known.get(run.alias, Facts())

    async def step(self) -> None:
        idle = [run for run in self.runs if self.of(run).loops == self.of(run).ended]
        if idle:
            self.hoped = {idle[0].alias: _with(self.of(idle[0]), loops=self.of(idle[0]).loops + 1)}
            await idle[0].enqueue()
            self._carried_out(self.hoped)
            return
        for claimed in await self._claim():
            run = next(run for run in self.runs if run.alias == claimed.run.run)
            facts = self.of(run)
            assert claimed.loop.sequence == facts.ended + 1, "a loop was lost, or given out twice"
            run.epoch = claimed.epoch
            self.hoped = {run.alias: _with(facts, running=0, ended=facts.ended + 1)}
            await run.end(0, loop=(200, "update", "done"))
            self._carried_out(self.hoped)

    async def _claim(self) -> Any:
        waiting = {run.alias: self.of(run) for run in self.runs if self.of(run).loops > self.of(run).ended}
        self.hoped = {alias: _with(facts, running=1) for alias, facts in waiting.items()}
        # Who dies with a claim loses it soon.
        what = {
            "owner": "claimer",
            "workspace_ids": [self.workspace],
            "limit": self.CLAIMED_MAX,
            "lease_duration": timedelta(milliseconds=100),
        }
        claims = (await self.runs[0].client.call("ClaimWork", **what)).claims
        self._carried_out({claimed.run.run: self.hoped[claimed.run.run] for claimed in claims})
        if not claims:
            await asyncio.sleep(0.02)
        return claims

    def _carried_out(self, changed: dict[str, Facts]) -> None:
        self.known |= changed
        self.hoped = {}

    async def settle(self) -> None:
        """A call that nobody answered changed all that it could in one go, or nothing."""
        found = {run.alias: await facts_of(run) for run in self.runs}
        changed = [alias for alias, facts in found.items() if facts != self.known.get(alias, Facts())]
        assert len(changed) <= self.CLAIMED_MAX
        assert {alias: found[alias] for alias in changed}.items() <= self.hoped.items()
        self.known, self.hoped = found, {}

    async def finish(self) -> None:
        """Take every loop to its end."""
        while any(self.of(run).loops > self.of(run).ended for run in self.runs):
            self.runs = [run for run in self.runs if self.of(run).loops > self.of(run).ended]
            await self.step()


@dataclass
class Forker(Worker):
    """Makes forks of a run that nobody writes any more."""

    run: Run
    view: dict[str, str]
    known: set[str] = field(default_factory=set)
    hoped: str = ""

    async def step(self) -> None:
        await asyncio.sleep(0.02)
        self.hoped = f"fork{next(numbers)}"
        await self.run.client.call("ForkRun", **self.run.address, new_run=self.hoped)
        self.known.add(self.hoped)
        self.hoped = ""

    async def settle(self, aliases: set[str]) -> None:
        """Every fork is there, and whole."""
        found = {alias for alias in aliases if alias.startswith("fork")}
        assert found - {self.hoped} == self.known
        for alias in found - self.known:
            assert (await Run(self.run.client, self.run.project, alias).view()).bodies == self.view
        self.known, self.hoped = found, ""


@dataclass
class Watcher:
    """Follows a run from its last cursor, whatever happens to the store."""

    run: Run
    cursor: Any
    entries: dict[str, Any] = field(default_factory=dict)
    seen: set[tuple[str, int]] = field(default_factory=set)
    told: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self) -> None:
        while True:
            try:
                async for change in self.run.client.stream("WatchChanges", **self.run.address, after=self.cursor):
                    self._take(change)
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
                await asyncio.sleep(0.01)

    def _take(self, change: Any) -> None:
        assert change.cursor.run_revision >= self.cursor.run_revision
        for entry in change.entries:
            if "://" in entry.path:
                assert entry.revision > self.cursor.run_revision, f"{entry.path} was told again"
                assert (entry.path, entry.revision) not in self.seen, f"{entry.path} was told twice"
                self.seen.add((entry.path, entry.revision))
            self.entries[entry.path] = entry
        for path in change.removed_paths:
            self.entries.pop(path, None)
        self.cursor = change.cursor
        self.told.set()

    async def caught_up(self, view: Any) -> None:
        """Wait until it has been told everything that a snapshot shows."""
        async with asyncio.timeout(60):
            while (
                self.cursor.run_revision < view.cursor.run_revision
                or self.cursor.project_revision < view.cursor.project_revision
            ):
                self.told.clear()
                await self.told.wait()
