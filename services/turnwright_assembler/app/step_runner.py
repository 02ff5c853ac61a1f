"""Time limits for work that calls plugins: it runs in a thread with a deadline.

A plugin's function may take long, or never return, and the event loop serves all runs. So if there are plugins, each
step of a packet runs in a thread. A step that is late is abandoned: its packet fails with the name of the plugin in
charge, and nothing that it still changes is used. A thread cannot be stopped; see PluginCalls. Source: architecture
12.9; rows RU145.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final, TypeVar

from turnwright_assembler.sections.plugin_sections import PacketPlugins, PluginFunction, watched
from turnwright_core.errors import TurnwrightError
from turnwright_kit.logs import get_logger
from turnwright_kit.plugin_calls import LateError, PluginCalls, PluginError

DEADLINE_S: Final = 10.0
"""Default time limit of a step, in seconds."""

T = TypeVar("T")

_log = get_logger("plugins")


class StepRunner:
    """Runs the steps of packets."""

    def __init__(self, packet_plugins: PacketPlugins, deadline_s: float = DEADLINE_S) -> None:
        """`deadline_s` limits each step, in seconds; without plugins there is no limit, and no thread."""
        self._packet_plugins = packet_plugins
        self._calls = PluginCalls(deadline_s) if packet_plugins.plugins else None

    async def run(self, work: Callable[..., T], *given: object) -> T:
        """Run the work. Raises its errors, and PLUGIN_FAILED at the deadline."""
        if self._calls is None:
            return work(*given)
        busy: list[PluginFunction] = []
        try:
            result: T = await self._calls.call(watched, busy, work, *given)
        except PluginError as error:
            raise self._overdue(busy) if isinstance(error.fault, LateError) else error.fault from None
        return result

    def _overdue(self, busy: list[PluginFunction]) -> TurnwrightError:
        part = busy[-1] if busy else PluginFunction(" ".join(self._packet_plugins.plugins), "the packet", str)
        deadline_s = self._calls.deadline_s if self._calls else 0.0
        error_id = secrets.token_hex(8)
        _log.error(
            "plugin_deadline_exceeded", plugin=part.plugin, part=part.name, error_id=error_id, deadline_s=deadline_s
        )
        return part.failure(f"did not finish {part.name} within {deadline_s:g} s", error_id)
