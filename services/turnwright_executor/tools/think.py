"""think: reasoning that is kept and has no effect."""

from __future__ import annotations

from turnwright_executor.tools.contract import Context, Done
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.parameters import BODY, ToolParameter
from turnwright_grammar.reply import Command


class Think(ImmediateTool):
    """Settles without a result: the thought itself is in the record's command (RU083)."""

    name = "think"
    parameters = (ToolParameter(BODY, "The reasoning.", required=True),)

    async def prepare(self, command: Command, context: Context) -> Done:  # noqa: ARG002
        return Done("")
