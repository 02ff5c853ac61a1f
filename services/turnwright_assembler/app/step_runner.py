"""Time limits for work that calls plugins: it runs in a thread with a deadline.

A plugin's function may take long, or never return, and the event loop serves all runs. So if there are plugins, each
step of a packet runs in a thread. A step that is late is abandoned: its packet fails with the name of the plugin in
charge, and nothing that it still changes is used. A thread cannot be stopped; see PluginCalls. Source: architecture
12.9; rows RU145.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from turnwright_assembler.sections.plugin_sections import PacketPlugins, PluginFunction, watched
from turnwright_kit.plugin_calls import LateError, PluginCalls, PluginError

DEADLINE_S: Final = 10.0
"""Default time limit of a step, in seconds."""

T = TypeVar("T")


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
            if not isinstance(error.fault, LateError):
                raise error.fault from None
            part = busy[-1] if busy else PluginFunction(" ".join(self._packet_plugins.plugins), "the packet", str)
            what = f"did not finish {part.name} within {self._calls.deadline_s:g} s"
            raise part.failure(what, error.fault) from None
        return result
