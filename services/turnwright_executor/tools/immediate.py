"""Tools that settle every command at once, because they change nothing outside the store: their base, think and update.

Source: rows RU028, RU076, RU277, RU292; decision C12.
"""

from __future__ import annotations

import asyncio
from typing import Final

from turnwright_core.json_schema import answer_problem, answer_text
from turnwright_core.runs import COMPLETED, RUNNING, STATUSES, TERMINAL_UPDATES
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.verdict import ANSWER_INVALID
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


_MEANINGS: Final = {one.code: one.update for one in STATUSES.values() if one.update}
_FINAL: Final = " and ".join(", ".join(map(str, sorted(TERMINAL_UPDATES))).rsplit(", ", 1))
_LEGEND: Final = " ".join(f"{code}: {meaning}." for code, meaning in _MEANINGS.items())


class Update(ImmediateTool):
    """Settles with the text as body and the status as attribute; an unknown status counts as 102."""

    name = "update"
    parameters = (
        ToolParameter("status", _LEGEND, required=True, words=tuple(map(str, _MEANINGS))),
        ToolParameter(BODY, f"Where you stand; with {_FINAL} the answer that the person reads.", required=True),
    )

    async def prepare(self, command: Command, context: Context) -> Done:
        given = command.attributes.get("status", str(RUNNING)).strip()
        status = int(given) if given.isascii() and given.isdecimal() and len(given) == 3 else 0
        if form := context.response_format if status == COMPLETED else None:
            problem = await asyncio.to_thread(answer_problem, form.schema, answer_text(command.body))
            if problem:
                return failed(ANSWER_INVALID, problem, status=RUNNING)
        if status in _MEANINGS:
            return Done(command.body, attributes={"status": status})
        return failed("invalid:400", f"There is no status {given!r}. {_LEGEND}", status=RUNNING)
