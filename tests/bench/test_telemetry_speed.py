"""The price of telemetry, on and off, and of the edge: CPU time of all processes, because other work disturbs it least."""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import gc
import os
import statistics
import time
import timeit
from pathlib import Path

import pytest

from bench.processes import process
from edges import edge
from services import SECRET, running
from turnwright_client import Client
from turnwright_core.rpc.certificates import Tls
from turnwright_kit import telemetry
from turnwright_kit.telemetry_names import COMMANDS

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(1200)]

TURNS = 10
ROUNDS = 12
PAIRS = 200
SENT_AFTER = 3
CALLS = 300
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
SINK = Path(__file__).with_name("otlp_sink.py")


async def run_cpu_s(services, number: int) -> float:
    """CPU seconds of this process, all services included, for a run of TURNS turns."""
    begin_s = time.process_time()
    loop = await services.until(await services.act(run=f"r{number}"))
    assert loop.status == 200
    return time.process_time() - begin_s


@contextlib.asynccontextmanager
async def working(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        more = [f'<set path="known://n{n}">{n}</set><update status="102">More</update>' for n in range(TURNS - 1)]
        services.script(*more, '<update status="200">Done</update>')
        await run_cpu_s(services, 0)
        # As processes do at their start: otherwise collections of all that pytest holds fall to one side or the other.
        gc.freeze()
        yield services
        gc.unfreeze()


async def test_telemetry_on_beside_off(tmp_path, monkeypatch):
    """As in a process that has it on for long, and with the spans sent."""
    address = f"unix:{tmp_path}/sink"
    # Spans leave when this test says so, and not while the other half of a pair runs.
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
    async with process(str(SINK), address, address=address), working(tmp_path, monkeypatch) as services:
        stop = telemetry.configure_telemetry(telemetry.TelemetrySettings(address), "bench")
        sdk, pairs, sent_s = telemetry._sdk, [], 0.0
        await run_cpu_s(services, 1)
        for number in range(2, 2 * PAIRS, 2):
            taken = {}
            # Each comes first in half of the pairs.
            for place, is_on in enumerate((True, False) if number % 4 else (False, True)):
                telemetry._sdk = sdk if is_on else None
                taken[is_on] = await run_cpu_s(services, number + place)
            pairs.append(taken)
            # About as many spans as the library sends at once.
            if len(pairs) % SENT_AFTER == 0:
                begin_s = time.process_time()
                await asyncio.to_thread(sdk._tracers.force_flush)
                sent_s += time.process_time() - begin_s
        await asyncio.to_thread(stop)
    for taken in pairs:
        taken[True] += sent_s / len(pairs)
    low, ratio, high = statistics.quantiles([taken[True] / taken[False] for taken in pairs], n=4)
    whole = sum(taken[True] for taken in pairs) / sum(taken[False] for taken in pairs)
    turn_ms = statistics.median(taken[False] for taken in pairs) / TURNS * 1000
    assert ratio > 0
    print(
        f"\na turn off {turn_ms:.2f} ms of CPU; on {ratio:.3f} of that (quartiles {low:.3f} to {high:.3f}; of the sums {whole:.3f})"
    )


async def test_telemetry_off_beside_a_turn(tmp_path, monkeypatch):
    """What the calls cost that a turn makes to find that telemetry is off."""
    async with working(tmp_path, monkeypatch) as services:
        taken_s = statistics.median([await run_cpu_s(services, number) for number in range(1, 6)])
        profile = cProfile.Profile()
        profile.enable()
        await run_cpu_s(services, 9)
        profile.disable()
    one_s = {
        "span": cost_s(lambda: telemetry.span("s").__enter__()),
        "count": cost_s(lambda: telemetry.count(COMMANDS, 1, {"a": 1})),
        "is_on": cost_s(telemetry.is_on),
    }
    calls: dict[str, int] = {}
    for entry in profile.getstats():
        if not isinstance(entry.code, str) and entry.code.co_filename == telemetry.__file__:
            calls[entry.code.co_name] = entry.callcount
    assert calls
    # The others compare and return, as `is_on` does, or take a dictionary, as `count` does.
    price_s = sum(number * one_s.get(name, one_s["count"]) for name, number in calls.items())
    print(f"\n{sum(calls.values()) / TURNS:.1f} calls a turn, {price_s / taken_s:.2%} of its CPU: {calls}")
    assert price_s < 0.01 * taken_s


def cost_s(call) -> float:
    return min(timeit.repeat(call, number=20_000, repeat=5)) / 20_000


async def test_an_rpc_through_envoy_beside_a_direct_one(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        services = await stack.enter_async_context(running(tmp_path))
        made = await stack.enter_async_context(edge(services))
        tls = Tls(authorities=made.authority.file)
        clients = {
            name: await stack.enter_async_context(Client.connect(at, SECRET, 60, tls=tls))
            for name, at in (("direct", made.executors[0].address), ("envoy", made.address))
        }
        envoy = next(pid for pid in children() if "envoy" in name_of(pid))
        pairs = []
        for number in range(ROUNDS + 1):
            taken = {}
            for name in ("direct", "envoy") if number % 2 else ("envoy", "direct"):
                begin, begin_cpu_s = time.perf_counter(), time.process_time() + cpu_s(envoy)
                for _ in range(CALLS):
                    await clients[name].list_models()
                cpu = time.process_time() + cpu_s(envoy) - begin_cpu_s
                taken[name] = (cpu, time.perf_counter() - begin)
            pairs.append(taken)
    del pairs[0]
    for place, what in ((0, "CPU of all processes"), (1, "time")):
        low, ratio, high = statistics.quantiles([each["envoy"][place] / each["direct"][place] for each in pairs], n=4)
        one_ms = statistics.median(each["direct"][place] for each in pairs) / CALLS * 1000
        assert ratio < 2
        print(f"\n{what}: direct {one_ms:.2f} ms; through Envoy {ratio:.2f} (quartiles {low:.2f} to {high:.2f})")


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S
