"""The tools that every executor has."""

from __future__ import annotations

from typing import Final

DELEGATE: Final = "delegate"
WAIT_AGENTS: Final = "wait_agents"
OF_AGENTS: Final = (DELEGATE, WAIT_AGENTS)
"""The tools that start agents, and wait for them."""

PHASES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("gather", ("get", "env", "search", "skill")),
    ("reason", ("think", "set_plan", "update_plan", "get_plan")),
    ("act", ("set", "cp", "mv", "rm", "sh", DELEGATE, WAIT_AGENTS)),
    ("communicate", ("update", "ask_user")),
)
"""The tools by purpose; earlier phases come first in the documentation (C8)."""

TOOL_ORDER: Final = tuple(name for _, names in PHASES for name in names)
"""Every tool, in display order."""
