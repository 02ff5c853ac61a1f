"""Finding and loading plugins: functions `register(registry)` behind entry points of the group `turnwright.hooks`.

Source: rows RU145, RU308; architecture 6.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from turnwright_core.kit.settings import SettingsError
from turnwright_executor.hooks.calling import PluginError, call_plainly
from turnwright_executor.hooks.registry import RUNTIME, Registry
from turnwright_executor.hooks.rules import new_registry

GROUP: Final = "turnwright.hooks"
"""The group of the entry points."""

NONE: Final = "none"
"""The word that enables no plugin at all."""

SETTING: Final = "TURNWRIGHT_HOOKS"


def load_hooks(enabled: str) -> Registry:
    """The registry with the runtime's rules and the enabled plugins.

    `enabled` are names of entry points, or `module:function`, with commas between; empty: all that are installed;
    `none`: no plugin. Raises SettingsError that names the plugin which cannot be loaded.
    """
    registry = new_registry()
    for name, load in _chosen(enabled):
        register_plugin(registry, name, load)
    return registry


def register_plugin(registry: Registry, name: str, load: Callable[[], Any], setting: str = SETTING) -> None:
    """Load one plugin and let it register. Raises SettingsError that begins with the setting which named it."""
    try:
        call_plainly(call_plainly(load), registry.of(name))
    except PluginError as error:
        raise SettingsError(
            f"{setting}: the plugin {name} cannot be loaded: {error}. "
            f"Repair it, or leave it out: {SETTING} names the plugins that are loaded ({NONE}: none)."
        ) from error


def imported(target: str) -> Any:
    """What `module:function` names. Raises ImportError, AttributeError or ValueError."""
    module, separator, attribute = target.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"{target!r} is not of the form module:function")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _chosen(enabled: str) -> Iterable[tuple[str, Callable[[], Any]]]:
    names = list(dict.fromkeys(filter(None, (name.strip() for name in enabled.split(",")))))
    if names == [NONE]:
        return
    installed = _installed()
    for name in names or installed:
        if ":" in name:
            yield name, partial(imported, name)
        elif name in installed:
            yield name, installed[name].load
        else:
            known = ", ".join(installed) or "none is installed"
            raise SettingsError(f"{SETTING}: there is no plugin {name!r} ({known}).")


def _installed() -> dict[str, EntryPoint]:
    """Entry points by name, in the order of names, so that equal priorities stand in one order everywhere."""
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        if point.name == RUNTIME or (point.name in found and found[point.name].value != point.value):
            raise SettingsError(f"{SETTING}: the name {point.name!r} of the plugin {point.value} is taken.")
        found[point.name] = point
    return found
