"""`turnwright mcp login` and `logout` against an executor: what a person sees and does, and who may."""

import asyncio
import json
import sqlite3
import sys
from contextlib import asynccontextmanager, closing

import httpx
import pytest
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb
from turnwright.executor.v1 import tools_pb2
from turnwright.types.v1 import grant_pb2

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import stack
from contract.mcp.bridging import oauth_server
from ports import free_ports
from services import SECRET, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(180)]

REDIRECT = "http://127.0.0.1:7449/callback"
LOGIN_NEEDED = tools_pb2.TOOL_SERVER_CONDITION_LOGIN_NEEDED


@asynccontextmanager
async def serving(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_SH_SANDBOX", "limits")
    monkeypatch.setenv("TURNWRIGHT_MCP_HOSTS", "127.0.0.1")
    async with oauth_server() as url, stack(tmp_path, monkeypatch, {}) as services:
        yield services, url


def guarded(url, name="guarded"):
    registration = {"url": f"{url}/mcp", "effects": {"*": "read_only"}}
    return pb.ToolServer(name=name, address="mcp", headers={"mcp": json.dumps(registration)})


async def started(services, *arguments):
    """A command of this deployment's, in the project's folder."""
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwright_cli", "mcp", *arguments, "--server", services.addresses["executor"]),
        stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT, cwd=services.files,
        env={"PATH": "/usr/bin:/bin", "TURNWRIGHT_HOME": str(services.root / "of-the-caller"), "TURNWRIGHT_TOKEN": SECRET},
    )  # fmt: skip


async def run(services, *arguments):
    process = await started(services, *arguments)
    async with asyncio.timeout(90):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def address_of(process):
    """What a command asks a person to open."""
    async with asyncio.timeout(90):
        while line := await process.stdout.readline():
            if line.strip().startswith(b"http"):
                return line.decode().strip()
    raise AssertionError


async def test_a_person_logs_in_uses_the_tools_and_logs_out(tmp_path, monkeypatch):
    async with serving(tmp_path, monkeypatch) as (services, url):
        await services.client.add_tool_server(services.project, guarded(url))
        [state] = (await services.client.list_tools(services.project, check=True)).servers
        assert state.condition == LOGIN_NEEDED
        assert "`turnwright mcp login guarded`" in state.problem
        code, listed = await run(services, "list")
        assert (code, "login needed" in listed) == (0, True)
        port = str(free_ports(1)[0])
        process = await started(services, "login", "guarded", "--port", port)
        address = await address_of(process)
        async with httpx.AsyncClient() as browser:
            # What else asks at this port is of no account.
            assert (await browser.get(f"http://127.0.0.1:{port}/callback?code=x&state=y")).status_code == 404
            page = await browser.get(address, follow_redirects=True)
        assert "go back to the terminal" in page.text
        output, _ = await process.communicate()
        assert (process.returncode, "1 tool, of this project" in output.decode()) == (0, True), output
        services.script(f"<guarded.whoami/>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
        assert "who has logged in" in (await services.entry("log://turn_1/result/guarded.whoami/1")).body
        code, listed = await run(services, "list")
        assert (code, "ready" in listed) == (0, True)
        assert (await run(services, "logout", "guarded"))[0] == 0
        [state] = (await services.client.list_tools(services.project, check=True)).servers
        assert state.condition == LOGIN_NEEDED
        # Without a browser on this host, and for all projects.
        await services.client.remove_tool_server(services.project, "guarded")
        await services.client.add_tool_server("", guarded(url, "common"))
        code, listed = await run(services, "list")
        assert (code, "common\t\tthe deployment\tlogin needed" in listed) == (0, True)
        code, refused = await run(services, "login", "common", "--paste")
        assert (code, "operators log in with --deployment" in refused) == (2, True)
        process = await started(services, "login", "common", "--paste", "--deployment")
        async with httpx.AsyncClient() as browser:
            back = (await browser.get(await address_of(process))).headers["location"]
        output, _ = await process.communicate(f"{back}\n".encode())
        assert (process.returncode, b"logged in" in output) == (0, True), output
        [state] = (await services.client.list_tools(services.project, check=True)).servers
        assert state.condition == tools_pb2.TOOL_SERVER_CONDITION_READY
        # Who has logged in and out, once each; what only began is no change.
        rows = [*await services.client.list_audit(services.project), *await services.client.list_audit("")]
        assert [(one.method, one.detail_json) for one in rows if "Login" in one.method] == [
            ("EndToolLogin", '{"server":"guarded"}'),
            ("CompleteToolLogin", '{"server":"guarded"}'),
            ("CompleteToolLogin", '{"server":"common"}'),
        ]
        told = [path.read_text(errors="replace") for path in tmp_path.rglob("*.log")]
        assert told
        assert not [one for one in (*told, listed, output.decode()) if "access-" in one or "refresh-" in one]


async def test_who_may_log_in(tmp_path, monkeypatch):
    async with serving(tmp_path, monkeypatch) as (services, url):
        await services.client.add_tool_server(services.project, guarded(url))
        await services.client.add_tool_server("", guarded(url, "common"))
        for name, role in (("owner", grant_pb2.GRANT_ROLE_OWNER), ("member", grant_pb2.GRANT_ROLE_MEMBER)):
            await services.client.set_grant(services.project, f"user:{name}", role)
        other = await services.with_project("other")

        async def refusal(name, project, server):
            async with Client.connect(services.addresses["executor"], token_for(name)) as client:
                with pytest.raises(TurnwrightError) as refused:
                    await client.begin_tool_login(project, server, REDIRECT)
                with pytest.raises(TurnwrightError) as ended:
                    await client.end_tool_login(project, server)
            assert ended.value.reason is refused.value.reason
            return refused.value.reason

        assert await refusal("member", services.project, "guarded") is Reason.RIGHT_MISSING
        # An owner has no say about what all projects have, nor another project about this one's.
        assert await refusal("owner", "", "common") is Reason.RIGHT_MISSING
        assert await refusal("owner", services.project, "common") is Reason.ENTRY_NOT_FOUND
        with pytest.raises(TurnwrightError) as refused:
            await services.client.begin_tool_login(other.project, "guarded", REDIRECT)
        assert refused.value.reason is Reason.ENTRY_NOT_FOUND
        async with (
            Client.connect(services.addresses["executor"], token_for("owner")) as client,
            httpx.AsyncClient() as browser,
        ):

            async def log_in(guess=""):
                login, address = await client.begin_tool_login(services.project, "guarded", REDIRECT)
                back = (await browser.get(address)).headers["location"]
                await client.complete_tool_login(services.project, "guarded", guess or login, back)

            async def left():
                listed = await client.list_tools(services.project, check=True)
                [state] = [one for one in listed.servers if not one.shared]
                rows = await client.list_audit(services.project)
                return state.condition, [(one.principal, one.method) for one in rows if "Login" in one.method]

            with pytest.raises(TurnwrightError):
                await log_in("guessed")
            # No login counts without its row of the audit.
            with closing(sqlite3.connect(services.root / "home" / "turnwright.db", isolation_level=None)) as database:
                database.execute("CREATE TRIGGER full BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full'); END")
                with pytest.raises(TurnwrightError):
                    await log_in()
                database.execute("DROP TRIGGER full")
            assert await left() == (LOGIN_NEEDED, [])
            await log_in()
            assert await left() == (tools_pb2.TOOL_SERVER_CONDITION_READY, [("owner", "CompleteToolLogin")])
            # One that is removed keeps no login for who registers it again.
            async with Client.connect(services.addresses["executor"], token_for("member")) as member:
                with pytest.raises(TurnwrightError):
                    await member.remove_tool_server(services.project, "guarded")
            assert (await left())[0] == tools_pb2.TOOL_SERVER_CONDITION_READY
            await client.remove_tool_server(services.project, "guarded")
            await client.add_tool_server(services.project, guarded(url))
            assert (await left())[0] == LOGIN_NEEDED
