"""Proposals for clients: all that is needed to decide, from the waiting record."""

from __future__ import annotations

import json

from turnwright.types.v1 import command_record_pb2 as pb
from turnwright.types.v1 import proposal_pb2

from turnwright_core.entries import Entry
from turnwright_core.limits import EVENT_BODY_BYTES_MAX
from turnwright_core.text import cut_bytes
from turnwright_core.wire.command_records import recorded_call
from turnwright_executor.domain.effects import (
    CallEffect,
    ClientToolEffect,
    CommandEffect,
    Effect,
    FileEdit,
    FileEffect,
    QuestionEffect,
)
from turnwright_executor.domain.toolset import TOOL_ORDER
from turnwright_executor.wire.effects import effect_from_pb


def proposal_of(entry: Entry, *, whole: bool = False) -> proposal_pb2.Proposal:
    """The proposal in a record with state PROPOSED. Long texts are truncated unless `whole`.

    An effect that cannot be read is left out; the rest of the record is still shown.
    """
    message, attributes = pb.CommandRecord.FromString(entry.record), entry.attributes
    tool = message.tool or str(attributes.get("tool", ""))
    proposal = proposal_pb2.Proposal(
        path=entry.path,
        tool=tool,
        turn=entry.turn,
        target=str(attributes.get("target", "")),
        body=_shown(entry.body, whole=whole),
        body_size_bytes=entry.body_size_bytes,
    )
    if tool not in TOOL_ORDER:
        proposal.command_written.CopyFrom(_written(message.command, whole=whole))
    if (effect := effect_from_pb(message.proposed.effect)) is not None:
        _put_effect(proposal, effect, entry.record)
    return proposal


def _put_effect(proposal: proposal_pb2.Proposal, effect: Effect, record: bytes) -> None:
    match effect:
        case CommandEffect():
            proposal.command.command = effect.command
            proposal.command.timeout_s = effect.timeout_s
        case QuestionEffect():
            proposal.question.question = effect.question
            proposal.question.options.extend(effect.options)
        case FileEffect():
            proposal.files.changes.extend(_file_change(edit) for edit in effect.edits)
        case CallEffect():
            proposal.call.data_json = json.dumps(effect.data, ensure_ascii=False)
        case ClientToolEffect():
            call = recorded_call(record)
            proposal.client_tool.arguments_json, proposal.client_tool.call_id = call.arguments, call.call_id


def _written(command: pb.CommandText, *, whole: bool) -> proposal_pb2.WrittenCommand:
    """The command as the model wrote it; empty if it was too large to be kept."""
    return proposal_pb2.WrittenCommand(
        attributes={attribute.name: attribute.value for attribute in command.attributes},
        body=_shown(command.body, whole=whole),
        body_size_bytes=len(command.body.encode()),
    )


def _shown(text: str, *, whole: bool) -> str:
    return text if whole else cut_bytes(text, EVENT_BODY_BYTES_MAX)


def _file_change(edit: FileEdit) -> proposal_pb2.FileChange:
    if edit.content is None:
        kind = proposal_pb2.FILE_CHANGE_KIND_DELETE
    elif edit.base_hash is None:
        kind = proposal_pb2.FILE_CHANGE_KIND_CREATE
    else:
        kind = proposal_pb2.FILE_CHANGE_KIND_MODIFY
    return proposal_pb2.FileChange(path=edit.path, kind=kind, patch=edit.patch)
