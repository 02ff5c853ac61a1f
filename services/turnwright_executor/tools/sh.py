"""sh: run a shell command that may change things. Source: rows RU009, RU163, RU171."""

from __future__ import annotations

from turnwright_executor.tools.running import Running


class Sh(Running):
    """Runs after acceptance."""

    name = "sh"
