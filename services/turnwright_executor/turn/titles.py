"""The calls that ask a cheap model for the titles of runs, beside their loops.

A run has one such call. The store is told of it before it is made, with what it may cost, and once it has ended: a
call that was lost is charged at that, and never made again. Nothing waits for a title, and nothing fails without one.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import TitleCall
from turnwright_values.types import Assembly, Cursor, RequestKind, Turn, TurnRequest, Usage

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT, TITLE_TOKENS_MAX
from turnwright_core.models import Reasoning
from turnwright_core.titles import title_in
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tokens import TokenRate
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.models import Models
from turnwright_executor.ports.packets import Packets
from turnwright_executor.turn.calls_beside import call_beside
from turnwright_executor.turn.spend_meter import BudgetError, SpendMeter
from turnwright_kit.logs import get_logger
from turnwright_kit.scope import detached

CALLS_MAX: Final = 16
"""Most calls at a time; runs that reply meanwhile go without."""

CALL_S: Final = 60.0
"""Seconds that a call may take."""

STOP_S: Final = 5.0
"""Most seconds for which the end of the executor waits for calls."""

_log = get_logger("titles")


class Titles:
    """Asks for titles, and owns the tasks that do."""

    def __init__(self, ledger: Ledger, packets: Packets, models: Models, settings: ExecutorSettings) -> None:
        self._ledger = ledger
        self._packets = packets
        self._models = models
        self._model = settings.title_model
        self._temperature = settings.temperature
        self._stop_s = min(STOP_S, settings.drain_s)
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, address: RunAddress, turn: Turn, at_least: Cursor, meter: SpendMeter) -> None:
        """Ask for the title of a run whose turn has ended, if a setting names a model. Returns at once."""
        if self._model and len(self._tasks) < CALLS_MAX:
            task = detached(self._ask(address, turn, at_least, meter), name=f"title of {address.run}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End: calls in progress have a few seconds."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=self._stop_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _ask(self, address: RunAddress, turn: Turn, at_least: Cursor, meter: SpendMeter) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                await self._write(address, turn, at_least, meter)
        except (TurnwrightError, BudgetError, TimeoutError) as error:
            _log.warning("title_failed", run=address.run, model=self._model, detail=str(error))

    async def _write(self, address: RunAddress, turn: Turn, at_least: Cursor, meter: SpendMeter) -> None:
        request = TurnRequest(
            model=self._model,
            context_length=CONTEXT_LENGTH_DEFAULT,
            temperature=self._temperature,
            reasoning=Reasoning("off"),
            kind=RequestKind.TITLE,
            assembly=Assembly.TRANSCRIPT,
        )
        packet = await self._packets.assemble(address, replace(turn, request=request), at_least, TokenRate(), None)
        if packet.report.overflow:
            return
        reserved = packet.report.tokens + TITLE_TOKENS_MAX
        cost_usd = meter.set_aside(reserved)
        call = TitleCall(secrets.token_hex(16), self._model, turn.loop, reserved, cost_usd)
        try:
            model = await self._ledger.write_title(address, call)
        except TurnwrightError as error:
            if error.reason is Reason.MODEL_NOT_FOUND:
                meter.give_back(reserved, cost_usd)
            raise
        if model is None:
            meter.give_back(reserved, cost_usd)
            return
        request = replace(request, vendor_model=model.vendor_model)
        made = await call_beside(
            self._models.generate(model, packet.messages, request, 0, limits_cost=meter.limits_cost)
        )
        if made.error:
            if made.usage == Usage():
                meter.give_back(reserved, cost_usd)
            await self._ledger.write_title(address, replace(call, usage=made.usage))
            raise made.error
        await self._ledger.write_title(address, replace(call, usage=made.usage, title=title_in(made.draft.text)))
