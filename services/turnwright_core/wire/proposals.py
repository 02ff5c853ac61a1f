"""Proposals and the decisions on them as messages, read from the records of their commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from turnwright.types.v1 import command_record_pb2, entry_pb2, proposal_pb2
from turnwright_values.types import Entry

from turnwright_core.limits import EVENT_BODY_BYTES_MAX, OLD_TEXTS_BYTES_MAX
from turnwright_core.patterns.patch import text_before
from turnwright_core.rules import targets_like
from turnwright_core.text import cut_bytes
from turnwright_core.tools import TOOL_ORDER
from turnwright_core.wire.command_records import decision_in, intended_effect, recorded_call
from turnwright_core.wire.times import time_to_pb

_REMOVED_OUTCOME: Final = "removed:410"


def decision_to_pb(path: str, record: Entry | None) -> proposal_pb2.ProposalDecision:
    """The decision in a record; None stands for a record that was removed."""
    if record is None:
        return proposal_pb2.ProposalDecision(path=path, state=entry_pb2.STATE_CANCELLED, outcome=_REMOVED_OUTCOME)
    decision = proposal_pb2.ProposalDecision(
        path=path, state=entry_pb2.State.ValueType(int(record.state)), outcome=record.outcome
    )
    if (made := decision_in(record.record)) is not None:
        decision.kind = command_record_pb2.DecisionKind.ValueType(made.kind)
        decision.principal = made.principal
        decision.comment = made.comment
        decision.edited = bool(made.contents or made.edited)
        if (time := time_to_pb(made.time_ms)) is not None:
            decision.decide_time.CopyFrom(time)
    return decision


def proposal_to_pb(record: Entry, *, whole: bool = False) -> proposal_pb2.Proposal:
    """All that is needed to decide on a record with state PROPOSED. Long texts are truncated unless `whole`.

    An effect of a kind that this version does not know is left out; the rest of the record is still shown.
    """
    message, attributes = command_record_pb2.CommandRecord.FromString(record.record), record.attributes
    tool = message.tool or str(attributes.get("tool", ""))
    proposal = proposal_pb2.Proposal(
        path=record.path,
        tool=tool,
        turn=record.turn,
        target=str(attributes.get("target", "")),
        body=_shown(record.body, whole=whole),
        body_size_bytes=record.body_size_bytes,
        kind_targets=targets_like(intended_effect(message)) or (),
    )
    if tool not in TOOL_ORDER:
        # As the model wrote it; empty if it was too large to be kept.
        command = message.command
        written = proposal.command_written
        written.attributes.update({attribute.name: attribute.value for attribute in command.attributes})
        written.body, written.body_size_bytes = _shown(command.body, whole=whole), len(command.body.encode())
        written.SetInParent()
    effect = message.proposed.effect
    match effect.WhichOneof("kind"):
        case "command":
            proposal.command.CopyFrom(effect.command)
        case "question":
            proposal.question.CopyFrom(effect.question)
        case "files":
            proposal.files.changes.extend(map(_file_change, effect.files.edits))
            if whole:
                _add_old_texts(proposal.files.changes, effect.files.edits)
        case "call":
            proposal.call.data_json = effect.call.data_json
        case "client_tool":
            call = recorded_call(record.record)
            proposal.client_tool.arguments_json, proposal.client_tool.call_id = call.arguments, call.call_id
    return proposal


def is_of_agents(record: entry_pb2.Entry) -> bool:
    """Whether a record waits for agents, so that nobody decides on it."""
    return record.record.proposed.effect.HasField("agents")


def proposed_contents(record: bytes) -> list[command_record_pb2.EditedContent]:
    """What a record would write, in the form in which an acceptance replaces it."""
    effect = command_record_pb2.CommandRecord.FromString(record).proposed.effect
    if effect.HasField("command"):
        return [command_record_pb2.EditedContent(content=effect.command.command)]
    edits = [edit for edit in effect.files.edits if edit.HasField("content")]
    return [command_record_pb2.EditedContent(path=edit.path, content=edit.content) for edit in edits]


def _shown(text: str, *, whole: bool) -> str:
    return text if whole else cut_bytes(text, EVENT_BODY_BYTES_MAX)


def _file_change(edit: command_record_pb2.FileEdit) -> proposal_pb2.FileChange:
    if not edit.HasField("content"):
        kind = proposal_pb2.FILE_CHANGE_KIND_DELETE
    elif not edit.HasField("base_hash"):
        kind = proposal_pb2.FILE_CHANGE_KIND_CREATE
    else:
        kind = proposal_pb2.FILE_CHANGE_KIND_MODIFY
    return proposal_pb2.FileChange(path=edit.path, kind=kind, patch=edit.patch)


def _add_old_texts(changes: Iterable[proposal_pb2.FileChange], edits: Iterable[command_record_pb2.FileEdit]) -> None:
    """Add the texts before the changes, as far as there is room for them."""
    left = OLD_TEXTS_BYTES_MAX
    for change, edit in zip(changes, edits, strict=True):
        old = text_before(edit.patch, edit.content, edit.base_hash)
        size = len(old.encode()) if old is not None else 0
        if old is not None and size <= left:
            change.old_text = old
            left -= size
