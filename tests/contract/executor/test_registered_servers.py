"""Servers of tools that a project's owner registers: only where the operator allows, for nobody else, without a restart."""

from __future__ import annotations

import pytest
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb
from turnwright.executor.v1 import tools_pb2

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import Issues, served, stack
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def refused(awaitable) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as error:
        await awaitable
    return error.value


async def test_a_project_has_servers_of_its_own_and_nobody_elses(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "127.0.0.0/8")
    server = Issues()
    async with served(server) as address, stack(tmp_path, monkeypatch, {}) as services:
        client, project = services.client, services.project
        assert (await client.list_tools(project)).version == ""
        made = await client.add_tool_server(project, pb.ToolServer(name="mine", address=address))
        assert made.set_by == "operator"
        services.script(f'<mine.look title="a"/>{GO_ON}', DONE)
        assert (await services.until(await services.act())).status == 200
        assert len(server.calls) == 1
        other = await services.with_project("other")
        assert (await client.list_tools(other.project, check=True)).servers == []
        other.script(DONE)
        await other.until(await other.act(run="o"))
        error = await refused(client.call_tool(other.project, "o", "mine.look", {"title": "a"}))
        assert error.message.startswith("There is no tool 'mine.look'.")
        record = await client.call_tool(project, "r", "mine.look", {"title": "b"})
        assert record.body.startswith('saw {"title": "b"}')
        assert len(server.calls) == 2
        assert [one.name for one in await client.list_tool_servers(project)] == ["mine"]
        assert await client.list_tool_servers(other.project) == []
        assert await client.list_tool_servers("") == []
        await client.remove_tool_server(project, "mine")
        assert (await client.list_tools(project, check=True)).servers == []
        assert (await refused(client.remove_tool_server(project, "mine"))).reason is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("hosts", "address"),
    [
        ("", "127.0.0.1:7460"),
        ("10.0.0.0/8,public", "127.0.0.1:7460"),
        ("10.0.0.0/8", "localhost:7460"),
        ("public", "[::ffff:127.0.0.1]:7460"),
        ("public", "169.254.169.254:80"),
        ("*.example.com", "127.0.0.1:7460"),
        ("127.0.0.0/8", "unix:/run/tools.sock"),
        ("127.0.0.0/8", "dns:///127.0.0.1:7460"),
        ("127.0.0.0/8", "127.0.0.1"),
    ],
)
async def test_a_host_that_the_operator_does_not_allow_is_refused(tmp_path, monkeypatch, hosts, address):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", hosts)
    async with stack(tmp_path, monkeypatch, {}) as services:
        wanted = pb.ToolServer(name="mine", address=address)
        error = await refused(services.client.add_tool_server(services.project, wanted))
        assert error.reason is Reason.INVALID_FIELD
        assert await services.client.list_tool_servers(services.project) == []


async def test_a_host_that_is_not_allowed_any_more_is_not_called(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "127.0.0.0/8")
    server = Issues()
    async with served(server) as address, stack(tmp_path, monkeypatch, {}) as services:
        await services.client.add_tool_server(services.project, pb.ToolServer(name="mine", address=address))
        monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "10.0.0.0/8")
        await services.restart("executor")
        [state] = (await services.client.list_tools(services.project, check=True)).servers
        assert state.condition == tools_pb2.TOOL_SERVER_CONDITION_AWAY
        assert "TURNWRIGHT_TOOL_HOSTS" in state.problem
        assert state.tools == 0


async def test_the_deployments_servers_are_everybodys_and_their_names_win(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "127.0.0.0/8")
    async with served(Issues()) as one, served(Issues()) as two, stack(tmp_path, monkeypatch, {}) as services:
        await services.client.add_tool_server("", pb.ToolServer(name="issues", address=one))
        await services.client.add_tool_server(services.project, pb.ToolServer(name="issues", address=two))
        shared, own = (await services.client.list_tools(services.project, check=True)).servers
        assert (shared.shared, shared.address, shared.tools) == (True, one, 2)
        assert (own.shared, own.address, own.tools) == (False, two, 0)
        assert "give this one another name" in own.problem


@pytest.mark.parametrize("changed", ["address", "owner", "nothing"])
async def test_what_was_proposed_for_a_server_goes_to_no_other_with_its_name(tmp_path, monkeypatch, changed):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "127.0.0.0/8")
    meant, other = Issues(), Issues()
    async with served(meant) as one, served(other) as two, stack(tmp_path, monkeypatch, {}) as services:
        client, project = services.client, services.project
        whose = "" if changed == "owner" else project
        await client.add_tool_server(whose, pb.ToolServer(name="issues", address=one))
        services.script(f'<issues.create_issue title="a"/>{GO_ON}', DONE)
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
        await client.remove_tool_server(whose, "issues")
        again = two if changed == "address" else one
        await client.add_tool_server(project, pb.ToolServer(name="issues", address=again, headers={"x": "new"}))
        [proposal] = services.view().proposals.values()
        await client.resolve(project, "r", proposal.path, accept=True)
        assert (await services.until(queued)).status == 200
        record = await services.entry(proposal.path)
        is_called = changed == "nothing"
        assert (record.outcome, len(meant.calls)) == (("", 1) if is_called else ("conflict:409", 0))
        assert is_called or "A new task gets the tools of the one that is there now." in record.body
        assert not other.calls


async def test_secrets_go_to_the_servers_that_the_operator_names(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_TOOL_HOSTS", "127.0.0.0/8")
    monkeypatch.setenv("TRACKER_TOKEN", "Bearer of-the-tracker")
    more = '\n[secret.tracker]\nenv = "TRACKER_TOKEN"\nprojects = ["project"]\n'
    more += '[secret.others]\nenv = "TRACKER_TOKEN"\nprojects = ["other"]\n'
    server = Issues()
    seen = []

    @server.tool("who", "Says who calls.", effect_class="pure", open_world=False)
    async def who(call):
        seen.append(call)
        return "somebody"

    async with served(server) as address, stack(tmp_path, monkeypatch, {}, more) as services:
        for name, secret in (("a", "tracker"), ("b", "others"), ("c", "missing")):
            wanted = pb.ToolServer(name=name, address=address, secret_headers={"authorization": secret})
            await services.client.add_tool_server(services.project, wanted)
        states = {one.name: one for one in (await services.client.list_tools(services.project, check=True)).servers}
        assert {name: one.condition == tools_pb2.TOOL_SERVER_CONDITION_READY for name, one in states.items()} == {
            "a": True,
            "b": False,
            "c": False,
        }
        assert "has no [secret.others] for it" in states["b"].problem
