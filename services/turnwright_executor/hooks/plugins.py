"""Loading the executor's plugins: the entry point groups `turnwright.hooks` and `turnwright.tools`.

The runtime's own filters are in the same registry.
Source: rows RU010, RU129, RU130, RU140, RU145, RU148, RU155, RU159, RU308; architecture 6.
"""

from __future__ import annotations

from turnwright_executor.domain.policy import GATE
from turnwright_executor.domain.verdict import RULES
from turnwright_executor.hooks.points import ENTRY_RECORDING, TURN_VERDICT
from turnwright_executor.hooks.registry import Registry
from turnwright_kit.plugins import HOOKS, TOOLS, load_all


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
