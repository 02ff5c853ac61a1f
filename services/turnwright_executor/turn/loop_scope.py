"""State shared by the steps of one claimed loop: its identity, its placement, and its open turn."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.store import (
    AgentLimits,
    ClaimRunResponse,
    EndTurnResponse,
    EntryWrite,
    LoopEnd,
    StartAgentRequest,
)
from turnwright_values.types import (
    Agent,
    Assembly,
    CallStyle,
    Cursor,
    Loop,
    LoopSettings,
    LoopTally,
    Model,
    Place,
    RequestKind,
    Run,
    RunSettings,
    Turn,
    TurnRequest,
    TurnResult,
    ViewFilter,
)

from turnwright_core.instructions import TOOLS_PATH
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.model_calls import REFUSABLE
from turnwright_core.models import window_of
from turnwright_core.tools import DELEGATE, OF_AGENTS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.tokens import TokenRate, rate_after, rate_from
from turnwright_executor.domain.toolset import resolve_tools
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.models import Models
from turnwright_executor.ports.packets import Packet, Packets, ViewChanges
from turnwright_executor.ports.publishing import Publisher
from turnwright_executor.tools.catalogue import EMPTY, Snapshot, ToolCatalogue, brought
from turnwright_executor.tools.client_tools import client_tools
from turnwright_executor.tools.contract import Tool, noop
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.ports import Shell, Workspace
from turnwright_executor.tools.tool_search import SEARCH_TOOLS
from turnwright_executor.turn.accepting import Grants, Proposals
from turnwright_executor.turn.commands import CommandSteps, DispatchScope, tool_context
from turnwright_executor.turn.generation import Generation
from turnwright_executor.turn.hook_events import HookEvents
from turnwright_executor.turn.machine import TurnState
from turnwright_executor.turn.model_call import ModelCallRecord
from turnwright_executor.turn.project_files import FileSync
from turnwright_executor.turn.recording import ParsedReply, reply_reader
from turnwright_executor.turn.slots import Slot
from turnwright_executor.turn.spend_meter import SpendMeter
from turnwright_executor.turn.titles import Titles
from turnwright_executor.turn.tool_models import LoopModels
from turnwright_executor.turn.turn_line import bind_turn, turn_ended
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


class Services(Struct, frozen=True):
    """Dependencies of every loop."""

    ledger: Ledger
    packets: Packets
    generation: Generation
    models: Models
    tools: Mapping[str, Tool]
    settings: ExecutorSettings
    hooks: Hooks
    titles: Titles
    targets: Mapping[str, str] = {}
    """As in RecordingContext."""
    catalogue: ToolCatalogue = ToolCatalogue()
    """The tools of servers as they are now."""
    snapshot: Snapshot = EMPTY
    """Those of a loop, once it has begun."""
    wake: Callable[[RunAddress], None] = noop
    """There is something to do for a run."""


class LoopTools(Struct, frozen=True):
    """What a loop has of the tools of servers, and how it offers them."""

    snapshot: Snapshot = EMPTY
    by_names: bool = False
    is_native: bool = False


NO_SERVERS: Final = LoopTools()


async def tools_begun_with(services: Services, project: str, model: Model, given: RunSettings) -> LoopTools:
    """The tools of servers for a loop that begins now."""
    snapshot = await services.catalogue.current(project)
    window = window_of(model) or CONTEXT_LENGTH_DEFAULT
    window = min(window, given.context_limit or window)
    by_names = snapshot.is_long(window, services.settings.token_divisor)
    return LoopTools(snapshot, by_names, is_native(given.calls, model))


def is_native(wanted: CallStyle, model: Model) -> bool:
    """Whether the model is to call tools natively. AUTO: if it is known to support it."""
    return wanted is CallStyle.NATIVE or (wanted is CallStyle.AUTO and model.capabilities.tools is True)


def with_tools_of(
    services: Services, run: Run, settings: LoopSettings, kept: LoopTools = NO_SERVERS
) -> tuple[Services, tuple[str, ...]]:
    """The services with the tools that a loop has beside those of the executor, and the names of all that it offers."""
    native = kept.is_native or settings.assembly is Assembly.TRANSCRIPT
    more: dict[str, OutsideTool] = {**brought(kept.snapshot, by_names=kept.by_names, is_native=native)}
    more |= client_tools(settings.client_tools, {**services.tools, **more})
    descriptors = (*services.hooks.tool_descriptors, *(tool.descriptor for tool in more.values()))
    depth = run.parent.depth if run.parent else 0
    of_others = [name for name in more if name.endswith(f".{DELEGATE}")]
    without = (*OF_AGENTS, *of_others) if depth >= services.settings.agents_depth_max else ()
    if run.place or run.settings.place not in (Place.UNSPECIFIED, Place.SHARED):
        # They work in the project's folder, and not in a place of the run.
        without = (*without, *of_others)
    offered = resolve_tools(settings, descriptors, services.settings.unconfigured_tools.union(without))
    targets = {one.name: one.target for one in descriptors}
    services = replace(services, targets=targets, snapshot=kept.snapshot)
    if more:
        tools = {**services.tools, **more}
        reader = partial(reply_reader, services.settings.turn_commands_max, tools)
        services = replace(services, tools=tools, generation=services.generation.reading(reader))
    return services, offered


class Placement(Struct, frozen=True):
    """Where a loop, or a client's command, works on this host. `files` is None without the project's files."""

    workspace: Workspace
    shell: Shell
    root: str
    """The directory: the project's, or that of a place of the run's own."""
    files: FileSync | None = None
    save: Callable[[], Awaitable[None]] | None = None
    """Copies what the run has changed in its own place to the project, before the loop ends; None: it has none."""


class LeaseHandle(Struct, frozen=True):
    """A worker's handle on the lease of its run."""

    confirm: Callable[[], Awaitable[None]]
    """Confirms the lease before an effect; raises LEASE_LOST."""
    reclaim: Callable[[], Awaitable[ClaimRunResponse]]
    """Claims the run again; returns its current ledger state."""
    returning: Callable[[], AbstractContextManager[Callable[[], None]]]
    """Context for a write that may release the run: call the yielded function if it did."""


class OpenTurn(Struct):
    """State of a turn between its begin and its verdict."""

    turn: Turn
    at_least: Cursor | None
    note: ModelCallRecord = field(default_factory=ModelCallRecord)
    reading: ParsedReply = field(default_factory=ParsedReply)
    packet: Packet | None = None
    is_left: bool = False
    """Whether an earlier owner carried out commands, so that their additions are unknown here."""
    is_demoted: bool = False
    """Whether its results did not fit and were summarized."""
    tally: LoopTally | None = None
    """What the loop has done, this turn included, once it is judged."""

    @property
    def is_compaction(self) -> bool:
        return self.turn.request.kind is RequestKind.COMPACTION


class LoopScope:
    """One claimed loop, while one executor works on it. Mutable: its turns advance."""

    def __init__(
        self,
        services: Services,
        address: RunAddress,
        claim: ClaimRunResponse,
        loop: Loop,
        unsaved: UnsavedState,
        publisher: Publisher,
        lease: LeaseHandle,
        slot: Slot,
    ) -> None:
        """Start from the ledger state of the loop, and from unsaved state of this process."""
        self._own_services = services
        services, self.tools = with_tools_of(services, claim.run, loop.settings)
        self.services = services
        self.address = address
        self.claim = claim
        self.loop = loop
        self.unsaved = unsaved
        self.publisher = publisher
        self.lease = lease
        self.grants = Grants(claim.run, claim.rules, partial(services.ledger.get_run_and_rules, address))
        self.slot = slot
        self.model: Model
        self.placement: Placement
        self.recent = [turn.result for turn in claim.recent_turns if turn.result]
        """The results of the loop's latest turns."""
        self.turns_ended = loop.turns
        self.events = HookEvents(services.hooks, address, loop)
        self.spend_meter = SpendMeter(claim, loop, time.monotonic)
        self.open: OpenTurn
        """The turn that is open; between two turns the one before."""
        self.is_titled = claim.titled
        """Whether a title has been asked for, or needs not to be."""
        self.commands: CommandSteps | None = None
        """Those of the open turn, once its reply is recorded."""
        is_transcript = loop.settings.assembly is Assembly.TRANSCRIPT
        self.view_changes = ViewChanges(ViewFilter.MESSAGES if is_transcript else ViewFilter.PACKET)

    async def equip(self, begun: TurnRequest | None) -> None:
        """Give the loop the tools of servers: those that it began with (`begun`), or those of now if it begins."""
        services, claim = self._own_services, self.claim
        if begun:
            snapshot = await services.catalogue.kept(begun.tools_version, self._kept_tools)
            calls_natively = begun.calls is CallStyle.NATIVE
            kept = LoopTools(snapshot, SEARCH_TOOLS in begun.tools, calls_natively)
        elif self.turns_ended or claim.open_turn:
            return
        else:
            kept = await tools_begun_with(services, self.address.project, self.model, claim.run.settings)
        self.services, self.tools = with_tools_of(services, claim.run, self.loop.settings, kept)

    async def _kept_tools(self) -> str:
        found = await self.services.ledger.get_entries(self.address, [TOOLS_PATH])
        return found[0].body if found else ""

    def recorded(self, state: TurnState, records: Mapping[str, CommandRecord], unwritten: Sequence[EntryWrite]) -> None:
        """The reply of the open turn is recorded, with these records; `unwritten` is left to the write buffer."""
        services, loop, place = self.services, self.loop, self.placement
        turn, packet = self.open.turn, self.open.packet
        state.records, state.is_recorded = dict(records), True
        buffer = WriteBuffer(
            services.ledger,
            self.address,
            self.claim.epoch,
            turn.number,
            loop.sequence,
            state.records,
            self.view_changes,
            services.settings.record_after_s,
        )
        buffer.buffer_reply(unwritten)
        # The assembler says with a packet what it may take; of a turn that was taken up there is only the window.
        window = (packet.report.ceiling if packet else 0) or turn.request.context_length
        publisher = self.publisher
        models = LoopModels(buffer, self.spend_meter, services, turn.number, self.open.note)
        agents = LoopAgents(buffer, self.spend_meter, self.tools, services, self.unsaved, self.open.note)
        dispatch = DispatchScope(
            context=tool_context(
                loop, turn.number, buffer, place.workspace, place.shell, publisher, window, agents, models
            ),
            grants=self.grants,
            publisher=publisher,
            buffer=buffer,
            tools=services.tools,
            proposals=Proposals(services.hooks, self.events.at(turn.number), self.grants),
            confirm=self.lease.confirm,
            allows_network=self.grants.allows_network,
            asks_indeterminate=services.settings.indeterminate == "ask",
            outside_results=self.unsaved.outside_results,
            unstarted=self.unsaved.unstarted,
            asked_by=loop.by,
            give_up=partial(services.catalogue.give_up, self.address, self.claim.epoch),
        )
        self.commands = CommandSteps(dispatch, state)

    def begun(self, state: TurnState, turn: Turn, ack: EndTurnResponse) -> None:
        self.grants.turn_begun(ack.run, ack.rules)
        bind_turn(self.address, turn)
        self.unsaved.begin_reply(turn.number)
        self.unsaved.outside_results.clear()
        self.unsaved.unstarted.clear()
        self.events.begun(turn.number, first=not self.turns_ended)
        self.open = OpenTurn(turn, ack.cursor)
        state.begin(turn.number)

    def token_rate(self) -> TokenRate:
        """The rate of the previous turn (C16); unknown in a run's first, and after another model or assembly."""
        if self.recent:
            return rate_after(self.recent[-1])
        return rate_from(self.claim.turn_before, self.open.turn.request)

    def refused_before(self, turn: Turn) -> tuple[str, ...]:
        """What the model's vendor has refused of the conversation before a turn, so that it stays out."""
        last, before = self.recent[-1] if self.recent else None, self.claim.turn_before
        if last is None and before and before.request.vendor_model == turn.request.vendor_model:
            last = before.result
        return tuple(name for name in last.dropped if name in REFUSABLE) if last else ()

    def concluded(self, state: TurnState, result: TurnResult, end: LoopEnd | None = None) -> None:
        """The open turn has ended with this result, and with it the loop if it has an end."""
        turn = self.open.turn.number
        self.recent.append(result)
        self.spend_meter.end_turn(result)
        self.turns_ended += 1
        self.commands = None
        turn_ended(self.address, turn, result, len(state.records))
        self.events.concluded(turn, result, end)
        state.begin(0)
        state.is_over = end is not None


def in_turn(write: EntryWrite, turn: Turn) -> EntryWrite:
    return replace(write, turn=turn.number, loop=turn.loop)
