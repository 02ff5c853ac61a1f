"""`act` in a real process whose connections are ended by what stands between it and the executor."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections import Counter

import pytest

import proxy as http2
from contract.executor.replicas import DONE, eventually
from e2e.cli_process import Bench
from proxy import proxied
from services import SECRET, running
from turnwright_client.client import loop_in
from turnwright_core.runs import LOOP_ENDED

pytestmark = pytest.mark.asyncio

WORDS = [f"word{number}" for number in range(90)]
GOING_ON = '<update status="102">Going on.</update>'

FAULTS = {
    "reset": lambda proxy: proxy.reset(),
    "INTERNAL_ERROR": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.INTERNAL_ERROR)),
    "CANCEL": lambda proxy: proxy.end_calls(lambda call: http2.reset(call, http2.CANCEL)),
    "OK": lambda proxy: proxy.end_calls(lambda call: http2.trailers(call, 0)),
}


async def acted(root, address: str, *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and complaints of an `act` that reaches the executor there."""
    bench = Bench(root)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "turnwright_cli", "act", "Do it.", "--model", "m", "--yolo", "--server", address),
        *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL,
        cwd=bench.project, env=bench.env(TURNWRIGHT_TOKEN=SECRET),
    )  # fmt: skip
    out, told = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, out.decode(), told.decode()


def script(*, long: bool = False) -> str:
    """Two turns; `long`: the second reply is longer than what events have of it."""
    head = "=== reply chunk_chars=8 delay_ms=5 ===\n"
    first, second = " ".join(WORDS[:40]), " ".join(WORDS[40:])
    filler = "- " * 20_000 if long else ""
    return f"{head}{first}\n{GOING_ON}\n{head.replace('8', '800') if long else head}{filler}{second}\n{DONE}\n"


class Gap:
    """Ends the connections in the middle of a turn, and lets nobody through until so many events have come since."""

    def __init__(self, services, proxy, turn: int, events: int) -> None:
        self._services, self._proxy = services, proxy
        self._turn, self._events = turn, events
        self._is_in_turn = False
        proxy.on_data = self._lose

    def _lose(self, _connection, _call) -> None:
        if self._proxy.gate.is_set() and self._is_in_turn:
            self._proxy.gate.clear()
            self._proxy.reset()

    async def watch(self) -> None:
        """See what happens without the proxy, until the run's loop has ended."""

        async def has_begun():
            return [run async for run in self._services.client.list_runs(self._services.project)]

        run = (await eventually(has_begun))[0].run
        async with contextlib.aclosing(self._services.client.watch(self._services.project, run)) as events:
            missed = 0
            async for event in events:
                is_delta = event.WhichOneof("event") == "stream_delta" and event.stream_delta.turn == self._turn
                self._is_in_turn = self._is_in_turn or is_delta
                missed += not self._proxy.gate.is_set()
                loop = loop_in(event)
                has_ended = loop is not None and loop.status in LOOP_ENDED
                if missed > self._events or has_ended:
                    self._proxy.on_data = None
                    self._proxy.gate.set()
                if has_ended:
                    return


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_word_is_printed_once_whatever_ends_the_connections(tmp_path, monkeypatch, fault):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services, proxied(services.addresses["executor"]) as proxy:
        (tmp_path / "m.txt").write_text(script())
        passed = 0

        def lose(_connection, _call) -> None:
            nonlocal passed
            passed += 1
            if passed % 12 == 0:
                FAULTS[fault](proxy)

        proxy.on_data = lose
        code, out, told = await acted(tmp_path, proxy.address)
    assert (code, told) == (0, "")
    assert passed > 24
    assert printed(out) == Counter(WORDS)
    assert turns(out) == ["turn 1", "turn 2"]


@pytest.mark.parametrize(
    ("turn", "events"),
    [
        pytest.param(1, 24, id="into the same reply"),
        pytest.param(1, 100, id="into a later turn"),
        pytest.param(2, 10_000, id="to the end"),
    ],
)
@pytest.mark.parametrize("long", [False, True])
async def test_what_a_snapshot_jumped_over_is_printed_once(tmp_path, monkeypatch, turn, events, long):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, tail_events=16) as services, proxied(services.addresses["executor"]) as proxy:
        (tmp_path / "m.txt").write_text(script(long=long))
        gap = asyncio.create_task(Gap(services, proxy, turn, events).watch())
        code, out, told = await acted(tmp_path, proxy.address)
        await gap
    assert (code, told) == (0, "")
    assert printed(out) == Counter(WORDS)
    assert turns(out) == ["turn 1", "turn 2"]


def printed(out: str) -> Counter[str]:
    return Counter(re.findall(r"(?:word|thought)\d+", out))


def turns(out: str) -> list[str]:
    return re.findall(r"^turn \d", out, re.MULTILINE)
