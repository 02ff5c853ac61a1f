"""The agents of one loop, for its tools: started under the owner's fencing token, with a budget out of the loop's.

Source: docs/adr/0083.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace
from turnwright_values.store import AgentLimits, StartAgentRequest
from turnwright_values.types import Agent

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.turn.model_call import ModelCallRecord
from turnwright_executor.turn.spend_meter import SpendMeter
from turnwright_executor.turn.unsaved import UnsavedState
from turnwright_executor.turn.write_buffer import WriteBuffer


class _Services(Protocol):
    @property
    def settings(self) -> ExecutorSettings: ...
    @property
    def wake(self) -> Callable[[RunAddress], None]: ...


class LoopAgents:
    """Implements tools.ports.Agents."""

    def __init__(
        self,
        buffer: WriteBuffer,
        meter: SpendMeter,
        tools: Sequence[str],
        services: _Services,
        unsaved: UnsavedState,
        note: ModelCallRecord,
    ) -> None:
        """`note` is what is known of the model call of the open turn, which the store has not counted yet."""
        self.tools = tools
        self._buffer = buffer
        self._meter = meter
        self._services = services
        self._unsaved = unsaved
        self._note = note

    async def start(self, wanted: StartAgentRequest) -> Agent:
        buffer, settings = self._buffer, self._services.settings
        limits = AgentLimits(settings.agents_depth_max, settings.agents_at_once_max, settings.agents_per_loop_max)
        used = self._meter.used_by(self._note.result)
        self._unsaved.has_agents = True
        wanted = replace(wanted, epoch=buffer.epoch or 0, used=used, limits=limits)
        made = await buffer.ledger.start_agent(buffer.address, wanted)
        buffer.bypassed(made.cursor)
        self._meter.known(made.spent, made.loop_spent)
        if made.agent.run:
            self._services.wake(RunAddress(buffer.address.project, made.agent.run))
        return made.agent

    async def wait(self, record: str, names: Sequence[str]) -> Sequence[Agent]:
        buffer = self._buffer
        self._unsaved.has_agents = True
        known = await buffer.ledger.wait_agents(buffer.address, buffer.epoch or 0, record, names)
        self._meter.known(known.spent, known.loop_spent)
        return known.agents
