"""RECORD: what the model replied, and every command in it, durable before any of them is carried out.

Source: rows RU128-RU131, RU155, RU284, RU293; decisions C12, C28.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnwright_core.entries import EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.runs import Mode
from turnwright_executor.app.generation import Draft
from turnwright_executor.app.note import CALL, CallNote
from turnwright_executor.app.records import Record, error_write
from turnwright_executor.domain.policy import refusal
from turnwright_executor.domain.records import record_attributes, record_path
from turnwright_executor.domain.toolset import TOOL_ORDER
from turnwright_executor.tools.contract import failed
from turnwright_grammar import Command, ReadWarning, command_from_call, read_reply

LOST_KINDS = frozenset({"arguments_cut", "arguments_unreadable", "unreadable_call", "too_many_commands"})
"""Warnings that tell of a command the runtime could not carry out; the rest tell of repairs that worked."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A reply as read: its commands, what was wrong with it, and the text around them."""

    commands: tuple[Command, ...]
    warnings: tuple[ReadWarning, ...]
    narration: str

    @property
    def losses(self) -> tuple[ReadWarning, ...]:
        """The warnings that the model must hear of, because something it wrote did not happen."""
        if not self.commands:
            return self.warnings
        return tuple(warning for warning in self.warnings if warning.kind in LOST_KINDS)


def read_draft(draft: Draft, commands_max: int) -> Reading:
    """The commands of a reply, those in its text before its native calls. Never raises."""
    known = frozenset(TOOL_ORDER)
    reply = read_reply(draft.text, known_tools=known, commands_max=commands_max)
    commands, warnings = list(reply.commands), list(reply.warnings)
    for call in draft.calls:
        command, found = command_from_call(call.name, call.arguments, known)
        warnings.extend(found)
        if len(commands) < commands_max:
            commands.append(command)
    return Reading(tuple(commands), tuple(warnings), reply.narration.strip())


def reply_writes(turn: int, draft: Draft, reading: Reading, note: CallNote) -> list[EntryWrite]:
    """The raw reply and its reasoning, as audit entries."""
    attributes = {
        CALL: note.to_json(),
        "finish": draft.finish,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in draft.calls],
        "warnings": [{"kind": warning.kind, "message": warning.message} for warning in reading.warnings],
    }
    writes = [_audit(f"assistant://{turn}", draft.text, {key: value for key, value in attributes.items() if value})]
    if draft.reasoning:
        writes.append(_audit(f"reasoning://{turn}", draft.thoughts, {}))
    return writes


def _audit(path: str, body: str, attributes: dict[str, object]) -> EntryWrite:
    change = SetEntry(body=body, attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(path, change, writer=Tier.SYSTEM)


def loss_writes(turn: int, reading: Reading) -> list[EntryWrite]:
    """One error entry for each thing that the model wrote and that got lost (RU153, RU284)."""
    return [
        error_write(f"log://turn_{turn}/error/{warning.kind}_{number}", "unreadable:400", warning.message)
        for number, warning in enumerate(reading.losses, 1)
    ]


def new_records(turn: int, mode: Mode, tools: Sequence[str], commands: Sequence[Command]) -> list[Record]:
    """The records of the commands; one that policy refuses is failed before anything is dispatched (RU155)."""
    records: list[Record] = []
    for ordinal, command in enumerate(commands):
        path = record_path(turn, command, ordinal, {record.path for record in records})
        record = Record(path, command.name, command, record_attributes(command, ordinal), State.RECORDED)
        if refused := refusal(command, mode, tools):
            record.settle(failed(refused.outcome, refused.body))
        records.append(record)
    return records


def record_writes(records: Sequence[Record]) -> list[EntryWrite]:
    """The writes that make new records durable."""
    return [
        EntryWrite(
            record.path,
            SetEntry(
                body=record.body,
                attributes_json=to_attributes_json(record.attributes),
                visibility=Visibility.VISIBLE,
                state=record.state,
                outcome=record.outcome,
            ),
            writer=Tier.SYSTEM,
        )
        for record in records
    ]
