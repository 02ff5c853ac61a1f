"""The registry for plugins of the provider, which bring vendors. Source: RU306, RU308; docs/plugins.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from turnwright_kit.plugins import VENDORS, PluginRegistry, load_all
from turnwright_provider.domain.endpoints import NAME
from turnwright_provider.ports import Vendor

_METHODS: Final = ("describe", "stream", "check")


class _NamedVendor(Struct, frozen=True):
    name: str
    vendor: Vendor


class VendorRegistry(PluginRegistry):
    """Collects the vendors of plugins; those with the names `taken` are the runtime's."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        super().__init__()
        self._taken = frozenset(taken)

    def vendor(self, name: str, vendor: Vendor) -> None:
        """Register a vendor for models `name/...`. Raises ValueError if the name is taken or invalid."""
        if not NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name of a vendor: write a-z, 0-9, `.`, `_` and `-`")
        if name in self._taken or name in self.found:
            raise ValueError(f"the vendor {name} already exists")
        if missing := [method for method in _METHODS if not callable(getattr(vendor, method, None))]:
            raise TypeError(f"the vendor {name} has no {missing[0]}")
        self.bring(_NamedVendor(name, vendor))

    @property
    def found(self) -> dict[str, Vendor]:
        return {one.name: one.vendor for _, one in self.brought(_NamedVendor)}


def load_vendors(enabled: str, taken: Iterable[str]) -> dict[str, Vendor]:
    """The vendors of the enabled plugins; for `enabled` see `select_plugins`. Raises SettingsError."""
    registry, _ = load_all(VendorRegistry(taken), ((VENDORS, enabled),))
    return registry.found
