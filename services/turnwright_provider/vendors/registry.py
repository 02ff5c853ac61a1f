"""What plugins register with the provider: vendors. Source: RU306, RU308; docs/plugins.md."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, field

from turnwright_core.kit.plugins import RUNTIME, VENDORS, PluginRegistry, load_all
from turnwright_provider.domain.endpoints import NAME
from turnwright_provider.ports import Vendor

_METHODS: Final = ("describe", "stream", "check")


class _Shared(Struct):
    """What all plugins have registered, and the names of the runtime's own. Mutable: filled at the start."""

    taken: frozenset[str] = frozenset()
    vendors: dict[str, Vendor] = field(default_factory=dict)


class VendorRegistry(PluginRegistry[_Shared]):
    """Collects the vendors that plugins bring."""

    nothing = _Shared

    def vendor(self, name: str, vendor: Vendor) -> None:
        """Answer calls of `name/...` by this vendor. Raises ValueError where the name is taken or is none."""
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
    """The vendors of the enabled plugins; the words are those of `kit.plugins.chosen`. Raises SettingsError."""
    registry, _ = load_all(VendorRegistry(RUNTIME, _Shared(frozenset(taken))), ((VENDORS, enabled),))
    return registry.found
