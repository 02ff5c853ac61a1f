"""Models that tools ask while they work: calls at the cost of the open turn, for which its budget has to have room.

What a call may take is charged, and reserved of quotas, before it is made, with the record of the turn's own call: if
this executor dies, the next one charges it. What it has taken replaces that once it has ended.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Model, Tier, Usage

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.text import count_tokens, cut_bytes
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.model_questions import ModelAnswer, ToolQuestion
from turnwright_executor.ports.models import Models
from turnwright_executor.turn.calls_beside import call_beside
from turnwright_executor.turn.model_call import CALL, ModelCallRecord
from turnwright_executor.turn.spend_meter import BudgetError, SpendMeter
from turnwright_executor.turn.write_buffer import WriteBuffer

ANSWER_BYTES_MAX: Final = 1024 * 1024
_REFUSING: Final = (Reason.QUOTA_EXCEEDED, Reason.RIGHT_MISSING)


class _Services(Protocol):
    @property
    def models(self) -> Models: ...


class LoopModels:
    """Implements tools.ports.ToolModels."""

    def __init__(
        self, buffer: WriteBuffer, meter: SpendMeter, services: _Services, turn: int, note: ModelCallRecord
    ) -> None:
        """`note` is what is known of the model call of the open turn."""
        self._buffer, self._meter, self._services, self._turn, self._note = buffer, meter, services, turn, note
        self._asking = asyncio.Lock()

    async def ask(self, question: ToolQuestion, number: int) -> ModelAnswer:
        # One at a time: each has to find what the others leave of the budget.
        async with self._asking:
            model = await self._buffer.ledger.get_model(question.alias)
            if model is None:
                return ModelAnswer(problem=f"There is no model {question.alias} here, which the registration names.")
            tokens = sum(count_tokens(one.text) for one in question.messages) + question.output_tokens_max
            try:
                cost_usd = self._meter.take_for_tool(tokens, self._note.result)
            except BudgetError as error:
                return ModelAnswer(problem=f"The budget has no room for this call: {error}.")
            if refusal := await self._reserved(tokens, cost_usd):
                return refusal
            return await self._asked(model, question, number, tokens, cost_usd)

    async def _reserved(self, tokens: int, cost_usd: float) -> ModelAnswer | None:
        """Store what a call may take. Returns why it may not be made."""
        buffer = self._buffer
        # A reply that nobody has would count as a call that was lost.
        await buffer.flush(full=True)
        try:
            await buffer.ledger.call_again(buffer.address, buffer.epoch or 0, self._turn, (tokens, cost_usd))
        except TurnwrightError as error:
            if error.reason not in _REFUSING:
                raise
            self._meter.charge_tool(-tokens, -cost_usd)
            return ModelAnswer(problem=error.message)
        buffer.add(self._spent())
        await buffer.flush(full=True)
        return None

    async def _asked(
        self, model: Model, question: ToolQuestion, number: int, tokens: int, cost_usd: float
    ) -> ModelAnswer:
        call = self._services.models.ask(
            model,
            question.messages,
            question.output_tokens_max,
            number,
            temperature=question.temperature,
            limits_cost=self._meter.limits_cost,
        )
        made = await call_beside(call)
        if (used := made.usage) is not None:
            known_usd = cost_usd if used.cost_usd is None and used != Usage() else used.cost_usd or 0.0
            self._meter.charge_tool(used.total_tokens - tokens, known_usd - cost_usd)
            self._buffer.add(self._spent())
        if made.error:
            return ModelAnswer(problem=f"The model gave no answer: {made.error.message}")
        text = cut_bytes(made.draft.text, ANSWER_BYTES_MAX)
        return ModelAnswer(text, question.alias, made.draft.is_cut or text != made.draft.text)

    def _spent(self) -> EntryWrite:
        """What models have taken for tools, in the record of the turn's own call."""
        tokens, cost_usd = self._meter.of_tools
        merged = to_attributes_json({CALL: {"tool_tokens": tokens, "tool_cost_usd": cost_usd}})
        return EntryWrite(f"assistant://{self._turn}", SetEntry(merge_attributes_json=merged), Tier.SYSTEM)
