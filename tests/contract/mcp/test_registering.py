"""`turnwright mcp`: servers of a project, by command and from its file, and what another project sees of them."""

import json
import sys

import pytest
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import stack
from contract.mcp.bridging import HOSTILE
from e2e.cli_process import Bench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, {"HOME": str(tmp_path)})


def test_a_server_is_added_checked_listed_and_removed(bench):
    added = bench.run("mcp", "add", "well", "--effect", "work", "read_only", "--", sys.executable, str(HOSTILE), "well")
    assert added.returncode == 0, added.stderr
    assert "well: 4 tools, of this project" in added.stdout
    tools = {one["name"]: one for one in map(json.loads, bench.run("tools", "--json").stdout.splitlines())}
    assert "asks" not in tools["well.work"]
    assert tools["well.die"]["asks"]
    assert f"well\t{sys.executable} {HOSTILE} well\toperator" in bench.run("mcp").stdout
    assert bench.run("mcp", "check", "well").returncode == 0
    common = bench.run("mcp", "add", "common", "--deployment", "--", "no-such-program")
    assert common.returncode == 0, common.stderr
    seen = bench.run("doctor")
    assert seen.returncode == 0, seen.stderr
    of_servers = seen.stdout.partition("servers of tools:")[2]
    assert "  well: 4 tools, of this project" in of_servers
    assert "  common: The MCP server common cannot be asked" in of_servers
    assert bench.run("mcp", "remove", "common", "--deployment").returncode == 0
    assert bench.run("mcp", "remove", "well").returncode == 0
    assert "well" not in bench.run("mcp").stdout
    unknown = bench.run("mcp", "check", "well")
    assert (unknown.returncode, "There is no server of tools 'well' for this project" in unknown.stderr) == (2, True)
    dead = bench.run("mcp", "add", "dead", "--", "no-such-program")
    assert (dead.returncode, "It is registered all the same" in dead.stdout) == (5, True)
    assert dead.stdout.startswith("  dead: The MCP server dead cannot be asked: its output has ended; it said: ")
    unsafe = bench.run("mcp", "add", "keyed", "--env", "API_KEY", "sk-1", "--", "none")
    assert (unsafe.returncode, "register ${NAME} in its place" in unsafe.stderr) == (2, True)
    wrong = bench.run("mcp", "add", "none")
    assert (wrong.returncode, "either a command" in wrong.stderr) == (2, True)


def test_the_file_of_a_project_is_read_only_when_its_owner_imports_it(bench):
    servers = {"Well-Kept": {"command": sys.executable, "args": [str(HOSTILE), "well"]}}
    (bench.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert "well_kept" not in bench.run("tools").stdout
    imported = bench.run("mcp", "import")
    assert imported.returncode == 0, imported.stderr
    assert f"well_kept\t{sys.executable} {HOSTILE} well\t" in imported.stdout
    assert "well_kept.work" in bench.run("tools").stdout
    (bench.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x", "sudo": True}}}))
    refused = bench.run("mcp", "import")
    assert (refused.returncode, "'sudo'" in refused.stderr) == (2, True)
    (bench.project / ".mcp.json").write_text("[" * 100_000)
    refused = bench.run("mcp", "import")
    assert (refused.returncode, "cannot be read as a list" in refused.stderr) == (2, True)
    keyed = {"command": "none\x1b[2J", "env": {"A": "x ${KEY}"}}
    (bench.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"well_kept": keyed}}))
    assert "well_kept\tnone\\x1b[2J (gets KEY)\t" in bench.run("mcp", "import").stdout


@pytest.mark.asyncio
async def test_another_project_sees_nothing_of_a_projects_server(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_SH_SANDBOX", "limits")
    registration = {"command": sys.executable, "args": [str(HOSTILE), "well"]}
    async with stack(tmp_path, monkeypatch, {}) as services:
        server = pb.ToolServer(name="mine", address="mcp", headers={"mcp": json.dumps(registration)})
        await services.client.add_tool_server(services.project, server)
        services.script(f"<mine.read/>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
        assert (await services.entry("log://turn_1/result/mine.read/1")).body == "done"
        other = await services.with_project("other")
        listed = await other.client.list_tools(other.project, check=True)
        assert not listed.servers
        assert not [one for one in listed.tools if one.origin == "mine"]
