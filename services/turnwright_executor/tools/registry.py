"""The table of tools, and the text that the model reads about each.

Source: rows RU029, RU119, RU198, RU256, RU257.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from turnwright_executor.tools.ask_user import AskUser
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.cp import Cp
from turnwright_executor.tools.env import Env
from turnwright_executor.tools.get import Get
from turnwright_executor.tools.limits import ToolLimits
from turnwright_executor.tools.mv import Mv
from turnwright_executor.tools.rm import Rm
from turnwright_executor.tools.set import Set
from turnwright_executor.tools.sh import Sh
from turnwright_executor.tools.think import Think
from turnwright_executor.tools.update import Update


def build_tools(limits: ToolLimits | None = None) -> Mapping[str, Tool]:
    """Every tool by its name, under these limits."""
    kept = limits or ToolLimits()
    tools: tuple[Tool, ...] = (
        Get(kept),
        Env(kept),
        Think(),
        Set(kept),
        Cp(kept),
        Mv(kept),
        Rm(kept),
        Sh(kept),
        Update(),
        AskUser(),
    )
    return MappingProxyType({tool.name: tool for tool in tools})


TOOLS: Final = build_tools()
"""The tools under the default limits."""


@cache
def doc_of(name: str) -> str:
    """What the model reads about a tool. Raises FileNotFoundError for a name that is none."""
    return files(__package__).joinpath(f"{name}.md").read_text("utf-8").strip()


def docs_of(names: Iterable[str]) -> dict[str, str]:
    """The texts of some tools, in the given order."""
    return {name: doc_of(name) for name in names}
