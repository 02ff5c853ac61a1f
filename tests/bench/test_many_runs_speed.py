"""One process with 64 runs at once, beside 8: whoever calls it is answered as soon, and as many turns are done.

The vendor answers without delay, so that nothing but the process itself is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.types.v1 import settings_pb2

from bench.processes import process
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_core.runs import LOOP_ENDED

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(1200)]

SECRET = "secret of the bench"
LOOPS = 6
"""Tasks of each run, of one turn each."""
ROUNDS = 4


def reply() -> dict:
    """Ten increments and the end, as chat completions stream them."""
    texts = [f"word {number} " for number in range(10)] + ['<update status="200">Done.</update>']
    deltas = [{"delta": {"content": text}, "index": 0} for text in texts]
    events = [{"choices": [one]} for one in [*deltas, {"delta": {}, "index": 0, "finish_reason": "stop"}]]
    return {
        "type": "text/event-stream",
        "chunks": [f"data: {json.dumps(one)}\n\n" for one in events] + ["data: [DONE]\n\n"],
    }


@contextlib.asynccontextmanager
async def served(folder: Path):
    """`turnwright serve` before such a vendor: the address, and the id of its process."""
    (folder / "answers").mkdir()
    (folder / "answers" / "m.json").write_text(json.dumps(reply()))
    server = str(Path(__file__).with_name("canned_server.py"))
    vendor = await asyncio.create_subprocess_exec(
        sys.executable, server, str(folder / "answers"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert vendor.stdout
        port = int(await vendor.stdout.readline())
        address = f"unix:{folder}/executor.sock"
        listens = [
            f"--listen={name}=unix:{folder}/{name}.sock" for name in ("executor", "store", "assembler", "provider")
        ]
        settings = {
            "TURNWRIGHT_HOME": str(folder),
            "TURNWRIGHT_TOKEN": SECRET,
            "TURNWRIGHT_LOG_LEVEL": "error",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/m/v1",
        }
        async with process("-m", "turnwright_cli", "serve", *listens, address=address, **settings) as pid:
            yield address, pid
    finally:
        vendor.kill()
        await vendor.wait()


class Burst:
    """So many runs at once, and how long they and a health check waited."""

    def __init__(self, address: str, client: Client, project: str) -> None:
        self.address, self.client, self.project = address, client, project
        self.delays_s: list[float] = []
        self.checks_s: list[float] = []

    async def run(self, name: str) -> None:
        settings = settings_pb2.LoopSettings(model="openai/m", mode=settings_pb2.MODE_ACT, yolo=True)
        for _ in range(LOOPS):
            queued = await self.client.act(self.project, "Go on.", run=name, settings=settings)
            begin_s = 0.0
            async with contextlib.aclosing(self.client.watch(self.project, name, queued.cursor)) as events:
                async for event in events:
                    kind, loop = event.WhichOneof("event"), loop_in(event)
                    if kind == "stream_started":
                        begin_s = time.monotonic()
                    elif kind == "stream_delta" and begin_s:
                        self.delays_s.append(time.monotonic() - begin_s)
                        begin_s = 0.0
                    if loop and loop.sequence == queued.sequence and loop.status in LOOP_ENDED:
                        break

    async def check(self) -> None:
        """Ask whether it is healthy again and again, on a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self.address, options=options) as channel:
            while True:
                begin_s = time.monotonic()
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                self.checks_s.append(time.monotonic() - begin_s)
                await asyncio.sleep(0.05)

    async def measure(self, runs: int, number: int) -> tuple[float, float, float]:
        """The delay of the slowest of a hundred deltas and of the slowest check in seconds, and turns a second."""
        self.delays_s, self.checks_s = [], []
        checking = asyncio.create_task(self.check())
        begin_s = time.monotonic()
        await asyncio.gather(*(self.run(f"r{number}-{runs}-{one}") for one in range(runs)))
        took_s = time.monotonic() - begin_s
        checking.cancel()
        return statistics.quantiles(self.delays_s, n=100)[-1], max(self.checks_s), runs * LOOPS / took_s


async def test_sixty_four_runs_at_once_beside_eight(tmp_path):
    (tmp_path / "project").mkdir()
    async with served(tmp_path) as (address, _), Client.connect(address, SECRET) as client:
        project = (await client.init_project(str(tmp_path / "project"))).name
        burst = Burst(address, client, project)
        await burst.measure(8, -1)
        rounds = []
        for number in range(ROUNDS):
            first = await burst.measure(8 if number % 2 else 64, number)
            second = await burst.measure(64 if number % 2 else 8, number)
            rounds.append((second, first) if number % 2 else (first, second))
    for place, what in enumerate(("slowest of 100 deltas, s", "slowest health check, s", "turns a second")):
        many, few = (statistics.median(one[side][place] for one in rounds) for side in (0, 1))
        ratio = statistics.median(one[0][place] / one[1][place] for one in rounds)
        assert ratio > 0
        print(f"\n{what}: 64 runs {many:.3f}, 8 runs {few:.3f}, ratio {ratio:.2f}", end="")
    print()
