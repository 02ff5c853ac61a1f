"""Two teams on one deployment whose services are killed: no word of one is told to the other, nor to logs or telemetry.

Alice works in a project whose prompts, replies and files say a word. Mallory, who has a project of her own, asks and
watches without pause, at both executors and all stores, while grants of others in alice's project come and go. Logs and
spans name projects, for those who run the deployment; metrics name none. ADR 66.
"""

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
from functools import partial

import pytest
from turnwright.entries.v1 import entry_service_pb2
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import grant_pb2, settings_pb2

from contract.store.harness import Client as StoreClient
from contract.test_telemetry import Collector, listening
from crash.stack import AWAY, ENDURING
from draws import SEED
from services import SECRET, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.peer import rpc_of

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(900)]

WORD, NAME = "zanzibar", "kilimanjaro"
"""What alice's team writes, and the name of its project."""

REPLY = f'{WORD} it is.<set path="notes.txt">{WORD}</set><sh>echo {WORD}</sh><update status="200">{WORD} done.</update>'
GUARD_S = 300.0


class Fleet:
    """Services as processes on sockets in a folder; each can be killed and started again."""

    def __init__(self, folder, db, collector_port):
        self.folder = folder
        self.stores = [f"store{number}" for number in range(2 if db else 1)]
        self.executors = ["executor0", "executor1"]
        self.processes = {}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OTEL_"))}
        settings = {
            "HOME": folder / "home", "TOKEN": SECRET, "LOG_LEVEL": "debug", "LAME_DUCK_S": 0, "DB": db,
            "MODEL_m": "scripted/m", "SCRIPTED_DIR": folder, "SH_SANDBOX": "limits", "LEASE_S": 2,
            "PROVIDER": self.at("provider"), "ASSEMBLER": self.at("assembler"),
            "OTLP_ENDPOINT": f"http://127.0.0.1:{collector_port}",
        }  # fmt: skip
        self.env = {**clean, **{f"TURNWRIGHT_{name}": str(value) for name, value in settings.items()}}
        self.env |= {"OTEL_BSP_SCHEDULE_DELAY": "200", "OTEL_METRIC_EXPORT_INTERVAL": "500"}
        for name in ("home", NAME, "hers"):
            (folder / name).mkdir(mode=0o700)
        (folder / "m.txt").write_text(f"=== reply chunk_chars=8 delay_ms=5 ===\n{REPLY}\n" * 3)

    def at(self, name):
        return f"unix:{self.folder}/{name}.sock"

    @property
    def names(self):
        return [*self.stores, "provider", "assembler", *self.executors]

    def start(self, name):
        number = int(name[-1]) if name[-1].isdigit() else 0
        own = {"LISTEN": self.at(name), "STORE": self.at(self.stores[number % len(self.stores)])}
        env = {**self.env, **{f"TURNWRIGHT_{key}": value for key, value in own.items()}}
        with (self.folder / f"{name}.log").open("a") as log:
            command = [sys.executable, "-m", f"turnwright_{name.rstrip('01')}"]
            self.processes[name] = subprocess.Popen(command, env=env, stderr=log)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def close(self):
        """All end as an orchestrator ends them, and send what telemetry they have."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(GUARD_S)

    def logs(self):
        return {name: (self.folder / f"{name}.log").read_text() for name in self.names}


async def insisted(call):
    """What a call answers once the services do."""
    async with asyncio.timeout(GUARD_S):
        while True:
            try:
                return await call()
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
            await asyncio.sleep(0.05)


async def replied(client, project):
    """Wait until a model has said the word: there is something to be told."""
    async with asyncio.timeout(GUARD_S):
        for number in itertools.cycle(range(5)):
            with contextlib.suppress(TurnwrightError):
                if f"{WORD} it is" in str(await listed(client.list_entries(project, f"r{number}", "**"))):
                    return
            await asyncio.sleep(0.1)


class Ear:
    """What mallory is told."""

    def __init__(self):
        self.unnamed, self.named = [], []
        """Answers to calls that do not name alice's project, and to those that do."""
        self.lost = 0

    async def hear(self, call, *, named=False):
        try:
            told = str(await call)
        except TurnwrightError as error:
            if error.reason in AWAY:
                self.lost += 1
            told = f"{error.reason.name} {error} {error.metadata}"
        (self.named if named else self.unnamed).append(told)


async def first(stream):
    async with contextlib.aclosing(stream) as messages:
        return await anext(messages, None)


async def listed(items):
    return [one async for one in items]


def searched(client, project):
    method = entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"].methods_by_name["SearchEntries"]
    request = entry_service_pb2.SearchEntriesRequest(project=project, query=WORD)
    return client._peer.call(rpc_of(client._peer.channel, method), request)


async def works(fleet, project, enough):
    """Alice's people give tasks, some of which wait for a decision, until that is enough."""
    for number in itertools.count():
        entry = fleet.executors[number % 2]
        async with Client.connect(fleet.at(entry), token_for("alice"), policy=ENDURING) as alice:
            settings = settings_pb2.LoopSettings(model="m", yolo=number % 3 > 0)
            task = {"run": f"r{number % 5}", "settings": settings, "request_id": f"task {number}"}
            with contextlib.suppress(TurnwrightError):
                await insisted(partial(alice.act, project, f"Say {WORD}.", **task))
        if enough.is_set():
            return
        await asyncio.sleep(0.2)


async def asks(fleet, entry, own, project, ear, stop):
    """Mallory asks an executor for all that there is, and for what is closed to her."""
    async with Client.connect(fleet.at(entry), token_for("mallory")) as mallory:
        while not stop.is_set():
            for call in (
                listed(mallory.list_projects()), listed(mallory.list_proposals()), mallory.identity(),
                listed(mallory.list_runs(own)), first(mallory.watch_proposals()), first(mallory.watch_runs(own)),
                searched(mallory, own), mallory.get_status(), mallory.list_models(), mallory.act(own, "Go.", run="x"),
            ):  # fmt: skip
                await ear.hear(call)
            notice = event_pb2.Notice(text="Hello.")
            for call in (
                mallory.get_run(project, "r1"), listed(mallory.list_runs(project)), first(mallory.watch(project, "r1")),
                searched(mallory, project), mallory.get_entry(project, "r1", "notes.txt"),
                first(mallory.watch_runs(project)), mallory.notify(project, "r1", notice),
                mallory.act(project, "Say it.", run="r1"), listed(mallory.list_proposals(project)),
            ):  # fmt: skip
                await ear.hear(call, named=True)


async def asks_stores(fleet, store, own, project, ear, stop):
    client = StoreClient(fleet.at(store), token_for("mallory", audience="store"))
    try:
        while not stop.is_set():
            for rpc, fields in (
                ("ListProjects", {}), ("ListProposals", {}), ("SearchEntries", {"project": own, "query": WORD}),
                ("GetIdentity", {}), ("ListTokens", {}), ("ListRuns", {"project": own}),
            ):  # fmt: skip
                await ear.hear(client.call(rpc, **fields))
            for rpc, fields in (
                ("GetRun", {"run": "r1"}), ("ListEntries", {"run": "r1"}), ("ListRuns", {}), ("ListTurns", {"run": "r1"}),
                ("SearchEntries", {"query": WORD}), ("ListProposals", {}), ("ListMessages", {"run": "r1"}),
            ):  # fmt: skip
                await ear.hear(client.call(rpc, project=project, **fields), named=True)
            await ear.hear(first(client.stream("ReadView", project=project, run="r1")), named=True)
    finally:
        await client.close()


async def follows(fleet, entry, ear, stop):
    """A watch of all that mallory may decide on, which is begun again when it is lost."""
    async with Client.connect(fleet.at(entry), token_for("mallory")) as mallory:
        while not stop.is_set():
            with contextlib.suppress(TurnwrightError):
                async with contextlib.aclosing(mallory.watch_proposals()) as messages:
                    async for message in messages:
                        ear.unnamed.append(str(message))
            await asyncio.sleep(0.1)


async def grants(fleet, project, stop):
    """Grants of bob and others come and go; returns how often bob was told nothing more once his was gone."""
    count = 0
    async with (
        Client.connect(fleet.at("executor0"), token_for("alice")) as alice,
        Client.connect(fleet.at("executor1"), token_for("bob")) as bob,
    ):
        while not stop.is_set():
            for subject in ("user:bob", "group:shop"):
                await insisted(lambda subject=subject: alice.set_grant(project, subject, grant_pb2.GRANT_ROLE_VIEWER))
            for subject in ("user:bob", "group:shop"):
                with contextlib.suppress(TurnwrightError):
                    await insisted(lambda subject=subject: alice.delete_grant(project, subject))
            # Whichever store and executor is asked.
            listed_now = [one.subject for one in await insisted(lambda: listed(alice.list_grants(project)))]
            with pytest.raises(TurnwrightError) as refused:
                await insisted(lambda: bob.get_run(project, "r1"))
            assert "user:bob" in listed_now or refused.value.reason is Reason.PROJECT_NOT_FOUND
            count += 1
    return count


@pytest.mark.parametrize("kills", [pytest.param(3, id="few"), pytest.param(60, id="many", marks=pytest.mark.soak)])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
async def test_no_word_of_one_team_reaches_the_other_whatever_is_killed(tmp_path, database, kills):
    with listening(Collector()) as collector:
        fleet = Fleet(tmp_path, database, collector.port)
        try:
            for name in fleet.names:
                fleet.start(name)
            async with Client.connect(fleet.at("executor0"), SECRET, policy=ENDURING) as operator:
                project = (await insisted(lambda: operator.init_project(str(tmp_path / NAME)))).name
                own = (await insisted(lambda: operator.init_project(str(tmp_path / "hers")))).name
                await insisted(lambda: operator.set_grant(project, "user:alice", grant_pb2.GRANT_ROLE_OWNER))
                await insisted(lambda: operator.set_grant(own, "user:mallory", grant_pb2.GRANT_ROLE_OWNER))
                ear, stop = Ear(), asyncio.Event()
                async with asyncio.TaskGroup() as group:
                    group.create_task(works(fleet, project, stop))
                    told = group.create_task(grants(fleet, project, stop))
                    following = []
                    for entry in fleet.executors:
                        group.create_task(asks(fleet, entry, own, project, ear, stop))
                        following.append(group.create_task(follows(fleet, entry, ear, stop)))
                    for store in fleet.stores:
                        group.create_task(asks_stores(fleet, store, own, project, ear, stop))
                    dice = random.Random(SEED)
                    victims = itertools.cycle([*fleet.stores, *fleet.executors])
                    for _ in range(kills):
                        await asyncio.sleep(dice.uniform(0.5, 1.5))
                        victim = next(victims)
                        await asyncio.to_thread(fleet.kill, victim)
                        fleet.start(victim)
                        heard = len(ear.named)
                        async with asyncio.timeout(GUARD_S):
                            while len(ear.named) < heard + 30:  # noqa: ASYNC110 - nobody tells
                                await asyncio.sleep(0.05)
                    await replied(operator, project)
                    stop.set()
                    for task in following:
                        task.cancel()
                assert told.result() > 0
        finally:
            fleet.close()
        assert ear.lost < len(ear.named) + len(ear.unnamed)
        assert [one for one in ear.unnamed if WORD in one or NAME in one] == []
        # She has named the project herself; nothing that is in it comes back.
        assert [one for one in ear.named if WORD in one] == []
        assert {one.split()[0] for one in ear.named} <= {Reason.PROJECT_NOT_FOUND.name, *(one.name for one in AWAY)}
        logs = fleet.logs()
        assert [name for name, text in logs.items() if WORD in text] == []
        assert any(NAME in text for text in logs.values()), "the logs are read"
        assert collector.spans
        assert collector.points
        assert WORD.encode() not in collector.raw
        assert NAME not in str(collector.points)
