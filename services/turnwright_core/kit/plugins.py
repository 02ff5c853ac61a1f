"""Finding and loading plugins, the same for every kind: entry points that name `register(registry)`, or a class.

A kind of plugins is a group of entry points and a setting that says which of them are loaded. A service gives each
plugin its registry, on behalf of that plugin, and does not start where one cannot be loaded.
Source: rows RU145, RU148, RU308; architecture 6.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from msgspec import Struct

from turnwright_core.kit.plugin_calls import PluginError, call_plainly
from turnwright_core.kit.settings import SettingsError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

NONE: Final = "none"
"""The word that enables no plugin at all."""

RUNTIME: Final = "turnwright"
"""The name under which the runtime's own parts stand beside those of plugins."""

ASSEMBLY: Final = "assembly."
"""How the names of the assembler's filters begin; all others are the executor's."""

UNVERSIONED: Final = "unversioned"
"""The version of a plugin that comes from no distribution and whose module has no `__version__`."""


class PluginKind(Struct, frozen=True):
    """One kind of plugins: its group of entry points, and the variable that says which are loaded."""

    group: str
    setting: str


HOOKS: Final = PluginKind("turnwright.hooks", "TURNWRIGHT_HOOKS")
"""What is told of turns and decides in them, in the executor."""
TOOLS: Final = PluginKind("turnwright.tools", "TURNWRIGHT_TOOLS")
"""Tools, in the executor."""
SECTIONS: Final = PluginKind("turnwright.sections", "TURNWRIGHT_SECTIONS")
"""Sections, projections and filters of packets, in the assembler."""
VENDORS: Final = PluginKind("turnwright.vendors", "TURNWRIGHT_VENDORS")
"""Vendors of models, in the provider."""


class Plugin(Struct, frozen=True):
    """A plugin that is to be loaded. `target` is `module:function`; it may be called by several names."""

    name: str
    target: str
    version: str
    load: Callable[[], Any]


S = TypeVar("S")


class PluginRegistry(Generic[S]):
    """What a plugin is given as the argument of its `register(registry)`.

    A class may be several kinds of plugin at once: every service makes it, and its registry takes what concerns that
    service; the rest is passed over.
    """

    nothing: Callable[[], S]
    """What has been registered with a service before anybody did."""

    def __init__(self, plugin: str = RUNTIME, _shared: S | None = None) -> None:
        """Register on behalf of this plugin."""
        self.plugin = plugin
        self._shared = self.nothing() if _shared is None else _shared

    def of(self, plugin: str) -> Self:
        """The same registry, on behalf of another plugin."""
        return type(self)(plugin, self._shared)

    def on(self, *_: Any, **__: Any) -> None:
        """Have a function told of an event."""

    def filter(self, *_: Any, **__: Any) -> None:
        """Put a function into a chain."""

    def tool(self, *_: Any, **__: Any) -> None:
        """Offer a tool."""

    def section(self, *_: Any, **__: Any) -> None:
        """Show a section."""

    def projection(self, *_: Any, **__: Any) -> None:
        """Say what is shown of the entries of a scheme."""

    def vendor(self, *_: Any, **__: Any) -> None:
        """Answer the calls of a vendor's models."""


R = TypeVar("R", bound=PluginRegistry[Any])


def chosen(kind: PluginKind, enabled: str) -> list[Plugin]:
    """The plugins that a setting enables, in the order of names where it names none.

    `enabled` are names of entry points, or `module:function`, with commas between; empty: all that are installed;
    `none`: no plugin. Raises SettingsError for a name that nobody has, or that two have.
    """
    names = list(dict.fromkeys(filter(None, (name.strip() for name in enabled.split(",")))))
    if names == [NONE]:
        return []
    installed = _installed(kind)
    found = []
    for name in names or installed:
        if ":" in name:
            found.append(Plugin(name, name, _version_of_module(name), partial(imported, name)))
        elif name in installed:
            found.append(_plugin(installed[name]))
        else:
            known = ", ".join(installed) or "none is installed"
            raise SettingsError(f"{kind.setting}: there is no plugin {name!r} ({known}).")
    return found


def register(plugin: Plugin, registry: PluginRegistry[Any], setting: str, more: str = "") -> None:
    """Load one plugin and let it register. Raises SettingsError that begins with the setting which named it.

    `more` names the variable that leaves plugins out, where that is another one.
    """
    try:
        call_plainly(_plainly(call_plainly(plugin.load)), registry.of(plugin.name))
    except PluginError as error:
        raise SettingsError(
            f"{setting}: the plugin {plugin.name} cannot be loaded: {error}. "
            f"Repair it, or leave it out: {more or setting} names the plugins that are loaded ({NONE}: none)."
        ) from error


def _plainly(function: Any) -> Any:
    """The function of a plugin, which is called and not waited for. Raises PluginError for an async one."""
    if iscoroutinefunction(function):
        raise PluginError(TypeError("it registers with an async function; a plain one is needed"))
    return function


def load_all(registry: R, enabled: Iterable[tuple[PluginKind, str]]) -> tuple[R, tuple[Plugin, ...]]:
    """Have every enabled plugin register, and tell which they were. Raises SettingsError.

    What several kinds name as one plugin of the same target is made once: one class may be several.
    """
    loaded: dict[tuple[str, str], Plugin] = {}
    for kind, names in enabled:
        for plugin in chosen(kind, names):
            if (plugin.name, plugin.target) not in loaded:
                register(plugin, registry, kind.setting)
                loaded[plugin.name, plugin.target] = plugin
    return registry, tuple(loaded.values())


def imported(target: str) -> Any:
    """What `module:function` names. Raises ImportError, AttributeError or ValueError."""
    module, separator, attribute = target.partition(":")
    if not (module and separator and attribute):
        raise ValueError(f"{target!r} is not of the form module:function")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _plugin(point: EntryPoint) -> Plugin:
    version = point.dist.version if point.dist else UNVERSIONED
    return Plugin(point.name, point.value, version, point.load)


def _version_of_module(target: str) -> str:
    """What the module calls its version; it is asked once it is loaded, so that loading it is told as a fault."""
    try:
        module = call_plainly(importlib.import_module, target.partition(":")[0])
    except PluginError:
        return UNVERSIONED
    return str(getattr(module, "__version__", UNVERSIONED))


@lru_cache(maxsize=1)
def _all_installed(_path: tuple[str, ...]) -> Any:
    """Every entry point there is. To look takes milliseconds, and one process may ask for several kinds.

    Python 3.11 gives them in another class than later ones; both know `select`.
    """
    # Loaded by those that look: it takes longer than the look itself.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points()


def _installed(kind: PluginKind) -> dict[str, EntryPoint]:
    """Entry points by name, in the order of names, so that equal priorities stand in one order everywhere."""
    found: dict[str, EntryPoint] = {}
    points = _all_installed(tuple(sys.path)).select(group=kind.group)
    for point in sorted(points, key=lambda each: (each.name, each.value)):
        if point.name == RUNTIME or (point.name in found and found[point.name].value != point.value):
            raise SettingsError(f"{kind.setting}: the name {point.name!r} of the plugin {point.value} is taken.")
        found[point.name] = point
    return found
