"""A stack whose services are processes that are killed and started again, and workers that give its runs tasks."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

from turnwright.types.v1 import model_pb2, settings_pb2
from turnwright_values.types import State, Tier

from contract.store.harness import SECRET
from contract.store.harness import Client as StoreClient
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_client.watch import WatchPolicy
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import LOOP_ENDED

REPO = Path(__file__).parents[2]
AWAY = (Reason.SERVICE_UNAVAILABLE, Reason.DATABASE_UNAVAILABLE, Reason.DRAINING, Reason.QUEUE_FULL)
ENDURING = WatchPolicy(retries_max=1000, backoff_s=0.05, backoff_s_max=0.2)
TASKS_OF_A_RUN = 6
TASK_S = 300
"""What hangs takes longer than a task on a host with too much to do."""
TOKEN = re.compile(r"echo (\S+) >> effects.txt")


class Life:
    """A service whose process is killed, and started again."""

    def __init__(self, name, service, folder):
        self.name = name
        self.service = service
        self.folder = folder
        self.process = 0
        self.points = self.ends = None
        for pipe in ("in", "out"):
            os.mkfifo(folder / f"{name}.{pipe}")

    def start(self, point=""):
        if self.points is None:
            self._open()
        self.points.write(point + "\n")
        self.points.flush()
        self.process = int(self.ends.readline())

    def _open(self):
        # Opened by both sides in the same order: each waits for the other.
        self.points = (self.folder / f"{self.name}.in").open("w")
        self.ends = (self.folder / f"{self.name}.out").open()

    async def ended(self, within_s):
        """Let it come to its point, and bring its end about after so many seconds; whether it came to it."""
        self.count()
        waiting = asyncio.ensure_future(asyncio.to_thread(self.ends.readline))
        done, _ = await asyncio.wait([waiting], timeout=within_s)
        if not done:
            self._send_kill()
        code, self.process = int(await waiting), 0
        assert code == -signal.SIGKILL, (self.name, self.complaints())
        return bool(done)

    def count(self):
        """From now on its steps count towards its point."""
        # It may have come to its point a moment ago.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGUSR1)

    def pause(self):
        os.kill(self.process, signal.SIGSTOP)

    def resume(self):
        os.kill(self.process, signal.SIGCONT)

    @property
    def is_paused(self):
        """Whether it is stopped and not ended."""
        return Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def _send_kill(self):
        # It may have come to its point a moment ago.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGKILL)

    def kill(self):
        self._send_kill()
        self.ends.readline()
        self.process = 0

    async def stop(self):
        """End it as an orchestrator does, and wait until it has ended."""
        os.kill(self.process, signal.SIGTERM)
        # A test that fails meanwhile must not wait for this end once more.
        self.process = 0
        code = int(await asyncio.to_thread(self.ends.readline))
        assert code == 0, (self.name, code, self.complaints())

    def complaints(self):
        """What it logged as an error."""
        file = self.folder / f"{self.name}.err"
        return file.read_text() if file.exists() else ""

    def close(self):
        if self.process:
            self.kill()
        if self.points is None:
            # Its keeper waits for the other side of the pipes.
            self._open()
        self.points.close()
        self.ends.close()


class Stack:
    """A provider, an assembler, stores on one database, executors on one workspace; each a process.

    `before`: another release, whose services can take the places of these (`self.before`).
    """

    def __init__(self, root, db="", executors=1, stores=1, before=None, **settings):
        self.root = root
        self.secret = SECRET
        self.project = ""
        for folder in ("home", "project"):
            (root / folder).mkdir()
        self.lives, self._plan = {}, []
        common = {"HOME": f"{root}/home", "TOKEN": SECRET, "LOG_LEVEL": "error"}
        limits = {"LEASE_S": "1", "LEASE_GRACE_S": "0.1", "STRIKES_MAX": "100", "SCRIPTED_DIR": str(root)}
        self.environment = {
            **common,
            **limits,
            "DB": db,
            **{name.upper(): str(value) for name, value in settings.items()},
        }
        for number in range(stores):
            self._add(f"store{number}", "store")
        self._add("provider", "provider")
        self._add("assembler", "assembler")
        for number in range(executors):
            self._add(f"executor{number}", "executor", store=f"store{number % stores}")
        self._keepers = [self._keep(root, REPO, sys.executable)]
        self.before = {}
        if before:
            older = root / "lives-before"
            older.mkdir()
            self.before = {name: Life(name, life.service, older) for name, life in self.lives.items()}
            self._keepers.append(self._keep(older, before.checkout, before.python))

    def _keep(self, folder, checkout, python):
        """The process that starts services of a checkout."""
        plan = folder / "plan.json"
        plan.write_text(json.dumps(self._plan))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TURNWRIGHT_", "OPENAI_"))}
        roots = (checkout / "tests", checkout / "services", checkout / "gen" / "python")
        found = {**inherited, "PYTHONPATH": os.pathsep.join(map(str, roots))}
        return subprocess.Popen([python, str(checkout / "tests/crash/service_victim.py"), str(plan)], env=found)

    def _add(self, name, service, store="store0"):
        peers = {"STORE": self.at(store), "ASSEMBLER": self.at("assembler"), "PROVIDER": self.at("provider")}
        ours = {**self.environment, **peers, "LISTEN": self.at(name)}
        self._plan.append((name, service, {f"TURNWRIGHT_{key}": value for key, value in ours.items()}))
        self.lives[name] = Life(name, service, self.root)

    def at(self, name):
        return f"unix:{self.root}/{name}.sock"

    @property
    def effects(self):
        """How often each line stands in the file that the commands add to."""
        file = self.root / "project" / "effects.txt"
        return Counter(file.read_text().split() if file.exists() else ())

    async def start(self, lives=None, **points):
        """Start every service, those that are named here with a point; or the given ones instead."""
        for name, life in (lives or self.lives).items():
            life.start(points.get(name, ""))
        async with Client.connect(self.at("executor0"), SECRET) as client:
            project = await insisted(lambda: client.init_project(f"{self.root}/project"))
        self.project = project.name

    async def add_model(self, name, *replies, delay_ms=5, context_length=0):
        """A model that gives these replies, in order. `context_length` is in tokens; 0: none is known."""
        text = "".join(f"=== reply chunk_chars=8 delay_ms={delay_ms} ===\n{reply}\n" for reply in replies)
        (self.root / f"{name}.txt").write_text(text)
        store = StoreClient(self.at("store0"))
        model = model_pb2.Model(alias=name, vendor_model=f"scripted/{name}", context_length=context_length)
        await insisted(lambda: store.call("SetModel", model=model))
        await store.close()

    def complaints(self):
        found = [*self.lives.values(), *self.before.values()]
        return {str(life.folder / life.name): told for life in found if (told := life.complaints())}

    def close(self):
        for life in [*self.lives.values(), *self.before.values()]:
            life.close()
        for keeper in self._keepers:
            keeper.wait()


@contextlib.asynccontextmanager
async def started(folder, database="", **settings):
    """A stack with two executors for the time of the block."""
    stack = Stack(folder, database, executors=2, **settings)
    try:
        await stack.start()
        yield stack
    finally:
        await asyncio.to_thread(stack.close)


async def insisted(call, within_s=60):
    """What a call answers once the services do; it is repeated under the same id."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await call()
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
            await asyncio.sleep(0.05)


def script(number):
    """A task of three turns with effects of each kind; the replies after them end a loop whose turns were refuted."""
    done = '<update status="200">All is done.</update>'
    echo = "<sh>echo t{}.{} >> effects.txt</sh>"
    first = f'<get path="effects.txt"/><set path="known://n{number}">It is {number}.</set>'
    first += f'{echo.format(number, 1)}{echo.format(number, 2)}<update status="102">Two.</update>'
    second = f'<set path="f{number}.txt">one\n</set>{echo.format(number, 3)}<set path="known://m{number}">More.</set>'
    return first, f'{second}<update status="102">One.</update>', f"{echo.format(number, 4)}{done}", *[done] * 5


class Worker:
    """Gives a run task after task, then another one, and keeps what it is told."""

    def __init__(self, stack, name, numbers, entry="executor0"):
        self.stack = stack
        self.name = name
        self.numbers = numbers
        self.entry = entry
        self.ends = {}
        self.aborted = set()
        """Numbers of tasks that this aborts somewhere."""
        self.turns = 0
        """Of the tasks that have ended."""
        self.settled = {}
        """State and outcome of each record that an event told to be settled, by run and path."""

    @property
    def run(self):
        """The run of the next task: one that went on for ever would be too long for its model."""
        return f"{self.name}-{len(self.ends) // TASKS_OF_A_RUN}"

    async def work(self, stop):
        async with Client.connect(self.stack.at(self.entry), SECRET, policy=ENDURING) as client:
            while not stop.is_set():
                await self._task(client, next(self.numbers))

    async def _task(self, client, number):
        model, run = f"m{number}", self.run
        await self.stack.add_model(model, *script(number))
        settings = settings_pb2.LoopSettings(model=model, yolo=True)

        async def act():
            return await client.act(
                self.stack.project, f"Task {number}.", run=run, settings=settings, request_id=f"task {number}"
            )

        queued = await insisted(act)
        async with asyncio.TaskGroup() as group:
            if number % 4 == 0:
                self.aborted.add(number)
                group.create_task(self._abort(client, run, number))
            await self._until_ended(client, queued, number)

    async def _abort(self, client, run, number):
        await asyncio.sleep(random.random())
        await insisted(lambda: client.abort(self.stack.project, run, request_id=f"abort {number}"))

    async def _until_ended(self, client, queued, number):
        run = queued.run
        watch = client.watch(self.stack.project, run, queued.cursor)
        async with asyncio.timeout(TASK_S), contextlib.aclosing(watch) as events:
            async for event in events:
                self._keep(run, event)
                loop = loop_in(event)
                if loop and loop.sequence == queued.sequence and loop.status in LOOP_ENDED:
                    self.ends[number] = (run, loop.sequence, loop.status, loop.reason)
                    self.turns += loop.turns
                    return
                if loop and loop.sequence > queued.sequence:
                    raise AssertionError(f"the end of task {number} was not told")

    def _keep(self, run, event):
        match event.WhichOneof("event"):
            case "snapshot":
                entries = event.snapshot.entries
            case "message_added":
                entries = [event.message_added.entry]
            case "message_updated":
                entries = [event.message_updated.entry]
            case _:
                entries = []
        for entry in entries:
            if entry.path.startswith("log://") and State(entry.state).is_settled:
                self.settled[run, entry.path] = (State(entry.state), entry.outcome)


async def records_of(stack, run):
    """Every record of a run, as the store has it."""
    store = StoreClient(stack.at("store0"), tier=Tier.SYSTEM)
    entries, token = [], ""
    for _ in itertools.count():
        wanted = {"project": stack.project, "run": run, "pattern": "log://**", "page_size": 1000, "page_token": token}
        page = await insisted(lambda wanted=wanted: store.call("ListEntries", **wanted))
        entries += page.entries
        token = page.next_page_token
        if not token:
            break
    await store.close()
    return entries


async def until_ended(client, queued):
    """The loop that a task queued, as it ended."""
    watch = client.watch(queued.project, queued.run, queued.cursor)
    async with asyncio.timeout(60), contextlib.aclosing(watch) as events:
        async for event in events:
            loop = loop_in(event)
            if loop and loop.status in LOOP_ENDED:
                return loop
    raise AssertionError("the watch ended")
