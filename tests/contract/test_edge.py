"""The edge of deploy/envoy in front of two executors: TLS, gRPC, gRPC-Web with CORS, JSON, and an executor that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import ssl
import struct
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from turnwright.executor.v1 import query_pb2
from turnwright.types.v1 import settings_pb2

from certificates import Authority
from services import SECRET, running
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_core.entries import Tier
from turnwright_core.kit.auth import derive_token
from turnwright_core.kit.certificates import Tls
from turnwright_core.kit.server import RunningServer
from turnwright_core.runs import COMPLETED, LOOP_ENDED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor

pytestmark = pytest.mark.asyncio

CONFIG = Path(__file__).parents[2] / "deploy" / "envoy" / "envoy.yaml"
SERVICE = "turnwright.executor.v1.ExecutorService"
ORIGIN = "https://agents.example.com"
WAIT_S = 60
ENVOY = Path(sys.executable).with_name("envoy")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def configured(folder: Path, authority: Authority, executors: list[str], port: int) -> Path:
    """The config of deploy/ with the addresses and files of a test."""
    edge = authority.issue(folder / "edge")
    made = subprocess.run(
        [sys.executable, CONFIG.with_name("descriptor.py")], capture_output=True, check=True, timeout=60
    )
    (folder / "turnwright.binpb").write_bytes(made.stdout)
    text = CONFIG.read_text()
    for given, here in (
        ("/etc/envoy/tls/tls.crt", f"{edge}/cert.pem"),
        ("/etc/envoy/tls/tls.key", f"{edge}/key.pem"),
        ("/etc/envoy/upstream/ca.crt", str(authority.file)),
        ("/etc/envoy/turnwright.binpb", f"{folder}/turnwright.binpb"),
        ("address: 0.0.0.0, port_value: 8443", f"address: 127.0.0.1, port_value: {port}"),
        ("port_value: 9901", "port_value: 0"),
    ):
        assert given in text
        text = text.replace(given, here)
    endpoint = re.search(r"\n( +- endpoint: .*)", text)
    assert endpoint
    several = "\n".join(
        endpoint[1].replace("address: executor, port_value: 7440", "address: {}, port_value: {}".format(*at.split(":")))
        for at in executors
    )
    file = folder / "envoy.yaml"
    file.write_text(text.replace(endpoint[1], several))
    return file


@contextlib.asynccontextmanager
async def edge(tmp_path):
    """Two executors with TLS behind the edge: its address, the authority, and the servers."""
    authority = Authority(tmp_path / "ca.pem")
    own = authority.issue(tmp_path / "own")
    files = {"tls_cert": f"{own}/cert.pem", "tls_key": f"{own}/key.pem", "tls_ca": str(authority.file)}
    (tmp_path / "m.txt").write_text('=== reply chunk_chars=64 delay_ms=0 ===\n<update status="200">Done</update>\n')
    async with contextlib.AsyncExitStack() as stopping:
        services = await stopping.enter_async_context(running(tmp_path))
        await services.client.add_model("m", "scripted/m")
        peers = {name: services.addresses[name] for name in ("store", "provider", "assembler")}
        servers = []
        for _ in range(2):
            settings = ExecutorSettings(
                home=tmp_path / "home", token=SECRET, log_level="error", sh_sandbox="limits", **peers, **files
            )
            server = RunningServer(build_executor(settings, SECRET), "127.0.0.1:0", SECRET, 1.0)
            await server.start()
            stopping.push_async_callback(server.stop)
            servers.append(server)
        port = free_port()
        config = configured(tmp_path, authority, [server.address for server in servers], port)
        with (tmp_path / "envoy.log").open("w") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - its start is what takes no time
                [ENVOY, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1"], stderr=log, stdout=log
            )
        stopping.callback(process.wait)
        stopping.callback(process.kill)
        await ready(port, process)
        yield f"127.0.0.1:{port}", authority, servers, services.project


async def ready(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            assert process.poll() is None, "see envoy.log"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)


def headers(kind: str) -> dict[str, str]:
    return {"authorization": f"Bearer {derive_token(SECRET, Tier.CLIENT, 'web')}", "content-type": kind}


async def test_a_client_works_through_the_edge_and_goes_on_when_an_executor_is_gone(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        address, authority, servers, project = await stack.enter_async_context(edge(tmp_path))
        tls = Tls(authorities=authority.file)
        client = await stack.enter_async_context(Client.connect(address, SECRET, 60, tls=tls))
        for round_ in range(2):
            wanted = settings_pb2.LoopSettings(model="m", yolo=True)
            queued = await client.act(project, "Do it.", run=f"r{round_}", settings=wanted)
            async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
                async for event in events:
                    if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                        assert loop.status == COMPLETED
                        break
            if not round_:
                await servers[0].stop()


async def test_json_and_web_pages_are_served(tmp_path):
    async with edge(tmp_path) as (address, authority, _, project):
        verify = ssl.create_default_context(cafile=str(authority.file))
        async with httpx.AsyncClient(base_url=f"https://{address}", verify=verify, timeout=60, http2=False) as web:
            listed = await web.post(
                f"/{SERVICE}/ListRuns", headers=headers("application/json"), json={"project": project}
            )
            assert listed.status_code == 200, listed.text
            assert isinstance(listed.json(), dict)
            missing = await web.post(
                f"/{SERVICE}/GetRun", headers=headers("application/json"), json={"project": project, "run": "nobody"}
            )
            assert missing.status_code == 404
            assert "RUN_NOT_FOUND" in json.dumps(missing.json())
            refused = await web.post(f"/{SERVICE}/ListRuns", headers={"content-type": "application/json"}, json={})
            assert refused.status_code == 401

            asked = query_pb2.ListRunsRequest(project=project).SerializeToString()
            framed = struct.pack(">BI", 0, len(asked)) + asked
            web_headers = {**headers("application/grpc-web+proto"), "origin": ORIGIN, "x-grpc-web": "1"}
            answered = await web.post(f"/{SERVICE}/ListRuns", headers=web_headers, content=framed)
            assert answered.status_code == 200
            assert answered.headers["access-control-allow-origin"] == ORIGIN
            assert b"grpc-status:0" in answered.content

            preflight = {"origin": ORIGIN, "access-control-request-method": "POST",
                         "access-control-request-headers": "authorization,content-type,x-grpc-web"}  # fmt: skip
            allowed = await web.options(f"/{SERVICE}/ListRuns", headers=preflight)
            assert allowed.headers["access-control-allow-origin"] == ORIGIN
            stranger = await web.options(
                f"/{SERVICE}/ListRuns", headers={**preflight, "origin": "https://evil.example"}
            )
            assert "access-control-allow-origin" not in stranger.headers
