"""A tool that carries out a command for a client, with the same handler that serves the model.

Theory of operation. The command gets a record of its own, `log://call_{id}/{tool}/{slug}`, before anything happens;
the id is made from the caller and its request id, so a call that is repeated finds what came of the first one. What a
client asks for needs nobody's decision. The model reads the record in its next turn.
Source: architecture 6; rows RU030, RU119, RU127, RU228; decision C32.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakValueDictionary

import structlog

from turnwright_core.entries import Entry, EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.errors import Reason, fault
from turnwright_core.runs import Mode
from turnwright_core.text import slugify
from turnwright_executor.app import indeterminate
from turnwright_executor.app.pending import Pending
from turnwright_executor.app.records import DISPATCHED, Record, record_from_entry, record_write
from turnwright_executor.domain.effect_class import EffectClass
from turnwright_executor.domain.policy import refusal
from turnwright_executor.domain.records import record_attributes, target_of
from turnwright_executor.domain.toolset import TOOL_ORDER
from turnwright_executor.ports import Ledger, RunAddress
from turnwright_executor.tools.contract import Context, Done, Proposed, Tool, failed
from turnwright_executor.tools.ports import Shell, Workspace
from turnwright_grammar import Command

_log = structlog.get_logger("calling")

CALL_BYTES_MAX: Final = 512 * 1024
"""Longest command of a client, in bytes of its attributes and its body."""

DOUBLE: Final = Done("Not carried out: the same request is carried out already.", State.CANCELLED, "aborted:499")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where a client's commands are carried out on this host."""

    workspace: Workspace
    shell: Shell


@dataclass(frozen=True, slots=True)
class Call:
    """A command of a client for a run."""

    address: RunAddress
    command: Command
    principal: str
    request_id: str = ""

    def record_folder(self) -> str:
        """Where its record stands; the same for the same request id of the same caller."""
        key = f"{self.principal}\n{self.request_id}" if self.request_id else secrets.token_hex(16)
        return f"log://call_{hashlib.sha256(key.encode()).hexdigest()[:16]}"

    def record_path(self, folder: str) -> str:
        """The path of the record in its folder."""
        return f"{folder}/{slugify(self.command.name)}/{slugify(target_of(self.command)) or 'call'}"


class ToolCalls:
    """Carries out clients' commands. `ledger` writes from outside of loops."""

    def __init__(self, ledger: Ledger, tools: Mapping[str, Tool], bench: Callable[[str], Awaitable[Bench]]) -> None:
        """`bench` finds where a project's commands are carried out; it raises WORKSPACE_UNAVAILABLE."""
        self._ledger = ledger
        self._tools = tools
        self._bench = bench
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def call(self, call: Call) -> Entry:
        """Carry out a command; its record as it is then. Raises INVALID_FIELD, LIMIT_EXCEEDED, REQUEST_ID_REUSED."""
        _check(call, self._tools)
        folder = call.record_folder()
        # A call that is repeated while it is carried out waits for what comes of it.
        async with self._under_way.setdefault(folder, asyncio.Lock()):
            return await self._carried_out(call, folder)

    async def _carried_out(self, call: Call, folder: str) -> Entry:
        bench = await self._bench(call.address.project)
        run = await self._ledger.get_run(call.address)
        loop = run.loop.sequence if run.loop else 0
        pending = Pending(self._ledger, call.address, 0, run.turn, loop)
        record, is_new = await self._recorded(call, folder)
        if not record.state.is_settled:
            context = Context(
                turn=run.turn, loop=loop, mode=Mode.ACT, yolo=False, record_path=record.path, entries=pending,
                workspace=bench.workspace, shell=bench.shell, key=folder,
            )  # fmt: skip
            pending.settle(record, await self._done(record, context, pending, is_new=is_new))
            await pending.flush(full=True)
        (entry,) = await self._ledger.get_entries(call.address, [record.path])
        return entry

    async def _recorded(self, call: Call, folder: str) -> tuple[Record, bool]:
        """The record of the call, and whether it is a new one."""
        if found := await self._found(call, folder):
            return found, False
        path = call.record_path(folder)
        attributes = {**record_attributes(call.command, 0), "principal": call.principal}
        del attributes["ordinal"]
        change = SetEntry("", to_attributes_json(attributes), visibility=Visibility.VISIBLE, state=State.RECORDED)
        ack = await self._ledger.write(call.address, 0, [EntryWrite(path, change, Tier.SYSTEM)], full=True)
        record = Record(ack.paths[0], call.command.name, call.command, attributes, State.RECORDED)
        if ack.paths[0] != path:
            # The same request came in at the same time and was first: this one is nobody's.
            record.settle(DOUBLE)
            await self._ledger.write(call.address, 0, [record_write(record)])
            if found := await self._found(call, folder):
                return replace_settled(found), False
        return record, True

    async def _found(self, call: Call, folder: str) -> Record | None:
        if not call.request_id:
            return None
        entries = await self._ledger.find_entries(call.address, f"{folder}/**", "", 2, bodies=True)
        if not entries:
            return None
        record = record_from_entry(min(entries, key=lambda entry: entry.position))
        if record.command != call.command:
            message = f"The request id {call.request_id!r} was used with another command: choose another id."
            raise fault(Reason.REQUEST_ID_REUSED, message, request_id=call.request_id)
        return record

    async def _done(self, record: Record, context: Context, pending: Pending, *, is_new: bool) -> Done:
        tool = self._tools[record.tool]
        if record.attributes.get(DISPATCHED) and tool.effect_class is EffectClass.OUTSIDE:
            return indeterminate.UNKNOWN
        if is_new and (refused := refusal(record.command, Mode.ACT, TOOL_ORDER)):
            return failed(refused.outcome, refused.body)
        try:
            prepared = await tool.prepare(record.command, context)
            if isinstance(prepared, Proposed):
                record.attributes = {**record.attributes, **prepared.attributes, DISPATCHED: True}
                pending.add(record_write(record))
                await pending.flush(full=True)
                return await tool.perform(prepared.effect, record.command, context)
        except Exception as error:  # noqa: BLE001 - a tool that crashes is an outcome of its command (RU134)
            error_id = secrets.token_hex(8)
            _log.error("tool_crashed", tool=record.tool, path=record.path, error_id=error_id, exc_info=error)
            return failed("crash:500", f"The tool {record.tool} crashed (error {error_id}): a fault of the runtime.")
        return prepared


def replace_settled(record: Record) -> Record:
    """Another's record, which whoever carries it out settles: it is only shown here."""
    return record if record.state.is_settled else replace(record, state=State.RESOLVED)


def _check(call: Call, tools: Mapping[str, Tool]) -> None:
    if call.command.name not in tools:
        message = f"There is no tool {call.command.name!r}. The tools are {', '.join(tools)}."
        raise fault(Reason.INVALID_FIELD, message, field="tool")
    texts = (call.command.body, *call.command.attributes, *call.command.attributes.values())
    actual = sum(len(text.encode()) for text in texts)
    if actual > CALL_BYTES_MAX:
        message = f"The command has {actual} bytes; {CALL_BYTES_MAX} are the limit."
        raise fault(Reason.LIMIT_EXCEEDED, message, field="body", limit=CALL_BYTES_MAX, actual=actual, unit="bytes")
