"""The edge of deploy/envoy in front of two executors: TLS, gRPC, gRPC-Web with CORS, JSON, and an executor that goes away."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import ssl
import struct
from collections import Counter
from typing import Self

import grpc
import httpx
import pytest
import pytest_asyncio
from turnwright.executor.v1 import control_pb2, executor_service_pb2, executor_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import model_pb2, settings_pb2

from contract.store.harness import Client as StoreClient
from edges import IDLE_S, ORIGIN, edge, edge_of_processes
from services import SECRET, running, token_for
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_core.errors import ANSWERED
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.headers import call_metadata
from turnwright_core.runs import COMPLETED, LOOP_ENDED

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICE = "turnwright.executor.v1.ExecutorService"
RUN_SERVICE = "turnwright.runs.v1.RunService"
RUNS = 20
WAIT_S = 60


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory):
    """A stack with a model `m` behind the edge."""
    folder = tmp_path_factory.mktemp("edge")
    (folder / "m.txt").write_text('=== reply chunk_chars=64 delay_ms=0 ===\n<update status="200">Done</update>\n')
    async with running(folder, event_heartbeat_s=1.0) as services:
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        async with edge(services, event_heartbeat_s=1.0) as at:
            yield at, services.project


def trusting(at):
    return ssl.create_default_context(cafile=str(at.authority.file))


def headers(kind: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token_for('web')}", "content-type": kind}


async def test_json_and_web_pages_are_served(served):
    at, project = served
    async with httpx.AsyncClient(base_url=f"https://{at.address}", verify=trusting(at), timeout=60, http2=False) as web:
        listed = await web.post(
            f"/{RUN_SERVICE}/ListRuns", headers=headers("application/json"), json={"project": project}
        )
        assert listed.status_code == 200, listed.text
        assert isinstance(listed.json(), dict)
        missing = await web.post(
            f"/{RUN_SERVICE}/GetRun", headers=headers("application/json"), json={"project": project, "run": "nobody"}
        )
        assert missing.status_code == 404
        assert "RUN_NOT_FOUND" in json.dumps(missing.json())
        refused = await web.post(f"/{RUN_SERVICE}/ListRuns", headers={"content-type": "application/json"}, json={})
        assert refused.status_code == 401

        asked = run_service_pb2.ListRunsRequest(project=project).SerializeToString()
        framed = struct.pack(">BI", 0, len(asked)) + asked
        web_headers = {**headers("application/grpc-web+proto"), "origin": ORIGIN, "x-grpc-web": "1"}
        answered = await web.post(f"/{RUN_SERVICE}/ListRuns", headers=web_headers, content=framed)
        assert answered.status_code == 200
        assert answered.headers["access-control-allow-origin"] == ORIGIN
        assert b"grpc-status:0" in answered.content

        preflight = {"origin": ORIGIN, "access-control-request-method": "POST",
                     "access-control-request-headers": "authorization,content-type,x-grpc-web"}  # fmt: skip
        allowed = await web.options(f"/{RUN_SERVICE}/ListRuns", headers=preflight)
        assert allowed.headers["access-control-allow-origin"] == ORIGIN
        stranger = await web.options(
            f"/{RUN_SERVICE}/ListRuns", headers={**preflight, "origin": "https://evil.example"}
        )
        assert "access-control-allow-origin" not in stranger.headers


async def test_what_is_for_operators_or_unknown_is_not_passed_on(served):
    at, _ = served
    token = {"authorization": f"Bearer {SECRET}"}
    paths = [
        "/turnwright.settings.v1.SettingsService/GetSettings", "/turnwright.store.v1.StoreService/GetLease",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", f"/{SERVICE}/GetNothing", "/", "/metrics",
    ]  # fmt: skip
    async with httpx.AsyncClient(base_url=f"https://{at.address}", verify=trusting(at), timeout=60) as web:
        for path in paths:
            for kind in ("application/grpc", "application/grpc-web+proto", "application/json"):
                answered = await web.post(path, headers={**token, "content-type": kind}, content=b"")
                told = answered.headers.get("grpc-status", answered.status_code)
                assert told in ("12", 404, 415), (path, kind, told)
        checked = await web.post("/grpc.health.v1.Health/Check", headers={"content-type": "application/grpc-web+proto"},
                                 content=struct.pack(">BI", 0, 0))  # fmt: skip
        assert b"grpc-status:0" in checked.content


async def test_a_command_lasts_as_long_as_its_client_waits(served):
    """Longer than the edge lets other calls be silent."""
    at, project = served
    async with Client.connect(at.address, SECRET, 60, tls=Tls(authorities=at.authority.file)) as client:
        await client.create_run(project, "slow", settings_pb2.RunSettings(model="m", yolo=True))
        stub = executor_service_pb2_grpc.ExecutorServiceStub(client._peer.channel)
        wait = {"command": f"sleep {2 * IDLE_S}; echo done > slow.txt"}
        for number, deadline_s in enumerate((None, 60.0)):
            request = control_pb2.CallToolRequest(
                project=project, run="slow", tool="sh", attributes=wait, request_id=f"slow{number}"
            )
            answer = await stub.CallTool(request, timeout=deadline_s, metadata=call_metadata(SECRET))
            assert (answer.record.status, (at.authority.file.parent / "project" / "slow.txt").read_text()) == (
                200,
                "done\n",
            ), answer


async def test_the_second_listener_serves_only_who_has_a_certificate_of_the_clients_authority(served, tmp_path):
    at, project = served
    own = {"good": at.clients.issue(tmp_path / "good"), "expired": at.clients.issue(tmp_path / "old", days=-1),
           "foreign": at.authority.issue(tmp_path / "foreign"), "none": None}  # fmt: skip
    answered = {}
    for kind, folder in own.items():
        verify = trusting(at)
        if folder:
            verify.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        async with httpx.AsyncClient(base_url=f"https://{at.mutual}", verify=verify, timeout=60) as web:
            try:
                listed = await web.post(
                    f"/{RUN_SERVICE}/ListRuns", headers=headers("application/json"), json={"project": project}
                )
                answered[kind] = listed.status_code
            except (httpx.TransportError, ssl.SSLError):
                answered[kind] = "refused"
    assert answered == {"good": 200, "expired": "refused", "foreign": "refused", "none": "refused"}


async def test_runs_are_spread_over_the_executors(served):
    """No executor gets more than 60 % of the runs that wait for their commands at the same time."""
    at, project = served
    folder = at.authority.file.parent
    wait = "while [ ! -e go ]; do sleep 0.1; done"
    reply = f'<sh>{wait}</sh><update status="200">Done</update>'
    (folder / "busy.txt").write_text(f"=== reply chunk_chars=64 delay_ms=0 ===\n{reply}\n")
    store = StoreClient(f"unix:{folder}/store.sock", SECRET)
    async with Client.connect(at.address, SECRET, 60, tls=Tls(authorities=at.authority.file)) as client:
        await client.set_model(model_pb2.Model(alias="busy", vendor_model="scripted/busy"))
        wanted = settings_pb2.LoopSettings(model="busy", yolo=True)
        tasks = (client.act(project, "Do it.", run=f"busy{n}", settings=wanted) for n in range(RUNS))
        queued = await asyncio.gather(*tasks)
        async with asyncio.timeout(60):
            while len(held := await holders(store, queued)) < RUNS:  # noqa: ASYNC110 - claims are told to nobody
                await asyncio.sleep(0.1)
        (folder / "project" / "go").touch()
        for one in queued:
            assert (await client.wait_loop(project, one.run, one.sequence)).status == COMPLETED
    await store.close()
    shares = Counter(held)
    assert set(shares) == {executor.address for executor in at.executors}
    assert max(shares.values()) <= 0.6 * RUNS


class Bare:
    """Clients that read, watch and write without a pause; `errors` are those without an ErrorInfo, by kind of call."""

    def __init__(self, at, project: str) -> None:
        credentials = grpc.ssl_channel_credentials(at.authority.file.read_bytes())
        self._channels = [
            grpc.aio.secure_channel(at.address, credentials, options=(("grpc.use_local_subchannel_pool", 1),))
            for _ in range(3)
        ]
        self._asked = {"project": project, "run": "r"}
        self.calls, self.errors = Counter(), Counter()
        self.writes = False

    async def __aenter__(self) -> Self:
        kinds = (self._read, self._watch, self._write)
        self._tasks = [asyncio.create_task(self._repeat(kind, channel)) for channel in self._channels for kind in kinds]
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels))
        assert [one for one in ended if not isinstance(one, asyncio.CancelledError)] == []

    async def _repeat(self, kind, channel) -> None:
        while True:
            try:
                await kind(channel)
            except grpc.aio.AioRpcError as error:
                if "grpc-status-details-bin" not in dict(error.trailing_metadata() or ()):
                    self.errors[f"{kind.__name__} {error.details()}"] += 1
            self.calls[kind.__name__] += 1
            # Less than the edge allows of one connection.
            await asyncio.sleep(0.05)

    async def _read(self, channel) -> None:
        runs = run_service_pb2_grpc.RunServiceStub(channel)
        await runs.GetRun(run_service_pb2.GetRunRequest(**self._asked), metadata=call_metadata(SECRET))

    async def _watch(self, channel) -> None:
        """What a watch is ended with before an executor has begun to answer; later it resumes by its cursor."""
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        call = stub.WatchRun(executor_service_pb2.WatchRunRequest(**self._asked), metadata=call_metadata(SECRET))
        is_begun = ANSWERED in dict(await call.initial_metadata() or ())
        try:
            await call.read()
        except grpc.aio.AioRpcError:
            if not is_begun:
                raise
        call.cancel()

    async def _write(self, channel) -> None:
        """While an executor dies, nobody knows of a write whether it was begun."""
        if not self.writes:
            return
        request = run_service_pb2.ConfigureRunRequest(
            **self._asked, patch=settings_pb2.RunSettingsPatch(model="m"), request_id=secrets.token_hex(8)
        )
        await run_service_pb2_grpc.RunServiceStub(channel).ConfigureRun(request, metadata=call_metadata(SECRET))

    async def go_on(self, count: int) -> None:
        """Until each kind of call was made so often again."""
        wanted = {kind: self.calls[kind] + count for kind in ("_read", "_watch", "_write")}
        async with asyncio.timeout(WAIT_S):
            while any(self.calls[kind] < number for kind, number in wanted.items()):  # noqa: ASYNC110 - tasks count
                await asyncio.sleep(0.05)


async def test_clients_see_no_error_of_an_executor_that_is_killed(tmp_path):
    """But for what was being answered, or may have been done."""
    (tmp_path / "m.txt").write_text('=== reply chunk_chars=64 delay_ms=0 ===\n<update status="200">Done</update>\n')
    async with running(tmp_path) as services:
        await services.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
        async with edge_of_processes(services) as (at, processes), Bare(at, services.project) as bare:
            bare.writes = True
            await bare.go_on(20)
            assert bare.errors == {}
            bare.writes = False
            await bare.go_on(20)
            processes[0].kill()
            processes[0].wait()
            await bare.go_on(20)
            # The edge still thinks of the dead one as healthy: two health checks, two seconds each.
            bare.writes = True
            await bare.go_on(100)
    assert bare.errors == {}


async def holders(store, queued) -> list[str]:
    """The executors that have the runs, for each run that one has."""
    leases = [await store.call("GetLease", project=one.project, run=one.run) for one in queued]
    return [lease.address for lease in leases if lease.address]


async def test_a_client_works_through_the_edge_and_goes_on_when_an_executor_is_gone(served):
    at, project = served
    async with Client.connect(at.address, SECRET, 60, tls=Tls(authorities=at.authority.file)) as client:
        for round_ in range(2):
            wanted = settings_pb2.LoopSettings(model="m", yolo=True)
            queued = await client.act(project, "Do it.", run=f"r{round_}", settings=wanted)
            async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
                async for event in events:
                    if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                        assert loop.status == COMPLETED
                        break
            if not round_:
                await at.executors[0].stop()
