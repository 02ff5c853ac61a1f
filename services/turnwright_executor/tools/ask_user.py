"""ask_user: a question that waits for a person's answer, like any other proposal.

Source: rows RU009, RU122, RU258; decisions C2, C8.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Final

from turnwright_values.types import QuestionEffect

from turnwright_core.limits import TARGET_CHARS_MAX
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.tools.contract import Context, Proposed
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_grammar.reply import Command

OPTIONS_MAX: Final = 20
"""Maximum number of suggested answers; the rest is dropped."""

UNANSWERED: Final = "Nobody answers questions in this run. Decide by yourself, and say in <update> what you assumed."


class AskUser:
    """Proposes a question; the answer settles the record."""

    name = "ask_user"
    parameters = (
        ToolParameter("question", "The question.", required=True),
        ToolParameter("options", "Suggested answers, as lines or with commas between."),
    )
    effect_class = EffectClass.PURE

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        question = command.attributes.get("question", "").strip()
        if not question:
            return failed("invalid:400", '<ask_user> needs a question: <ask_user question="Which one?"/>.')
        options = options_of(command.attributes.get("options", "") or command.body)
        return Proposed(QuestionEffect(question, options), "\n".join([question, *(f"- {one}" for one in options)]))

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        if not isinstance(effect, QuestionEffect):
            return failed("invalid:400", "<ask_user> asks a question and changes nothing.")
        if not effect.answer:
            return Done(f"{effect.question}\n{UNANSWERED}")
        return Done(f"{effect.question}\n{effect.answer}", attributes={"answer": effect.answer})


def options_of(text: str) -> tuple[str, ...]:
    """Parse suggested answers: a JSON list, lines, or comma-separated. Never raises."""
    found = _listed(text.strip())
    chosen = dict.fromkeys(one[:TARGET_CHARS_MAX] for one in found if one)
    return tuple(chosen)[:OPTIONS_MAX]


def _listed(text: str) -> list[str]:
    if text.startswith("["):
        with suppress(ValueError, RecursionError):
            parsed = json.loads(text)
            # JSON can contain what a record cannot: unpaired surrogates, and NUL.
            return [str(one).encode("utf-8", "replace").decode().replace("\0", "\ufffd").strip() for one in parsed]
    lines = text.splitlines() if "\n" in text else text.split(",")
    return [line.strip().removeprefix("- ").removeprefix("* ").strip() for line in lines]
