"""What a call and a token by HTTP cost the server, beside the same by gRPC.

CPU is that of the server, a process of its own, all threads included. The sides take turns.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from turnwright.executor.v1 import executor_service_pb2 as pb
from turnwright.runs.v1 import run_service_pb2

from e2e.cli_process import PORTS, Bench, json_lines
from turnwright_core.rpc.headers import call_metadata

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ROUNDS = 5
CALLS = 200
WATCHES = 40
TOKENS = 1500
GET = "/turnwright.runs.v1.RunService/GetRun"
WATCH = "/turnwright.executor.v1.ExecutorService/WatchRun"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


class Http:
    """A connection that is kept, of a client that costs next to nothing."""

    def __init__(self, address: str, token: str) -> None:
        self.host, _, self.port = address.rpartition(":")
        self.token = token

    async def send(self, path: str, body: bytes, kind: str, accept: str = "*/*"):
        reader, writer = await asyncio.open_connection(self.host, int(self.port), limit=1 << 22)
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self.token}\r\ncontent-type: {kind}\r\n"
            f"accept: {accept}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return reader, writer, head.encode() + body

    async def calls(self, request, count: int, kind: str) -> None:
        body = json.dumps(request).encode() if kind.endswith("json") else request
        reader, writer, sent = await self.send(GET, body, kind)
        for _ in range(count):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 "), head
            while (length := int(await reader.readline(), 16)) or await reader.readline() != b"\r\n":
                await reader.readexactly(length + 2)
        writer.close()

    async def watch(self, request, kind: str, accept: str, last: bytes) -> None:
        body = json.dumps(request).encode()
        if accept != "text/event-stream":
            body = struct.pack(">BI", 0, len(body)) + body
        reader, writer, sent = await self.send(WATCH, body, kind, accept)
        writer.write(sent)
        await reader.readuntil(last)
        writer.close()


async def compared(pid: int, title: str, each: int, sides: dict[str, Callable[[], Awaitable[None]]]) -> None:
    """Print what each side costs, and how much that is of what gRPC does."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS + 1):
        for name, work in sides.items():
            begin = cpu_s(pid)
            await work()
            if number:
                taken[name].append((cpu_s(pid) - begin) / each)
    for name, found in taken.items():
        ratio = statistics.median(a / b for a, b in zip(found, taken["gRPC"], strict=True))
        print(f"{title} by {name}: {statistics.median(found) * 1e6:.0f} us CPU (ratio {ratio:.2f})")
        assert ratio > 0


@pytest.mark.asyncio
async def test_calls_and_tokens_beside_grpc(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"TURNWRIGHT_FLUSH_MS": "0"})
    text = "words " * TOKENS
    bench.script("m", f'=== reply chunk_chars=6 delay_ms=1 ===\n{text}\n<update status="200">Done.</update>')
    with bench.running("serve", *PORTS, "--listen", "http=127.0.0.1:0") as served:
        address = served.wait_for(r"^executor serves at (\S+)", "err")[1]
        url = served.wait_for(r"^HTTP is served at http://(\S+)", "err")[1]
        acted = await asyncio.to_thread(bench.run, "act", "Do it.", "--run", "r", "--model", "m", "--yolo", "--json")
        said = json_lines(acted.stdout)
        project = next(one["run_state"]["run"]["project"] for one in said if "run_state" in one)
        token, pid = (bench.home / "token").read_text().strip(), served.popen.pid
        deltas = [one["cursor"] for one in said if "stream_delta" in one]
        begin, end = deltas[0], deltas[-1]
        assert len(deltas) > 20
        # As its message is written.
        last = b'"seq":"%d"}' % int(end["seq"])
        get = run_service_pb2.GetRunRequest(project=project, run="r").SerializeToString()
        asked = pb.WatchRunRequest(project=project, run="r")
        asked.after.epoch, asked.after.seq = begin["epoch"], int(begin["seq"])
        shown = {"project": project, "run": "r", "after": begin}
        http = Http(url, token)
        async with grpc.aio.insecure_channel(address) as channel:
            metadata = call_metadata(token)
            unary, stream = channel.unary_unary(GET), channel.unary_stream(WATCH)

            async def by_grpc() -> None:
                for _ in range(CALLS):
                    await unary(get, metadata=metadata)

            async def watched() -> None:
                for _ in range(WATCHES):
                    call = stream(asked.SerializeToString(), metadata=metadata)
                    while pb.WatchRunResponse.FromString(await call.read()).cursor.seq < int(end["seq"]):
                        pass
                    call.cancel()

            async def many(kind: str, accept: str) -> None:
                for _ in range(WATCHES):
                    await http.watch(shown, kind, accept, last)

            # The watches first: what they are told is kept for a minute.
            tokens = WATCHES * (int(end["seq"]) - int(begin["seq"]))
            watches = {
                "gRPC": watched,
                "JSON": lambda: many("application/connect+json", "*/*"),
                "events": lambda: many("application/json", "text/event-stream"),
            }
            await compared(pid, "a token", tokens, watches)
            calls = {
                "gRPC": by_grpc,
                "JSON": lambda: http.calls({"project": project, "run": "r"}, CALLS, "application/json"),
                "binary": lambda: http.calls(get, CALLS, "application/proto"),
            }
            await compared(pid, "a call", CALLS, calls)
