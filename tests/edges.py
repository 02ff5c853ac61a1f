"""The edge of deploy/envoy, a real Envoy with real certificates, in front of two executors of a stack."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from certificates import Authority
from ports import free_ports
from services import SECRET, Services
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.server import RunningServer

CONFIG = Path(__file__).parents[1] / "deploy" / "envoy" / "envoy.yaml"
ENVOY = Path(sys.executable).with_name("envoy")
ORIGIN = "https://agents.example.com"
WAIT_S = 60
IDLE_S = 3
PROXY = "spiffe://corp.example/ns/edge/sa/envoy"
"""Who the edge is to the executors."""


@dataclass
class Edge:
    """`address` is for everybody with a token, `mutual` also asks for a certificate of `clients`."""

    address: str
    mutual: str
    authority: Authority
    clients: Authority
    executors: list[RunningServer]


def configured(folder: Path, authority: Authority, clients: Authority, executors: list[str], ports: list[int]) -> Path:
    """The config of deploy/ with the addresses and files of a test."""
    edge, upstream = authority.issue(folder / "edge"), authority.issue(folder / "upstream", PROXY)
    made = subprocess.run(
        [sys.executable, CONFIG.with_name("descriptor.py")], capture_output=True, check=True, timeout=WAIT_S
    )
    (folder / "turnwright.binpb").write_bytes(made.stdout)
    text = CONFIG.read_text()
    for given, here in (
        ("/etc/envoy/tls/tls.crt", f"{edge}/cert.pem"),
        ("/etc/envoy/tls/tls.key", f"{edge}/key.pem"),
        ("/etc/envoy/clients/ca.crt", str(clients.file)),
        ("/etc/envoy/upstream/ca.crt", str(authority.file)),
        ("/etc/envoy/upstream/tls.crt", f"{upstream}/cert.pem"),
        ("/etc/envoy/upstream/tls.key", f"{upstream}/key.pem"),
        ("/etc/envoy/turnwright.binpb", f"{folder}/turnwright.binpb"),
        ("address: 0.0.0.0, port_value: 8443", f"address: 127.0.0.1, port_value: {ports[0]}"),
        ("address: 0.0.0.0, port_value: 8444", f"address: 127.0.0.1, port_value: {ports[1]}"),
        ("port_value: 9901", "port_value: 0"),
        # A call that lasts longer than the edge lets others be silent does so in a test's time.
        ("stream_idle_timeout: 60s", f"stream_idle_timeout: {IDLE_S}s"),
    ):
        assert given in text, given
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
async def edge(
    services: Services, observers: Sequence[grpc.aio.ServerInterceptor] = (), **executor: Any
) -> AsyncIterator[Edge]:
    """Two executors with TLS behind the edge, in place of the one of the stack; keywords are settings of theirs."""
    folder = services.root
    async with contextlib.AsyncExitStack() as stopping:
        authority, settings = await without_executor(services, stopping)
        servers = []
        for _ in range(2):
            read = ExecutorSettings(**settings, **executor)
            server = RunningServer(build_executor(read, SECRET), "127.0.0.1:0", SECRET, 1.0, observers)
            await server.start()
            stopping.push_async_callback(server.stop)
            servers.append(server)
        clients = Authority(folder / "clients.pem")
        addresses = await envoy(folder, authority, clients, [server.address for server in servers], stopping)
        yield Edge(*addresses, authority, clients, servers)


@contextlib.asynccontextmanager
async def edge_of_processes(services: Services) -> AsyncIterator[tuple[Edge, list[subprocess.Popen[bytes]]]]:
    """The same with executors that can be killed."""
    folder = services.root
    async with contextlib.AsyncExitStack() as stopping:
        authority, settings = await without_executor(services, stopping)
        ports = free_ports(2)
        processes = []
        for port in ports:
            given = {**settings, "listen": f"127.0.0.1:{port}", "home": str(settings["home"]), "lame_duck_s": "0"}
            env = {**os.environ, **{f"TURNWRIGHT_{name.upper()}": value for name, value in given.items()}}
            with (folder / f"executor-{port}.log").open("w") as log:
                process = subprocess.Popen([sys.executable, "-m", "turnwright_executor"], env=env, stderr=log)  # noqa: ASYNC220 - its start is what takes no time
            stopping.callback(process.wait)
            stopping.callback(process.kill)
            processes.append(process)
        for port, process in zip(ports, processes, strict=True):
            await listening(port, process)
        clients = Authority(folder / "clients.pem")
        addresses = await envoy(folder, authority, clients, [f"127.0.0.1:{port}" for port in ports], stopping)
        yield Edge(*addresses, authority, clients, []), processes


async def without_executor(services: Services, stopping: contextlib.AsyncExitStack) -> tuple[Authority, dict[str, Any]]:
    """Stop the executor of the stack for a while; the authority of those in its place, and their settings."""
    folder = services.root
    authority = Authority(folder / "ca.pem")
    own = authority.issue(folder / "own")
    await services.stop("executor")
    stopping.push_async_callback(services.start, "executor")
    return authority, {
        "home": folder / "home", "token": SECRET, "log_level": "error", "sh_sandbox": "limits",
        **{name: services.addresses[name] for name in ("store", "provider", "assembler")},
        "tls_cert": f"{own}/cert.pem", "tls_key": f"{own}/key.pem", "tls_ca": str(authority.file),
    }  # fmt: skip


async def envoy(
    folder: Path,
    authority: Authority,
    clients: Authority,
    executors: list[str],
    stopping: contextlib.AsyncExitStack,
) -> list[str]:
    """Start it; its two addresses."""
    ports = free_ports(2)
    config = configured(folder, authority, clients, executors, ports)
    with (folder / "envoy.log").open("w") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - its start is what takes no time
            [ENVOY, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1"], stderr=log, stdout=log
        )
    stopping.callback(process.wait)
    stopping.callback(process.kill)
    for port in ports:
        await listening(port, process)
    return [f"127.0.0.1:{port}" for port in ports]


async def listening(port: int, process: subprocess.Popen[bytes]) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            assert process.poll() is None, "see envoy.log"
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.1)
