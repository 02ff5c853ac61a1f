"""The plans of a run for its tools: written under the owner's fencing token, idempotent by key.

Source: rows RP01, RP04, AP42; decision C45.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnwright_core.entries import Tier
from turnwright_core.plans.plan import Plan
from turnwright_executor.ports.ledger import PlanWriter
from turnwright_executor.turn.write_buffer import WriteBuffer


class RunPlans:
    """Implements tools.ports.Plans."""

    def __init__(self, buffer: WriteBuffer, window: int = 0, tool: str = "") -> None:
        """`buffer` is notified of writes that bypass it. `tool` is the plugin's tool that owns these plans; empty: all.

        `window` is the token limit of the loop's packets; 0: unknown.
        """
        self._buffer = buffer
        self._by = PlanWriter(buffer.epoch, Tier.PLUGIN if tool else Tier.MODEL, window)
        self._tool = tool

    def scoped(self, tool: str) -> RunPlans:
        return RunPlans(self._buffer, self._by.window, tool)

    def _id(self, plan_id: str) -> str:
        return f"{self._tool}-{plan_id}" if self._tool else plan_id

    async def get(self, plan_id: str, version: int = 0) -> Plan:
        return await self._buffer.ledger.get_plan(self._buffer.address, self._id(plan_id), version)

    async def set(self, plan: Plan, key: str) -> Plan:
        plan = replace(plan, plan_id=self._id(plan.plan_id))
        made, cursor = await self._buffer.ledger.set_plan(self._buffer.address, self._by, plan, key)
        self._buffer.bypassed(cursor)
        return made

    async def update(self, plan_id: str, text: str, key: str) -> Plan:
        buffer = self._buffer
        made, cursor = await buffer.ledger.update_plan(buffer.address, self._by, self._id(plan_id), text, key)
        buffer.bypassed(cursor)
        return made
