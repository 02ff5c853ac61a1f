"""The entries of a run that hold its instructions: what every packet and transcript is made of besides its timeline."""

from __future__ import annotations

from typing import Final

SYSTEM_PATH: Final = "instructions://system"
"""Tools, tool documentation and persona, of which the assembler makes the system message."""

PROJECT_PATH: Final = "instructions://project"
"""AGENTS.md and CLAUDE.md of the project as they were read when the latest loop began."""

TOOLS_PATH: Final = "instructions://tools"
"""The tools of servers as the latest loop has them. No packet shows it: what models read of them is in SYSTEM_PATH."""

INSTRUCTION_PATHS: Final = (SYSTEM_PATH, PROJECT_PATH)
