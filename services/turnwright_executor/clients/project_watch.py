"""The runs of a project, for those who watch all of them: what the store tells, across its restarts.

Theory of operation. Each watch holds one watch of the store. When that one ends the watcher is told nothing but
heartbeats until the store answers again; then it gets another snapshot, which replaces what it has: nothing that
happened in between is missed, and nothing is told twice as news.
Source: architecture 7; rows RU241, RU242, RU246.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.executor.v1.event_pb2 import Heartbeat
from turnwright.executor.v1.watch_pb2 import Hello, RunsChanged, RunsSnapshot, WatchRunsResponse
from turnwright.store.v1 import control_pb2 as rows_pb2

from turnwright_core import __version__
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.clients.control import ControlRows
from turnwright_executor.domain.endings import AWAY

BACKOFF_S: Final = (0.1, 0.5, 2.0, 5.0)
"""Seconds before the store is asked again, after each failure in a row."""


class ProjectWatch:
    """The watches of projects on this executor, and their common end."""

    def __init__(self, rows: ControlRows, heartbeat_s: float) -> None:
        """`heartbeat_s` are the seconds of silence after which a watcher is told that it is silence."""
        self._rows = rows
        self._heartbeat_s = heartbeat_s
        self._closing = asyncio.Event()

    def close(self) -> None:
        self._closing.set()

    async def watch(self, project: str) -> AsyncGenerator[WatchRunsResponse]:
        """Hello, a snapshot, then what changes. Raises PROJECT_NOT_FOUND, DRAINING."""
        yield _now(hello=Hello(version=__version__))
        async with contextlib.aclosing(self._told(project)) as told:
            coming: asyncio.Future[WatchRunsResponse] | None = None
            closing = asyncio.ensure_future(self._closing.wait())
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(told))
                    await asyncio.wait(
                        (coming, closing), timeout=self._heartbeat_s, return_when=asyncio.FIRST_COMPLETED
                    )
                    if self._closing.is_set():
                        raise fault(Reason.DRAINING, "The executor is shutting down: watch again.")
                    if coming.done():
                        message, coming = coming.result(), None
                        yield message
                    else:
                        yield _now(heartbeat=Heartbeat())
            finally:
                waiting = [task for task in (coming, closing) if task]
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

    async def _told(self, project: str) -> AsyncGenerator[WatchRunsResponse]:
        failures = 0
        while True:
            try:
                async with contextlib.aclosing(self._rows.watch_runs(project)) as rows:
                    async for message in _translated(rows):
                        failures = 0
                        yield message
            except TurnwrightError as error:
                if error.reason not in AWAY:
                    raise
            await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])
            failures += 1


async def _translated(rows: AsyncIterator[rows_pb2.WatchRunsResponse]) -> AsyncIterator[WatchRunsResponse]:
    """The store's messages as ours; its heartbeats are not passed on, for silence is told here."""
    part = 0
    async for message in rows:
        if message.snapshot:
            yield _now(snapshot=RunsSnapshot(part=part, last=message.snapshot_last, runs=message.runs))
            part += 1
        elif message.runs or message.removed:
            yield _now(changed=RunsChanged(runs=message.runs, removed=message.removed))


def _now(
    *,
    hello: Hello | None = None,
    snapshot: RunsSnapshot | None = None,
    changed: RunsChanged | None = None,
    heartbeat: Heartbeat | None = None,
) -> WatchRunsResponse:
    stamp = Timestamp()
    stamp.FromNanoseconds(time.time_ns())
    return WatchRunsResponse(time=stamp, hello=hello, snapshot=snapshot, changed=changed, heartbeat=heartbeat)
