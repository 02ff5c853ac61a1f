"""Commands of others than the home's owner have no network and caches of their own. Architecture 6; ADR 69."""

from __future__ import annotations

import contextlib
import shutil
import socket
import sys

import pytest
from turnwright.types.v1 import rule_pb2, settings_pb2
from turnwright.types.v1.rule_pb2 import RULE_VERDICT_ALLOW

from contract.executor.proposing import DONE, GO_ON, person
from services import running
from turnwright_kit.sandbox import landlock

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(
        bool(landlock.problem()) and not shutil.which("bwrap"), reason="nothing confines commands on this host"
    ),
]

ACTS = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)
LOOK = """
import pathlib, socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
    print("reached", end=" ")
except OSError:
    print("kept", end=" ")
kept = pathlib.Path.home() / ".cache" / "kept"
print(kept.read_text() if kept.exists() else "nothing")
"""


@contextlib.asynccontextmanager
async def looking(tmp_path, monkeypatch):
    """A stack whose commands are confined, and the command that looks where it can get to."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    home = tmp_path / "user"
    (home / ".cache").mkdir(parents=True)
    (home / ".cache" / "kept").write_text("the owner's")
    monkeypatch.setenv("HOME", str(home))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with running(tmp_path, sh_sandbox="auto", sh_writable="~/.cache") as services:
            (services.files / "look.py").write_text(LOOK)
            yield services, f"{sys._base_executable} look.py {listening.getsockname()[1]}"


async def test_who_decides_is_the_person_behind_a_command(tmp_path, monkeypatch):
    async with looking(tmp_path, monkeypatch) as (services, command), person(services, "alice") as alice:
        told = []
        for client in (services.client, alice):
            run = f"r{len(told)}"
            services.script(f"<sh>{command}</sh>{GO_ON}", DONE)
            queued = await services.act(run=run, yolo=False)
            await services.until(queued, 202)
            [item] = [item async for item in services.client.list_proposals(services.project)]
            await client.resolve(services.project, run, item.proposal.path, accept=True)
            await services.until(queued)
            record = await services.entry(item.proposal.path, run)
            told.append((await services.entry(record.path.replace("log://turn_1/sh", "sh://turn_1") + "_1", run)).body)
        assert told == ["reached the owner's\n", "kept nothing\n"]
        assert (tmp_path / "home" / "caches").is_dir()


async def test_who_asked_is_the_person_behind_what_nobody_decides(tmp_path, monkeypatch):
    async with looking(tmp_path, monkeypatch) as (services, command), person(services, "alice") as alice:
        told = []
        for client in (services.client, alice):
            run = f"r{len(told)}"
            services.script(f"<sh>{command} > {run}.txt</sh>{GO_ON}", DONE)
            wanted = settings_pb2.LoopSettings(model="m", yolo=True)
            loop = await services.until(await client.act(services.project, "Look.", run=run, settings=wanted))
            told.append((loop.by, (services.files / f"{run}.txt").read_text()))
        assert told == [("operator", "reached the owner's\n"), ("alice", "kept nothing\n")]


async def test_what_the_owner_calls_is_the_owners(tmp_path, monkeypatch):
    async with looking(tmp_path, monkeypatch) as (services, command):
        services.script(DONE)
        await services.until(await services.act())
        record = await services.client.call_tool(services.project, "r", "sh", {}, command)
        assert record.outcome == ""
        found = [entry async for entry in services.client.list_entries(services.project, "r", "sh://**")]
        assert [entry.body for entry in found if entry.body] == ["reached the owner's\n"]


async def test_a_rule_of_the_project_allows_others_the_network(tmp_path, monkeypatch):
    async with looking(tmp_path, monkeypatch) as (services, command), person(services, "alice") as alice:
        program = command.partition(" ")[0]
        for network in (False, True):
            allowing = rule_pb2.Rule(verdict=RULE_VERDICT_ALLOW, tool="sh", target=f"{program} *", network=network)
            await services.client.set_rule(services.project, allowing)
            run = f"r{network}"
            services.script(f"<sh>{command}</sh>{GO_ON}", DONE)
            await services.until(await alice.act(services.project, "Look.", run=run, settings=ACTS))
            found = services.client.list_entries(services.project, run, "sh://**")
            bodies = [entry.body async for entry in found if entry.body]
            assert bodies == [f"{'reached' if network else 'kept'} nothing\n"]


@pytest.mark.parametrize("network", [False, True])
async def test_a_rule_of_the_project_allows_what_others_call_the_network(tmp_path, monkeypatch, network):
    async with looking(tmp_path, monkeypatch) as (services, command), person(services, "alice") as alice:
        services.script(DONE)
        await services.until(await services.act())
        program, seen = command.partition(" ")[0], set()
        for principal in ("bob", "alice"):
            allowing = rule_pb2.Rule(
                verdict=RULE_VERDICT_ALLOW, tool="sh", target=f"{program} *", network=network, principal=principal
            )
            await services.client.set_rule(services.project, allowing)
            await alice.call_tool(services.project, "r", "sh", {}, command)
            every = [entry async for entry in services.client.list_entries(services.project, "r", "sh://**")]
            new = [entry.body for entry in every if entry.body and entry.path not in seen]
            seen |= {entry.path for entry in every}
            assert new == [f"{'reached' if network and principal == 'alice' else 'kept'} nothing\n"]
