"""Slots: how many runs are worked on at a time, and who is next.

There are two limits. A loop has one of `loops_max` slots as long as it is worked on; it gives it back while it sleeps
(a rate limit, a model that is being loaded) and at its end. Of those loops, READY_MAX are at work at the same moment:
they share one event loop, and more of them would only make each step of each one late. A step that takes longer than
WAITS_AFTER_S waits for something else, such as the model or a command: it goes on without being counted.

Slots go by turns over projects, and within a project in the order in which runs asked. Source: architecture 3 (fair
between projects); rows RU109, RU110.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

READY_MAX: Final = 8
"""Loops at work at the same moment. With more of them no more turns are done, and every event is later."""

WAITS_AFTER_S: Final = 0.25
"""Seconds after which a step counts as waiting for something else; a step's own work takes a few hundredths."""

NOTIFIED_AFTER_S: Final = 0.5
"""Seconds after which a run that waits for a slot is told so."""

NOTIFIED_EVERY_S: Final = 5.0
"""Seconds until it is told again, for those who have begun to watch meanwhile."""


class Slots:
    """A number of slots."""

    def __init__(self, limit: int) -> None:
        """`limit` runs have one at a time."""
        self._free = limit
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By project, the next one first."""

    @property
    def free(self) -> int:
        """Slots that nobody has or waits for."""
        return 0 if self._waiting else self._free

    async def take(self, project: str, notify: Callable[[], None]) -> None:
        """Take a slot, at once or in turn; `notify` is called while that takes long."""
        if self.free:
            self._free -= 1
            return
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(project, deque()).append(given)
        wait_s = NOTIFIED_AFTER_S
        try:
            while not given.done():
                await asyncio.wait((given,), timeout=wait_s)
                if not given.done():
                    notify()
                    wait_s = NOTIFIED_EVERY_S
        except asyncio.CancelledError:
            if given.done():
                self.give_back()
            else:
                self._forget(project, given)
            raise

    def _forget(self, project: str, given: asyncio.Future[None]) -> None:
        queue = self._waiting[project]
        queue.remove(given)
        if not queue:
            del self._waiting[project]

    def give_back(self) -> None:
        """Somebody has no use for a slot any more: the next one gets it."""
        if not self._waiting:
            self._free += 1
            return
        project, queue = self._waiting.popitem(last=False)
        queue.popleft().set_result(None)
        if queue:
            # Behind all other projects.
            self._waiting[project] = queue


class Slot:
    """What one run has of the slots: it asks before each step, and gives back what it does not use."""

    def __init__(self, loops: Slots, ready: Slots, project: str, notify: Callable[[], None]) -> None:
        """It has nothing yet. `notify` says that it waits."""
        self._kinds = (loops, ready)
        self._held: list[Slots] = []
        self._project = project
        self._notify = notify
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_loop(self) -> bool:
        return bool(self._held)

    async def begin_step(self) -> None:
        """Be at work, now or in turn."""
        await self.take_loop()
        if len(self._held) == 1:
            await self._take(self._kinds[1])
        self._timer = asyncio.get_running_loop().call_later(WAITS_AFTER_S, self.pause)

    async def take_loop(self) -> None:
        """Take a slot for a loop, now or in turn."""
        if not self._held:
            await self._take(self._kinds[0])

    async def _take(self, slots: Slots) -> None:
        await slots.take(self._project, self._notify)
        self._held.append(slots)

    def end_step(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def yield_turn(self) -> None:
        """A turn has ended: others that are ready come first."""
        if len(self._held) == 2 and not self._kinds[1].free:
            self.pause()

    def pause(self) -> None:
        """Wait for something else, such as the model: others work meanwhile."""
        if self._held and self._held[-1] is self._kinds[1]:
            self._held.pop().give_back()

    def sleep(self) -> None:
        """Sleep until a moment, or be done: not even the loop is counted."""
        while self._held:
            self._held.pop().give_back()
