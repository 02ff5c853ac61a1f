"""Tools that settle every command at once, because they change nothing outside the store: their base, and think."""

from __future__ import annotations

from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.tools.contract import Context
from turnwright_executor.tools.parameters import BODY, ToolParameter
from turnwright_grammar.reply import Command


class ImmediateTool:
    """A tool that never proposes."""

    effect_class = EffectClass.PURE

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """An effect that this tool did not propose is refused."""
        return failed("conflict:409", f"<{command.name}> proposes nothing, so there is nothing to carry out.")


class Think(ImmediateTool):
    """Settles without a result: the thought itself is in the record's command (RU083)."""

    name = "think"
    parameters = (ToolParameter(BODY, "The reasoning.", required=True),)

    async def prepare(self, command: Command, context: Context) -> Done:
        return Done("")
