"""200 chats at once, each with a watcher, for minutes: every message is answered, and no service keeps what has ended."""

import asyncio
import contextlib
import os
import statistics
import time
from pathlib import Path

import pytest
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import SessionState

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted
from turnwright_client import Client
from turnwright_client.sessions import user_message

CHATS = 200
MESSAGES = 5
"""Messages of a chat, before another one takes its place: what a run remembers may grow with it."""
LASTS_S = float(os.environ.get("TURNWRIGHT_CHATS_S", "240"))
SAMPLES = 24
GROWTH_MAX = 1.1
"""Memory in the last quarter, over that in the one before: until then hubs linger (TURNWRIGHT_LINGER_S)."""
DONE = '<update status="200">All is done.</update>'
SETTINGS = settings_pb2.LoopSettings(model="done", yolo=True, mode=settings_pb2.MODE_ACT)


def resident_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def by_quarter(held: list[float]) -> str:
    return " ".join(f"{held[place]:.0f}" for place in range(SAMPLES // 4 - 1, SAMPLES, SAMPLES // 4))


async def chat(client: Client, project: str, run: str) -> int:
    """Send messages, each once the one before is answered; how many were."""
    answered = 0
    for number in range(MESSAGES):
        said = f"{run} {number}"
        message = user_message(said, settings=SETTINGS)
        sent = await insisted(
            lambda said=said, message=message: client.submit(project, run, said, user_message=message)
        )
        async with asyncio.timeout(120), contextlib.aclosing(client.watch(project, run, sent.event_cursor)) as events:
            async for event in events:
                if event.HasField("runtime_updated") and event.runtime_updated.state == SessionState.COMPLETED:
                    answered += 1
                    break
    return answered


async def chats(client: Client, project: str, name: str, until: float) -> int:
    """One chat after another."""
    answered = 0
    for number in range(100_000):
        if time.monotonic() > until:
            return answered
        answered += await chat(client, project, f"{name}-{number}")
        await insisted(lambda run=f"{name}-{number}": client.delete_run(project, run))
    return answered


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1800)
async def test_memory_stays_flat_under_200_chats(tmp_path):
    # What is measured is memory: a lease that runs out on a busy host is another test's matter.
    stack = Stack(tmp_path, lease_s=30)
    await stack.start()
    try:
        await stack.add_model("done", DONE, delay_ms=20)
        async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
            until = time.monotonic() + LASTS_S
            talking = asyncio.gather(*(chats(client, stack.project, f"c{place}", until) for place in range(CHATS)))
            seen: dict[str, list[float]] = {name: [] for name in stack.lives}
            for _ in range(SAMPLES):
                await asyncio.sleep(LASTS_S / SAMPLES)
                for name, life in stack.lives.items():
                    seen[name].append(resident_mb(life.process))
            answered = sum(await talking)
    finally:
        stack.close()
    quarter = SAMPLES // 4
    grown = {
        name: statistics.median(held[-quarter:]) / statistics.median(held[-2 * quarter : -quarter])
        for name, held in seen.items()
    }
    told = "; ".join(f"{name} {by_quarter(held)} MB ({grown[name]:.2f})" for name, held in seen.items())
    print(f"{answered} messages in {LASTS_S:.0f} s; resident memory after each quarter: {told}")
    assert answered >= CHATS
    assert {name: by for name, by in grown.items() if by > GROWTH_MAX} == {}
    assert stack.complaints() == {}
