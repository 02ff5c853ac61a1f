"""Commands of clients (CallTool): recorded and dispatched like those of the model.

Theory of operation. The command passes the same gate and the same dispatch. Its record is at
`log://call_{id}/{tool}/{slug}`, and the client's call counts as its decision. The id is derived from the caller and its
request id, so a repeated call finds the record of the first one and continues it. The model reads the record in its
next turn.

A call has one owner: the executor whose id is in its record. It sends heartbeats by writing the record every few
seconds, and only if the record still has the expected revision (optimistic locking). So of several executors with the
same request, one carries it out, and the others wait for the result. If the record stops changing, its owner has ended
or cannot reach the store: a waiting executor takes the record over, again by its revision, and the old owner can write
nothing more.
Source: architecture 6; rows RU030, RU119, RU127, RU228; decision C32.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import EntryWrite, RemoveEntry
from turnwright_values.types import ClientCall, Entry, Loop, LoopSettings, Mode, Right, Run, State, Tier

from turnwright_core.checks import invalid, over_limit
from turnwright_core.errors import ConflictError, Reason, TurnwrightError, fault
from turnwright_core.runs import RUNNING
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord, Done, Stage
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.endings import AWAY
from turnwright_executor.domain.records import record_name, target_of
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.tools.catalogue import ToolCatalogue
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.files import compared
from turnwright_executor.tools.native import missing_argument, schema
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.turn.accepting import Proposals, may_use_network
from turnwright_executor.turn.commands import CommandSteps, DispatchScope, tool_context
from turnwright_executor.turn.driver import Driver
from turnwright_executor.turn.hook_events import HookEvents
from turnwright_executor.turn.loop_scope import Placement
from turnwright_executor.turn.machine import TurnState
from turnwright_executor.turn.recording import RecordingGate, new_record
from turnwright_executor.turn.records import beat_write, new_record_write, record_write
from turnwright_executor.turn.settlement import last_result
from turnwright_executor.turn.unsaved import UnsavedState
from turnwright_executor.turn.write_buffer import KEEP_TIMEOUT_S, WriteBuffer
from turnwright_executor.watching.hub import RunHub
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.wire.command_records import is_ours, record_from_entry
from turnwright_grammar.reply import Command
from turnwright_kit.identity.caller import Caller
from turnwright_kit.scope import bind, detached

CALL_BYTES_MAX: Final = 512 * 1024
"""Maximum size of a client's command, in bytes of its attributes and its body."""

BEAT_S: Final = 2.0
"""Seconds between heartbeats of a call's owner."""

LOOK_S: Final = 0.2
"""Seconds between checks whether a call on another executor has ended."""

SILENT_LOOKS: Final = 35
"""Number of checks without a heartbeat after which a call is taken over.

Checks instead of seconds, because the waiting process may have been paused as well.
"""

RECORDS_MAX: Final = 64
"""Records of one request id that are read: briefly there may be several, if executors get different commands."""

INVALID: Final = "invalid:400"

GONE: Final = Done("Not carried out: its caller disconnected before it began.", State.CANCELLED, "aborted:499")


_OF_PLANS: Final = ("set_plan", "update_plan")
_IS_WEB: Final = re.compile("https?://", re.IGNORECASE)


class ClientCommand(Struct, frozen=True):
    """A command of a client for a run."""

    address: RunAddress
    command: Command
    caller: Caller
    request_id: str = ""

    def record_folder(self) -> str:
        """The folder of its record: the same for the same request id of the same caller."""
        key = f"{self.caller.name}\n{self.request_id}" if self.request_id else secrets.token_hex(16)
        return f"log://call_{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def digest(self) -> str:
        command = self.command
        sent = json.dumps([command.name, sorted(command.attributes.items()), command.body])
        return hashlib.sha256(sent.encode()).hexdigest()


class ToolCalls:
    """Carries out clients' commands (CallTool)."""

    def __init__(
        self,
        ledger: Ledger,
        tools: Mapping[str, Tool],
        tool_host: Callable[[Run], Awaitable[Placement]],
        hooks: Hooks,
        hubs: Hubs,
        calls_max: int,
        owner: str,
        catalogue: ToolCatalogue,
    ) -> None:
        """`owner` is new at each start of the executor.

        `tool_host` finds the placement of a run's commands; it raises WORKSPACE_UNAVAILABLE. At most `calls_max`
        commands run at a time.
        """
        self._ledger = ledger
        self._tools = tools
        self._tool_host = tool_host
        self._hooks = hooks
        self._hubs = hubs
        self._calls_max = calls_max
        self._owner = owner
        self._catalogue = catalogue
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Entry]] = set()
        self._stopping = False

    async def stop(self, drain_s: float) -> None:
        """Stop; commands in progress have this many seconds to come to their end."""
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def read(self, project: str, written: Command) -> Command:
        """The command that a client wrote: its body may be in the shape of tags.

        Raises INVALID_FIELD, LIMIT_EXCEEDED.
        """
        # Imported with the first call: an executor is ready for work long before there is one.
        from turnwright_grammar.reader.parser import read_call  # noqa: PLC0415

        tools = await self._tools_of(project)
        _check(written, tools)
        return await asyncio.to_thread(read_call, written, frozenset(tools))

    async def _tools_of(self, project: str) -> Mapping[str, Tool]:
        snapshot = await self._catalogue.current(project)
        return {**self._tools, **snapshot.tools} if snapshot.tools else self._tools

    async def call(self, call: ClientCommand) -> Entry:
        """Carry out a command that was read; returns its record.

        Raises QUEUE_FULL, REQUEST_ID_REUSED, DRAINING.
        """
        if len(self._tasks) >= self._calls_max:
            message = f"{self._calls_max} client commands are running on this executor: retry when one has ended."
            raise fault(Reason.QUEUE_FULL, message, limit=self._calls_max)
        task = detached(self._called(call), name=f"call {call.command.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await task
        except asyncio.CancelledError:
            if not self._stopping:
                raise
        raise fault(Reason.DRAINING, "The executor is shutting down: retry with the same request id.")

    def right_for(self, command: Command) -> Right:
        """What a caller needs for a command, which nobody else decides on."""
        name = command.name
        if name in _OF_PLANS:
            return Right.EDIT
        tool = self._tools.get(name)
        # What is no tool of the executor is one of a server: whatever it does, it is told what stands in the project.
        is_outside = tool is None or tool.effect_class is EffectClass.OUTSIDE
        path = command.attributes.get("path", "")
        return Right.COMMAND if is_outside or name == "search" or _IS_WEB.match(path.strip()) else Right.FILES

    async def _called(self, call: ClientCommand) -> Entry:
        bind(run=call.address.run)
        folder = call.record_folder()
        # A call that is repeated while it is in progress waits for its result.
        async with self._under_way.setdefault(folder, asyncio.Lock()), self._hubs.hold(call.address) as hub:
            return await self._carried_out(call, folder, hub)

    async def _carried_out(self, call: ClientCommand, folder: str, hub: RunHub) -> Entry:
        host: Placement | None = None
        while True:
            run, rules = await self._ledger.get_run_and_rules(call.address)
            host = host or await self._tool_host(run)
            loop = _loop_of(run)
            events = HookEvents(self._hooks, call.address, loop)
            record, revision = await self._taken(call, folder, events, run.turn)
            if record.stage is not Stage.SETTLED:
                state = TurnState(is_call=True, is_recorded=True, records={record.path: record})
                buffer = WriteBuffer(self._ledger, call.address, None, run.turn, loop.sequence, state.records)
                buffer.require_revision(record.path, revision)
                network = partial(may_use_network, rules, call.caller.name, Mode.ACT)
                tools = await self._tools_of(call.address.project)
                scope = self._scope(host, hub, run, events, buffer, network, tools)
                try:
                    await self._driven(call, scope, state)
                except ConflictError as error:
                    if error.metadata.get("path") != record.path:
                        raise
                    # Somebody else has taken it over.
                    continue
            (entry,) = await self._ledger.get_entries(call.address, [record.path])
            return entry

    async def _driven(self, call: ClientCommand, scope: DispatchScope, state: TurnState) -> None:
        """Carry out a command that this executor owns, with heartbeats. Raises TurnwrightError."""
        [path] = state.records
        working = asyncio.create_task(Driver(state, CommandSteps(scope, state)).drive(), name=f"work on {path}")
        beating = asyncio.create_task(_beat(scope.buffer, path), name=f"beat of {path}")
        try:
            await asyncio.wait((working, beating), return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
            else:
                beating.result()
        except (asyncio.CancelledError, TurnwrightError) as error:
            await _ended(working, beating)
            is_abandoned = isinstance(error, asyncio.CancelledError) and not self._stopping
            await self._abandoned(call, scope, state.records[path], is_abandoned=is_abandoned)
            raise
        finally:
            await _ended(working, beating)

    async def _abandoned(
        self, call: ClientCommand, scope: DispatchScope, record: CommandRecord, *, is_abandoned: bool
    ) -> None:
        """Handle a command whose owner has gone.

        A repeated call continues it. Without one, it ends for good if its caller has gone too.
        """
        buffer = scope.buffer
        if record.stage is Stage.SETTLED and not buffer.writes():
            return
        is_last = not call.request_id or record.effect_class is EffectClass.OUTSIDE
        with suppress(TurnwrightError, TimeoutError):
            async with asyncio.timeout(KEEP_TIMEOUT_S):
                if is_abandoned and is_last:
                    if record.stage is not Stage.SETTLED:
                        scope.give_up(record)
                        compare = partial(compared, context=scope.context)
                        buffer.settle(record, await last_result(record, UnsavedState(0), GONE, compare))
                    await buffer.flush(full=True)
                    return
                # Use the stored state: what came after it may not have happened.
                for stored in await self._ledger.get_entries(call.address, [record.path]):
                    await buffer.write_now(record_write(_released(record_from_entry(stored))))

    def _scope(
        self,
        host: Placement,
        hub: RunHub,
        run: Run,
        events: HookEvents,
        buffer: WriteBuffer,
        network: Callable[[CommandRecord], bool],
        tools: Mapping[str, Tool],
    ) -> DispatchScope:
        return DispatchScope(
            context=tool_context(_loop_of(run), run.turn, buffer, host.workspace, host.shell, hub),
            publisher=hub,
            buffer=buffer,
            tools=tools,
            proposals=Proposals(self._hooks, events.at(run.turn)),
            confirm=_confirmed,
            allows_network=network,
            asks_indeterminate=False,
            give_up=partial(self._catalogue.give_up, buffer.address, 0),
        )

    async def _taken(
        self, call: ClientCommand, folder: str, events: HookEvents, turn: int
    ) -> tuple[CommandRecord, int]:
        """The record of the call and its revision, once this executor owns it or it is settled."""
        known, looks, is_taken = 0, 0, False
        while True:
            try:
                found = await self._found(call, folder)
                if found is None:
                    if (recorded := await self._recorded(call, folder, events, turn)) is not None:
                        return recorded
                    continue
                is_taken = False
                record, revision = found
                known, looks = revision, looks + 1 if revision == known else 0
                if record.call is None or record.stage is Stage.SETTLED:
                    return found
                # Ours is abandoned: repeated calls in this process wait for each other.
                if record.call.owner in ("", self._owner) or looks >= SILENT_LOOKS:
                    record = replace(record, call=replace(record.call, owner=self._owner))
                    return record, await self._put(call, record_write(record), revision)
            except ConflictError as error:
                # Somebody was faster; a path that belongs to another entry is a permanent error.
                if error.reason is not Reason.REVISION_CONFLICT or is_taken:
                    raise
                is_taken = True
            await asyncio.sleep(LOOK_S)

    async def _put(self, call: ClientCommand, write: EntryWrite, revision: int) -> int:
        """Compare-and-set: write a record if it has this revision (0: none exists). Raises REVISION_CONFLICT.

        A new one is written in the caller's name, and so leaves the row of the audit.
        """
        write = replace(write, expected_revision=revision)
        caller = None if revision else call.caller.answered_for()
        ack = await self._ledger.write(call.address, None, [write], full=True, caller=caller)
        return ack.revisions[0] or revision

    async def _recorded(
        self, call: ClientCommand, folder: str, events: HookEvents, turn: int
    ) -> tuple[CommandRecord, int] | None:
        """A new record and its revision; None if the request id already belongs to another command.

        Raises REVISION_CONFLICT if a concurrent call with the same request id was faster.
        """
        tools = await self._tools_of(call.address.project)
        targets = {name: one.descriptor.target for name, one in tools.items() if isinstance(one, OutsideTool)}
        at, offered = events.at(turn), tuple(tools)
        gate = RecordingGate(self._hooks, tools, at, Mode.ACT, offered, targets, call.caller.name)
        recording = await gate.filtered(call.command, 0)
        command = recording.command
        tool = tools.get(command.name)
        # The rules of the gate speak to a model, of tags.
        is_open = not recording.is_refused or recording.outcome == INVALID
        if tool and is_open and (problem := missing_argument(command, schema(tool))):
            recording = recording.refused(INVALID, problem)
        target = target_of(command, targets)
        path = f"{folder}/{record_name(command.name, target, 'call')}"
        record = new_record(
            gate, recording, path, target, call=ClientCall(call.caller.name, call.digest(), self._owner)
        )
        revision = await self._put(call, new_record_write(record), 0)
        # Other commands have other paths, so writes do not collide; the first one written counts.
        first = await self._first(call, folder)
        if first is not None and first.path != path:
            await self._put(call, EntryWrite(path, RemoveEntry(), Tier.SYSTEM), revision)
            return None
        events.recorded(turn, [record])
        return record, revision

    async def _first(self, call: ClientCommand, folder: str) -> Entry | None:
        if not call.request_id:
            return None
        found = await self._ledger.find_entries(call.address, f"{folder}/**", "", RECORDS_MAX, bodies=True)
        return min(filter(is_ours, found), key=lambda entry: entry.position, default=None)

    async def _found(self, call: ClientCommand, folder: str) -> tuple[CommandRecord, int] | None:
        entry = await self._first(call, folder)
        if entry is None:
            return None
        record = record_from_entry(entry)
        if record.call is None or record.call.request != call.digest():
            message = f"The request id {call.request_id!r} was used with another command: choose another id."
            raise fault(Reason.REQUEST_ID_REUSED, message, request_id=call.request_id)
        return record, entry.revision


def _released(record: CommandRecord) -> CommandRecord:
    return replace(record, call=replace(record.call, owner="")) if record.call else record


async def _beat(buffer: WriteBuffer, path: str) -> None:
    """Send the owner's heartbeats for a call. Raises REVISION_CONFLICT once somebody else owns it."""
    while True:
        await asyncio.sleep(BEAT_S)
        try:
            await buffer.write_now(beat_write(path))
        except TurnwrightError as error:
            if error.reason not in AWAY:
                raise


async def _ended(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _loop_of(run: Run) -> Loop:
    """A loop for a client's command, with settings that disable nothing."""
    return Loop(run.loop.sequence if run.loop else 0, LoopSettings(Mode.ACT), "", RUNNING)


async def _confirmed() -> None:
    """A client's command needs no lease: the owner of the run goes on."""


def _check(command: Command, tools: Mapping[str, Tool]) -> None:
    if command.name not in tools:
        message = f"There is no tool {command.name!r}. The tools are {', '.join(tools)}."
        raise invalid("tool", message)
    texts = (command.body, *command.attributes, *command.attributes.values())
    actual = sum(len(text.encode()) for text in texts)
    if actual > CALL_BYTES_MAX:
        raise over_limit("body", CALL_BYTES_MAX, actual, "bytes")
