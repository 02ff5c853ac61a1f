"""update: reports whether the work goes on, and its result.

Source: rows RU028, RU076, RU277, RU292; decision C12.
"""

from __future__ import annotations

import asyncio
from typing import Final

from turnwright_core.json_schema import answer_problem, answer_text
from turnwright_core.runs import COMPLETED, RUNNING, TERMINAL_UPDATES
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.verdict import ANSWER_INVALID
from turnwright_executor.tools.contract import Context
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.parameters import BODY, ToolParameter
from turnwright_grammar.reply import Command

STATUSES: Final = frozenset({RUNNING}) | TERMINAL_UPDATES


class Update(ImmediateTool):
    """Settles with the text as body and the status as attribute; an unknown status counts as 102."""

    name = "update"
    parameters = (
        ToolParameter(
            "status",
            "102: I go on. 200: all is done. 204: nothing had to be done. 422: it cannot be done.",
            required=True,
            words=tuple(map(str, sorted(STATUSES))),
        ),
        ToolParameter(BODY, "Where you stand; with 200, 204 and 422 the answer that the person reads.", required=True),
    )

    async def prepare(self, command: Command, context: Context) -> Done:
        given = command.attributes.get("status", str(RUNNING)).strip()
        status = int(given) if given.isascii() and given.isdecimal() and len(given) == 3 else 0
        if form := context.response_format if status == COMPLETED else None:
            problem = await asyncio.to_thread(answer_problem, form.schema, answer_text(command.body))
            if problem:
                return failed(ANSWER_INVALID, problem, status=RUNNING)
        if status in STATUSES:
            return Done(command.body, attributes={"status": status})
        text = f"There is no status {given!r}; it is 102 to go on, or 200, 204 or 422 to end."
        return failed("invalid:400", text, status=RUNNING)
