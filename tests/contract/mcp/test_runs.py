"""MCP servers in runs: what an operator has registered in a file is offered, called, asked about, and recovered."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from turnwright.executor.v1 import tools_pb2

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import stack
from contract.mcp.bridging import HOSTILE
from ports import free_ports
from services import SECRET
from turnwright_client import pending_proposals
from turnwright_kit.server import RunningServer
from turnwright_mcp.config import McpSettings
from turnwright_mcp.wiring import build

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(180)]


def registered(kind, *more, **registration):
    """What the operator's file has of a server that misbehaves."""
    return {"mcp": {"command": sys.executable, "args": [str(HOSTILE), kind, *more], **registration}}


@pytest.fixture(autouse=True)
def _unconfined(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_SH_SANDBOX", "limits")


async def test_tools_of_a_server_are_listed_asked_about_and_called(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    async with stack(tmp_path, monkeypatch, {"well": registered("well", str(calls))}) as services:
        listed = await services.client.list_tools(services.project, check=True)
        tools = {tool.name: tool for tool in listed.tools if tool.origin == "well"}
        assert {name: tool.asks for name, tool in tools.items()} == {
            "well.work": True, "well.idempotent": True, "well.read": False, "well.die": True,
        }  # fmt: skip
        assert tools["well.work"].source == tools_pb2.TOOL_SOURCE_SERVER
        services.script(f"<well.read/><well.work/>{GO_ON}", DONE)
        queued = await services.act(yolo=False)
        assert (await services.until(queued, 202)).status == 202
        assert calls.read_text().splitlines() == ["read"]
        [proposal] = services.view().proposals.values()
        await services.client.resolve(services.project, "r", proposal.path, accept=True)
        assert (await services.until(queued)).status == 200
        assert calls.read_text().splitlines() == ["read", "work"]
        assert (await services.entry("log://turn_1/result/well.work/2")).body == "done"


async def test_a_question_of_a_server_is_a_proposal(tmp_path, monkeypatch):
    server = registered("asks", env={"QUESTIONS": "1"})
    async with stack(tmp_path, monkeypatch, {"asks": server}) as services:
        services.script(f"<asks.idempotent/>{GO_ON}", DONE)
        queued = await services.act(yolo=False)
        for comment in ("", '{"name": "Ann"}'):
            while not (waiting := await pending_proposals(services.client, services.project, "r")):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            [proposal] = waiting
            assert ("Name 1?" in proposal.body) == bool(comment)
            await services.client.resolve(services.project, "r", proposal.path, accept=True, comment=comment)
        assert (await services.until(queued)).status == 200
        record = await services.entry("log://turn_1/result/asks.idempotent/1")
        assert json.loads(record.body) == {"action": "accept", "content": {"name": "Ann"}}


async def test_a_server_that_cannot_start_costs_no_turn_and_is_told(tmp_path, monkeypatch):
    async with stack(tmp_path, monkeypatch, {"broken": registered("no-program")}) as services:
        services.script(DONE)
        assert (await services.until(await services.act())).status == 200
        [state] = (await services.client.list_tools(services.project, check=True)).servers
        assert state.condition == tools_pb2.TOOL_SERVER_CONDITION_AWAY
        assert "I have no key." in state.problem


async def test_a_check_waits_for_a_program_that_starts_slowly(tmp_path, monkeypatch):
    agent = {"acp": {"command": "none", "env": {"KEY": "${MISSING}"}}}
    async with stack(tmp_path, monkeypatch, {"late": registered("late"), "agent": agent}) as services:
        listed = await services.client.list_tools(services.project, check=True)
        late, keyless = sorted(listed.servers, key=lambda one: one.name, reverse=True)
        assert (late.condition, late.tools) == (tools_pb2.TOOL_SERVER_CONDITION_READY, 4), late.problem
        assert "the secret MISSING of agent cannot be read at" in keyless.problem


async def test_no_process_is_there_without_a_server(tmp_path, monkeypatch):
    async with stack(tmp_path, monkeypatch, {}) as services:
        services.script(DONE)
        assert (await services.until(await services.act())).status == 200
        assert not bridges()


async def test_a_bridge_that_runs_by_itself_is_called_where_the_setting_says(tmp_path, monkeypatch):
    """As in a container of its own: by a port, and without TLS where the deployment has none."""
    [port] = free_ports(1)
    monkeypatch.setenv("TURNWRIGHT_MCP", f"127.0.0.1:{port}")
    store = f"unix:{tmp_path}/store.sock"
    made = McpSettings(
        home=tmp_path / "mcp", store=store, sh_sandbox="limits", token=SECRET, log_level="error", drain_s=0.0
    )
    server = RunningServer(build(made, SECRET), f"127.0.0.1:{port}", SECRET, made.drain_s)
    async with stack(tmp_path, monkeypatch, {"well": registered("well")}) as services:
        await server.start()
        try:
            services.script(f"<well.work/>{GO_ON}", DONE)
            await services.client.list_tools(services.project, check=True)
            assert (await services.until(await services.act())).status == 200
            assert (await services.entry("log://turn_1/result/well.work/1")).body == "done"
            assert not bridges()
        finally:
            await server.stop()


def bridges():
    """The processes that call MCP servers for this one."""
    return [pid for pid in descendants(os.getpid()) if b"turnwright_mcp.beside" in command_of(pid)]


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("tool", ["idempotent", "work"])
async def test_what_calls_the_servers_is_killed_in_a_call(tmp_path, monkeypatch, tool):
    """A call that is idempotent is made again, one that is not never is, and the record of each is settled."""
    calls = tmp_path / "calls"
    server = registered("slow", str(calls), env={"SLOW_S": "3"})
    async with stack(tmp_path, monkeypatch, {"slow": server}) as services:
        services.script(f"<slow.{tool}/>{GO_ON}", DONE)
        queued = await services.act()
        while not calls.exists():  # noqa: ASYNC110 - a file tells nothing
            await asyncio.sleep(0.02)
        [bridge] = bridges()
        os.kill(bridge, signal.SIGKILL)
        assert (await services.until(queued)).status == 200
        record = await services.entry(f"log://turn_1/result/slow.{tool}/1")
        begun = calls.read_text().splitlines()
        if tool == "idempotent":
            assert begun == ["idempotent", "idempotent"], (record.outcome, record.body)
            assert (record.body, record.status) == ("done", 200)
        else:
            assert begun == ["work"]
            assert record.outcome.startswith("indeterminate")
