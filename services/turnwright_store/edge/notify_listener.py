"""LISTEN on PostgreSQL: wakes local watchers of scopes that other replicas have changed.

Notifications may be lost, so all watchers are woken after each reconnect, and every few seconds. Source:
architecture 3 (revisions and the change feed).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import psycopg

from turnwright_kit.logs import get_logger
from turnwright_store.edge.postgres_link import CONNECT_BACKOFF, Server
from turnwright_store.edge.postgres_writer import CHANNEL, EVERYBODY
from turnwright_store.edge.wakeups import Wakeups

_log = get_logger("store.listening")


class Listener:
    """The listening connection of one store."""

    def __init__(
        self, server: Server, wakeups: Wakeups, own_pid: Callable[[], int], poll_s: float, poll: Callable[[], None]
    ) -> None:
        """`own_pid` is the backend of this store's writer, whose commits wake local watchers directly.

        `poll` is called every `poll_s` seconds, as all watchers are woken.
        """
        self._server = server
        self._wakeups = wakeups
        self._own_pid = own_pid
        self._poll_s = poll_s
        self._poll = poll
        self._tasks: list[asyncio.Task[None]] = []
        self._first = asyncio.Event()

    async def start(self) -> None:
        """Start, and wait a while for the first connection; without it, watchers are woken late."""
        self._tasks = [
            asyncio.create_task(self._listen(), name="store-listener"),
            asyncio.create_task(self._wake_again(), name="store-poll"),
        ]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._first.wait(), self._server.connect_s)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _listen(self) -> None:
        pauses = CONNECT_BACKOFF.pauses()
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._server.conninfo, **self._server.options
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    pauses = CONNECT_BACKOFF.pauses()
                    self._wakeups.wake_all()
                    self._first.set()
                    async for notification in connection.notifies():
                        self._on_notify(notification)
            except psycopg.Error as error:
                _log.warning("listening_interrupted", kind=type(error).__name__)
            await asyncio.sleep(next(pauses))

    def _on_notify(self, notification: psycopg.Notify) -> None:
        if notification.pid == self._own_pid():
            return
        if notification.payload == EVERYBODY:
            self._wakeups.wake_all()
            return
        # Anybody who can connect can notify: ignore invalid payloads.
        with contextlib.suppress(ValueError):
            self._wakeups.wake([int(scope) for scope in notification.payload.split(",")])

    async def _wake_again(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            self._poll()
            self._wakeups.wake_all()
