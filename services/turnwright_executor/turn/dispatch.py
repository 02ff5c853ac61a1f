"""DISPATCH: recorded commands, one by one: those of a turn in the order in which the model wrote them, or a client's.

A command is settled, or it waits for a decision and the dispatch parks: the ledger then holds all that whoever goes
on needs to know, in this process or in another. Each record says how far its command came:

    recorded                          prepare it
    recorded, accepted                carry out its effect
    recorded, dispatched, outside     nobody knows whether it happened: indeterminate (unless it was just now, here)
    recorded, dispatched, otherwise   carry out its effect again: it knows what it was made from
    proposed                          wait
    resolved, failed, cancelled       settled

Source: architecture 2, 11; rows RU128-RU138, RU149-RU157; decisions C20, C26.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Final

from turnwright.executor.v1.event_pb2 import RunProgress

from turnwright_core.entries import State
from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.logs import get_logger
from turnwright_core.patterns import Shape, shape_of
from turnwright_core.runs import PROPOSED, Loop
from turnwright_core.streams import PRODUCER_LOST
from turnwright_core.values import frozen
from turnwright_executor.domain.effect_class import KEY, EffectClass
from turnwright_executor.domain.effects import Effect, FileEffect, effect_from_json, effect_to_json
from turnwright_executor.domain.endings import is_passing, outcome_of
from turnwright_executor.domain.records import error_path_of
from turnwright_executor.tools.contract import Context, Done, Proposed, Tool, failed
from turnwright_executor.tools.ports import Shell, Workspace
from turnwright_executor.turn import indeterminate
from turnwright_executor.turn.accepting import Proposals, attributes_too_large, keep_amended
from turnwright_executor.turn.records import DISPATCHED, EFFECT, Record, error_write, record_write
from turnwright_executor.turn.settlement import channels_of, closed_channels
from turnwright_executor.turn.write_buffer import REFUSALS, WriteBuffer
from turnwright_executor.watching import events
from turnwright_executor.watching.hub import RunHub

_log = get_logger("dispatch")

FILES_WAIT_S: Final = 5.0
"""Seconds that a turn that is stopped waits for a change of files which is under way."""

UPDATE = "update"
ABORTED = Done("Not carried out: an earlier command of the turn did not succeed.", State.CANCELLED, "aborted:499")


class Progress(Enum):
    """How a dispatch ended."""

    SETTLED = "settled"
    PARKED = "parked"


@frozen
class DispatchScope:
    """Where commands are carried out: those of a turn, or one of a client."""

    turn: int
    loop: Loop
    hub: RunHub
    pending: WriteBuffer
    workspace: Workspace
    shell: Shell
    tools: Mapping[str, Tool]
    proposals: Proposals
    epoch: int
    confirm: Callable[[], Awaitable[None]]
    """Makes sure that the run is still this executor's; raises LEASE_LOST."""
    asks_indeterminate: bool
    """Whether somebody is asked what became of an interrupted command."""
    is_decided: bool = False
    """Whether somebody has decided already that its commands shall happen: the client that calls them."""
    came: dict[str, Done] = field(default_factory=dict)
    """What came of outside effects, by record: the store may not have been told when it was away."""

    @property
    def asks_nobody(self) -> bool:
        """Whether effects happen without a decision of somebody else."""
        return self.is_decided or self.loop.settings.yolo


async def dispatch(room: DispatchScope, records: Sequence[Record]) -> Progress:
    """Settle the records in order, as far as decisions allow. Raises TurnwrightError when the store does."""
    broken = False
    room.pending.foresee(named_paths(records))
    for record in records:
        # An update speaks about the turn, failed commands included: the verdict refutes it where it has to (RU140).
        if broken and record.tool != UPDATE:
            if not record.state.is_settled:
                room.pending.settle(record, ABORTED)
            continue
        if record.state is State.PROPOSED:
            return await _park(room, record)
        if not record.state.is_settled:
            done = await _step(room, record)
            if done is None:
                return Progress.PARKED
            room.pending.settle(record, done)
            await _tell_vetoes(room)
        elif record.rejection_comment is not None:
            room.proposals.rejected(record)
            if indeterminate.is_unanswered(record):
                room.pending.settle(record, indeterminate.give_up(record))
        broken = broken or record.state is not State.RESOLVED
    return Progress.SETTLED


def named_paths(records: Sequence[Record]) -> list[str]:
    """What the commands that are left name by its very path."""
    left = (record.command.attributes.get("path", "") for record in records if not record.state.is_settled)
    return list(dict.fromkeys(path for path in left if path and shape_of(path) is Shape.LITERAL))


async def _park(room: DispatchScope, record: Record) -> Progress:
    await room.pending.flush(full=True, run_status=PROPOSED)
    room.proposals.pending(record)
    return Progress.PARKED


async def _tell_vetoes(room: DispatchScope) -> None:
    """Tell of vetoes once their records are stored; they are rare."""
    if room.proposals.has_vetoed:
        await room.pending.flush(full=True)
        room.proposals.tell_vetoes()


async def _step(room: DispatchScope, record: Record) -> Done | None:
    """One command: what came of it, or None when it now waits for a decision."""
    context = _context(room, record)
    if record.is_accepted or record.attributes.get(DISPATCHED):
        return await _take_up(room, record, context)
    prepared = await _prepared(room, record, context)
    if isinstance(prepared, Done):
        return prepared
    record.body = prepared.body
    record.attributes = {**record.attributes, **prepared.attributes, EFFECT: effect_to_json(prepared.effect)}
    if not prepared.needs_decision:
        return await _carry_out(room, record, prepared.effect, context)
    if room.asks_nobody:
        return await _accept(room, record, prepared.effect, context)
    record.state = State.PROPOSED
    room.pending.add(record_write(record))
    await _park(room, record)
    return None


async def _take_up(room: DispatchScope, record: Record, context: Context) -> Done | None:
    """Go on with an effect that was accepted, or begun: before its mark it is vetted, after it only carried out."""
    is_begun = bool(record.attributes.get(DISPATCHED))
    if is_begun and record.effect_class is EffectClass.OUTSIDE:
        return await _interrupted(room, record)
    is_answered = indeterminate.is_answered(record)
    if is_answered and (settled := indeterminate.take_answer(record)):
        return settled
    effect = effect_from_json(record.attributes[EFFECT])
    if is_answered or is_begun:
        return await _carry_out(room, record, effect, context)
    return await _accept(room, record, effect, context)


def _context(room: DispatchScope, record: Record) -> Context:
    return Context(
        turn=room.turn,
        loop=room.loop.sequence,
        mode=room.loop.settings.mode,
        yolo=room.loop.settings.yolo,
        record_path=record.path,
        entries=room.pending,
        workspace=room.workspace,
        shell=room.shell,
        ended=room.hub.ended,
        key=str(record.attributes.get(KEY, "")),
        epoch=room.epoch,
        no_web=room.loop.settings.no_web,
    )


async def _interrupted(room: DispatchScope, record: Record) -> Done | None:
    """Nobody knows whether an outside effect happened, unless it was here: the model is told, or a person is asked."""
    if came := room.came.get(record.path):
        return came
    channels = await room.pending.get(channels_of([record.path]))
    closing = closed_channels(channels, PRODUCER_LOST)
    if not room.asks_indeterminate or room.asks_nobody:
        return replace(indeterminate.UNKNOWN, writes=tuple(closing))
    indeterminate.ask(record)
    room.pending.add(record_write(record), *closing)
    await _park(room, record)
    return None


async def _prepared(room: DispatchScope, record: Record, context: Context) -> Done | Proposed:
    tool = room.tools.get(record.tool)
    if tool is None:
        return _uninstalled(record)
    try:
        return await tool.prepare(record.command, context)
    except Exception as error:
        if is_passing(error):
            # Whoever goes on finds how far the command came.
            raise
        return _crash(room, record, error)


async def _accept(room: DispatchScope, record: Record, effect: Effect, context: Context) -> Done:
    """Carry out what was accepted, as those who may amend or veto it want it."""
    accepted = await room.proposals.accept(record, effect)
    if isinstance(accepted, Done):
        return accepted
    keep_amended(record, accepted)
    if too_large := attributes_too_large(record):
        return too_large
    await _mark(room, record)
    room.proposals.accepted(record, accepted)
    return await _perform(room, record, accepted, context)


async def _carry_out(room: DispatchScope, record: Record, effect: Effect, context: Context) -> Done:
    """Mark the effect durably, then let it happen: at most once, or told apart by its hashes."""
    await _mark(room, record)
    return await _perform(room, record, effect, context)


async def _mark(room: DispatchScope, record: Record) -> None:
    record.attributes = {**record.attributes, DISPATCHED: True}
    room.pending.add(record_write(record))
    await room.pending.flush(full=True)
    await room.confirm()


async def _perform(room: DispatchScope, record: Record, effect: Effect, context: Context) -> Done:
    if not room.is_decided:
        # What a client does is no progress of the run's loop.
        detail = f"{record.tool} {record.attributes.get('target', '')}".strip()
        room.hub.publish(events.progress(RunProgress.PHASE_PROCESSING, room.turn, detail))
    tool = room.tools.get(record.tool)
    if tool is None:
        return _uninstalled(record)
    try:
        performing = tool.perform(effect, record.command, context)
        done = await (_to_the_end(room, record, performing) if isinstance(effect, FileEffect) else performing)
    except Exception as error:
        if is_passing(error):
            # Whoever goes on finds how far the command came.
            raise
        if isinstance(error, TurnwrightError) and error.reason in REFUSALS:
            return failed(outcome_of(error), error.message)
        return _crash(room, record, error)
    if record.effect_class is EffectClass.OUTSIDE:
        room.came[record.path] = done
    return done


async def _to_the_end(room: DispatchScope, record: Record, performing: Awaitable[Done]) -> Done:
    """A change of files, which cannot be stopped in the middle: whoever stops the turn waits, and is told of it."""
    task = asyncio.ensure_future(performing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=FILES_WAIT_S)
        if not task.done():
            task.cancel()
        elif not task.cancelled() and task.exception() is None:
            room.pending.settle(record, task.result())
        raise


def _uninstalled(record: Record) -> Done:
    """The end of a command that an executor recorded which had more plugins than this one."""
    return failed("not_found:404", f"The tool {record.tool} is not installed where this run is worked on now.")


def _crash(room: DispatchScope, record: Record, error: Exception) -> Done:
    error_id = secrets.token_hex(8)
    _log.error("tool_crashed", tool=record.tool, path=record.path, error_id=error_id, exc_info=error)
    text = f"The tool {record.tool} crashed (error {error_id}). This is a fault of the runtime, not of the command."
    room.pending.add(error_write(error_path_of(record.path), "crash:500", text))
    return failed("crash:500", text)
