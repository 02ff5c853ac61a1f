"""Readiness polling: checks repeatedly whether a service can do its work, and sets its health."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from turnwright_core.coalesced_timers import next_poll_in_s
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.health import Health
from turnwright_kit.logs import get_logger

EVERY_S: Final = 2.0
"""Seconds between readiness checks."""

FAILED_LOOKS: Final = 2
"""Consecutive failed checks after which a ready service is reported as not ready.

One late answer only means a busy moment, and a deployment that leaves because it is busy serves nobody.
"""

LOOK_S_MAX: Final = 5.0
"""Timeout of one check in seconds; a service that hangs is not ready."""

FIRST_LOOK_S: Final = 1.0
"""Seconds that the start waits for the first check, so that a ready service reports it from its first call on."""

_log = get_logger("readiness")


class Readiness:
    """The readiness checks of one service."""

    def __init__(
        self,
        name: str,
        ready: Callable[[], Awaitable[None]] | None,
        health: Health,
        dependencies: Mapping[str, Callable[[], Awaitable[None]]] | None = None,
        *,
        every_s: float = EVERY_S,
        look_s_max: float = LOOK_S_MAX,
    ) -> None:
        """`ready` raises if the service cannot do its work, and each check of a dependency if that one cannot.

        Without `ready`, the service is ready if its first dependency is, and always if it has none. Times are in
        seconds.
        """
        self._name = name
        self._dependencies = dict(dependencies or {})
        self._needed = next(iter(self._dependencies), "") if ready is None else ""
        self._ready = ready or self._dependencies.pop(self._needed, None)
        self._health = health
        self._every_s = every_s
        self._look_s_max = look_s_max
        self._tasks: list[asyncio.Task[None]] = []
        self._has_looked = asyncio.Event()

    async def begin(self) -> None:
        looks = [(name, self._report(name, check)) for name, check in self._dependencies.items()]
        if self._ready:
            looks.append((self._needed, self._look(self._ready)))
        self._tasks = [asyncio.create_task(look, name=f"readiness {self._name} {name}") for name, look in looks]
        if not self._ready:
            self._health.set(ready=True)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_S):
                await self._has_looked.wait()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report(self, name: str, check: Callable[[], Awaitable[None]]) -> None:
        while True:
            problem = await self._problem(check)
            self._health.set_dependency(name, ready=not problem, why=_word(problem))
            await self._pause()

    async def _pause(self) -> None:
        await asyncio.sleep(next_poll_in_s(asyncio.get_running_loop().time(), self._every_s))

    async def _look(self, ready: Callable[[], Awaitable[None]]) -> None:
        before: bool | None = None
        failed = 0
        while True:
            problem = await self._problem(ready)
            if self._needed:
                self._health.set_dependency(self._needed, ready=not problem, why=_word(problem))
            failed = failed + 1 if problem else 0
            is_ready = not problem or (before is True and failed < FAILED_LOOKS)
            if is_ready is not before:
                if not is_ready:
                    _log.warning("readiness_lost", service=self._name, problem=problem)
                elif before is False:
                    _log.info("readiness_regained", service=self._name)
                before = is_ready
                self._health.set(ready=is_ready)
            self._has_looked.set()
            await self._pause()

    async def _problem(self, ready: Callable[[], Awaitable[None]]) -> str:
        try:
            async with asyncio.timeout(self._look_s_max):
                await ready()
        except TurnwrightError as error:
            return error.message
        except TimeoutError:
            return f"what it needs did not answer within {self._look_s_max:g} s"
        except Exception as error:  # noqa: BLE001 - a look that fails in any way must not be the last one
            return f"{type(error).__name__}: {error}"
        return ""


def _word(problem: str) -> str:
    """The reason with which a problem begins; empty if it has none."""
    word = problem.partition(":")[0]
    return word if word in Reason.__members__ else ""
