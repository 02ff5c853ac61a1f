"""The registry of observers and filters, in their order, and of plugins' tools.

The runtime's own rules register here like any plugin, so a plugin's place among them is a number. Plugins come from the
entry point groups `turnwright.hooks` and `turnwright.tools`.
Source: rows RU010, RU041, RU042, RU129, RU130, RU140, RU145, RU148, RU155, RU159, RU308; architecture 6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Struct

from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.policy import GATE
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.domain.verdict import RULES
from turnwright_executor.hooks.points import ENTRY_RECORDING, EVENTS, FILTERS, TURN_VERDICT, EventHook, FilterHook
from turnwright_executor.tools.contract import Entries
from turnwright_executor.tools.plugin_tools import PluginEntries, PluginTool, PluginToolAdapter, check_tool
from turnwright_grammar.tools import DEFAULT_TOOLS
from turnwright_kit.plugin_calls import PluginCalls
from turnwright_kit.plugins import ASSEMBLY, HOOKS, RUNTIME, TOOLS, PluginRegistry, load_all

P = TypeVar("P")
V = TypeVar("V")
C = TypeVar("C")

PRIORITY_DEFAULT: Final = 10
"""Default priority; lower goes first, equal ones in the order of registration (RU042)."""

TAKEN: Final = (
    frozenset(TOOL_ORDER)
    | DEFAULT_TOOLS
    | {"error", "search_tools", "call_tool", "repo", "known", "unknown", "file", "plan", "event"}
)
"""Reserved names: the runtime's tools, whether enabled or not, and tags that it writes itself."""


class HookSubscription(Struct, frozen=True):
    """One observer or filter. `name` is that of its function."""

    hook: str
    plugin: str
    name: str
    priority: int
    call: Callable[..., Any]
    is_rule: bool
    """Whether it is one of the runtime's own rules: pure and fast, so it is called in the event loop."""


class Registry(PluginRegistry):
    """Collects the tools, observers and filters that plugins bring to turns."""

    def __init__(self) -> None:
        super().__init__()
        self._open_entries: list[Callable[[TurnAddress], Entries]] = []
        """What gives access to the entries of a run; empty before the executor has started."""

    def tool(self, tool: PluginTool) -> None:
        """Add a tool. Raises ValueError if its name is taken, or if it is invalid."""
        check_tool(tool)
        owner = {one.name: plugin for plugin, one in self.brought(PluginTool)}.get(tool.name)
        if owner or tool.name in TAKEN:
            raise ValueError(f"the name <{tool.name}> is taken, by {owner or 'the runtime'}")
        self.bring(tool)

    def entries(self, at: TurnAddress) -> Entries:
        """The entries of a run, for an observer or a filter: reads see what the run sees, writes have plugin tier.

        Raises RuntimeError before the executor has started.
        """
        if not self._open_entries:
            raise RuntimeError("the store is not available before the executor has started: use it when an event comes")
        return PluginEntries(self._open_entries[-1](at))

    def opened(self, open_entries: Callable[[TurnAddress], Entries]) -> None:
        """The store is available from now on: `open_entries` gives access to the entries of a run."""
        self._open_entries.append(open_entries)

    def offered(self, calls: PluginCalls) -> tuple[PluginToolAdapter, ...]:
        """The plugins' tools in the order of registration. `calls` limits each of their steps, for each plugin."""
        tools = self.brought(PluginTool)
        own = {plugin: calls.isolated() for plugin, _ in tools}
        return tuple(PluginToolAdapter(tool, plugin, own[plugin]) for plugin, tool in tools)

    @property
    def tool_descriptors(self) -> tuple[ToolDescriptor, ...]:
        """What must be known of plugins' tools before one of their commands is dispatched."""
        tools = self.brought(PluginTool)
        return tuple(ToolDescriptor(tool.name, tool.phase, tool.needs, tool.target) for _, tool in tools)

    def on(self, hook: EventHook[P] | str, observer: Callable[[P], object], priority: int = PRIORITY_DEFAULT) -> None:
        """Register an observer, sync or async. Raises ValueError if the hook is not an event."""
        self._add(hook if isinstance(hook, str) else hook.name, EVENTS, observer, priority)

    def filter(
        self,
        hook: FilterHook[V, C] | str,
        function: Callable[[V, C], V | Awaitable[V]],
        priority: int = PRIORITY_DEFAULT,
        schemes: Sequence[str] = (),  # noqa: ARG002 - for the assembler
    ) -> None:
        """Register a filter `(value, context) -> value`, sync or async. Raises ValueError for other hooks."""
        name = hook if isinstance(hook, str) else hook.name
        if not name.startswith(ASSEMBLY):
            self._add(name, FILTERS, function, priority)

    def _add(self, hook: str, known: Any, call: Callable[..., Any], priority: int) -> None:
        if hook not in known:
            raise ValueError(f"there is no hook {hook!r} of this kind; choose from {', '.join(sorted(known))}")
        if not callable(call):
            raise TypeError(f"{hook}: {call!r} is not a function")
        name = str(getattr(call, "__qualname__", "") or type(call).__qualname__)
        is_rule = self.plugin == RUNTIME
        self.bring(HookSubscription(hook, self.plugin, name, int(priority), call, is_rule))

    def chain(self, hook: str) -> tuple[HookSubscription, ...]:
        found = (one for _, one in self.brought(HookSubscription) if one.hook == hook)
        return tuple(sorted(found, key=lambda one: one.priority))

    def plugins(self) -> dict[str, tuple[str, ...]]:
        """The hooks that each plugin uses, and its tools as `<name>`; the runtime is left out."""
        taken: dict[str, set[str]] = {}
        for plugin, one in self.brought(HookSubscription):
            if not one.is_rule:
                taken.setdefault(plugin, set()).add(one.hook)
        for plugin, tool in self.brought(PluginTool):
            taken.setdefault(plugin, set()).add(f"<{tool.name}>")
        return {plugin: tuple(sorted(names)) for plugin, names in taken.items()}


def register_rules(registry: Registry) -> None:
    for priority, rule in GATE:
        registry.filter(ENTRY_RECORDING, rule, priority)
    for priority, vote in RULES:
        registry.filter(TURN_VERDICT, vote, priority)


def new_registry() -> Registry:
    """A registry with the runtime's own rules only."""
    registry = Registry()
    register_rules(registry)
    return registry


def load_plugins(hooks: str, tools: str) -> Registry:
    """The registry with the runtime's rules and the enabled plugins; for the settings see `select_plugins`.

    Raises SettingsError, which names the plugin that cannot be loaded.
    """
    registry, _ = load_all(new_registry(), ((HOOKS, hooks), (TOOLS, tools)))
    return registry
