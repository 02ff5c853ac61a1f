"""Schemes: the category of a path, its scope, and who may write it.

Source: rows RU068-RU089; decisions C9, C32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import Tier

CATEGORIES: Final = ("data", "logging", "unknown", "prompt", "plan", "audit", "hidden")
"""The categories of entries, which decide their section of a packet."""

SCOPES: Final = ("run", "project", "global")
"""The scopes of entries."""


class Scheme(Struct, frozen=True):
    """Rules for one kind of path. `writable_by` is an exact list: no tier implies another."""

    name: str
    category: str = "logging"
    default_scope: str = "run"
    writable_by: frozenset[Tier] = frozenset({Tier.MODEL, Tier.PLUGIN})
    model_visible: bool = True


_SYSTEM: Final = frozenset({Tier.SYSTEM})

BUILTIN: Final[tuple[Scheme, ...]] = (
    Scheme("", "data", "project"),
    Scheme("known", "data"),
    Scheme("skill", "data", "project"),
    Scheme("http", "data", "project"),
    Scheme("https", "data", "project"),
    Scheme("sh", "data"),
    Scheme("env", "data"),
    Scheme("result", "data"),
    Scheme("agent", "data", writable_by=_SYSTEM),
    Scheme("unknown", "unknown"),
    Scheme("prompt", "prompt", writable_by=frozenset({Tier.PLUGIN})),
    Scheme("log", "logging", writable_by=frozenset({Tier.SYSTEM, Tier.PLUGIN, Tier.MODEL})),
    Scheme("update", "logging"),
    Scheme("error", "logging"),
    Scheme("run", "audit", writable_by=frozenset({Tier.CLIENT, Tier.PLUGIN, Tier.SYSTEM}), model_visible=False),
    Scheme("plan", "plan", writable_by=frozenset({Tier.MODEL, Tier.PLUGIN, Tier.CLIENT})),
    Scheme("event", "hidden", writable_by=frozenset({Tier.PLUGIN, Tier.SYSTEM})),
    *(
        Scheme(name, "audit", writable_by=_SYSTEM, model_visible=False)
        for name in (
            "tool",
            "instructions",
            "system",
            "reasoning",
            "model",
            "user",
            "assistant",
            "content",
            "image",
            "draft",
            "command",
        )
    ),
)
"""The schemes of every store; project files have the empty scheme."""

SHARED: Final = tuple(scheme.name for scheme in BUILTIN if scheme.default_scope != "run")
"""Those of them whose entries are not of one run alone; an imported run has such entries of its own."""

OF_SESSIONS: Final = ("command", "draft")
"""Schemes of what waits to be carried out or sent: it stays where it is."""

BY_NAME: Final = {scheme.name: scheme for scheme in BUILTIN}


class Schemes(Struct, frozen=True):
    """The rules of all schemes, built-in and registered."""

    registered: Mapping[str, Scheme] = field(default_factory=dict)
    version: str = ""
    """Version of the registry: equal versions mean equal schemes; empty: none are registered."""

    def rules(self, name: str) -> Scheme:
        """The rules of a scheme; an unregistered one is run-scoped logging (RU067, RU085)."""
        return BY_NAME.get(name) or self.registered.get(name) or Scheme(name)


BUILT_IN: Final = Schemes()
"""The schemes known before a store has sent its registry."""
