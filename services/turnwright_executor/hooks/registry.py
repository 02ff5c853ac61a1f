"""The one registry: who is told of what, and who filters what, in which order.

The runtime's own rules register here like any plugin, so that a plugin's place among them is a number.
Source: rows RU041, RU042, RU145; architecture 6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from turnwright_executor.hooks.points import EVENTS, FILTERS, EventHook, FilterHook

P = TypeVar("P")
V = TypeVar("V")
C = TypeVar("C")

PRIORITY_DEFAULT: Final = 10
"""Place in a chain when none is named; lower goes first, equal ones in the order of registration (RU042)."""

RUNTIME: Final = "turnwright"
"""The name under which the runtime's own rules are registered."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One observer or filter. `name` is that of its function."""

    hook: str
    plugin: str
    name: str
    priority: int
    call: Callable[..., Any]

    @property
    def is_rule(self) -> bool:
        """Whether it is one of the runtime's own: pure, quick, called where it is."""
        return self.plugin == RUNTIME


class Registry:
    """Collects subscriptions. A plugin is given it as the argument of its `register(registry)`."""

    def __init__(self, plugin: str = RUNTIME, _shared: list[Subscription] | None = None) -> None:
        """Register on behalf of this plugin."""
        self.plugin = plugin
        self._all: list[Subscription] = [] if _shared is None else _shared

    def of(self, plugin: str) -> Registry:
        """The same registry, on behalf of another plugin."""
        return Registry(plugin, self._all)

    def on(self, hook: EventHook[P] | str, observer: Callable[[P], object], priority: int = PRIORITY_DEFAULT) -> None:
        """Have a function told of an event; it may be async. Raises ValueError for a hook that is no event."""
        self._add(hook if isinstance(hook, str) else hook.name, EVENTS, observer, priority)

    def filter(
        self,
        hook: FilterHook[V, C] | str,
        function: Callable[[V, C], V | Awaitable[V]],
        priority: int = PRIORITY_DEFAULT,
    ) -> None:
        """Put a function `(value, context) -> value` into a chain; it may be async. Raises ValueError as `on`."""
        self._add(hook if isinstance(hook, str) else hook.name, FILTERS, function, priority)

    def _add(self, hook: str, known: Any, call: Callable[..., Any], priority: int) -> None:
        if hook not in known:
            raise ValueError(f"there is no hook {hook!r} of this kind; there are {', '.join(sorted(known))}")
        if not callable(call):
            raise TypeError(f"{hook}: {call!r} is not a function")
        name = str(getattr(call, "__qualname__", "") or type(call).__qualname__)
        self._all.append(Subscription(hook, self.plugin, name, int(priority), call))

    def chain(self, hook: str) -> tuple[Subscription, ...]:
        """The subscriptions of a hook, in order."""
        return tuple(sorted((one for one in self._all if one.hook == hook), key=lambda one: one.priority))

    def plugins(self) -> dict[str, tuple[str, ...]]:
        """Which hooks each plugin takes part in, the runtime itself left out."""
        names = dict.fromkeys(one.plugin for one in self._all if not one.is_rule)
        return {name: tuple(sorted({one.hook for one in self._all if one.plugin == name})) for name in names}
