"""The steps of one command: prepare, accept, perform, settle.

Every outside effect is durably marked before it starts: an owner that finds the mark without an outcome knows that the
effect may have happened. Source: architecture 2, 11; rows RU128-RU138, RU149-RU157; decisions C20, C26.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.plans import PlanWriter
from turnwright_values.types import (
    AgentsEffect,
    Assembly,
    ClientToolEffect,
    FileEffect,
    Loop,
    Permission,
    RuleVerdict,
    State,
    Tier,
)

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.events import event_write
from turnwright_core.plans.plan import Plan
from turnwright_core.rules import rule_words
from turnwright_core.runs import PROPOSED
from turnwright_executor.domain.command_record import CommandRecord, Done, Stage, failed
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import REJECTED_OUTCOME, Ending, is_transient, outcome_of
from turnwright_executor.domain.records import error_path_of
from turnwright_executor.domain.run_events import command_lost
from turnwright_executor.ports.publishing import Activity, Publisher
from turnwright_executor.tools.contract import (
    Context,
    OutcomeUnknownError,
    Proposed,
    RefusedError,
    Tool,
    WaitingError,
    noop,
    result_of,
)
from turnwright_executor.tools.files import compared
from turnwright_executor.tools.ports import Agents, Shell, ToolModels, Workspace
from turnwright_executor.turn import indeterminate
from turnwright_executor.turn.accepting import Grants, Proposals, amended, record_too_large
from turnwright_executor.turn.machine import UPDATE, Action, LocalStage, Step, TurnState
from turnwright_executor.turn.records import error_write
from turnwright_executor.turn.settlement import channels_of, closed_channels, last_result
from turnwright_executor.turn.unsaved import UnsavedState
from turnwright_executor.turn.write_buffer import REFUSALS, WriteBuffer
from turnwright_kit.identity.caller import OPERATOR
from turnwright_kit.logs import get_logger

# The plans of a run for its tools: written under the owner's fencing token, idempotent by key.
#
# Source: rows RP01, RP04, AP42; decision C45.


class RunPlans:
    """Implements tools.ports.Plans."""

    def __init__(self, buffer: WriteBuffer, window: int = 0, tool: str = "") -> None:
        """`buffer` is notified of writes that bypass it. `tool` is the plugin's tool that owns these plans; empty: all.

        `window` is the token limit of the loop's packets; 0: unknown.
        """
        self._buffer = buffer
        self._by = PlanWriter(Tier.PLUGIN if tool else Tier.MODEL, buffer.epoch, window)
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


_log = get_logger("dispatch")

FILES_WAIT_S: Final = 5.0
"""Seconds that a stopped turn waits for a file change in progress."""

_REFUSING: Final = {
    Reason.RULE_DENIED: REJECTED_OUTCOME,
    Reason.RIGHT_MISSING: REJECTED_OUTCOME,
    Reason.QUOTA_EXCEEDED: "quota_exhausted:429",
}
"""Reasons for which the store lets an effect not begin, with the outcomes of its command."""

ABORTED: Final = Done(
    "Not carried out: an earlier command of the turn did not succeed.", State.CANCELLED, "aborted:499"
)


class DispatchScope(Struct, frozen=True):
    """The environment in which commands are carried out: those of a turn, or a client's."""

    context: Context
    """What every tool of the turn gets."""
    publisher: Publisher
    buffer: WriteBuffer
    tools: Mapping[str, Tool]
    proposals: Proposals
    confirm: Callable[[], Awaitable[None]]
    """Makes sure that this executor still holds the run; raises LEASE_LOST."""
    allows_network: Callable[[CommandRecord], bool]
    """Whether rules let a command use the network."""
    asks_indeterminate: bool
    """Whether to ask a person what became of an interrupted command."""
    grants: Grants | None = None
    """What the run accepts without asking; None: a client called the command, which counts as its decision."""
    outside_results: dict[str, Done] = field(default_factory=dict)
    """Results of outside effects, by record, which the store may not have while it is unavailable."""
    asked_by: str = ""
    """Whom the turn's loop is for."""
    unstarted: set[str] = field(default_factory=set)
    """Keys of marks that this process made for outside effects that it has not started."""
    give_up: Callable[[CommandRecord], None] = noop
    """Tells whoever made the proposal of a record that nobody carries it out."""

    @property
    def is_call(self) -> bool:
        return self.grants is None

    @property
    def asks_nobody(self) -> bool:
        """Whether effects happen without somebody else's decision."""
        return self.grants is None or self.grants.is_yolo


def tool_context(
    loop: Loop,
    turn: int,
    buffer: WriteBuffer,
    workspace: Workspace,
    shell: Shell,
    publisher: Publisher,
    window: int = 0,
    agents: Agents | None = None,
    models: ToolModels | None = None,
) -> Context:
    """What the tools of a turn get. `window` is the token limit of the loop's packets; 0: unknown."""
    settings = loop.settings
    return Context(
        turn=turn,
        loop=loop.sequence,
        mode=settings.mode,
        entries=buffer,
        workspace=workspace,
        shell=shell,
        plans=RunPlans(buffer, window),
        agents=agents,
        models=models,
        ended=publisher.ended,
        epoch=buffer.epoch or 0,
        no_web=settings.no_web,
        response_format=settings.response_format,
        is_transcript=settings.assembly is Assembly.TRANSCRIPT,
        project=buffer.address.project,
        run=buffer.address.run,
    )


class CommandSteps:
    """Performs the steps of a turn's commands, and updates their records.

    It is all that a client's command needs, whose errors are the caller's: they end no loop.
    """

    def __init__(self, scope: DispatchScope, state: TurnState) -> None:
        self.buffer = scope.buffer
        self._scope = scope
        self._state = state
        self._accepted: set[str] = set()
        """Commands whose acceptance is announced once it is stored."""
        self._unknown: dict[str, str] = {}
        """Why nobody knows what became of a command, by record."""
        self._steps: Mapping[Action, Callable[[CommandRecord], Awaitable[None]]] = {
            Action.PREPARE: self._prepare,
            Action.PROPOSE: self._propose,
            Action.ACCEPT: self._accept,
            Action.MARK: self._mark,
            Action.PERFORM: self._perform,
            Action.SETTLE: self._settle_known,
            Action.INDETERMINATE: self._indeterminate,
            Action.ANSWER: self._answer,
            Action.REJECT: self._reject,
            Action.CANCEL: self._cancel,
            Action.PARK: self._park,
        }

    def perform(self, state: TurnState, step: Step) -> Awaitable[None]:
        """Perform a step of one command. Raises TurnwrightError if the store does."""
        return self._steps[step.action](state.records[step.path]) if step.path else self._flush()

    def ending_of(self, error: Exception) -> Ending | None:  # noqa: ARG002
        return None

    async def _flush(self) -> None:
        await self.buffer.flush(full=True)
        self._state.is_over = True

    def _settle(self, record: CommandRecord, done: Done) -> None:
        self._scope.give_up(record)
        self._scope.buffer.settle(record, done)
        self._state.local_stages.pop(record.path, None)

    async def _prepare(self, record: CommandRecord) -> None:
        prepared: Done | Proposed
        try:
            if tool := self._scope.tools.get(record.tool):
                prepared = await tool.prepare(record.command, self._context(record))
            else:
                prepared = _uninstalled(record)
        except RefusedError as refused:
            prepared = refused.done
        except Exception as error:  # noqa: BLE001 - a tool that crashes fails its command, not the loop
            prepared = self._failure(record, error)
        if isinstance(prepared, Done):
            self._settle(record, prepared)
        else:
            self._proposed(record, prepared)

    def _proposed(self, record: CommandRecord, prepared: Proposed) -> None:
        grants = self._scope.grants
        record = record.prepared(prepared.effect, prepared.body, prepared.attributes)
        permission, local_stage = Permission.UNSPECIFIED, LocalStage.UNDECIDED
        if not prepared.needs_decision:
            permission, local_stage = Permission.NOT_NEEDED, LocalStage.CLEARED
        elif grants is None:
            permission = Permission.CALLER
        else:
            ruling = grants.ruling(record)
            record = record.ruled(ruling.decision.rule)
            if ruling.verdict is RuleVerdict.DENY:
                return self._settle(record, failed(REJECTED_OUTCOME, _denied(record)))
            permission = ruling.permission
        # What a client executes, nobody can allow in its place.
        if isinstance(prepared.effect, ClientToolEffect):
            permission = Permission.UNSPECIFIED
        elif prepared.needs_decision and permission:
            local_stage = LocalStage.GRANTED
        self._state.records[record.path] = record.permitted(permission)
        self._state.local_stages[record.path] = local_stage
        return None

    async def _propose(self, record: CommandRecord) -> None:
        self._state.local_stages.pop(record.path, None)
        self._scope.buffer.move(record.proposed())

    async def _park(self, record: CommandRecord) -> None:
        await self._scope.buffer.flush(full=True, run_status=PROPOSED)
        if not record.waits_for_agents:
            self._scope.proposals.pending(record)

    async def _accept(self, record: CommandRecord) -> None:
        if isinstance(record.effect, AgentsEffect):
            # What it waited for has ended: nobody has accepted anything.
            self._state.local_stages[record.path] = LocalStage.CLEARED
            return None
        proposals, grants = self._scope.proposals, self._scope.grants
        accepted = await proposals.accept(record)
        if isinstance(accepted, Done):
            # A veto is announced once it is stored; vetoes are rare.
            self._settle(record, accepted)
            await self._scope.buffer.flush(full=True)
            return proposals.vetoed(record, accepted.outcome)
        is_changed = accepted != record.effect and record.decision is None
        record = amended(record, accepted)
        if is_changed and grants and not grants.ruling(record).permission:
            text = "A filter has changed it to what is not accepted without asking here. Do without it."
            return self._settle(record, failed(REJECTED_OUTCOME, text))
        if too_large := record_too_large(record):
            return self._settle(record, too_large)
        self._state.records[record.path] = record
        self._state.local_stages[record.path] = LocalStage.CLEARED
        self._accepted.add(record.path)
        return None

    async def _mark(self, record: CommandRecord) -> None:
        """Durably mark that the effect may start: it happens at most once, or is recognized by its hashes."""
        scope, earlier = self._scope, record.stage
        record = record.dispatched()
        by_grant = scope.grants is not None and record.permission.is_grant
        if scope.grants and by_grant:
            # It may be another one than at an earlier mark.
            ruling = scope.grants.ruling(record)
            record = record.permitted(ruling.permission or record.permission).ruled(ruling.decision.rule)
        if record.effect_class is EffectClass.OUTSIDE and not indeterminate.is_retried(record):
            scope.unstarted.add(record.key)
        is_decided = record.permission in (Permission.CALLER, Permission.DECISION)
        is_checked = by_grant or (is_decided and not isinstance(record.effect, AgentsEffect))
        scope.buffer.move(record, granted_tool=record.tool if is_checked else "")
        try:
            await scope.buffer.flush(full=True)
        except TurnwrightError as error:
            is_withdrawn = error.reason is Reason.GRANT_WITHDRAWN
            if not (is_withdrawn or error.reason in _REFUSING):
                raise
            if scope.grants and is_withdrawn:
                await scope.grants.withdrawn(record.path)
            is_known = await self._taken_back(record, was_marked=earlier is Stage.DISPATCHED)
            if not (is_known or is_withdrawn):
                self._settle(record.not_dispatched(), failed(_REFUSING[error.reason], error.message))
            return
        await scope.confirm()
        if record.path in self._accepted:
            self._accepted.discard(record.path)
            scope.proposals.accepted(record)
        self._state.local_stages[record.path] = LocalStage.MARKED
        return

    async def _taken_back(self, record: CommandRecord, *, was_marked: bool) -> bool:
        """Take back the mark of an effect, which the store refuses: it is prepared again, unless it is settled.

        `was_marked`: an earlier owner may have begun it; then what became of it is told, as at an ending (C63). Returns
        whether it is.
        """
        scope = self._scope
        self._accepted.discard(record.path)
        scope.unstarted.discard(record.key)
        self._state.local_stages.pop(record.path, None)
        is_begun = was_marked and record.effect_class is EffectClass.IDEMPOTENT
        scope.buffer.move(record if is_begun else record.not_dispatched())
        if is_begun and not isinstance(record.effect, FileEffect):
            await self._indeterminate(record)
            return True
        if is_begun and (done := await compared(record, self._context(record))):
            self._settle(record, done)
            return True
        scope.buffer.move(record.not_dispatched())
        return False

    async def save_on_stop(self, error: BaseException) -> None:
        """A step was stopped by this exception: store the results so far."""
        if isinstance(error, asyncio.CancelledError):
            self._take_back_marks()
        if isinstance(error, asyncio.CancelledError | TurnwrightError):
            await self._scope.buffer.flush_on_stop(error)

    def _take_back_marks(self) -> None:
        """Buffer that marked effects have not started: the next owner need not ask what became of them."""
        for record in [one for one in self._state.records.values() if one.stage is Stage.DISPATCHED]:
            if record.key in self._scope.unstarted:
                self._state.local_stages.pop(record.path, None)
                self._scope.buffer.move(record.not_dispatched())

    async def _perform(self, record: CommandRecord) -> None:
        scope = self._scope
        scope.unstarted.discard(record.key)
        if not scope.is_call:
            # A client's command is no progress of the run's loop.
            scope.publisher.progress(Activity.PROCESSING, scope.context.turn, f"{record.tool} {record.target}".strip())
        try:
            done = await self._performed(record)
        except WaitingError as waiting:
            scope.buffer.move(record.waiting(waiting.effect, waiting.body))
            self._state.local_stages.pop(record.path, None)
            return None
        except asyncio.CancelledError:
            self._settle_stopped(record)
            raise
        except OutcomeUnknownError as unknown:
            # The mark stays as that of an owner that died would: the next step asks what became of it.
            self._unknown[record.path] = str(unknown)
            self._state.local_stages.pop(record.path, None)
            return None
        if isinstance(done, Proposed):
            # What comes next is decided, marked and carried out like what came before.
            return self._proposed(replace(record.not_dispatched(), decision=None), done)
        if record.effect_class is EffectClass.OUTSIDE:
            scope.outside_results[record.path] = done
        return self._settle(record, done)

    def _settle_stopped(self, record: CommandRecord) -> None:
        """This process stopped the effect of a command in the middle: nobody else can say more about it."""
        results = self._scope.outside_results
        done = results.pop(record.path, indeterminate.STOPPED_HERE)
        if record.effect_class is EffectClass.OUTSIDE and record.key not in self._scope.unstarted:
            results[record.path] = done
            self._settle(record, done)

    async def _performed(self, record: CommandRecord) -> Done | Proposed:
        tool, effect = self._scope.tools.get(record.tool), record.effect
        if tool is None or effect is None:
            return _uninstalled(record)
        try:
            performing = result_of(tool.perform(effect, record.command, self._context(record)))
            if not isinstance(effect, FileEffect):
                return await performing
            return await self._to_the_end(record, performing)
        except (OutcomeUnknownError, WaitingError):
            raise
        except Exception as error:  # noqa: BLE001 - the same
            if isinstance(error, TurnwrightError) and error.reason in REFUSALS:
                return failed(outcome_of(error), error.message + self._effect_words(record))
            return self._failure(record, error)

    async def _to_the_end(self, record: CommandRecord, performing: Awaitable[Done | Proposed]) -> Done | Proposed:
        """A file change must not be stopped halfway: a cancelled turn waits for it, and is cancelled then."""
        task = asyncio.ensure_future(performing)
        try:
            return _commented(record, await asyncio.shield(task))
        except asyncio.CancelledError:
            await asyncio.wait((task,), timeout=FILES_WAIT_S)
            if not task.done():
                task.cancel()
            elif not task.cancelled() and task.exception() is None:
                done = _commented(record, task.result())
                if isinstance(done, Done):
                    self._scope.buffer.settle(record, done)
            raise

    async def _settle_known(self, record: CommandRecord) -> None:
        self._settle(record, self._scope.outside_results[record.path])

    async def _indeterminate(self, record: CommandRecord) -> None:
        """It is unknown whether an outside effect happened: tell the model, or ask a person."""
        scope = self._scope
        closing = closed_channels(await scope.buffer.get(channels_of([record.path])))
        if record.effect is None or scope.asks_nobody or not scope.asks_indeterminate:
            unknown = indeterminate.UNKNOWN
            if why := self._unknown.get(record.path):
                unknown = replace(unknown, body=f"{why} {indeterminate.EFFECTS}")
            event = command_lost(record.path, record.tool, unknown.outcome, self._left_after(record))
            writes = (*closing, event_write(scope.context.turn, event))
            return self._settle(record, replace(unknown, writes=writes))
        return scope.buffer.move(record.asked(indeterminate.ASKED), *closing)

    def _left_after(self, record: CommandRecord) -> list[str]:
        """The records that are cancelled if this one does not succeed."""
        paths = list(self._state.records)
        later = (self._state.records[path] for path in paths[paths.index(record.path) + 1 :])
        is_left = (one for one in later if not one.state.is_settled and one.tool != UPDATE)
        return [] if record.call_id else [one.path for one in is_left if not one.call_id]

    async def _answer(self, record: CommandRecord) -> None:
        if done := indeterminate.apply_answer(record):
            return self._settle(record, done)
        self._state.records[record.path] = record.retried()
        self._state.local_stages[record.path] = LocalStage.CLEARED
        return None

    async def _reject(self, record: CommandRecord) -> None:
        self._scope.proposals.rejected(record)
        self._scope.give_up(record)
        self._state.announced.add(record.path)
        if record.interrupted:
            self._settle(record, indeterminate.given_up(record))

    async def _cancel(self, record: CommandRecord) -> None:
        scope = self._scope
        known = UnsavedState(0, outside_results=scope.outside_results, unstarted=scope.unstarted)
        compare = partial(compared, context=self._context(record))
        done = await last_result(record, known, ABORTED, compare)
        # Nobody knows of the attempt that somebody wanted to be repeated.
        is_unknown = done is ABORTED and indeterminate.is_retried(record)
        self._settle(record, indeterminate.given_up(record) if is_unknown else done)

    def _context(self, record: CommandRecord) -> Context:
        key = record.key if record.effect_class is EffectClass.IDEMPOTENT else ""
        scope = self._scope
        is_owners = record.person(scope.asked_by) == OPERATOR
        return replace(
            scope.context,
            record_path=record.path,
            key=key,
            not_started=noop if indeterminate.is_retried(record) else partial(scope.unstarted.add, record.key),
            stopped=partial(scope.outside_results.__setitem__, record.path),
            is_owners=is_owners,
            principal=record.person(scope.asked_by),
            comment=record.comment,
            network=is_owners or scope.allows_network(record),
            yolo=scope.grants is not None and scope.grants.is_yolo,
        )

    def _effect_words(self, record: CommandRecord) -> str:
        """What is to be said of a command that failed, if its effect had begun outside of the store."""
        is_begun = record.stage is Stage.DISPATCHED and record.effect_class is EffectClass.OUTSIDE
        return f" {indeterminate.EFFECTS}" if is_begun and record.key not in self._scope.unstarted else ""

    def _failure(self, record: CommandRecord, error: Exception) -> Done:
        """The result for a crashed tool.

        Raises errors that are not the tool's: the next owner finds how far the command came.
        """
        if is_transient(error):
            raise error
        error_id = secrets.token_hex(8)
        _log.error("tool_crashed", tool=record.tool, path=record.path, error_id=error_id, exc_info=error)
        text = f"The tool {record.tool} crashed (error {error_id}). This is a fault of the runtime, not of the command."
        text += self._effect_words(record)
        self._scope.buffer.add(error_write(error_path_of(record.path), "crash:500", text))
        return failed("crash:500", text)


def _commented(record: CommandRecord, done: Done | Proposed) -> Done | Proposed:
    """The result of a file change with the comment of whoever accepted it."""
    comment = record.comment.strip()
    return replace(done, body=f"{done.body}\nThe reviewer said: {comment}") if comment else done


def _denied(record: CommandRecord) -> str:
    """What a model reads of an effect that a rule denies."""
    rule = f" ({rule_words(record.rule)})" if record.rule else ""
    return f"Nobody was asked: a rule denies this{rule}. Do without it."


def _uninstalled(record: CommandRecord) -> Done:
    """The result for a command whose plugin is not installed on this executor."""
    return failed("not_found:404", f"The tool {record.tool} is not installed where this run is worked on now.")
