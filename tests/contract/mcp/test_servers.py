"""MCP servers in their places: the sandbox, their environment and secrets, HTTP, and what two projects see of each other."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from contract.mcp.bridging import HOSTILE, bridging, hostile, text
from needs import needs
from ports import free_ports

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(180)]

REFUSED = grpc.StatusCode.FAILED_PRECONDITION


def secret(tmp_path, folder, name, value):
    place = tmp_path / "home" / "mcp-secrets" / folder
    place.mkdir(parents=True, exist_ok=True)
    (place / name).touch(mode=0o600)
    (place / name).write_text(value)


async def test_a_program_gets_its_variables_and_secrets_and_nothing_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "ours")
    async with bridging(tmp_path) as bridge:
        secret(tmp_path, "_shared", "KEY", "shared-key\n")
        secret(tmp_path, f"project-{bridge.services.project}", "KEY", "project-key\n")
        server = hostile("environment", env={"A": "x ${KEY}"})
        seen = json.loads(text(await bridge.dispatch(server)))
        assert seen["environ"]["A"] == "x shared-key"
        assert "OPENAI_API_KEY" not in seen["environ"]
        assert not [name for name in seen["environ"] if name.startswith("TURNWRIGHT_")]
        assert seen["cwd"] == "/"
        # A project's own server gets that project's secrets, and none of the operator's.
        seen = json.loads(text(await bridge.dispatch(server, shared=False)))
        assert seen["environ"]["A"] == "x project-key"
        assert seen["cwd"] == str(bridge.services.files)
        other = hostile("environment", env={"A": "${OTHER}"})
        secret(tmp_path, "_shared", "OTHER", "of the operator")
        error = await bridge.refused(other, shared=False)
        assert error.code() is REFUSED
        assert "OTHER" in error.details()
        assert "of the operator" not in error.details()


async def test_what_lies_in_a_project_takes_the_place_of_no_program_of_the_operators(tmp_path):
    async with bridging(tmp_path) as bridge:
        secret(tmp_path, "_shared", "KEY", "shared-key")
        secret(tmp_path, f"project-{bridge.services.project}", "KEY", "project-key")
        shutil.copy(HOSTILE, bridge.services.files / "planted.py")
        server = {"command": sys.executable, "args": ["-m", "planted", "environment"], "env": {"A": "${KEY}"}}
        assert "No module named" in (await bridge.refused(server)).details()
        # The project's own may: it has nothing but what is that project's.
        seen = json.loads(text(await bridge.dispatch(server, shared=False)))
        assert seen["environ"]["A"] == "project-key"
        named = {"command": sys.executable, "args": ["${PROJECT}/planted.py", "environment"]}
        assert json.loads(text(await bridge.dispatch(named)))["cwd"] == "/"


@needs("bubblewrap", "install bwrap", there=shutil.which("bwrap"))
async def test_a_program_is_confined_like_a_command(tmp_path):
    readable = ":".join((str(Path(__file__).parent), sys.prefix, sys.base_prefix))
    async with bridging(tmp_path, sh_sandbox="bubblewrap", sh_readable=readable) as bridge:
        (tmp_path / "beside.txt").write_text("not to be seen")
        seen = json.loads(text(await bridge.dispatch(hostile("environment"), shared=False)))
        assert "project" in seen["up"]
        assert "beside.txt" not in seen["up"]
        assert seen["cwd"] == str(bridge.services.files)


async def test_two_projects_have_two_programs(tmp_path):
    async with bridging(tmp_path) as bridge:
        first, second = tmp_path / "project", tmp_path / "other"
        second.mkdir()
        other = await bridge.services.client_project(second)
        server = hostile("environment")
        here = json.loads(text(await bridge.dispatch(server, shared=False)))
        there = json.loads(text(await bridge.dispatch(server, shared=False, project=other)))
        assert (here["cwd"], there["cwd"]) == (str(first), str(second))


async def test_a_program_ends_with_its_process_and_when_nobody_uses_it(tmp_path):
    calls = tmp_path / "calls"
    async with bridging(tmp_path, mcp_idle_s=0.2) as bridge:
        server = hostile("environment")
        pid = os.getpid()
        before = set(children(pid))
        await bridge.dispatch(server)
        assert set(children(pid)) - before
        while set(children(pid)) - before:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.1)
        assert text(await bridge.dispatch(hostile("well", str(calls)))) == "done"
    assert not set(children(pid)) - before


def children(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += map(int, (task / "children").read_text().split())
    return found


async def test_no_more_programs_run_than_there_may(tmp_path):
    async with bridging(tmp_path, mcp_servers_max=1) as bridge:
        calls = tmp_path / "calls"
        slow = hostile("slow", str(calls), env={"SLOW_S": "1000"})
        going = asyncio.create_task(bridge.dispatch(slow, call_id="log://slow"))
        while not calls.exists():  # noqa: ASYNC110 - a file tells nothing
            await asyncio.sleep(0.02)
        error = await bridge.refused(hostile("silent"))
        assert error.code() is REFUSED
        assert "no more may be at a time" in error.details()
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        # One that rests makes room.
        assert text(await bridge.dispatch(hostile("well"))) == "done"
        assert text(await bridge.dispatch(hostile("garbage"))) == "done"


async def test_a_project_makes_room_for_its_own_server_with_its_own(tmp_path):
    pid = os.getpid()
    before = set(children(pid))
    async with bridging(tmp_path, mcp_servers_max=1, mcp_servers_all_max=2) as bridge:
        (tmp_path / "other").mkdir()
        other = await bridge.services.client_project(tmp_path / "other")
        await bridge.dispatch(hostile("well"), project=other)
        [of_other] = set(children(pid)) - before
        for kind in ("garbage", "environment"):
            await bridge.dispatch(hostile(kind))
        now = set(children(pid)) - before
        assert (of_other in now, len(now)) == (True, 2)


@contextlib.contextmanager
def http(*arguments):
    [port] = free_ports(1)
    command = [sys.executable, str(Path(__file__).parent / "http_server.py"), str(port), *arguments]
    with subprocess.Popen(command) as process:
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.send_signal(signal.SIGKILL)


async def answered(bridge, registration, tool, **more):
    """The events of a call of a server that is about to listen."""
    while True:
        try:
            return await bridge.dispatch(registration, tool, **more)
        except grpc.aio.AioRpcError as error:
            if error.code() is not REFUSED or "connection" not in error.details().lower():
                raise
            await asyncio.sleep(0.2)


async def test_a_server_by_http_is_called_with_its_headers(tmp_path):
    async with bridging(tmp_path) as bridge:
        secret(tmp_path, "_shared", "KEY", "sesame")
        with http("sesame") as url:
            server = {"url": url, "headers": {"x-key": "${KEY}"}}
            events = await answered(bridge, server, "echo", arguments='{"text": "hi"}')
            assert any(part.text.endswith(": hi") or ": hi" in part.structured for part in events[-1].result.parts)
            events = await bridge.dispatch(server, "count", arguments='{"to": 3}')
            assert "".join(one.progress.text for one in events) == "1 of 3: step 1\n2 of 3: step 2\n3 of 3: step 3\n"
            lost = await bridge.refused(server, "huge")
            assert lost.code() is grpc.StatusCode.UNAVAILABLE
            error = await bridge.refused({"url": url}, "echo", arguments='{"text": "hi"}')
            assert error.code() is REFUSED
            assert "wants a login (HTTP 401)" in error.details()


async def test_a_project_has_servers_only_at_hosts_that_the_operator_names(tmp_path):
    async with bridging(tmp_path, mcp_hosts="*.example.com") as bridge:
        for url in ("http://127.0.0.1:1/mcp", "http://example.com.evil.org/mcp", "http://169.254.169.254/"):
            error = await bridge.refused({"url": url}, shared=False)
            assert error.code() is REFUSED
            assert "TURNWRIGHT_MCP_HOSTS" in error.details()


@pytest.mark.parametrize(
    ("registration", "words"),
    [
        ({}, "either a command or a URL"),
        ({"command": "x", "url": "http://a"}, "either a command or a URL"),
        ({"command": "x", "shell": True}, "shell"),
        ({"url": "ftp://a"}, "https://"),
        ({"url": "https://me:key@a/"}, "no password"),
        ({"command": "x", "headers": {"a": "b"}}, "headers"),
        ({"command": "x", "effects": {"a": "safe"}}, "safe"),
        ({"command": "x", "start_s": 0}, "start"),
        ({"command": "/nowhere/x"}, "nowhere"),
    ],
)
async def test_a_wrong_registration_is_told_what_is_wrong(tmp_path, registration, words):
    async with bridging(tmp_path) as bridge:
        error = await bridge.refused(registration)
        assert error.code() is REFUSED
        assert words in error.details()


async def test_nobody_calls_without_the_secret_of_the_deployment(tmp_path):
    async with bridging(tmp_path) as bridge:
        metadata = [one for one in bridge.metadata(hostile("well")) if one[0] != "authorization"]
        from turnwright.tool.v1.tool_service_pb2 import DescribeRequest

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await bridge.stub.Describe(DescribeRequest(project="p"), metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_what_a_program_says_of_its_secrets_is_told_to_nobody(tmp_path):
    async with bridging(tmp_path) as bridge:
        secret(tmp_path, "_shared", "KEY", "shared-key\n")
        error = await bridge.refused(hostile("no-program", env={"KEY": "Bearer ${KEY}"}))
        assert "This is none: Bearer ***. I have no key." in error.details()
        # More than is kept of what it says, so that its beginning is gone; a part of it is a secret, too.
        secret(tmp_path, "_shared", "LONG", " ".join(map(str, range(5000))))
        secret(tmp_path, "_shared", "PART", "4998 4999")
        error = await bridge.refused(hostile("no-program", env={"KEY": "${LONG}", "PART": "${PART}"}))
        assert "it said: . I have no key." in error.details()
