"""Tool sets: which tools a loop offers, and in which order the model reads about them.

Source: rows RU122, RU123, RU158, RU258; decision C8.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from msgspec import Struct
from turnwright_values.types import LoopSettings, Mode

from turnwright_core.tools import PHASES

# One row per reason, as in RU122. Without the web `get` and `skill` still read what is there.
_EXCLUSIONS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("ask", frozenset({"sh"})),
    ("no_interaction", frozenset({"ask_user"})),
    ("no_web", frozenset({"search"})),
    ("no_proposals", frozenset({"ask_user", "env", "sh"})),
)


ALWAYS: Final = ("think", "update")
"""What a loop that is limited to some tools has anyway: they only say something."""


class Need(Enum):
    """A requirement of a tool: a loop without it does not offer the tool."""

    CHANGES = "ask"
    """It changes the project or the outside world: not in ask mode."""
    INTERACTION = "no_interaction"
    """It asks a person."""
    WEB = "no_web"
    """It accesses the network."""
    PROPOSALS = "no_proposals"
    """It can only act through a proposal."""
    FILES = "no_repo"
    """It works on the project's files."""


class ToolDescriptor(Struct, frozen=True):
    """A plugin's tool: its phase, its needs, and the attribute with its target.

    `target` is empty for a tool without one.
    """

    name: str
    phase: str
    needs: frozenset[Need]
    target: str


def tool_order(more: Collection[ToolDescriptor] = ()) -> tuple[str, ...]:
    """Every tool in display order; plugins' tools come at the end of their phase."""
    added = {phase: [offer.name for offer in more if offer.phase == phase] for phase, _ in PHASES}
    return tuple(name for phase, names in PHASES for name in (*names, *added[phase]))


def resolve_tools(
    settings: LoopSettings, more: Collection[ToolDescriptor] = (), unconfigured: Collection[str] = ()
) -> tuple[str, ...]:
    """The names of the tools of a loop, in display order; `more` are those of plugins.

    `unconfigured` are tools that do not work on this executor, such as `search` without an engine.
    """
    reasons = {
        "ask": settings.mode is Mode.ASK,
        "no_interaction": settings.no_interaction,
        "no_web": settings.no_web,
        "no_proposals": settings.no_proposals,
        "no_repo": settings.no_repo,
    }
    excluded = frozenset[str]().union(*(names for reason, names in _EXCLUSIONS if reasons[reason]))
    excluded |= {offer.name for offer in more if any(reasons[need.value] for need in offer.needs)}
    only = frozenset({*settings.tools, *ALWAYS}) if settings.tools else None
    offered = (name for name in tool_order(more) if name not in excluded and name not in unconfigured)
    return tuple(name for name in offered if only is None or name in only)
