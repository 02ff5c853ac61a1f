"""Readiness is whether a service can do its work now; liveness is whether its process works."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec.structs import replace

from services import SECRET, running
from turnwright_cli.discovery import StackRecord, locate
from turnwright_core.errors import Reason, fault
from turnwright_kit.health import Health, check_ready
from turnwright_kit.peer import Peer
from turnwright_kit.server import Readiness, RunningServer
from turnwright_kit.service import Service
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build as build_store

pytestmark = pytest.mark.asyncio

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@contextlib.asynccontextmanager
async def watched(address: str, service: str = ""):
    """The statuses that a server tells, one after the other."""
    async with grpc.aio.insecure_channel(address) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service), timeout=120)

        async def status():
            return (await watch.read()).status

        yield status
        watch.cancel()


async def checked(address: str, service: str) -> int:
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=30)).status


@pytest.mark.parametrize(
    ("service", "name"),
    [
        ("executor", ""),
        ("assembler", "turnwright.assembler.v1.AssemblerService"),
    ],
)
async def test_who_lost_the_store_is_not_ready_and_lives_until_it_comes_back(tmp_path, service, name):
    async with running(tmp_path, look_every_s=0.2) as services, watched(services.addresses[service], name) as status:
        assert await status() == SERVING
        await services.stop("store")
        assert await status() == NOT_SERVING
        assert await checked(services.addresses[service], "liveness") == SERVING
        await services.start("store")
        assert await status() == SERVING


async def test_the_probe_of_containers_ends_with_what_it_finds(tmp_path):
    """deploy/healthcheck.py: 0 for a service that is ready, 1 with the reason for one that is not or is not there."""
    probe = Path(__file__).parents[2] / "deploy" / "healthcheck.py"

    async def found(address: str) -> tuple[int, bytes]:
        process = await asyncio.create_subprocess_exec(sys.executable, probe, address, stderr=asyncio.subprocess.PIPE)
        _, said = await process.communicate()
        return process.returncode, said

    async with running(tmp_path, look_every_s=0.2) as services, watched(services.addresses["executor"]) as status:
        ready, nobody = await asyncio.gather(found(services.addresses["executor"]), found(f"unix:{tmp_path}/none"))
        assert ready == (0, b"")
        assert nobody[0] == 1
        assert b"UNAVAILABLE" in nobody[1]
        assert await status() == SERVING
        await services.stop("store")
        assert await status() == NOT_SERVING
        code, said = await found(services.addresses["executor"])
        await services.start("store")
        assert code == 1
        assert b"NOT_SERVING" in said


async def test_an_executor_names_the_neighbour_that_is_away_and_needs_only_its_store(tmp_path):
    async with (
        running(tmp_path, look_every_s=0.2) as services,
        watched(services.addresses["executor"], "provider") as provider,
    ):
        assert await provider() == SERVING
        await services.stop("provider")
        assert await provider() == NOT_SERVING
        seen = {name: await checked(services.addresses["executor"], name) for name in ("", "store", "assembler")}
        assert seen == dict.fromkeys(seen, SERVING)
        await services.start("provider")
        assert await provider() == SERVING


async def test_an_executor_behind_a_store_that_is_not_ready_is_not_ready_either(tmp_path):
    is_away = asyncio.Event()

    async def ready() -> None:
        if is_away.is_set():
            raise fault(Reason.DATABASE_UNAVAILABLE, "The database is away.")

    async with running(tmp_path, look_every_s=0.2) as services:
        build = services.builds["store"]
        services.builds["store"] = lambda: replace(build(), ready=ready)
        await services.restart("store")
        async with watched(services.addresses["executor"]) as status:
            assert await status() == SERVING
            is_away.set()
            assert await status() == NOT_SERVING


async def test_one_look_that_fails_takes_no_service_out_of_use():
    begun, found = asyncio.Queue(), asyncio.Queue()

    async def ready() -> None:
        begun.put_nowait(None)
        if error := await found.get():
            raise error

    health = Health("some.Service")
    readiness = Readiness("store", ready, health, every_s=0, look_s_max=60)
    beginning = asyncio.create_task(readiness.begin())
    await begun.get()
    told = []
    away, unforeseen = fault(Reason.SERVICE_UNAVAILABLE, "It is away."), RuntimeError("unforeseen")
    for look in (None, away, None, away, unforeseen, away, None, unforeseen):
        found.put_nowait(look)
        # The next look begins when this one has been told.
        await begun.get()
        told.append((await health.Check(health_pb2.HealthCheckRequest(), None)).status == SERVING)
    await beginning
    await readiness.end()
    assert told == [True, True, True, True, False, False, True, True]


async def test_what_is_not_ready_is_named():
    health = Health("some.Service")
    health.set_dependency("store", ready=False)
    assert await health.problem() == "not ready: some.Service, store"
    health.set(ready=True)
    assert await health.problem() == ""


@pytest.mark.parametrize("name", ["store", "assembler", "provider", "executor"])
async def test_a_service_that_does_not_take_the_token_is_not_ready_for_who_gives_it(tmp_path, name):
    async with running(tmp_path) as services:
        for secret, told in ((SECRET, ""), ("another-secret", f"not ready: some.Service, {name} (UNAUTHENTICATED)")):
            peer, health = Peer(name, services.addresses[name], secret, 10.0), Health("some.Service")
            readiness = Readiness("some", None, health, {name: partial(check_ready, peer)})
            await readiness.begin()
            await readiness._has_looked.wait()
            assert await health.problem() == told
            await readiness.end()
            await peer.close()


async def test_a_service_whose_look_hangs_starts_and_is_not_ready(tmp_path):
    async def ready() -> None:
        await asyncio.Event().wait()

    service = Service("store", "some.Service", lambda _: None, ready=ready)
    server = RunningServer(service, f"unix:{tmp_path}/s.sock", SECRET, 1.0)
    await server.start()
    assert await checked(server.address, "some.Service") == NOT_SERVING
    assert await checked(server.address, "liveness") == SERVING
    await server.stop()


async def test_a_stack_whose_store_is_away_is_found_because_it_says_itself_what_is_wrong(tmp_path):
    async with running(tmp_path, look_every_s=0.2) as services:
        StackRecord(services.addresses["executor"], 1).write(tmp_path / "home")
        async with watched(services.addresses["executor"]) as status:
            assert await status() == SERVING
            await services.stop("store")
            assert await status() == NOT_SERVING
        assert await locate(tmp_path / "home", timeout_s=30) == services.addresses["executor"]
        await services.start("store")


async def test_a_store_whose_database_is_away_is_not_ready(tmp_path, postgres, postgres_url):
    name = postgres_url.rpartition("/")[2]
    settings = StoreSettings(home=tmp_path, token=SECRET, db=postgres_url, log_level="error")
    server = RunningServer(build_store(settings, SECRET), f"unix:{tmp_path}/s.sock", SECRET, 1.0, look_every_s=0.2)
    await server.start()
    async with watched(server.address) as status:
        assert await status() == SERVING
        postgres.server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        postgres.server.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        assert await status() == NOT_SERVING
        assert await checked(server.address, "liveness") == SERVING
        postgres.server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert await status() == SERVING
    await server.stop()
