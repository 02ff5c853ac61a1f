"""What an executor does under its leases: it keeps them, gives them back, stops in time, and takes over from others."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from turnwright.store.v1 import lease_pb2, ledger_pb2, queue_pb2, store_service_pb2_grpc
from turnwright.types.v1 import settings_pb2
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from services import SECRET, running
from sse_server import chat, never
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">All is done.</update>'
ENDLESS = "=== reply chunk_chars=1 delay_ms=10000 ===\nA thought that takes minutes.\n"
QUICK = f"=== reply delay_ms=0 ===\n{DONE}\n"


class Store:
    """The store as another executor, or a client, uses it."""

    def __init__(self, address: str) -> None:
        self.peer = Peer("store", address, SECRET, 10.0)
        self.stub = store_service_pb2_grpc.StoreServiceStub(self.peer.channel)

    async def claim(self, project: str, run: str, owner: str = "another", **more):
        request = lease_pb2.ClaimRunRequest(project=project, run=run, owner=owner, address="127.0.0.1:1", **more)
        return await self.peer.call(self.stub.ClaimRun, request)

    async def until_claimed(self, project: str, run: str):
        """The claim, as soon as the owner before is given up."""
        for _ in range(1200):
            with contextlib.suppress(TurnwrightError):
                return await self.claim(project, run)
            await asyncio.sleep(0.05)
        raise AssertionError(f"{run} was never free")

    async def steal(self, project: str, run: str):
        """Claim a run that its owner holds for long still."""
        await self.peer.call(self.stub.ReleaseRun, lease_pb2.ReleaseRunRequest(project=project, run=run, epoch=1))
        return await self.claim(project, run)

    async def enqueue(self, project: str, run: str):
        settings = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="m", yolo=True)
        request = queue_pb2.EnqueueLoopRequest(project=project, run=run, prompt="Do it.", settings=settings)
        await self.peer.call(self.stub.EnqueueLoop, request)

    async def write(self, project: str, run: str, *writes: EntryWrite):
        request = ledger_pb2.WriteEntriesRequest(project=project, run=run, writes=map(write_to_pb, writes))
        return await self.peer.call(self.stub.WriteEntries, request)


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_MODEL_quick", "scripted/quick")
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0.1")


@contextlib.asynccontextmanager
async def stack(root, **executor):
    async with running(root, **executor) as services:
        (root / "quick.txt").write_text(QUICK)
        store = Store(services.addresses["store"])
        yield services, store
        await store.peer.close()


async def until(condition, what: str):
    """What the condition answers, once it is anything."""
    for _ in range(1200):
        if answer := await condition():
            return answer
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what} did not come")


def ended_of(client, project: str, run: str):
    async def ended():
        with contextlib.suppress(TurnwrightError):
            now = (await client.get_run(project, run)).run
            return now if now.status in (200, 499, 500) else None

    return ended


def thinking_of(client, project: str, run: str):
    async def thinking():
        now = (await client.get_run(project, run)).run
        return now.turn == 1

    return thinking


def thought():
    """An answer of a model that thinks until the event is set."""
    goes_on = asyncio.Event()
    return goes_on, replace(chat(f"A long thought. {DONE}"), gate=goes_on)


@contextlib.asynccontextmanager
async def thinking(over_http, root, *answers, **executor):
    """A stack whose model gives these answers, the first of them in a run that has begun."""
    async with over_http(*answers) as server, stack(root, recover=False, **executor) as (services, store):
        queued = await services.act()
        await server.wait_for(1)
        yield services, store, queued, server.requests[0]


async def test_the_late_write_of_an_owner_that_was_followed_is_refused_and_its_worker_stops(tmp_path, over_http):
    """No renewal tells it in time: the fence of the store does."""
    goes_on, answer = thought()
    async with thinking(over_http, tmp_path, answer, lease_s=600) as (services, store, _, request):
        stolen = await store.steal(services.project, "r")
        goes_on.set()
        await asyncio.wait_for(request.answered.wait(), 60)
        await asyncio.sleep(0.5)
        run = (await services.client.get_run(services.project, "r")).run
        assert (run.status, run.turn) == (102, 1)
        with pytest.raises(TurnwrightError) as missing:
            await services.entry("assistant://1")
        assert missing.value.reason is Reason.ENTRY_NOT_FOUND
        end = ledger_pb2.EndTurnRequest(
            project=services.project,
            run="r",
            epoch=stolen.epoch,
            turn=1,
            result={},
            loop_end=ledger_pb2.LoopEnd(status=499),
        )
        assert (await store.peer.call(store.stub.EndTurn, end)).run.status == 499


async def test_a_renewal_that_tells_of_another_owner_stops_that_run_alone(tmp_path, over_http):
    (_, answer), (goes_on, answer_of_other) = thought(), thought()
    async with thinking(over_http, tmp_path, answer, answer_of_other, lease_s=6) as (services, store, _, request):
        other = await services.act(run="other")
        await store.steal(services.project, "r")
        await asyncio.wait_for(request.closed.wait(), 60)
        goes_on.set()
        assert (await services.until(other)).status == 200
        assert (await services.client.get_run(services.project, "r")).run.status == 102


async def is_kept(over_http, root, lease_s):
    """Whether nobody else gets a run whose model thinks for twice the time of a lease, and it comes to its end."""
    root.mkdir()
    goes_on, answer = thought()
    async with thinking(over_http, root, answer, lease_s=lease_s) as (services, store, queued, _):
        await asyncio.sleep(2 * lease_s)
        try:
            await store.claim(services.project, "r")
        except TurnwrightError as held:
            told = held.reason, held.metadata["address"]
            goes_on.set()
            is_ended = (await services.until(queued)).status == 200
            return (*told, is_ended) == (Reason.LEASE_HELD, services.addresses["executor"], True)
    return False


async def test_a_lease_is_kept_while_the_model_thinks_for_longer(tmp_path, over_http):
    # A slow machine may not renew a brief one in time.
    assert await is_kept(over_http, tmp_path / "brief", 0.4) or await is_kept(over_http, tmp_path / "long", 10)


async def test_a_run_is_given_back_when_its_work_ends(tmp_path):
    async with stack(tmp_path, lease_s=60, recover=False) as (services, store):
        services.script(DONE)
        await services.until(await services.act())
        # Nobody claimed it but the worker, and that once: it went back with the end of its last loop.
        assert (await store.until_claimed(services.project, "r")).epoch == 2


async def test_a_task_for_a_run_that_a_dead_executor_holds_starts_when_its_lease_has_passed(tmp_path):
    async with stack(tmp_path, recover=False) as (services, store):
        services.script(DONE, DONE)
        await store.enqueue(services.project, "r")
        await store.claim(services.project, "r", lease_duration=timedelta(milliseconds=500))
        queued = await services.act()
        assert (await services.until(queued)).status == 200
        assert len((await services.client.get_run(services.project, "r")).loops) == 2


async def test_work_that_a_dead_executor_left_is_found(tmp_path):
    """Within the lease, its grace and one look."""
    async with stack(tmp_path, work_poll_s=0.1) as (services, store):
        services.script(DONE)
        await services.stop("executor")
        await store.enqueue(services.project, "r")
        await store.claim(services.project, "r", lease_duration=timedelta(milliseconds=300))
        await services.start("executor")
        assert (await until(ended_of(services.client, services.project, "r"), "the end")).status == 200


async def test_a_write_to_its_path_starts_the_turn_loop(tmp_path):
    """RU037, RU038, C14."""
    async with stack(tmp_path, work_poll_s=0.1) as (services, store):
        services.script(DONE)
        change = SetEntry("Do it.", '{"mode":"act","model":"m"}')
        await store.write(services.project, "r", EntryWrite("run://r", change, Tier.CLIENT))
        assert (await until(ended_of(services.client, services.project, "r"), "the end")).summary == "All is done."


async def test_an_abort_that_the_store_was_told_of_ends_the_loop(tmp_path, over_http):
    """RU039, RU111, C36: the renewal tells the owner."""
    async with thinking(over_http, tmp_path, never(), lease_s=3) as (services, store, queued, _):
        await store.write(services.project, "r", EntryWrite("run://r", SetEntry(state=State.CANCELLED), Tier.CLIENT))
        assert (await services.until(queued)).status == 499


async def test_runs_of_other_workspaces_are_left_alone(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    workspaces = str(tmp_path / "elsewhere")
    async with stack(tmp_path, work_poll_s=0.1, workspaces=workspaces) as (services, store):
        services.script(DONE)
        await store.enqueue(services.project, "r")
        await asyncio.sleep(0.6)
        assert (await services.client.get_run(services.project, "r")).run.status == 100
        elsewhere = await services.client.init_project(workspaces)
        await store.enqueue(elsewhere.name, "s")
        assert (await until(ended_of(services.client, elsewhere.name, "s"), "the end")).status == 200


async def test_a_task_that_was_given_to_an_executor_without_its_workspace_waits_for_another_and_says_so(tmp_path):
    """architecture 3: it does not start where there is nothing to work on."""
    (tmp_path / "elsewhere").mkdir()
    told = {"store_settings": {"workspace_wait_s": 0.2}, "work_poll_s": 0.1}
    async with stack(tmp_path, workspaces=str(tmp_path / "elsewhere"), **told) as (services, _):
        services.script(DONE)
        await services.act()

        async def waits():
            run = (await services.client.get_run(services.project, "r")).run
            return run.loops_queued and await told_of(services)

        assert await until(waits, "the reason") == [(100, "workspace_unavailable")]
        elsewhere = await services.client.init_project(str(tmp_path / "elsewhere"))
        await act(services.client, services, "quick", "s", elsewhere.name)
        assert (await until(ended_of(services.client, elsewhere.name, "s"), "the end")).status == 200
        assert await told_of(services) == [(100, "workspace_unavailable")]


async def told_of(services):
    """Status and reason of the loops of a run."""
    loops = (await services.client.get_run(services.project, "r")).loops
    return [(loop.status, loop.reason) for loop in loops if loop.reason]


async def test_a_task_is_begun_at_once_by_an_executor_of_some_workspaces(tmp_path):
    async with stack(tmp_path, workspaces=str(tmp_path / "project"), work_poll_s=3600) as (services, _):
        services.script(DONE)
        assert (await services.until(await services.act())).status == 200


# ---- An executor that is a process of its own


EXECUTOR = """
from turnwright_kit.main import run_service
from turnwright_executor.config import DEFAULT_LISTEN, ExecutorSettings
from turnwright_executor.wiring import build

class Settings(ExecutorSettings):
    recover: bool = False
    lease_s: float = 2.0

run_service(Settings, DEFAULT_LISTEN, build)
"""


def executor_process(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", EXECUTOR],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest_asyncio.fixture
async def paused(tmp_path):
    """A stack, and a second executor in a process, whose leases are short."""
    async with stack(tmp_path, recover=False) as (services, store):
        at = f"unix:{tmp_path}/second.sock"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
        peers = {f"TURNWRIGHT_{name.upper()}": services.addresses[name] for name in ("store", "assembler", "provider")}
        ours = {
            "TURNWRIGHT_HOME": str(tmp_path / "home"),
            "TURNWRIGHT_TOKEN": SECRET,
            "TURNWRIGHT_LISTEN": at,
        }
        process = executor_process({**inherited, **peers, **ours})
        while "service_started" not in await asyncio.to_thread(process.stderr.readline):
            pass
        async with Client.connect(at, SECRET) as client:
            yield process, client, services, store
        process.kill()
        process.wait()
        process.stderr.close()


async def act(client, services, model: str, run: str, project: str = ""):
    settings = settings_pb2.LoopSettings(model=model, yolo=True)
    return await client.act(project or services.project, "Do it.", run=run, settings=settings)


async def test_an_executor_that_was_paused_past_its_lease_stops_the_run_and_goes_on_with_others(paused):
    process, client, services, store = paused
    (services.root / "m.txt").write_text(ENDLESS)
    await act(client, services, "m", "r")
    await until(thinking_of(client, services.project, "r"), "the turn")
    process.send_signal(signal.SIGSTOP)
    stolen = await store.until_claimed(services.project, "r")
    await asyncio.sleep(1)
    process.send_signal(signal.SIGCONT)
    await act(client, services, "quick", "s")
    assert (await until(ended_of(client, services.project, "s"), "the end")).status == 200
    now = (await client.get_run(services.project, "r")).run
    assert (now.status, now.turn, stolen.open_turn.number) == (102, 1, 1)
    process.send_signal(signal.SIGTERM)
    _, logged = await asyncio.to_thread(process.communicate)
    assert "lease_lost" in logged or "LEASE_LOST" in logged


async def test_the_command_of_a_paused_executor_ends_with_its_lease(paused):
    process, client, services, store = paused
    command = "while :; do touch running; sleep 0.05; done"
    (services.root / "m.txt").write_text(f"=== reply chunk_chars=64 delay_ms=0 ===\n<sh>{command}</sh>\n")
    await act(client, services, "m", "r")
    await until(lambda: asyncio.to_thread(commands_in, services.files), "the command")
    process.send_signal(signal.SIGSTOP)
    await store.until_claimed(services.project, "r")
    await until(lambda: asyncio.to_thread(lambda: not commands_in(services.files)), "the end of the command")
    assert process.poll() is None


def commands_in(root: Path) -> list[str]:
    """Processes that work in a project, whatever number they have in a sandbox."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == root and "touch running" in (entry / "cmdline").read_text():
                found.append(entry.name)
    return found


async def test_an_executor_that_is_stopped_gives_its_runs_back_at_once(paused):
    process, client, services, store = paused
    (services.root / "m.txt").write_text(ENDLESS)
    await act(client, services, "m", "r")
    await until(thinking_of(client, services.project, "r"), "the turn")
    process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(process.communicate)
    claimed = await store.claim(services.project, "r")
    assert (claimed.loop.status, claimed.open_turn.number) == (102, 1)
