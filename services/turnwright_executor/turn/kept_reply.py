"""What is stored of a reply besides its commands: text and reasoning as entries, all else as attributes.

A call is stored once, in the record of its command; the reply names that record's path. Data that only the vendor can
read (signatures, blocks of thinking and of its own tools) is stored unchanged, to be sent back to it.
Source: rows RU128, RU153; decisions C40, C41.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import to_builtins
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from turnwright_core.chat.message import ToolCall
from turnwright_core.chat.timeline import CALLS, SUMMARIZES
from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, CALL_ID_CHARS_MAX, NAME_CHARS_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.model_call import CALL, ModelCallRecord
from turnwright_executor.turn.recording import TOO_LARGE, ParsedReply, lost_call_id

CALLS_BYTES_MAX: Final = ATTRIBUTES_BYTES_MAX // 4
"""Maximum size of the list of calls with ids, signatures and arguments, in bytes of JSON; longer ones are truncated."""

CALLS_CHARS_MAX: Final = ATTRIBUTES_BYTES_MAX // 8
"""Maximum length of the arguments of truncated calls together, in code points."""

VENDORS_BYTES_MAX: Final = ATTRIBUTES_BYTES_MAX // 2
"""Maximum size of data for the vendor, in bytes of JSON."""


def reply_writes(
    turn: int,
    draft: Draft,
    reading: ParsedReply,
    note: ModelCallRecord,
    records: Sequence[CommandRecord],
    summarizes: Sequence[str] = (),
) -> list[EntryWrite]:
    """The raw reply and its reasoning, as audit entries. `summarizes` are the messages that it replaces."""
    attributes = {
        SUMMARIZES: list(summarizes),
        CALL: note.to_json(),
        "finish": draft.finish,
        CALLS: _calls(turn, reading, records),
        "warnings": [{"kind": warning.kind, "message": warning.message} for warning in reading.warnings],
        **_of_vendor(draft),
    }
    path = f"assistant://{turn}"
    writes = [_audit(path, draft.text, {key: value for key, value in attributes.items() if value})]
    if draft.reasoning:
        writes.append(_audit(f"reasoning://{turn}", draft.thoughts, {}))
    return writes


def _calls(turn: int, reading: ParsedReply, records: Sequence[CommandRecord]) -> list[dict[str, Any]]:
    """The calls in order, with their records' paths. Calls without a record, or with an empty one, stay as received."""
    if not (reading.lost_calls or any(reading.calls)):
        return []
    chars = CALLS_CHARS_MAX // max(1, len(reading.lost_calls) + len(records))
    for chars_kept in (ATTRIBUTES_BYTES_MAX, chars):
        kept = [
            (call.index, _recorded(record, call, chars_kept))
            for record, call in zip(records, reading.calls, strict=False)
            if call is not None
        ]
        kept += [
            (lost.call.index, _lost(lost_call_id(turn, reading, index), lost.call, chars_kept))
            for index, lost in enumerate(reading.lost_calls)
        ]
        calls = [one for _, one in sorted(kept, key=lambda one: one[0])]
        if len(to_attributes_json({CALLS: calls}).encode()) <= CALLS_BYTES_MAX:
            break
    return calls


def _recorded(record: CommandRecord, call: ToolCall, chars: int) -> dict[str, Any]:
    fields = {"path": record.path, **_ids(record.call_id, call, chars)}
    return fields | _written(call, chars) if record.outcome == TOO_LARGE.outcome else fields


def _lost(call_id: str, call: ToolCall, chars: int) -> dict[str, Any]:
    return {**_ids(call_id, call, chars), **_written(call, chars)}


def _ids(call_id: str, call: ToolCall, chars: int) -> dict[str, Any]:
    vendor_id = call.id if len(call.id) <= min(chars, CALL_ID_CHARS_MAX) else ""
    signature = call.signature if len(call.signature) <= chars else ""
    fields: dict[str, Any] = {"call_id": call_id, "id": vendor_id, "signature": signature}
    fields = {name: value for name, value in fields.items() if value}
    return fields if call.block is None else {**fields, "block": call.block}


def _written(call: ToolCall, chars: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": call.name[:NAME_CHARS_MAX], "arguments": call.arguments[:chars]}
    return fields | ({"chars": len(call.arguments)} if len(call.arguments) > chars else {})


def _of_vendor(draft: Draft) -> dict[str, Any]:
    """What the vendor returned besides the text, as far as it fits, and the names of what does not."""
    message = draft.message()
    data = {
        "thinking": to_builtins(message.thinking),
        "server_blocks": to_builtins(message.server_blocks),
        "citations": list(message.citations),
        # A text: how deep an object is nested is the vendor's business.
        "extra": message.extra,
    }
    kept: dict[str, Any] = {}
    for name, value in data.items():
        if value and len(to_attributes_json({**kept, name: value}).encode()) <= VENDORS_BYTES_MAX:
            kept[name] = value
    left_out = [name for name, value in data.items() if value and name not in kept]
    left_out += [f"extra.{name[:NAME_CHARS_MAX]}" for name in draft.refused]
    return kept | ({"left_out": left_out} if left_out else {})


def _audit(path: str, body: str, attributes: dict[str, object]) -> EntryWrite:
    change = SetEntry(body=body, attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(path, change, writer=Tier.SYSTEM)
