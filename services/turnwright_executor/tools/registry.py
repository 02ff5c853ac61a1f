"""The registry of built-in tools, and their documentation for the model.

Source: rows RU029, RU119, RU198, RU256, RU257.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.toolset import tool_order
from turnwright_executor.tools.ask_user import AskUser
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.copying import Cp, Mv, Rm
from turnwright_executor.tools.delegating import Delegate, WaitAgents
from turnwright_executor.tools.get import Get
from turnwright_executor.tools.immediate import Think, Update
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.planning import GetPlan, SetPlan, UpdatePlan
from turnwright_executor.tools.plugin_tools import PluginToolAdapter
from turnwright_executor.tools.ports import Web, Workspace
from turnwright_executor.tools.running import Env, Sh
from turnwright_executor.tools.search import Search
from turnwright_executor.tools.set import Set
from turnwright_executor.tools.skill import Skill


def build_tools(settings: ExecutorSettings, web: Web, shelf: Workspace | None = None) -> Mapping[str, Tool]:
    """All tools by name; `shelf` has the shared skills."""
    tools: tuple[Tool, ...] = (
        Get(settings, web),
        Env(settings),
        Search(settings, web),
        Skill(settings, web, shelf),
        Think(),
        SetPlan(settings),
        UpdatePlan(),
        GetPlan(),
        Set(settings),
        Cp(settings),
        Mv(settings),
        Rm(settings),
        Sh(settings),
        Delegate(),
        WaitAgents(),
        Update(),
        AskUser(),
    )
    return MappingProxyType({tool.name: tool for tool in tools})


def with_plugin_tools(tools: Mapping[str, Tool], more: Sequence[PluginToolAdapter]) -> Mapping[str, Tool]:
    known = {**tools, **{tool.name: tool for tool in more}}
    order = tool_order([tool.descriptor for tool in more])
    return MappingProxyType({name: known[name] for name in order if name in known})


def texts_of(tools: Mapping[str, Tool], *, is_brief: bool = False) -> dict[str, str]:
    return {
        name: tool.doc if isinstance(tool, OutsideTool) else doc_of(name, is_brief=is_brief)
        for name, tool in tools.items()
    }


_SPARE: Final = "  <!-- (spare) "


@cache
def doc_of(name: str, *, is_brief: bool = False) -> str:
    """A tool's documentation; brief: without optional lines. Raises FileNotFoundError for an unknown tool."""
    lines = files(__package__).joinpath(f"{name}.md").read_text("utf-8").splitlines()
    kept = (line for line, below in pairwise([*lines, ""]) if not (is_brief and below.startswith(_SPARE)))
    return "\n".join(line for line in kept if not is_rationale(line)).strip()


def is_rationale(line: str) -> bool:
    """Whether a line of a tool's file explains the line above it, for maintainers and not for the model (RU257).

    Read these before you change a text; each line prevents a mistake of models. A rationale that begins with `(spare)`
    marks the line above as optional for models with a small window: it is said elsewhere, or an error says it.
    """
    return line.startswith("  <!-- ") and line.endswith(" -->")
