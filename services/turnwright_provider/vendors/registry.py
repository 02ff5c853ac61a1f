"""The registry for plugins of the provider, which bring vendors, and vendors that lack their key.

Source: RU306, RU308; docs/plugins.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Final

from msgspec import Struct

from turnwright_kit.plugins import VENDORS, PluginRegistry, load_all
from turnwright_provider.domain.endpoints import NAME
from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.ports import ModelCheck, Vendor, VendorState

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


class UnconfiguredVendor:
    """Stands in for a vendor that cannot be called."""

    def __init__(self, state: VendorState) -> None:
        self._state = state

    def describe(self) -> VendorState:
        return self._state

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """Raise VendorError; callers check `describe` first."""
        raise failed(FailureClass.INVALID, f"try {attempt} for {call.model}: {self._state.problem}")
        yield  # type: ignore[unreachable]  # makes this an async generator, as the port wants

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        return [ModelCheck(self._state.problem) for _ in models]
