"""A durable turn beside one of a LangGraph agent that checkpoints each step to SQLite: the same work in turn.

Both stand all the time and work in short bursts, one after the other, so that a machine that is slow is slow for both.
CPU is the kernel's count for all processes of each side, the client of ours left out. Skipped without LangGraph:
`pip install 'turnwright[peer]'`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import statistics
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.test_durable_turns import Stack, _cpu_s, stack  # noqa: F401 - a fixture

pytestmark = [
    pytest.mark.bench,
    pytest.mark.asyncio,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not importlib.util.find_spec("langgraph"), reason="LangGraph is not installed"),
]

ROUNDS = 6


@dataclass
class Peer:
    """The agent's process."""

    process: asyncio.subprocess.Process

    async def work(self, runs: int, turns: int) -> float:
        """Milliseconds of CPU a turn."""
        before = _cpu_s(self.process.pid)
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{runs} {turns}\n".encode())
        assert await asyncio.wait_for(self.process.stdout.readline(), 300) == b"done\n"
        return (_cpu_s(self.process.pid) - before) / (runs * turns) * 1e3


@contextlib.asynccontextmanager
async def langgraph(folder: Path) -> AsyncIterator[Peer]:
    command = (str(Path(__file__).parent / "langgraph_agent.py"), str(folder / "project"), str(folder / "peer.db"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=pipe, stdout=pipe)
    try:
        yield Peer(process)
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize(("runs", "turns"), [(1, 10), (1, 50), (1, 200), (32, 10)])
async def test_a_turn_beside_a_turn_of_langgraph(stack: Stack, runs: int, turns: int) -> None:  # noqa: F811
    async def ours(burst: int) -> float:
        before = stack.cpu_s()
        await asyncio.gather(*(stack.work(f"b{burst}_{number}", f"t{turns}") for number in range(runs)))
        return (stack.cpu_s() - before) / (runs * turns) * 1e3

    async with langgraph(stack.folder) as peer:
        pairs = []
        for burst in range(ROUNDS + 1):
            # In turn, the other one first every second time.
            theirs = await peer.work(runs, turns) if burst % 2 else 0.0
            mine = await ours(burst)
            pairs.append((mine, theirs or await peer.work(runs, turns)))
        measured = pairs[1:]
    ratios = [mine / theirs for mine, theirs in measured]
    mine, theirs = (statistics.median(side) for side in zip(*measured, strict=True))
    assert min(ratios) > 0
    quartiles = statistics.quantiles(ratios, n=4)
    print(
        f"{runs} runs of {turns} turns: {mine:.1f} ms CPU a turn, LangGraph {theirs:.1f}; "
        f"ratio {quartiles[1]:.2f} [{quartiles[0]:.2f}-{quartiles[2]:.2f}]"
    )
