"""Running hooks: values go through filter chains, events go to observers.

Theory of operation. A filter is awaited, because the value depends on it. It has a deadline, and any exception or wrong
return type is a failure that the hook handles. An observer is not awaited: each has its own queue and task, so that a
slow one delays nobody and a failing one breaks nothing. A full queue drops the event, with a line in the log: whoever
must not miss anything reads the store.
Source: rows RU041, RU042, RU155.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final, Generic, TypeVar

from msgspec import Struct

from turnwright_core.json_text import JsonObject
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.hooks.points import EVENTS, FILTERS, EventHook, FilterHook
from turnwright_executor.hooks.registry import HookSubscription, Registry
from turnwright_kit.logs import get_logger
from turnwright_kit.plugin_calls import PluginCalls, PluginError

P = TypeVar("P")
V = TypeVar("V")
C = TypeVar("C")

EVENTS_MAX: Final = 1000
"""Maximum length of an observer's queue, in events; further ones are dropped."""

DEADLINE_S: Final = 5.0
"""Default deadline for a call of a plugin's function, in seconds."""

STOP_S: Final = 2.0
"""Seconds that observers have at shutdown to work off their queues."""

_log = get_logger("hooks")


class FilterChange(Struct, Generic[V], frozen=True):
    """The filter that changed a value, and the value before it."""

    by: HookSubscription
    before: V


class Hooks:
    """The subscriptions of a registry as of its construction."""

    def __init__(self, registry: Registry, deadline_s: float = DEADLINE_S, events_max: int = EVENTS_MAX) -> None:
        """`deadline_s` bounds each call of a plugin's function, `events_max` the events that wait for one."""
        self._registry = registry
        # Each plugin has places of its own: one that hangs, again and again, takes none from the others.
        subscribed = (one for name in (*FILTERS, *EVENTS) for one in registry.chain(name))
        self._calls = {plugin: PluginCalls(deadline_s) for plugin in {one.plugin for one in subscribed}}
        self.failures: list[tuple[HookSubscription, BaseException]] | None = None
        """Set it to a list to collect the failed filters, which otherwise are only logged."""
        self._chains = {name: registry.chain(name) for name in FILTERS}
        self._observers = {
            name: tuple(_Observer(one, self._calls[one.plugin], events_max) for one in registry.chain(name))
            for name in EVENTS
        }

    @property
    def plugins(self) -> dict[str, tuple[str, ...]]:
        return self._registry.plugins()

    @property
    def tool_descriptors(self) -> tuple[ToolDescriptor, ...]:
        return self._registry.tool_descriptors

    async def apply(self, hook: FilterHook[V, C], value: V, context: C) -> V:
        """The value after the hook's chain of filters. Never raises for an error of a filter."""
        return (await self.trace(hook, value, context))[0]

    async def trace(self, hook: FilterHook[V, C], value: V, context: C) -> tuple[V, FilterChange[V] | None]:
        """As `apply`, and the last filter that changed the value; None: none did."""
        changed = None
        for one in self._chains[hook.name]:
            after = one.call(value, context) if one.is_rule else await self._filtered(hook, one, value, context)
            if after is value:
                continue
            if after != value:
                changed = FilterChange(one, value)
            value = after
            if hook.ends and hook.ends(value):
                break
        return value, changed

    async def _filtered(self, hook: FilterHook[V, C], one: HookSubscription, value: V, context: C) -> V:
        try:
            result = await self._calls[one.plugin].call(one.call, value, context)
        except PluginError as error:
            return self._failed(hook, one, value, error.fault)
        if isinstance(result, hook.value):
            return result
        returned = TypeError(f"it returned {type(result).__name__} and not {hook.value.__name__}")
        return self._failed(hook, one, value, returned)

    def _failed(self, hook: FilterHook[V, C], one: HookSubscription, value: V, error: BaseException) -> V:
        error_id = _log_failure(one, error)
        if self.failures is not None:
            self.failures.append((one, error))
        if hook.failed is None:
            return value
        sentence = (
            f"The plugin {one.plugin} that checks this failed (error {error_id}), so it is not carried out. "
            "This is a fault of the plugin, not of the command."
        )
        return hook.failed(value, sentence)

    def observes(self, hook: EventHook[P]) -> bool:
        """Whether anybody would be notified of this event."""
        return bool(self._observers[hook.name])

    def emit(self, hook: EventHook[P], payload: P) -> None:
        """Notify the observers. Returns at once and never raises. Needs a running event loop."""
        for observer in self._observers[hook.name]:
            observer.put(payload)

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Let observers work off their queues for at most `grace_s` seconds, then stop them."""
        observers = [observer for several in self._observers.values() for observer in several]
        await asyncio.gather(*(observer.stop(grace_s) for observer in observers))


class _Observer:
    """One observer, its queue, and the task that calls it."""

    def __init__(self, subscription: HookSubscription, calls: PluginCalls, events_max: int) -> None:
        self._subscription = subscription
        self._calls = calls
        self._queue: asyncio.Queue[object] = asyncio.Queue(events_max)
        self._task: asyncio.Task[None] | None = None
        self._dropped = 0

    def put(self, payload: object) -> None:
        """Queue an event; it is dropped if the queue is full."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"observer {self._subscription.name}")
        try:
            self._queue.put_nowait(payload)
        except asyncio.QueueFull:
            if not self._dropped:
                _log.warning("events_dropped", **_who(self._subscription))
            self._dropped += 1

    async def _run(self) -> None:
        while True:
            payload = await self._queue.get()
            if self._dropped and self._queue.empty():
                _log.warning("events_resumed", dropped=self._dropped, **_who(self._subscription))
                self._dropped = 0
            try:
                await self._calls.call(self._subscription.call, payload)
            except PluginError as error:
                # An observer breaks nothing (RU041).
                _log_failure(self._subscription, error.fault)
            finally:
                self._queue.task_done()

    async def stop(self, grace_s: float) -> None:
        if self._task is None:
            return
        try:
            await asyncio.wait_for(self._queue.join(), grace_s)
        except TimeoutError:
            _log.warning("events_abandoned", left=self._queue.qsize(), **_who(self._subscription))
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def _who(one: HookSubscription) -> JsonObject:
    return {"hook": one.hook, "plugin": one.plugin, "function": one.name}


def _log_failure(one: HookSubscription, error: BaseException) -> str:
    """Log a failed function; returns the id under which it is logged, which is all that others see."""
    error_id = secrets.token_hex(8)
    _log.error("hook_failed", **_who(one), error_id=error_id, exc_info=error)
    return error_id
