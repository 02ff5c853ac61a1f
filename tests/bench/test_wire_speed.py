"""What the vendor's side of a model call costs, beside bare httpx that reads the same bytes from the same server.

CPU is that of this process, threads included; the server is a process of its own. Bursts of both sides take turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import httpx
import pytest
from turnwright_values.replies import ToolCall

from bench.wire_streams import PIECE, STREAMS, Stream
from turnwright_core.chat.deltas import AppendContent
from turnwright_core.chat.message import Message, Role, Text, text_message
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.endpoints import EndpointSpec
from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.presets import NAMELESS
from turnwright_provider.domain.sse import LineReader, SseReader
from turnwright_provider.domain.wires.wire import Framing
from turnwright_provider.vendors.http import HttpVendor
from turnwright_provider.vendors.transport import HttpLimits

pytestmark = [
    pytest.mark.bench,
    pytest.mark.asyncio,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS),
]

BYTES_MAX = 8 << 20
ROUNDS = 9
LONG = 1000
"""Pieces of a long reply."""
BURST = {1: 40, LONG: 3}
"""Pieces of a reply -> calls of a burst."""
CALLS = 20_000
CALLS_S_MAX = 60.0

Once = Callable[[int], Awaitable[float]]
"""Makes a call that is answered with so many pieces; seconds until the first."""


@contextlib.asynccontextmanager
async def canned(folder: Path, stream: Stream, *pieces: int) -> AsyncIterator[str]:
    """The URL of a server of such replies, by the number of their pieces."""
    for count in pieces:
        reply = {"type": stream.content_type, "chunks": stream.chunks(count)}
        (folder / f"{count}.json").write_text(json.dumps(reply))
    command = (str(Path(__file__).with_name("canned_server.py")), str(folder))
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(await asyncio.wait_for(process.stdout.readline(), 30))}"
    finally:
        process.kill()
        await process.wait()


@contextlib.asynccontextmanager
async def ours(url: str, stream: Stream) -> AsyncIterator[Once]:
    specs = {count: EndpointSpec("any", NAMELESS, stream.wire.name, f"{url}/{count}", "k") for count in (1, LONG)}
    vendors = {count: HttpVendor(spec, stream.wire, HttpLimits(100)) for count, spec in specs.items()}

    async def once(pieces: int) -> float:
        begin, first, said = time.perf_counter(), 0.0, 0
        async for event in vendors[pieces].stream(CALL, 1):
            if isinstance(event, AppendContent):
                first = first or time.perf_counter() - begin
                said += len(event.text)
        assert said == pieces * len(PIECE)
        return first

    yield once
    for vendor in vendors.values():
        await vendor.close()


@contextlib.asynccontextmanager
async def bare(url: str, stream: Stream) -> AsyncIterator[Once]:
    """Reads the bytes, and nothing more."""
    body = stream.wire.request(CALL, frozenset()).body
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:

        async def once(pieces: int) -> float:
            begin, first = time.perf_counter(), 0.0
            async with client.stream("POST", f"{url}/{pieces}/x", content=body) as reply:
                async for _ in reply.aiter_raw():
                    first = first or time.perf_counter() - begin
            return first

        yield once


CALL = ModelCall("m", (text_message(Role.USER, "Say something."),))


async def burst(once: Once, pieces: int) -> tuple[float, float]:
    """Seconds of CPU a call, and seconds until the first piece (median)."""
    count = BURST[pieces]
    begin = time.process_time()
    firsts = [await once(pieces) for _ in range(count)]
    return (time.process_time() - begin) / count, statistics.median(firsts)


async def test_a_call_beside_bare_httpx(stream: Stream, tmp_path: Path) -> None:
    async with (
        canned(tmp_path, stream, 1, LONG) as url,
        ours(url, stream) as mine,
        bare(url, stream) as theirs,
    ):
        more: dict[int, list[tuple[float, float, float]]] = {1: [], LONG: []}
        for count, taken_more in more.items():
            await mine(count), await theirs(count)
            for number in range(ROUNDS):
                sides = (mine, theirs) if number % 2 else (theirs, mine)
                taken = {once: await burst(once, count) for once in sides}
                (cpu, first), (cpu_bare, first_bare) = taken[mine], taken[theirs]
                taken_more.append((cpu - cpu_bare, first - first_bare, cpu / cpu_bare))
    call_s, first_s, ratio = map(statistics.median, zip(*more[1], strict=True))
    long_s, _, ratio_long = map(statistics.median, zip(*more[LONG], strict=True))
    events = len(stream.chunks(LONG))
    print(
        f"\n{stream.wire.name}: a call {call_s * 1e3:.2f} ms CPU over bare httpx (ratio {ratio:.2f}), first piece "
        f"{first_s * 1e3:+.2f} ms; an event {(long_s - call_s) / (events - len(stream.chunks(1))) * 1e6:.1f} us "
        f"(ratio {ratio_long:.2f})"
    )
    assert ratio > 0


async def test_the_fold_is_linear(stream: Stream) -> None:
    def fold_s(pieces: int) -> float:
        chunks = [chunk.encode() for chunk in stream.chunks(pieces)]
        begin = time.thread_time()
        make = LineReader if stream.wire.framing is Framing.LINES else SseReader
        reader, fold, reply = make(BYTES_MAX), stream.wire.fold(), PartialReply()
        for chunk in chunks:
            for event in reader.feed(chunk):
                for delta in fold.event(event):
                    reply.add(delta)
        taken = time.thread_time() - begin
        assert len(reply.text) == pieces * len(PIECE)
        return taken

    pairs = paired(lambda: fold_s(20_000), lambda: fold_s(10_000))
    ratio = statistics.median(long / short for long, short in pairs)
    each_us = statistics.median(long for long, _ in pairs) / 20_000 * 1e6
    print(f"\n{stream.wire.name}: folding 20,000 pieces takes {ratio:.2f} times 10,000; {each_us:.1f} us each")
    assert ratio > 0


async def test_encoding_beside_json(stream: Stream) -> None:
    call = ModelCall("m", tuple(conversation(1000)), vendor_model="v/m")
    body = json.loads(stream.wire.request(call, frozenset()).body)
    pairs = paired(
        lambda: cpu_s(lambda: stream.wire.request(call, frozenset())),
        lambda: cpu_s(lambda: json.dumps(body, ensure_ascii=False).encode()),
    )
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    took_ms = statistics.median(mine for mine, _ in pairs) * 1e3
    print(f"\n{stream.wire.name}: encoding 1,000 messages {took_ms:.2f} ms, {ratio:.2f} times json.dumps of the body")
    assert ratio > 0


def conversation(count: int) -> Iterable[Message]:
    """A question, and then calls and their answers in turn."""
    yield text_message(Role.SYSTEM, "Help. " * 200)
    for number in range(count // 3):
        call = ToolCall("read", json.dumps({"path": f"src/{number}.py"}), id=f"c{number}", call_id=f"tw_{number}")
        yield text_message(Role.USER, "Read the next one, please. " * 8)
        yield Message(Role.ASSISTANT, (Text("I read it."),), calls=(call,), vendor_model="v/m")
        yield Message(Role.TOOL, (Text("a line of a file\n" * 120),), call_id=f"tw_{number}", tool="read")


def paired(one: Callable[[], float], other: Callable[[], float]) -> list[tuple[float, float]]:
    """What both took, in turn; the first time does not count."""
    gc.disable()
    try:
        return [(one(), other()) for _ in range(ROUNDS + 1)][1:]
    finally:
        gc.enable()


def cpu_s(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


async def test_memory_stays_flat(stream: Stream, tmp_path: Path) -> None:
    async with canned(tmp_path, stream, 1, LONG) as url, ours(url, stream) as mine:
        seen: list[int] = []
        begin, made = time.monotonic(), 0
        while made < CALLS and time.monotonic() - begin < CALLS_S_MAX:
            for _ in range(500):
                await mine(1)
            made += 500
            gc.collect()
            seen.append(resident_bytes())
    warm = seen[len(seen) // 4]
    print(f"\n{stream.wire.name}: {made} calls; {(seen[-1] - warm) / 2**20:+.1f} MiB over the last three quarters")
    assert made > 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
