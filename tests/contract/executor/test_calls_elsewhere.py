"""One request of a client for a tool, sent to several executors of one store: it is carried out once. RU127, RU228."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys

import pytest

from services import SECRET, running
from turnwright_client import Client
from turnwright_core.errors import ExistsError, Reason, TurnwrightError
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.server import RunningServer

pytestmark = pytest.mark.asyncio

ROUNDS = 40
ROUNDS_IN_ORDER = 15
"""Where each waits for the one before."""
AT_ONCE = 8
"""Requests that are under way together, each at every executor."""


@pytest.fixture(autouse=True, params=[pytest.param("sqlite", marks=pytest.mark.soak), "postgresql"])
def database(request, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    if request.param == "postgresql":
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


def settings_of(services, name):
    """What an executor needs that speaks to the services of a test and looks for no work."""
    peers = {peer: services.addresses[peer] for peer in ("store", "provider", "assembler")}
    return {
        "home": services.root / "home", "token": SECRET, "log_level": "error", "listen": f"unix:{services.root}/{name}",
        "recover": False, "sh_sandbox": "limits", **peers,
    }  # fmt: skip


@contextlib.asynccontextmanager
async def executors(root, count):
    """The services with a run, and clients of so many executors."""
    async with running(root) as services, contextlib.AsyncExitStack() as stack:
        services.script('<update status="200">Done.</update>')
        await services.until(await services.act())
        clients = [services.client]
        for number in range(2, count + 1):
            settings = ExecutorSettings(**settings_of(services, f"executor{number}.sock"))
            server = RunningServer(build_executor(settings, SECRET), settings.listen, SECRET, 1.0)
            await server.start()
            stack.push_async_callback(server.stop)
            clients.append(await stack.enter_async_context(Client.connect(settings.listen, SECRET)))
        yield services, clients


async def called(services, clients, number, tool, attributes, body=""):
    """What all executors answer to one request that they are sent at once."""
    calls = [
        client.call_tool(services.project, "r", tool, attributes, body, request_id=f"{tool}-{number}")
        for client in clients
    ]
    answers = await asyncio.gather(*calls)
    for answer in answers:
        # A heartbeat of its owner may be on its way when the call ends, and be written after that.
        answer.ClearField("write_count")
        answer.ClearField("revision")
    return answers


@pytest.mark.parametrize("database", ["sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("count", [3, pytest.param(2, marks=pytest.mark.soak)])
async def test_a_command_that_several_executors_are_sent_at_once_runs_once(tmp_path, count) -> None:
    async with executors(tmp_path, count) as (services, clients):
        for begin in range(0, ROUNDS, AT_ONCE):
            numbers = range(begin, begin + AT_ONCE)
            told = await asyncio.gather(
                *[called(services, clients, n, "sh", {"command": f"echo {n} >> effects.txt"}) for n in numbers]
            )
            assert all(answer == answers[0] for answers in told for answer in answers)
            assert {answers[0].status for answers in told} == {200}
        effects = (services.files / "effects.txt").read_text().split()
        records = [
            entry.path async for entry in services.client.list_entries(services.project, "r", "log://call_*/sh/**")
        ]
    assert sorted(map(int, effects)) == list(range(ROUNDS))
    assert len(records) == ROUNDS


async def test_an_entry_that_several_executors_are_to_add_to_at_once_is_added_to_once(tmp_path) -> None:
    async with executors(tmp_path, 2) as (services, clients):
        await called(services, clients, "first", "set", {"path": "known://list"}, "begin\n")
        for number in range(ROUNDS_IN_ORDER):
            answers = await called(
                services, clients, number, "set", {"path": "known://list"}, f"<<APPEND\n{number}\nAPPEND"
            )
            assert (answers[0].status, answers[1]) == (200, answers[0])
        entry = await services.entry("known://list")
    assert "".join(entry.body.split()) == "".join(["begin", *map(str, range(ROUNDS_IN_ORDER))])


async def test_a_call_whose_owner_lives_is_waited_for_however_long_it_takes(tmp_path) -> None:
    waits = "echo begun >> effects.txt; while [ ! -e go ]; do sleep 0.02; done"
    async with executors(tmp_path, 2) as (services, clients):
        calling = asyncio.create_task(called(services, clients, 1, "sh", {"command": waits}))
        # Longer than a silent owner keeps its call.
        await asyncio.wait({calling}, timeout=9)
        assert not calling.done()
        (services.files / "go").touch()
        first, second = await calling
    assert (first.status, second) == (200, first)


async def test_of_different_commands_that_executors_are_sent_at_once_under_one_id_one_is_carried_out(tmp_path) -> None:
    async with executors(tmp_path, 3) as (services, clients):
        for number in range(ROUNDS_IN_ORDER):
            calls = [
                client.call_tool(
                    services.project, "r", "sh", {"command": f"echo {number} >> {name}.txt"}, request_id=f"id-{number}"
                )
                for name, client in zip("abc", clients, strict=True)
            ]
            told = await asyncio.gather(*calls, return_exceptions=True)
            refused = [one for one in told if isinstance(one, TurnwrightError)]
            assert [one.reason for one in refused] == [Reason.REQUEST_ID_REUSED] * 2
            assert [one.status for one in told if one not in refused] == [200]
        effects = [line for path in services.files.glob("?.txt") for line in path.read_text().split()]
        records = [
            entry.path async for entry in services.client.list_entries(services.project, "r", "log://call_*/sh/**")
        ]
    assert sorted(map(int, effects)) == list(range(ROUNDS_IN_ORDER))
    assert len(records) == ROUNDS_IN_ORDER


async def test_what_was_used_for_another_command_is_refused_by_every_executor(tmp_path) -> None:
    async with executors(tmp_path, 2) as (services, clients):
        await clients[0].call_tool(services.project, "r", "think", {}, "One.", request_id="1")
        with pytest.raises(ExistsError):
            await clients[1].call_tool(services.project, "r", "think", {}, "Two.", request_id="1")


@contextlib.asynccontextmanager
async def process(services):
    """Another executor, in a process of its own, and a client of it."""
    settings = settings_of(services, "victim.sock")
    environment = {f"TURNWRIGHT_{name.upper()}": str(value) for name, value in settings.items()}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "turnwright_executor", env={**os.environ, **environment}
    )
    try:
        async with Client.connect(settings["listen"], SECRET) as client:
            for _ in range(600):
                with contextlib.suppress(TurnwrightError):
                    await client.get_run(services.project, "r")
                    break
                await asyncio.sleep(0.05)
            yield child, client
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


@pytest.mark.parametrize(
    "ending",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.soak), pytest.param(signal.SIGSTOP, marks=pytest.mark.soak)],
    ids=lambda one: one.name,
)  # fmt: skip
async def test_a_call_whose_owner_has_ended_is_told_as_interrupted_and_does_not_run_again(tmp_path, ending) -> None:
    command = {"command": "echo begun >> effects.txt; exec sleep 600"}
    async with executors(tmp_path, 2) as (services, clients), process(services) as (child, victim):
        lost = asyncio.create_task(victim.call_tool(services.project, "r", "sh", command, request_id="sh-1"))
        effects = services.files / "effects.txt"
        for _ in range(1500):
            if effects.exists() and effects.read_text():
                break
            await asyncio.sleep(0.02)
        others = asyncio.create_task(called(services, clients, 1, "sh", command))
        child.send_signal(ending)
        first, second = await others
        if ending is signal.SIGSTOP:
            child.send_signal(signal.SIGCONT)
            # It finds that its call is somebody else's by now, and tells what became of it.
            assert (await lost).body == first.body
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
    assert (first.status, first.outcome, second) == (500, "indeterminate:500", first)
    assert effects.read_text().split() == ["begun"]
