"""The registry for plugins of the provider, which bring vendors. Source: RU306, RU308; docs/plugins.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from turnwright_kit.plugins import RUNTIME, VENDORS, PluginRegistry, load_all
from turnwright_provider.domain.endpoints import NAME
from turnwright_provider.ports import Vendor

_METHODS: Final = ("describe", "stream", "check")


class _Shared(Struct):
    """Registrations of all plugins, and the built-in names. Mutable: filled at start-up."""

    taken: frozenset[str] = frozenset()
    vendors: dict[str, Vendor] = field(default_factory=dict)


class VendorRegistry(PluginRegistry[_Shared]):
    """Collects the vendors of plugins."""

    nothing = _Shared

    def vendor(self, name: str, vendor: Vendor) -> None:
        """Register a vendor for models `name/...`. Raises ValueError if the name is taken or invalid."""
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a vendor: write a-z, 0-9, `.`, `_` and `-`")
        if name in self._shared.taken or name in self._shared.vendors:
            raise ValueError(f"the vendor {name} already exists")
        if missing := [method for method in _METHODS if not callable(getattr(vendor, method, None))]:
            raise TypeError(f"the vendor {name} has no {missing[0]}")
        self._shared.vendors[name] = vendor

    @property
    def found(self) -> dict[str, Vendor]:
        return self._shared.vendors


def load_vendors(enabled: str, taken: Iterable[str]) -> dict[str, Vendor]:
    """The vendors of the enabled plugins; for `enabled` see `kit.plugins.chosen`. Raises SettingsError."""
    registry, _ = load_all(VendorRegistry(RUNTIME, _Shared(frozenset(taken))), ((VENDORS, enabled),))
    return registry.found
