"""Tools that a client executes: each call waits for the result that a client submits, like a proposal for its decision.

The call is durable and outlives the client; it expires as proposals do. Source: architecture 6; rows RS04, RS06.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from turnwright_values.types import ClientToolEffect, State, ToolDescription

from turnwright_core.errors import Reason, fault
from turnwright_core.json_text import JsonObject
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.tools.contract import Context, Proposed, Tool
from turnwright_executor.tools.outside import OutsideTool
from turnwright_grammar.reply import Command

FAILED: Final = "client_tool:500"
"""Outcome of a tool that failed at its client."""


class ClientExecutedTool(OutsideTool):
    """A tool as its client declares it; implements Tool."""

    effect_class = EffectClass.PURE
    """The result is in the record before it is carried out: to do so again changes nothing."""

    def __init__(self, tool: ToolDescription) -> None:
        self.name = tool.name
        self.doc = tool.description.strip()
        self._schema: JsonObject = json.loads(tool.parameters) if tool.parameters else {"type": "object"}
        self.is_checked = bool(tool.parameters)
        self.descriptor = ToolDescriptor(tool.name, "act", frozenset(), "")

    @property
    def schema(self) -> JsonObject:
        return self._schema

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        return Proposed(ClientToolEffect(), f"The client executes {self.name}.")

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        if not isinstance(effect, ClientToolEffect):
            return failed("invalid:400", f"{self.name} is executed by the client.")
        return _result(effect.result, is_failed=effect.failed)


def _result(text: str, *, is_failed: bool) -> Done:
    return failed(FAILED, text) if is_failed else Done(text, State.RESOLVED)


def submitted_result(record: CommandRecord) -> Done | None:
    """What the client of a tool has submitted, if the turn has not used it yet."""
    decision = record.decision
    if decision is None or record.rejection or not isinstance(record.effect, ClientToolEffect):
        return None
    return _result(decision.contents.get("", "") or record.effect.result, is_failed=decision.tool_failed)


def client_tools(declared: Sequence[ToolDescription], tools: Mapping[str, Tool]) -> dict[str, ClientExecutedTool]:
    """The tools that a client declares, by name, without those that `check_names` refuses."""
    return {tool.name: ClientExecutedTool(tool) for tool in declared if tool.name not in tools}


def check_names(declared: Sequence[ToolDescription], tools: Mapping[str, Tool]) -> None:
    """Raises INVALID_FIELD for a tool of a client that has the name of another tool."""
    for tool in declared:
        if not isinstance(tools.get(tool.name), ClientExecutedTool):
            message = f"There is a tool {tool.name} already: give the client's tool another name."
            raise fault(Reason.INVALID_FIELD, message, field="settings.client_tools")
