"""The loop of every watch: wake up, read what is new, send it or a heartbeat, wait.

A watcher has no queue of messages. It reads when a commit wakes it, and again after the caller has taken what was read
(backpressure): a slow watcher costs the store what it has not taken of one read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

from turnwright_core.batching import heartbeat_due_s
from turnwright_core.errors import Reason, fault
from turnwright_store.ports import Subscription

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Watch(Protocol[T_co]):
    """What one watcher follows, and what it has been sent of that."""

    @property
    def pause_s(self) -> float:
        """Shortest time between two reads: what happens in between is combined."""

    @property
    def subscription(self) -> Subscription:
        """Of the commits that may bring news; closed at the end of the watch."""

    def read(self, *, is_woken: bool, is_due: bool) -> AsyncIterator[T_co]:
        """What is new. `is_woken`: there may have been commits; `is_due`: the next heartbeat is due."""

    def heartbeat(self) -> T_co:
        """The message to send if nothing is new."""


class Watches:
    """The watchers of one store, and their shutdown."""

    def __init__(self) -> None:
        self._is_draining = False
        self._waiting: set[asyncio.Event] = set()

    def drain(self) -> None:
        self._is_draining = True
        for woken in self._waiting:
            woken.set()

    async def follow(
        self, begin: Callable[[], Awaitable[Watch[T]]], heartbeat_s: Callable[[], float]
    ) -> AsyncGenerator[T, None]:
        """Stream what a watch finds, and heartbeats if it is silent, until the caller ends it.

        The first message is sent at once. Raises DRAINING, and what the watch raises.
        """
        watch = await begin()
        woken = watch.subscription.woken
        clock_s = asyncio.get_running_loop().time
        due_s = clock_s()
        is_woken = True
        try:
            while True:
                is_due, is_silent = clock_s() >= due_s, True
                woken.clear()
                async for message in watch.read(is_woken=is_woken, is_due=is_due):
                    yield message
                    is_silent = False
                if is_due:
                    if is_silent:
                        yield watch.heartbeat()
                    due_s = heartbeat_due_s(clock_s(), heartbeat_s())
                if watch.pause_s:
                    await asyncio.sleep(watch.pause_s)
                await self._wait(woken, max(0.0, due_s - clock_s()))
                is_woken = woken.is_set()
        finally:
            watch.subscription.close()

    async def _wait(self, woken: asyncio.Event, timeout_s: float) -> None:
        """Wait until there may be something new, or until the timeout. Raises DRAINING."""
        self._waiting.add(woken)
        try:
            if not self._is_draining:
                async with asyncio.timeout(timeout_s):
                    await woken.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(woken)
        if self._is_draining:
            raise fault(Reason.DRAINING, "The store is shutting down: call the watch again with your last cursor.")
