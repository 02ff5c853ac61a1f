"""Which tools a loop offers, and in which order the model reads about them.

Source: rows RU122, RU123, RU158, RU258; decision C8.
"""

from __future__ import annotations

from typing import Final

from turnwright_core.runs import LoopSettings, Mode

PHASES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("gather", ("get", "env")),
    ("reason", ("think",)),
    ("act", ("set", "cp", "mv", "rm", "sh")),
    ("communicate", ("update", "ask_user")),
)
"""The tools by what they are for; a place further up says that the tool is to be thought of earlier (C8)."""

TOOL_ORDER: Final = tuple(name for _, names in PHASES for name in names)
"""Every tool, in display order."""

# A row per reason, to be held against RU122; names of tools that are not built exclude nothing.
_EXCLUSIONS: Final[tuple[tuple[str, frozenset[str]], ...]] = (
    ("ask", frozenset({"sh"})),
    ("no_interaction", frozenset({"ask_user"})),
    ("no_web", frozenset({"search"})),
    ("no_proposals", frozenset({"ask_user", "env", "sh"})),
)


def resolve_tools(settings: LoopSettings) -> tuple[str, ...]:
    """The names of the tools of a loop, in display order."""
    reasons = {
        "ask": settings.mode is Mode.ASK,
        "no_interaction": settings.no_interaction,
        "no_web": settings.no_web,
        "no_proposals": settings.no_proposals,
    }
    excluded = frozenset[str]().union(*(names for reason, names in _EXCLUSIONS if reasons[reason]))
    return tuple(name for name in TOOL_ORDER if name not in excluded)
