"""What events cost on their way to clients, beside bare gRPC streams of the same bytes: many watchers, tokens, the first.

All servers are processes of their own; CPU is the kernel's count of theirs, never of the clients.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.types.v1 import settings_pb2

from bench.processes import process, undisturbed
from bench.relays import FOLLOW, START
from bench.test_durable_turns import SECRET, Stack, _cpu_s, four_processes
from sse_server import Answer, SseServer, delta, events, usage_chunk
from turnwright_client import Client
from turnwright_core.rpc.headers import call_metadata
from turnwright_core.runs import LOOP_ENDED

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

SERVICES = ("store", "provider", "assembler", "executor")
WATCH = "/turnwright.executor.v1.ExecutorService/WatchRun"
WATCHERS = 1000
CHANNELS = 4
"""Connections that the watchers share."""
PIECES = 30
PIECE_MS = 200
ROUNDS = 2

RUNS = 60
TOKEN = "word"
TOKENS = 800
TOKEN_S = 0.01
MEASURED_S = 5.0

FIRSTS = 40
THINKING_S = 0.05
"""Seconds between the head of a vendor's answer and its first words."""


def floor(*arguments: str) -> contextlib.AbstractAsyncContextManager[int]:
    """A bare server; the id of its process."""
    return process(str(Path(__file__).with_name("relays.py")), *arguments, address=arguments[1])


@contextlib.asynccontextmanager
async def serving(folder: Path, **environment: str) -> AsyncIterator[Stack]:
    """Four services, with a project."""
    for name in ("home", "project"):
        (folder / name).mkdir()
    common = {
        "TURNWRIGHT_HOME": str(folder / "home"),
        "TURNWRIGHT_TOKEN": SECRET,
        "TURNWRIGHT_LOG_LEVEL": "error",
        "TURNWRIGHT_SCRIPTED_DIR": str(folder),
        **environment,
    }
    async with four_processes(folder, common) as (executor, pids), Client.connect(executor, SECRET) as client:
        project = (await client.init_project(str(folder / "project"))).name
        yield Stack(folder, executor, pids, client, project)


def write_model(folder: Path, name: str, text: str, chars: int, delay_ms: float) -> None:
    (folder / f"{name}.txt").write_text(f"=== reply chunk_chars={chars} delay_ms={delay_ms:g} ===\n{text}\n")


def settings(model: str) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(model=model, yolo=True, mode=settings_pb2.MODE_ACT)


# ---- Many watchers


class Following:
    """Streams of bytes that are followed, and what came."""

    def __init__(self, channels: list[grpc.aio.Channel], method: str, request: bytes, is_last) -> None:
        self.open = 0
        self.messages: list[tuple[float, bytes]] = []
        """What the first one got."""
        self.received = 0
        self._calls = [channel.unary_stream(method) for channel in channels]
        self._request = request
        self._is_last = is_last

    def begin(self, count: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._follow(number)) for number in range(count)]

    async def _follow(self, number: int) -> None:
        stream = self._calls[number % len(self._calls)](self._request, metadata=call_metadata(SECRET))
        is_open = False
        async for data in stream:
            if not is_open:
                is_open = True
                self.open += 1
                continue
            self.received += 1
            if number == 0:
                self.messages.append((time.monotonic(), data))
            if self._is_last(data):
                return


async def cost(following: Following, count: int, pid: int, work: Callable[[], Awaitable[object]]) -> float:
    """Seconds of CPU of a server from the beginning of some work until everybody has followed it to its end."""
    tasks = following.begin(count)
    async with asyncio.timeout(120):
        while following.open < count:  # noqa: ASYNC110 - they all count
            await asyncio.sleep(0.05)
        before = _cpu_s(pid)
        await work()
        await asyncio.gather(*tasks)
    return _cpu_s(pid) - before


async def channels(stack: contextlib.AsyncExitStack, address: str) -> list[grpc.aio.Channel]:
    own = [("grpc.use_local_subchannel_pool", 1)]
    return [await stack.enter_async_context(grpc.aio.insecure_channel(address, own)) for _ in range(CHANNELS)]


def ends_loop(data: bytes) -> bool:
    told = pb.WatchRunResponse.FromString(data)
    return any(one.run_state.run.loop.status in LOOP_ENDED for one in (told, *told.batch.events))


@pytest.mark.parametrize("batched", [False, True], ids=["single", "batched"])
async def test_a_thousand_watchers_beside_a_bare_stream(tmp_path: Path, batched: bool) -> None:
    """Both sides send the same messages, one watcher's share taken off: what the run itself costs."""
    text = "a few words of it " * PIECES + '<update status="200">Done.</update>'
    write_model(tmp_path, "m", text, 20, PIECE_MS)
    recorded, address = tmp_path / "recorded.jsonl", f"unix:{tmp_path}/floor.sock"
    async with contextlib.AsyncExitStack() as stack:
        made = await stack.enter_async_context(serving(tmp_path))
        pid = made.pids[SERVICES.index("executor")]
        ours, bare = await channels(stack, made.executor), await channels(stack, address)
        runs = iter(range(100))

        async def watched(count: int) -> tuple[float, Following]:
            run = f"r{next(runs)}"
            await made.client.create_run(made.project, run, settings_pb2.RunSettings(model="scripted/m"))
            request = pb.WatchRunRequest(project=made.project, run=run, batched=batched).SerializeToString()
            following = Following(ours, WATCH, request, ends_loop)
            given = settings("scripted/m")
            work = lambda: made.client.act(made.project, "Talk.", run=run, settings=given)  # noqa: E731
            return await cost(following, count, pid, work), following

        alone, told = await watched(1)
        begin = told.messages[0][0]
        lines = [json.dumps([at - begin, base64.b64encode(data).decode()]) for at, data in told.messages]
        recorded.write_text("".join(f"{line}\n" for line in lines))
        floor_pid = await stack.enter_async_context(floor("fan-out", address, str(recorded)))
        last = told.messages[-1][1]

        async def streamed(count: int) -> tuple[float, Following]:
            following = Following(bare, FOLLOW, b"", lambda data: data == last)
            return await cost(following, count, floor_pid, lambda: bare[0].unary_unary(START)(b"")), following

        alone_bare, _ = await streamed(1)
        ratios, costs = [], []
        for _ in range(ROUNDS):
            (cpu, said), (cpu_bare, said_bare) = await watched(WATCHERS), await streamed(WATCHERS)
            mine, theirs = (cpu - alone) / said.received, (cpu_bare - alone_bare) / said_bare.received
            ratios.append((mine * said.received) / (theirs * said_bare.received))
            costs.append((mine * 1e6, theirs * 1e6, said.received / WATCHERS))
    mine, theirs, each = map(statistics.median, zip(*costs, strict=True))
    assert theirs > 0
    print(
        f"\n{WATCHERS} watchers, {each:.1f} messages{' of batches' if batched else ''} each, CPU of the server: "
        f"{mine:.0f} us a message, a bare stream {theirs:.0f} us: {statistics.median(ratios):.2f} each"
    )


# ---- Tokens


async def test_the_cpu_of_a_token(tmp_path: Path) -> None:
    """60 runs with 100 tokens a second each, and a watcher for each; beside two bare hops of the same tokens."""
    write_model(tmp_path, "m", f"{TOKEN * TOKENS}", len(TOKEN), TOKEN_S * 1000)
    async with serving(tmp_path, TURNWRIGHT_LOOP_TURNS_MAX="1") as stack:
        seen = {"chars": 0, "messages": 0}

        async def watch(run: str) -> None:
            queued = await stack.client.act(stack.project, "Talk.", run=run, settings=settings("scripted/m"))
            async with contextlib.aclosing(stack.client.watch(queued.project, queued.run, queued.cursor)) as told:
                async for event in told:
                    if event.HasField("stream_delta"):
                        seen["chars"] += sum(len(delta.append_content) for delta in event.stream_delta.deltas)
                        seen["messages"] += 1

        tasks = [asyncio.create_task(watch(f"r{number}")) for number in range(RUNS)]
        while seen["chars"] < RUNS * len(TOKEN) * 50:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        cpu, chars, messages = [_cpu_s(pid) for pid in stack.pids], seen["chars"], seen["messages"]
        await asyncio.sleep(MEASURED_S)
        cpu = [_cpu_s(pid) - before for pid, before in zip(stack.pids, cpu, strict=True)]
        tokens = (seen["chars"] - chars) / len(TOKEN)
        events_seen = seen["messages"] - messages
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    bare_us = await _bare_tokens_us(tmp_path)
    ours_us = sum(cpu) / tokens * 1e6
    assert bare_us > 0
    parts = ", ".join(f"{name} {used / tokens * 1e6:.0f}" for name, used in zip(SERVICES, cpu, strict=True))
    print(
        f"\n{RUNS} runs x {tokens / RUNS / MEASURED_S:.0f} tokens/s: {ours_us:.0f} us CPU a token ({parts}), "
        f"{tokens / events_seen:.1f} tokens an event; two bare hops {bare_us:.0f} us: {ours_us / bare_us:.2f}"
    )


async def _bare_tokens_us(folder: Path) -> float:
    """Microseconds of CPU a token that two bare servers take, one of which makes the tokens."""
    far, near = f"unix:{folder}/far.sock", f"unix:{folder}/near.sock"
    count = 0

    async def follow(channel: grpc.aio.Channel) -> None:
        nonlocal count
        async for _ in channel.unary_stream(FOLLOW)(b""):
            count += 1

    async with (
        floor("relay", far, f"tokens:{TOKENS}:{TOKEN_S}") as far_pid,
        floor("relay", near, far) as near_pid,
        grpc.aio.insecure_channel(near) as channel,
    ):
        tasks = [asyncio.create_task(follow(channel)) for _ in range(RUNS)]
        while count < RUNS * 50:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        before, counted = _cpu_s(far_pid) + _cpu_s(near_pid), count
        await asyncio.sleep(MEASURED_S / 2)
        used, counted = _cpu_s(far_pid) + _cpu_s(near_pid) - before, count - counted
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return used / counted * 1e6


# ---- The first delta


async def test_the_first_delta_beside_two_bare_hops(tmp_path: Path) -> None:
    """From the vendor's first words until a client has them."""
    far, near = f"unix:{tmp_path}/far.sock", f"unix:{tmp_path}/near.sock"
    async with SseServer() as vendor, contextlib.AsyncExitStack() as stack:
        # A wake-up that waits for other processes takes longer than all of the work on a delta.
        stack.enter_context(undisturbed())
        environment = {"OPENAI_BASE_URL": vendor.url, "OPENAI_API_KEY": "k"}
        made = await stack.enter_async_context(serving(tmp_path, **environment))
        await stack.enter_async_context(floor("relay", far, f"{vendor.url}/chat/completions"))
        await stack.enter_async_context(floor("relay", near, far))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(near))

        def answer() -> asyncio.Event:
            gate = asyncio.Event()
            said = delta(content=f'{TOKEN} <update status="200">Done.</update>')
            chunks = events(delta(role="assistant", content=""), said, delta(finish="stop"), usage_chunk(1, 1))
            vendor.add(Answer(chunks=chunks, gate=gate))
            return gate

        async def told(gate: asyncio.Event) -> float:
            """When the vendor began to speak."""
            await vendor.wait_for(len(vendor.requests) + 1)
            await asyncio.sleep(THINKING_S)
            gate.set()
            return time.perf_counter()

        async def ours() -> float:
            said = asyncio.create_task(told(answer()))
            queued = await made.client.act(made.project, "Talk.", run="r", settings=settings("openai/tiny"))
            came = 0.0
            async with contextlib.aclosing(made.client.watch(queued.project, "r", queued.cursor)) as watched:
                async for event in watched:
                    if event.HasField("stream_delta") and not came:
                        came = time.perf_counter()
                    if event.run_state.run.loop.status in LOOP_ENDED:
                        return came - await said
            raise AssertionError("the watch ended")

        async def bare() -> float:
            said = asyncio.create_task(told(answer()))
            came = 0.0
            async for chunk in channel.unary_stream(FOLLOW)(b"{}"):
                if TOKEN.encode() in chunk and not came:
                    came = time.perf_counter()
            return came - await said

        await ours(), await bare()
        pairs = [(await ours(), await bare()) for _ in range(FIRSTS)]
    mine, theirs = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    low, ratio, high = statistics.quantiles([one / other for one, other in pairs], n=4)
    assert ratio > 0
    print(
        f"\nfirst delta {mine:.2f} ms, two bare hops {theirs:.2f} ms: {mine / theirs:.2f} "
        f"(pairs {ratio:.2f}, quartiles {low:.2f} to {high:.2f})"
    )
