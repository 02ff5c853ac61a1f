"""Service discovery for a home: a serving process writes a record with its address; other processes read and check it.

Source: architecture 15 ("a second command attaches to a live stack").
"""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import Final

import grpc
import msgspec
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import Struct

from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.transport import PLAINTEXT, open_channel
from turnwright_kit.home import ensure_home

CHECK_S: Final = 1.0
"""Seconds that the executor of a record has to answer."""


class StackRecord(Struct, frozen=True):
    """The discovery record of a serving process: the address of its executor, if it has one, and its process id.

    `embedded`: the stack belongs to one command and ends with it. `http`: where it serves HTTP; empty: nowhere.
    `services`: the addresses of all that it serves, by name.
    """

    executor: str
    pid: int
    embedded: bool = False
    http: str = ""
    services: dict[str, str] = {}

    def write(self, home: Path) -> None:
        """Write the record atomically: readers see the old or the new record."""
        file = record_file(home)
        ensure_home(file.parent.parent)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = file.with_name(f"{file.name}.{self.pid}.{secrets.token_hex(4)}")
        scratch.write_bytes(msgspec.json.encode(self))
        scratch.chmod(0o600)
        scratch.replace(file)

    def remove(self, home: Path) -> None:
        """Remove the record, unless another stack has written its own since."""
        if read_record(home) == self:
            record_file(home).unlink(missing_ok=True)


_RECORD: Final = msgspec.json.Decoder(StackRecord)


def record_file(home: Path) -> Path:
    return home / "run" / "stack.json"


def read_record(home: Path) -> StackRecord | None:
    """The record, whether or not its stack is alive; None if there is none, or an unreadable one."""
    try:
        return _RECORD.decode(record_file(home).read_bytes())
    except (OSError, msgspec.DecodeError):
        return None


async def locate(home: Path, server: str = "", timeout_s: float = CHECK_S, tls: Tls = PLAINTEXT) -> str | None:
    """The executor to use: `server` if given, without a check; else the home's live stack; else None."""
    if server:
        return server
    record = read_record(home)
    if record is None or not record.executor:
        return None
    return record.executor if await is_serving(record.executor, timeout_s, tls) else None


async def another_serves(record: StackRecord, home: Path, tls: Tls) -> bool:
    """Whether another stack, named in the record of the home, serves: commands go on with that one.

    A stack that belongs to a command gives way to one that stays.
    """
    found = read_record(home)
    if found is None or found.executor in ("", record.executor) or (found.embedded and not record.embedded):
        return False
    return await is_serving(found.executor, CHECK_S, tls)


async def is_serving(address: str, timeout_s: float, tls: Tls = PLAINTEXT) -> bool:
    """Whether an executor answers at the address within the time limit and is not shutting down; it need not be ready.

    An executor without its store is not replaced: it reports itself what is wrong.
    """
    found = await readiness(address, timeout_s, tls)
    return found.get("liveness", False) and "turnwright.executor.v1.ExecutorService" in found


async def readiness(address: str, timeout_s: float, tls: Tls = PLAINTEXT) -> dict[str, bool]:
    """Which of the names of `grpc.health.v1` at an address are ready; it takes no token. Empty: nobody answers."""
    channel = open_channel(address, (("grpc.use_local_subchannel_pool", 1),), tls)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(channel.close)
        try:
            answer = await health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return {}
    return {name: one.status == health_pb2.HealthCheckResponse.SERVING for name, one in answer.statuses.items()}
