"""Work in which functions of plugins are called: in a thread, and only for so long.

A function of a plugin may take long, or never come back, and the event loop serves all runs. So where there are
plugins each step of a packet is done in a thread. One that is not done in time is left alone: its packet fails and
names whoever was at it, and nothing that it still changes is used again. A thread cannot be stopped; see PluginCalls.
Source: architecture 12.9; rows RU148.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from turnwright_assembler.sections.plugged import Plugged, PluginFunction, watched
from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.plugin_calls import LateError, PluginCalls, PluginError

DEADLINE_S: Final = 10.0
"""Seconds that a step may take where no setting says otherwise."""

T = TypeVar("T")

_log = get_logger("plugins")


class Bounded:
    """Does the steps of packets."""

    def __init__(self, plugged: Plugged, deadline_s: float = DEADLINE_S) -> None:
        """`deadline_s` bounds each step, in seconds; without plugins nothing does, and there is no thread."""
        self._plugged = plugged
        self._calls = PluginCalls(deadline_s) if plugged.plugins else None

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """What the work returns. Raises what it raises, and PLUGIN_FAILED at the deadline."""
        if self._calls is None:
            return work(*given)
        busy: list[PluginFunction] = []
        try:
            result: T = await self._calls.call(watched, busy, work, *given)
        except PluginError as error:
            raise self._overdue(busy) if isinstance(error.fault, LateError) else error.fault from None
        return result

    def _overdue(self, busy: list[PluginFunction]) -> TurnwrightError:
        part = busy[-1] if busy else PluginFunction(" ".join(self._plugged.plugins), "the packet", str)
        deadline_s = self._calls.deadline_s if self._calls else 0.0
        error_id = secrets.token_hex(8)
        _log.error(
            "plugin_deadline_exceeded", plugin=part.plugin, part=part.name, error_id=error_id, deadline_s=deadline_s
        )
        return part.failure(f"did not finish {part.name} within {deadline_s:g} s", error_id)
