"""The hubs of runs that are worked on or watched."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from turnwright_core.errors import TurnwrightError
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.publishing import Activity
from turnwright_executor.watching.hub import FEED_BACKOFF, HubEndedError, Predicate, RunHub, draining_error
from turnwright_executor.watching.run_fold import FreshRun


class Hubs:
    """Opens a hub for its first holder, and closes it when nobody has held it for a while."""

    def __init__(self, owner: str, ledger: Ledger, settings: ExecutorSettings) -> None:
        """`owner` identifies this executor process in the epochs of its hubs."""
        self._owner = owner
        self._ledger = ledger
        self._settings = settings
        self._opened = 0
        self._hubs: dict[RunAddress, RunHub] = {}
        self._unready: set[RunHub] = set()
        self._opening: WeakValueDictionary[RunAddress, asyncio.Lock] = WeakValueDictionary()
        """Those who want the hub of one run at once: the first opens it."""
        self._lingering: dict[RunAddress, asyncio.TimerHandle] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def has(self, address: RunAddress) -> bool:
        return self.find(address) is not None

    def find(self, address: RunAddress) -> RunHub | None:
        """The hub of a run, if it is open."""
        hub = self._hubs.get(address)
        return None if hub is None or hub.has_ended else hub

    def report_waiting(self, address: RunAddress) -> None:
        """Send those who watch a run that it waits for its turn."""
        if hub := self.find(address):
            hub.progress(Activity.WAITING, 0, "its turn: other runs are at work")

    @contextlib.asynccontextmanager
    async def hold(self, address: RunAddress, fresh: FreshRun | None = None) -> AsyncIterator[RunHub]:
        """The hub of a run, kept open during the block and a little longer.

        Raises TurnwrightError if the run does not exist, DRAINING during shutdown.
        """
        async with self._opening.setdefault(address, asyncio.Lock()):
            hub = await self._open(address, fresh)
        hub.holders += 1
        try:
            yield hub
        finally:
            hub.holders -= 1
            if hub.holders == 0 and self._hubs.get(address) is hub:
                loop = asyncio.get_running_loop()
                self._lingering[address] = loop.call_later(self._settings.linger_s, self._evict, address, hub)

    async def answer(self, call: Callable[[Any, Any], Awaitable[Any]], request: Any, context: Any) -> Any:
        """The answer of a call about a run, with the position of the run's events before it."""
        # The hub is opened before anything is stored, so that its cursor precedes all that the call causes.
        async with self.hold(RunAddress(request.project, request.run)) as hub:
            before = hub.before_call()
            answer = await call(request, context)
        answer.event_cursor.CopyFrom(before.cursor(answer.cursor))
        return answer

    def warn(self, address: RunAddress, text: str) -> None:
        """Tell those who watch a run why it does not go on."""
        if hub := self.find(address):
            hub.warn(text)

    async def _open(self, address: RunAddress, fresh: FreshRun | None) -> RunHub:
        if self._is_closed:
            raise draining_error()
        if timer := self._lingering.pop(address, None):
            timer.cancel()
        hub = self._hubs.get(address)
        if hub is None or hub.has_ended:
            # The one that has ended goes even if there is none to follow it.
            self._hubs.pop(address, None)
            self._opened += 1
            epoch = f"{self._owner}-{self._opened}"
            hub = RunHub(address, epoch, self._ledger, self._settings, partial(self._wait_on, address))
            self._unready.add(hub)
            try:
                await hub.open(fresh)
                self._hubs[address] = hub
            finally:
                self._unready.discard(hub)
        return hub

    async def _wait_on(self, address: RunAddress, condition: Predicate) -> None:
        """Continue a wait on the next hub of the run, after one has ended. Raises TurnwrightError."""
        pauses = FEED_BACKOFF.pauses()
        while True:
            try:
                async with self.hold(address) as hub:
                    return await hub.until(condition)
            except HubEndedError:
                pass
            except TurnwrightError as error:
                if self._is_closed or error.reason not in AWAY:
                    raise
            await asyncio.sleep(next(pauses))

    def _evict(self, address: RunAddress, hub: RunHub) -> None:
        self._lingering.pop(address, None)
        if hub.holders == 0 and self._hubs.get(address) is hub:
            del self._hubs[address]
            task = asyncio.create_task(hub.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close all hubs, including those that are being opened: all watches end, and no hub is opened again."""
        self._is_closed = True
        for timer in self._lingering.values():
            timer.cancel()
        self._lingering.clear()
        hubs, self._hubs = [*self._hubs.values(), *self._unready], {}
        await asyncio.gather(*(hub.close() for hub in hubs), *self._closing)
