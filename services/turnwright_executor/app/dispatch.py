"""DISPATCH: the recorded commands of a turn, one by one, in the order in which the model wrote them.

A command is settled, or it waits for a decision and the dispatch parks: the ledger then holds all that whoever goes
on needs to know, in this process or in another. Each record says how far its command came:

    recorded                          prepare it
    recorded, accepted                carry out its effect
    recorded, dispatched, outside     nobody knows whether it happened: indeterminate
    recorded, dispatched, otherwise   carry out its effect again: it knows what it was made from
    proposed                          wait
    resolved, failed, cancelled       settled

Source: architecture 2, 11; rows RU128-RU138, RU149-RU157; decisions C20, C26.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import structlog
from turnwright.executor.v1.event_pb2 import RunProgress

from turnwright_core.entries import State
from turnwright_core.runs import PROPOSED, Loop
from turnwright_executor.app import events
from turnwright_executor.app.hub import RunHub
from turnwright_executor.app.pending import Pending
from turnwright_executor.app.records import DISPATCHED, EFFECT, Record, error_write, record_write
from turnwright_executor.domain.effects import Effect, effect_from_json, effect_to_json
from turnwright_executor.tools.contract import Context, Done, Proposed, Tool, failed
from turnwright_executor.tools.ports import Shell, Workspace

_log = structlog.get_logger("dispatch")

UPDATE = "update"
ABORTED = Done("Not carried out: an earlier command of the turn did not succeed.", State.CANCELLED, "aborted:499")
INDETERMINATE = failed(
    "indeterminate:500",
    "The runtime was interrupted while this ran. Look whether it happened before you do it again.",
)


class Progress(Enum):
    """How a dispatch ended."""

    SETTLED = "settled"
    PARKED = "parked"


@dataclass(frozen=True, slots=True)
class Room:
    """Where the commands of a turn are carried out."""

    turn: int
    loop: Loop
    hub: RunHub
    pending: Pending
    workspace: Workspace
    shell: Shell
    tools: Mapping[str, Tool]


async def dispatch(room: Room, records: Sequence[Record]) -> Progress:
    """Settle the records in order, as far as decisions allow. Raises TurnwrightError when the store does."""
    broken = False
    for record in records:
        # An update speaks about the turn, failed commands included: the verdict refutes it where it has to (RU140).
        if broken and record.tool != UPDATE:
            if not record.state.is_settled:
                room.pending.settle(record, ABORTED)
            continue
        if record.state is State.PROPOSED:
            return await _park(room)
        if not record.state.is_settled:
            done = await _step(room, record)
            if done is None:
                return Progress.PARKED
            room.pending.settle(record, done)
        broken = broken or record.state is not State.RESOLVED
    return Progress.SETTLED


async def _park(room: Room) -> Progress:
    await room.pending.flush(full=True, run_status=PROPOSED)
    return Progress.PARKED


async def _step(room: Room, record: Record) -> Done | None:
    """One command: what came of it, or None when it now waits for a decision."""
    tool = room.tools[record.tool]
    context = _context(room, record)
    if record.is_accepted or record.attributes.get(DISPATCHED):
        if record.attributes.get(DISPATCHED) and tool.outside:
            return INDETERMINATE
        return await _carry_out(room, record, effect_from_json(record.attributes[EFFECT]), context)
    prepared = await _prepared(room, tool, record, context)
    if isinstance(prepared, Done):
        return prepared
    record.body = prepared.body
    record.attributes = {**record.attributes, **prepared.attributes, EFFECT: effect_to_json(prepared.effect)}
    if room.loop.settings.yolo:
        return await _carry_out(room, record, prepared.effect, context)
    record.state = State.PROPOSED
    room.pending.add(record_write(record))
    await _park(room)
    return None


def _context(room: Room, record: Record) -> Context:
    return Context(
        turn=room.turn,
        loop=room.loop.sequence,
        mode=room.loop.settings.mode,
        yolo=room.loop.settings.yolo,
        record_path=record.path,
        entries=room.pending,
        workspace=room.workspace,
        shell=room.shell,
    )


async def _prepared(room: Room, tool: Tool, record: Record, context: Context) -> Done | Proposed:
    try:
        return await tool.prepare(record.command, context)
    except Exception as error:  # noqa: BLE001 - a tool that crashes is an outcome of its command (RU134)
        return _crash(room, record, error)


async def _carry_out(room: Room, record: Record, effect: Effect, context: Context) -> Done:
    """Mark the effect durably, then let it happen: at most once, or told apart by its hashes."""
    record.attributes = {**record.attributes, DISPATCHED: True}
    room.pending.add(record_write(record))
    await room.pending.flush(full=True)
    detail = f"{record.tool} {record.attributes.get('target', '')}".strip()
    room.hub.publish(events.progress(RunProgress.PHASE_PROCESSING, room.turn, detail))
    try:
        return await room.tools[record.tool].perform(effect, record.command, context)
    except Exception as error:  # noqa: BLE001 - as above
        return _crash(room, record, error)


def _crash(room: Room, record: Record, error: Exception) -> Done:
    error_id = secrets.token_hex(8)
    _log.error("tool_crashed", tool=record.tool, path=record.path, error_id=error_id, exc_info=error)
    text = f"The tool {record.tool} crashed (error {error_id}). This is a fault of the runtime, not of the command."
    slug = record.path.removeprefix(f"log://turn_{room.turn}/")
    room.pending.add(error_write(f"log://turn_{room.turn}/error/{slug}", "crash:500", text))
    return failed("crash:500", text)
