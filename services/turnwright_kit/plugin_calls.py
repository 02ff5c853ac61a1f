"""Calls of plugin functions: async or not, with a deadline. Whatever they raise comes back as PluginError.

A plain function may block, so it runs in a thread; each plugin has its own limit of threads.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, Final

from turnwright_kit.threads import DaemonThreadPool

THREADS_MAX: Final = 32
"""Plain functions of one plugin that may run at the same time."""

CANCEL_S: Final = 1.0
"""Seconds that a cancelled function has to end; then it is abandoned."""


class LateError(TimeoutError):
    """A plugin function missed its deadline."""


class PluginError(Exception):
    """A plugin function failed: the exception, in words for the maintainer of the plugin."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(f"{type(fault).__name__}: {fault}")
        self.fault = fault


def call_sync(function: Callable[..., object], *arguments: object) -> object:
    """Call a function synchronously. Raises PluginError."""
    try:
        return function(*arguments)
    except (Exception, SystemExit) as error:
        raise PluginError(error) from error


class PluginCalls:
    """Calls functions of plugins."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._threads = DaemonThreadPool("plugin", THREADS_MAX)
        self._under_way: set[asyncio.Task[object]] = set()

    def isolated(self) -> PluginCalls:
        """The same limits for another plugin, with threads of its own."""
        return PluginCalls(self.deadline_s)

    async def call(self, function: Callable[..., object], *arguments: object, deadline_s: float | None = None) -> Any:
        """Call a function. Raises PluginError, also at the deadline; `deadline_s` is another one for this call.

        It runs in a task of its own: a function that cancels itself does not cancel its caller, and one that ignores
        cancellation is abandoned.
        """
        called = asyncio.create_task(self._caught(function, *arguments), name="plugin")
        self._under_way.add(called)
        called.add_done_callback(self._under_way.discard)
        try:
            limit_s = self.deadline_s if deadline_s is None else deadline_s
            await asyncio.wait({called}, timeout=limit_s)
            is_late = not called.done()
        finally:
            if not called.done():
                called.cancel()
                await asyncio.wait({called}, timeout=CANCEL_S)
        if is_late:
            raise PluginError(LateError(f"no answer within {limit_s:g} s"))
        if called.cancelled():
            raise PluginError(RuntimeError("it cancelled itself"))
        result, error = called.result()
        if error is not None:
            raise PluginError(error) from error
        return result

    async def _caught(self, function: Callable[..., object], *arguments: object) -> tuple[object, BaseException | None]:
        """The result or the exception as a value: raised out of a task, some exceptions would end the process."""
        try:
            return await self._called(function, *arguments), None
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            return None, error

    async def _called(self, function: Callable[..., Any], *arguments: object) -> object:
        if _is_async(function):
            return await function(*arguments)
        result = await self._threads.run(function, *arguments)
        return await result if inspect.isawaitable(result) else result


def _is_async(function: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - asks for the method
