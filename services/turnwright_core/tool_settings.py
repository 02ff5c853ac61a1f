"""Settings about tools: those that a client executes, and decisions that hold for a whole run."""

from __future__ import annotations

from msgspec import Struct


class ClientTool(Struct, frozen=True):
    """A tool that a client executes; `parameters` is JSON Schema, empty for any arguments."""

    name: str
    description: str
    parameters: str = ""


class ToolRules(Struct, frozen=True):
    """Tools whose effects need no decision in a run: they are accepted, or refused."""

    approved: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()

    def decided(self, tool: str, *, accept: bool) -> ToolRules:
        approved = tuple(name for name in self.approved if name != tool)
        rejected = tuple(name for name in self.rejected if name != tool)
        return ToolRules((*approved, tool), rejected) if accept else ToolRules(approved, (*rejected, tool))
