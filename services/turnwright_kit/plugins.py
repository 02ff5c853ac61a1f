"""The plugin loader for every kind of plugin: entry points that name `register(registry)`, or a class.

A kind of plugin is an entry point group, and a setting that selects which are loaded. A service gives each plugin a
registry of its own, and does not start if one cannot be loaded. Source: rows RU145, RU148, RU308; architecture 6.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from copy import copy
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from msgspec import Struct

from turnwright_kit.plugin_calls import PluginError, call_sync
from turnwright_kit.settings import SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NONE: Final = "none"
"""The value that disables all plugins."""

RUNTIME: Final = "turnwright"
"""The name of the runtime's own parts among those of plugins."""

ASSEMBLY: Final = "assembly."
"""Name prefix of the assembler's filters; all others are the executor's."""

UNVERSIONED: Final = "unversioned"
"""Version of a plugin without a distribution whose module has no `__version__`."""


class PluginKind(Struct, frozen=True):
    """One kind of plugin: its entry point group, and the variable that selects which are loaded."""

    group: str
    setting: str


HOOKS: Final = PluginKind("turnwright.hooks", "TURNWRIGHT_HOOKS")
"""Observers and filters, in the executor."""
TOOLS: Final = PluginKind("turnwright.tools", "TURNWRIGHT_TOOLS")
"""Tools, in the executor."""
SECTIONS: Final = PluginKind("turnwright.sections", "TURNWRIGHT_SECTIONS")
"""Sections, projections and filters of packets, in the assembler."""
PROMPT: Final = PluginKind("turnwright.prompt", "TURNWRIGHT_PROMPT")
"""Editors of prompts, in the assembler."""
VENDORS: Final = PluginKind("turnwright.vendors", "TURNWRIGHT_VENDORS")
"""Model vendors, in the provider."""


class Plugin(Struct, frozen=True):
    """A plugin to load. `target` is `module:function`; it may have several names."""

    name: str
    target: str
    version: str
    load: Callable[[], object]


T = TypeVar("T")


class PluginRegistry:
    """The argument of a plugin's `register(registry)`: one list of all that plugins bring, of every kind.

    A class may be several kinds of plugin at once: every service constructs it, its registry keeps what concerns that
    service and ignores the rest. The service takes each kind by its type.
    """

    plugin: str = RUNTIME
    """On whose behalf it is called."""

    def __init__(self) -> None:
        self._brought: list[tuple[str, object]] = []

    def of(self, plugin: str) -> Self:
        """The same registry, on behalf of another plugin."""
        other = copy(self)
        other.plugin = plugin
        return other

    def bring(self, item: object) -> None:
        self._brought.append((self.plugin, item))

    def brought(self, kind: type[T]) -> list[tuple[str, T]]:
        """What plugins bring of a kind, each with its plugin, in the order of registration."""
        return [(plugin, item) for plugin, item in self._brought if isinstance(item, kind)]

    def on(self, *_: Any, **__: Any) -> None: ...

    def filter(self, *_: Any, **__: Any) -> None: ...

    def tool(self, *_: Any, **__: Any) -> None: ...
    def section(self, *_: Any, **__: Any) -> None: ...

    def projection(self, *_: Any, **__: Any) -> None: ...

    def prompt(self, *_: Any, **__: Any) -> None: ...

    def vendor(self, *_: Any, **__: Any) -> None: ...


R = TypeVar("R", bound=PluginRegistry)


def select_plugins(kind: PluginKind, enabled: str) -> list[Plugin]:
    """The plugins that a setting enables, sorted by name if it names none.

    `enabled` has names of entry points, or `module:function`, separated by commas; empty: all that are installed;
    `none`: none. Raises SettingsError for an unknown or ambiguous name.
    """
    names = list(dict.fromkeys(filter(None, (name.strip() for name in enabled.split(",")))))
    if names == [NONE]:
        return []
    installed = _installed(kind)
    found = []
    for name in names or installed:
        if ":" in name:
            found.append(Plugin(name, name, _version_of_module(name), partial(import_object, name)))
        elif name in installed:
            found.append(_plugin(installed[name]))
        else:
            known = ", ".join(installed) or "none is installed"
            raise SettingsError(
                f"{kind.setting}: there is no plugin {name!r} ({known}). Without an entry point, write module:function."
            )
    return found


def register(plugin: Plugin, registry: PluginRegistry, setting: str, more: str = "") -> None:
    """Load one plugin and let it register. Raises SettingsError that begins with the setting that named it.

    `more` names the variable that can exclude plugins, if it is another one.
    """
    try:
        call_sync(_require_sync(call_sync(plugin.load)), registry.of(plugin.name))
    except PluginError as error:
        raise SettingsError(
            f"{setting}: the plugin {plugin.name} cannot be loaded: {error}. "
            f"Set {more or setting}={NONE} to load no plugins.{_where_to_look(plugin, error.fault)}"
        ) from error


def _where_to_look(plugin: Plugin, fault: BaseException) -> str:
    """A hint if the plugin's own module is not found, which may stand in the current directory."""
    module = plugin.target.partition(":")[0]
    if not isinstance(fault, ModuleNotFoundError) or fault.name not in (module, module.partition(".")[0]):
        return ""
    wanted = module.replace(".", "/") + ".py" if fault.name == module else fault.name
    return f" Is {wanted} on PYTHONPATH?"


def _require_sync(function: object) -> Any:
    """Call a plugin's function synchronously. Raises PluginError for an async one."""
    if iscoroutinefunction(function):
        raise PluginError(TypeError("it registers with an async function; a plain one is needed"))
    return function


def load_all(registry: R, enabled: Iterable[tuple[PluginKind, str]]) -> tuple[R, tuple[Plugin, ...]]:
    """Let every enabled plugin register; returns them. Raises SettingsError.

    A target that several kinds name is constructed once: one class may be several kinds of plugin.
    """
    loaded: dict[tuple[str, str], Plugin] = {}
    for kind, names in enabled:
        for plugin in select_plugins(kind, names):
            if (plugin.name, plugin.target) not in loaded:
                register(plugin, registry, kind.setting)
                loaded[plugin.name, plugin.target] = plugin
    return registry, tuple(loaded.values())


def import_object(target: str) -> Any:
    """The object that `module:function` names. Raises ImportError, AttributeError or ValueError."""
    module, separator, attribute = target.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"{target!r} is not of the form module:function")
    found: object = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _plugin(point: EntryPoint) -> Plugin:
    version = point.dist.version if point.dist else UNVERSIONED
    return Plugin(point.name, point.value, version, point.load)


def _version_of_module(target: str) -> str:
    """The module's `__version__`; read after loading, so that a failure to load is reported as such."""
    try:
        module = call_sync(importlib.import_module, target.partition(":")[0])
    except PluginError:
        return UNVERSIONED
    return str(getattr(module, "__version__", UNVERSIONED))


@lru_cache(maxsize=1)
def _all_installed(_path: tuple[str, ...]) -> Any:
    """All installed entry points. Scanning takes milliseconds, and one process may need several kinds.

    Python 3.11 returns another class than later versions; both have `select`.
    """
    # Imported on demand: the import takes longer than the scan.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points()


def _installed(kind: PluginKind) -> dict[str, EntryPoint]:
    """Entry points sorted by name, so that plugins with equal priorities have the same order everywhere."""
    found: dict[str, EntryPoint] = {}
    points = _all_installed(tuple(sys.path)).select(group=kind.group)
    for point in sorted(points, key=lambda each: (each.name, each.value)):
        if point.name == RUNTIME or (point.name in found and found[point.name].value != point.value):
            raise SettingsError(f"{kind.setting}: the name {point.name!r} of the plugin {point.value} is taken.")
        found[point.name] = point
    return found
