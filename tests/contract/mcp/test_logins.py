"""Servers that want OAuth: a real authorization server, the bridge's logins, and what becomes of their tokens."""

import asyncio
import json
import stat
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import grpc
import httpx
import pytest
import pytest_asyncio
from google.rpc import error_details_pb2
from turnwright.tool.v1 import login_service_pb2 as pb
from turnwright.tool.v1 import login_service_pb2_grpc

from contract.mcp.bridging import bridging, oauth_server, text
from turnwright_core.rpc.errors import status_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(180)]

LEADS_NOWHERE = {"issuer": "", "endpoint": ""}
REDIRECT = "http://127.0.0.1:7449/callback"


class Guarded:
    """The server, and the logins at it by way of the bridge."""

    def __init__(self, root, bridge, url, channel):
        self.root, self.bridge, self.url = root, bridge, url
        self.registration = {"url": f"{url}/mcp"}
        self.stub = login_service_pb2_grpc.LoginServiceStub(channel)

    async def step(self, shared=True, project=None, registration=None, **step):
        [(name, given)] = step.items()
        whose = self.bridge.services.project if project is None else project
        request = pb.LoginRequest(**{name: {"project": whose, "server": "server", **given}})
        metadata = self.bridge.metadata(registration or self.registration, shared=shared)
        return (await self.stub.Login(request, metadata=metadata, timeout=60)).begun

    async def refused(self, **step):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await self.step(**step)
        return refused.value

    async def opened(self, address):
        """Where a browser is sent that opens an address."""
        async with httpx.AsyncClient() as browser:
            return (await browser.get(address)).headers["location"]

    async def log_in(self, **more):
        begun = await self.step(begin={"redirect": REDIRECT}, **more)
        back = await self.opened(begun.address)
        await self.step(complete={"login": begun.login, "callback": back}, **more)

    async def control(self, **how):
        async with httpx.AsyncClient() as client:
            (await client.get(f"{self.url}/control", params=how)).raise_for_status()

    async def seen(self):
        async with httpx.AsyncClient() as client:
            return (await client.get(f"{self.url}/seen")).json()

    async def whoami(self, **more):
        return text(await self.bridge.dispatch(self.registration, "whoami", **more)).strip()

    async def needs_login(self, **more):
        error = await self.bridge.refused(self.registration, "whoami", **more)
        return reason(error) == "LOGIN_NEEDED"


def reason(error):
    info = error_details_pb2.ErrorInfo()
    assert status_of(error).details[0].Unpack(info)
    return info.reason


@asynccontextmanager
async def guarded(root, **settings):
    async with (
        oauth_server() as url,
        bridging(root, **settings) as bridge,
        grpc.aio.insecure_channel(f"unix:{root}/mcp.sock") as channel,
    ):
        yield Guarded(root, bridge, url, channel)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def serving(tmp_path_factory):
    async with guarded(tmp_path_factory.mktemp("logins"), mcp_hosts="127.0.0.1") as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def server(serving):
    """Where nobody has logged in, and everything is granted."""
    for shared in (True, False):
        await serving.step(shared=shared, end={})
    await serving.control(expires_in="3600", authorize="grants", refresh="grants", exchange="grants", **LEADS_NOWHERE)
    return serving


def kept(server, folder="_shared"):
    return server.root / "home" / "mcp-secrets" / folder / "oauth-server.json"


async def test_a_server_that_wants_oauth_is_usable_after_a_login(server):
    assert await server.needs_login()
    with pytest.raises(grpc.aio.AioRpcError) as listed:
        await server.bridge.describe(server.registration)
    assert reason(listed.value) == "LOGIN_NEEDED"
    assert "turnwright mcp login server --deployment" in listed.value.details()
    before = await server.seen()
    await server.log_in()
    assert await server.whoami() == "somebody who has logged in"
    assert [one.name for one in (await server.bridge.describe(server.registration)).tools] == ["whoami"]
    after = await server.seen()
    assert after["registered"] == before["registered"] + 1
    assert after["exchanged"] == before["exchanged"] + 1
    assert stat.S_IMODE(kept(server).stat().st_mode) == 0o600
    assert stat.S_IMODE(kept(server).parent.stat().st_mode) == 0o700


async def test_a_token_is_renewed_before_and_when_it_ends(server):
    # It has ended by the time that it is there.
    await server.control(expires_in="1")
    await server.log_in()
    before = await server.seen()
    assert await server.whoami() == "somebody who has logged in"
    assert (await server.seen())["refreshed"] > before["refreshed"]
    await server.control(expires_in="3600")
    assert await server.whoami() == "somebody who has logged in"
    # The server does not take it any more, whatever was said of its end; what was renewed is kept.
    before = await server.seen()
    first = kept(server).read_text()
    await server.control(forget="1")
    assert await server.whoami() == "somebody who has logged in"
    assert (await server.seen())["refreshed"] == before["refreshed"] + 1
    assert kept(server).read_text() != first
    assert stat.S_IMODE(kept(server).stat().st_mode) == 0o600


async def test_calls_at_once_renew_a_token_once(server):
    await server.log_in()
    await server.whoami()
    before = await server.seen()
    login = json.loads(kept(server).read_text())
    kept(server).write_text(json.dumps({**login, "ends_s": 0}))
    assert set(await asyncio.gather(*(server.whoami() for _ in range(5)))) == {"somebody who has logged in"}
    after = await server.seen()
    # A second use of a token that counts once would end the login at many servers.
    assert after["asked"] == before["asked"] + 1
    assert after["refreshed"] == before["refreshed"] + 1


async def test_a_login_that_has_ended_is_told_and_can_be_made_again(server):
    await server.log_in()
    assert await server.whoami() == "somebody who has logged in"
    await server.control(forget="1", refresh="refuses")
    assert await server.needs_login()
    await server.log_in()
    assert await server.whoami() == "somebody who has logged in"


async def test_a_refusal_and_a_wrong_return_leave_nothing(server):
    await server.control(authorize="refuses")
    begun = await server.step(begin={"redirect": REDIRECT})
    back = await server.opened(begun.address)
    error = await server.refused(complete={"login": begun.login, "callback": back})
    assert (reason(error), "access_denied" in error.details()) == ("LOGIN_NEEDED", True)
    await server.control(authorize="grants")
    begun = await server.step(begin={"redirect": REDIRECT})
    back = await server.opened(begun.address)
    # Neither what belongs to another login, nor the id of one that somebody guesses.
    foreign = back.replace("state=", "state=x")
    error = await server.refused(complete={"login": "guessed", "callback": back})
    assert reason(error) == "ENTRY_NOT_FOUND"
    error = await server.refused(complete={"login": begun.login, "callback": foreign})
    assert reason(error) == "LOGIN_NEEDED"
    assert "the address belongs to another login: log in again" in error.details()
    [state] = parse_qs(urlsplit(begun.address).query)["state"]
    assert state not in error.details()
    # It counts once.
    error = await server.refused(complete={"login": begun.login, "callback": back})
    assert reason(error) == "ENTRY_NOT_FOUND"
    error = await server.refused(begin={"redirect": "http://elsewhere.example/callback"})
    assert "redirect" in error.details()
    assert not kept(server).exists()


async def test_a_logout_revokes_and_deletes(server):
    await server.log_in()
    await server.whoami()
    before = await server.seen()
    await server.step(end={})
    assert (await server.seen())["revoked"] == before["revoked"] + 2
    assert not kept(server).exists()
    assert await server.needs_login()


async def test_a_project_and_the_deployment_have_logins_of_their_own(server):
    project = server.bridge.services.project
    await server.log_in(shared=False)
    assert kept(server, f"project-{project}").exists()
    assert not kept(server).exists()
    assert await server.whoami(shared=False) == "somebody who has logged in"
    assert await server.needs_login()
    # Of the deployment: for all projects, and named by none.
    await server.log_in(project="")
    assert await server.whoami() == "somebody who has logged in"
    error = await server.refused(project="", shared=False, begin={"redirect": REDIRECT})
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_token_goes_only_where_somebody_has_logged_in(server):
    await server.log_in()
    await server.whoami()
    reached = []

    async def listen(reader, writer):
        reached.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        error = await server.bridge.refused({"url": f"http://127.0.0.1:{port}/mcp"}, "whoami")
        assert reason(error) == "LOGIN_NEEDED"
    assert reached
    assert b"authorization" not in b"".join(reached).lower()


@pytest.mark.parametrize("named", ["issuer", "authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_a_projects_server_leads_to_no_other_host(server, named):
    reached = []

    async def listen(reader, writer):
        reached.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.2", 0) as other:
        elsewhere = f"http://127.0.0.2:{other.sockets[0].getsockname()[1]}"
        how = {"issuer": elsewhere} if named == "issuer" else {"endpoint": json.dumps({named: f"{elsewhere}/x"})}
        await server.control(**how)
        login = ""
        try:
            begun = await server.step(shared=False, begin={"redirect": REDIRECT})
            login, back = begun.login, await server.opened(begun.address)
            await server.step(shared=False, complete={"login": login, "callback": back})
            raise AssertionError(begun.address)
        except grpc.aio.AioRpcError as error:
            why = error.details()
        assert "TURNWRIGHT_MCP_HOSTS" in why
        assert bool(login) == (named == "token_endpoint")
        assert not reached


async def test_a_token_is_sent_by_https_or_within_the_host(server):
    await server.control(endpoint=json.dumps({"authorization_endpoint": "http://login.example.com/authorize"}))
    error = await server.refused(begin={"redirect": REDIRECT})
    assert "https only" in error.details()
    error = await server.refused(registration={"url": "http://mcp.example.com/mcp"}, begin={"redirect": REDIRECT})
    assert "https only" in error.details()


async def test_nothing_secret_is_told(server, capfd, caplog):
    begun = await server.step(begin={"redirect": REDIRECT})
    back = await server.opened(begun.address)
    await server.control(exchange="refuses")
    error = await server.refused(complete={"login": begun.login, "callback": back})
    assert "does not give a token (HTTP 400)" in error.details()
    code = back.partition("code=")[2].partition("&")[0]
    await server.control(exchange="grants")
    await server.log_in()
    await server.whoami()
    login = json.loads(kept(server).read_text())
    await server.control(forget="1", refresh="refuses")
    again = await server.bridge.refused(server.registration, "whoami")
    told = "\n".join((error.details(), again.details(), *capfd.readouterr(), caplog.text))
    for secret in (code, "access-", "refresh-", login["client"]["client_secret"]):
        assert secret not in told


async def test_a_client_that_was_registered_by_hand_is_used(server):
    await server.log_in()
    client = json.loads(kept(server).read_text())["client"]
    before = await server.seen()
    given = {"client_id": client["client_id"], "client_secret": client["client_secret"]}
    begun = await server.step(begin={"redirect": REDIRECT, **given})
    assert f"client_id={client['client_id']}" in begun.address
    back = await server.opened(begun.address)
    await server.step(complete={"login": begun.login, "callback": back})
    assert (await server.seen())["registered"] == before["registered"]
    assert await server.whoami() == "somebody who has logged in"


async def test_a_server_elsewhere_leads_to_no_address_of_this_host(server):
    await server.log_in()
    login = json.loads(kept(server).read_text())
    elsewhere = {"url": "https://mcp.example.com/mcp"}
    kept(server).write_text(json.dumps({**login, **elsewhere}))
    before = await server.seen()
    await server.step(registration=elsewhere, end={})
    # Its authorization server has named a way to revoke tokens at this host: nothing is sent there.
    assert await server.seen() == before
    assert not kept(server).exists()


async def test_logouts_at_once_end_each_session_once(server):
    await server.log_in()
    await server.whoami()
    await server.bridge.dispatch({**server.registration, "effects": {"*": "read_only"}}, "whoami")
    await asyncio.gather(*(server.step(end={}) for _ in range(3)))
    assert await server.needs_login()


async def test_of_logins_at_once_one_counts(server):
    beginning = (server.step(begin={"redirect": REDIRECT}) for _ in range(3))
    begun = await asyncio.gather(*beginning, return_exceptions=True)
    refused = [reason(one) for one in begun if isinstance(one, grpc.aio.AioRpcError)]
    assert refused == ["LOGIN_NEEDED"] * len(refused)
    returned = [
        {"login": one.login, "callback": await server.opened(one.address)}
        for one in begun
        if not isinstance(one, grpc.aio.AioRpcError)
    ]
    # Each is sent twice, as a browser does whose page is loaded again.
    completing = (server.step(complete=one) for one in returned * 2)
    ended = await asyncio.gather(*completing, return_exceptions=True)
    refused = [reason(one) for one in ended if isinstance(one, grpc.aio.AioRpcError)]
    assert refused == ["ENTRY_NOT_FOUND"] * (len(ended) - 1)
    assert await server.whoami() == "somebody who has logged in"
