"""The executor's plugins: hooks and tools, behind entry points of the groups `turnwright.hooks` and `turnwright.tools`.

Source: rows RU145, RU148, RU308; architecture 6.
"""

from __future__ import annotations

from turnwright_core.kit.plugins import HOOKS, TOOLS, load_all
from turnwright_executor.hooks.registry import Registry
from turnwright_executor.hooks.rules import new_registry


def load_plugins(hooks: str, tools: str) -> Registry:
    """The registry with the runtime's rules and the enabled plugins; the words are those of `kit.plugins.chosen`.

    Raises SettingsError that names the plugin which cannot be loaded.
    """
    registry, _ = load_all(new_registry(), ((HOOKS, hooks), (TOOLS, tools)))
    return registry
