"""`turnwright mcp serve --http`: callers of different rights at one agent, by clients of the official SDK and by strangers."""

import asyncio
import contextlib
import json
import signal
from urllib.parse import urlsplit

import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from turnwright.types.v1 import grant_pb2

from e2e.cli_process import Bench
from services import SECRET, running, token_for
from turnwright_cli.exit_codes import FailureError
from turnwright_cli.mcp import serve
from turnwright_client import Client as TurnwrightClient
from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.certificates import Tls
from turnwright_core.runs import RUNNING
from turnwright_mcp.agent import AgentTools
from turnwright_mcp.agent_http import BODY_BYTES_MAX, AgentPort, open_agent

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

MEMBER, VIEWER = grant_pb2.GRANT_ROLE_MEMBER, grant_pb2.GRANT_ROLE_VIEWER
ALICE, VERA, MALLORY = (token_for(name) for name in ("alice", "vera", "mallory"))
SESSIONS_MAX, CALLER_SESSIONS_MAX = 8, 5
KINDS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
BEGIN = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "stranger", "version": "1"},
}


class Served:
    """The agent's address, and requests of nobody in particular."""

    def __init__(self, services, url, http):
        self.services, self.url, self.http = services, url, http

    @contextlib.asynccontextmanager
    async def client(self, token, **more):
        headers = {"authorization": f"Bearer {token}"}
        async with (
            asyncio.timeout(120),
            httpx2.AsyncClient(headers=headers, timeout=100, trust_env=False) as http,
            Client(streamable_http_client(self.url, http_client=http), **more) as made,
        ):
            yield made

    async def ask(self, method="initialize", params=BEGIN, *, http_method="POST", url="", **headers):
        """The answer to a request as it stands."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        return await self.http.request(http_method, url or self.url, headers={**KINDS, **given}, content=body)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as patch:
        for model in ("m", "w"):
            patch.setenv(f"TURNWRIGHT_MODEL_{model}", f"scripted/{model}")
        async with running(root) as services:
            await services.client.delete_grant(services.project, "*")
            await services.client.set_grant(services.project, "user:alice", MEMBER)
            await services.client.set_grant(services.project, "user:vera", VIEWER)
            services.script('<update status="200">Done.</update>')
            (root / "w.txt").write_text("=== reply chunk_chars=1 delay_ms=3600000 ===\nNever.\n")
            tools = AgentTools(services.client, services.project, "m")
            url, is_over = asyncio.get_running_loop().create_future(), asyncio.Event()

            # A task of its own: what is set up and what is torn down are different ones.
            async def serve_it():
                at = AgentPort("127.0.0.1", 0, ["agents.example.com"], SESSIONS_MAX, CALLER_SESSIONS_MAX)
                async with open_agent(tools, at, Tls()) as found:
                    url.set_result(found)
                    await is_over.wait()

            serving = asyncio.create_task(serve_it())
            async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
                yield Served(services, await url, http)
            is_over.set()
            await serving


def words(answer):
    return answer.content[0].text


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_each_caller_has_its_own_rights_at_the_same_time(served, mode):
    async with (
        served.client(ALICE, mode=mode) as alice,
        served.client(VERA, mode=mode) as vera,
        served.client(MALLORY, mode=mode) as mallory,
    ):
        task = {"prompt": "Do it.", "wait_s": 100}
        done, looked, refused, nothing = await asyncio.gather(
            alice.call_tool("act", task),
            vera.call_tool("runs", {}),
            vera.call_tool("act", task),
            mallory.call_tool("runs", {}),
        )
        assert done.structured_content["answer"] == "Done."
        assert not looked.is_error
        assert refused.is_error
        assert nothing.is_error
        assert "no project" in words(nothing)
        run = done.structured_content["run"]
        assert run in [one["run"] for one in (await vera.call_tool("runs", {})).structured_content["runs"]]
        assert (await served.services.client.get_run(served.services.project, run)).run.loop.by == "alice"


def bearer(token):
    return {"authorization": f"Bearer {token}"}


async def test_nobody_is_let_in_without_a_token_of_the_executor(served):
    strangers = [
        {},
        {"authorization": "Bearer"},
        {"authorization": f"Basic {ALICE}"},
        bearer("none"),
        bearer(f"{ALICE}\t."),
        {"authorization": f"Bearer {ALICE}\xe9".encode("latin-1")},
        bearer(token_for("alice", audience="store")),
        bearer(token_for("alice", secret="another")),
    ]
    session = await began(served, ALICE)
    for headers in strangers:
        for verb in ("POST", "GET", "DELETE"):
            refused = await served.ask("tools/list", {}, http_method=verb, **session, **headers)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer"), headers
    assert await ended(served, ALICE, session) == 200


async def test_pages_of_others_are_refused_under_whatever_name(served):
    table = [
        ({"host": "evil.example.com"}, 421),
        ({"host": "127.0.0.1.evil.example.com:80"}, 421),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        # The request has no session and no envelope: who gets so far is told that.
        ({"host": "localhost", "origin": "http://localhost:7447"}, 400),
        ({"host": "agents.example.com", "origin": "https://agents.example.com"}, 400),
    ]
    for version in ("2025-06-18", "2026-07-28"):
        for headers, status in table:
            answer = await served.ask("tools/list", {}, mcp_protocol_version=version, **bearer(ALICE), **headers)
            assert answer.status_code == status, (version, headers, answer.text)


async def began(served, token):
    answer = await served.ask(**bearer(token))
    assert answer.status_code == 200, answer.text
    return {"mcp_session_id": answer.headers["mcp-session-id"]}


async def ended(served, token, session):
    return (await served.ask(http_method="DELETE", **bearer(token), **session)).status_code


@pytest.mark.parametrize("name", ["vera", "alice"])
async def test_a_session_is_found_only_with_the_token_that_began_it(served, name):
    token = token_for(name)
    session = await began(served, ALICE)
    for verb in ("POST", "GET", "DELETE"):
        stranger = await served.ask("tools/list", {}, http_method=verb, **bearer(token), **session)
        assert stranger.status_code == 404, stranger.text
    assert (await served.ask("tools/list", {}, **bearer(ALICE), **session)).status_code == 200
    assert await ended(served, ALICE, session) == 200
    assert (await served.ask("tools/list", {}, **bearer(ALICE), **session)).status_code == 404


async def test_sessions_and_bodies_are_bounded(served):
    # One caller leaves room to others, also with several tokens, and with requests at once.
    tokens = [(ALICE, token_for("alice"))[number % 2] for number in range(SESSIONS_MAX)]
    answers = await asyncio.gather(*(served.ask(**bearer(token)) for token in tokens))
    refused = [one for one in answers if one.status_code != 200]
    assert [one.status_code for one in refused] == [429] * (SESSIONS_MAX - CALLER_SESSIONS_MAX)
    assert "5 sessions open" in refused[0].json()["message"]
    others = [(VERA, await began(served, VERA)) for _ in range(SESSIONS_MAX - CALLER_SESSIONS_MAX)]
    assert (await served.ask(**bearer(VERA))).status_code == 503
    # Who needs no session is not refused for that.
    async with served.client(ALICE, mode="auto") as alice:
        assert not (await alice.call_tool("runs", {})).is_error
    sessions = [
        (token, {"mcp_session_id": one.headers["mcp-session-id"]})
        for token, one in zip(tokens, answers, strict=True)
        if one.status_code == 200
    ]
    assert [await ended(served, *one) for one in (*sessions, *others)] == [200] * SESSIONS_MAX
    await ended(served, ALICE, await began(served, ALICE))
    # Its length is told, and nothing of it sent: what is sent and not read may cost the answer.
    reader, writer = await began_to_send(served, BODY_BYTES_MAX + 1)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
    writer.close()
    elsewhere = await served.ask(url=served.url.removesuffix("/mcp"), **bearer(ALICE))
    assert elsewhere.status_code == 404


async def began_to_send(served, length):
    """A connection with the head of a request."""
    place = urlsplit(served.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    head = [f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {ALICE}\r\n"]
    head += [f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"]
    writer.write("".join(head).encode())
    return reader, writer


async def test_what_one_caller_sends_at_once_is_bounded(served):
    async def until_answered(status):
        async with asyncio.timeout(60):
            while (await served.ask("tools/list", {}, **bearer(ALICE))).status_code != status:  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.05)

    # A byte of each is wanting, so that all are held.
    writers = [(await began_to_send(served, BODY_BYTES_MAX))[1] for _ in range(16)]
    for writer in writers:
        writer.write(b" " * (BODY_BYTES_MAX - 1))
    await until_answered(429)
    assert await ended(served, VERA, await began(served, VERA)) == 200
    for writer in writers:
        writer.close()
    await until_answered(400)


async def test_an_executor_that_is_away_is_no_wrong_token(served, tmp_path):
    async with (
        TurnwrightClient.connect(f"unix:{tmp_path}/none", "none") as client,
        open_agent(AgentTools(client, "none", "m"), AgentPort("::1", 0), Tls()) as url,
    ):
        assert url.startswith("http://[::1]:")
        assert (await served.ask(url=url, **bearer(ALICE))).status_code == 503


async def test_others_hosts_are_served_only_where_that_is_allowed(served):
    tools = AgentTools(served.services.client, served.services.project, "m")
    everywhere = AgentPort("0.0.0.0", 0)
    with pytest.raises(TurnwrightError, match="in plaintext"):
        async with open_agent(tools, everywhere, Tls()):
            pass
    async with open_agent(tools, everywhere, Tls(insecure=True)) as url:
        assert (await served.ask(url=url.replace("0.0.0.0", "127.0.0.1"))).status_code == 401
    with pytest.raises(FailureError, match="--http"):
        await serve(None, model=None, http=False, host=None, port=1, allow_host=())


@pytest.mark.slow
async def test_the_command_ends_when_told_and_tasks_go_on(served, tmp_path):
    services = served.services
    bench = Bench(tmp_path, {"TURNWRIGHT_TOKEN": SECRET})
    at = ("--server", services.addresses["executor"], "--project", str(services.files))
    with bench.running("mcp", "serve", *at, "--http", "--port", "0") as process:
        found = await asyncio.to_thread(process.wait_for, "^the agent is served at (http://127.0.0.1:.*)$", "err")
        there = Served(services, found[1], served.http)
        assert (await there.ask()).status_code == 401
        async with there.client(VERA) as vera:
            assert (await vera.call_tool("act", {"prompt": "Do it."})).is_error
        async with contextlib.AsyncExitStack() as leaving:
            calls = []
            for mode in ("auto", "legacy"):
                alice = await leaving.enter_async_context(there.client(ALICE, mode=mode))
                began = asyncio.Event()

                async def told(progress, total, message, began=began):
                    began.set()

                waits = {"prompt": "Wait.", "model": "w", "wait_s": 3000}
                calls.append(asyncio.create_task(alice.call_tool("act", waits, progress_callback=told)))
                await began.wait()
            listed = (await alice.call_tool("runs", {})).structured_content["runs"]
            running = [one["run"] for one in listed if one["status"] == "running"]
            assert len(running) == 2
            process.signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.end) == 0
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
    for run in running:
        assert (await services.client.get_run(services.project, run)).run.status == RUNNING
        await services.client.abort(services.project, run)
