"""The messages of a run: which entries are messages, their order, and their content.

Clients, exports and transcripts all use this mapping. A call is stored once, in the record of its command, and a plan
in its own entries; `parts_of` names the entries that a message needs besides its own.
Source: architecture 4; rows OM01, OM02, OM07-OM09, OM15, RH01; decisions C40, C41.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from turnwright_core.chat.message import Image, Message, Role, ServerBlock, Text, ThinkingBlock, ToolCall
from turnwright_core.chat.run_message import MessageKind, MessageResult, RecordedCall, RunMessage
from turnwright_core.converters import converter
from turnwright_core.entries import Entry, State, Tier
from turnwright_core.plans import PLAN_ID, delta_path, plan_path, version_path
from turnwright_core.runs import ReplyKind, Turn

MESSAGE_SCHEMES: Final = ("prompt", "assistant", "log", "event")
"""The schemes of entries that are messages; not every entry of the log is one."""

CALLS: Final = "calls"
"""Attribute of a reply: its native calls."""

SUMMARIZES: Final = "summarizes"
"""Attribute of a reply that is a summary: the paths of the messages that it replaces."""

IMAGES: Final = "images"
"""Attribute of a prompt: the paths of the images that go with it."""

ERROR_TOOL: Final = "error"
"""Value of the attribute `tool` of an error that belongs to no command."""

INJECT_TOOL: Final = "inject"
"""Value of the same attribute of a message that a client injected."""

KNOWLEDGE_TOOL: Final = "knowledge"
"""Value of the same attribute of what was found in the project for a prompt."""

_MESSAGE_TOOLS: Final = frozenset({ERROR_TOOL, KNOWLEDGE_TOOL, "repo"})
_TURN: Final = re.compile(
    r"(?:prompt|assistant|reasoning)://([0-9]{1,9})|(?:log|event)://turn_([0-9]{1,9})/.*", re.DOTALL
)
"""Paths that name a turn. Plugins can write such paths too: a number too large for the contract does not count."""
_PLAN: Final = "plan"

ReadRecord = Callable[[bytes], RecordedCall]


def kind_of(entry: Entry) -> MessageKind | None:
    """The kind of message that an entry is; None if it is none, or not yet."""
    match entry.scheme:
        case "prompt":
            return MessageKind.PROMPT
        case "assistant":
            return MessageKind.SUMMARY if f'"{SUMMARIZES}":' in entry.attributes_json else MessageKind.REPLY
        case "event":
            return MessageKind.PLAN if _plan_of(entry) else MessageKind.EVENT
        case "log":
            return _kind_in_log(entry)
        case _:
            return None


def _kind_in_log(entry: Entry) -> MessageKind | None:
    if entry.record:
        return MessageKind.RESULT if entry.state.is_settled else None
    # Models write to the log too: what they say of themselves is no message of somebody else.
    if entry.writer not in (Tier.SYSTEM, Tier.PLUGIN):
        return None
    attributes = entry.attributes
    tool = attributes.get("tool")
    if tool == INJECT_TOOL:
        return MessageKind.STEERING
    # Plugins write any JSON there.
    if isinstance(tool, str) and tool in _MESSAGE_TOOLS:
        return MessageKind.RESULT if attributes.get("call_id") else MessageKind.SYNTHETIC
    return None


def turn_of(entry: Entry) -> int:
    """The turn of a message, from its path: the entry's own number changes with each later write."""
    named = named_turn(entry.path)
    return entry.turn if named is None else named


def named_turn(path: str) -> int | None:
    """The turn in the path of a message; None if there is none."""
    found = _TURN.fullmatch(path)
    return int(found[1] or found[2]) if found else None


def messages_in(entries: Iterable[Entry]) -> list[Entry]:
    """The entries that are messages, in their order."""
    return sorted((entry for entry in entries if kind_of(entry)), key=lambda entry: entry.position)


def parts_of(entry: Entry) -> tuple[str, ...]:
    """Paths of further entries that a message is made of; some may not exist."""
    if entry.scheme == "assistant":
        return (f"reasoning://{turn_of(entry)}", *_records_of(entry))
    plan = _plan_of(entry) if entry.scheme == "event" else None
    return _plan_paths(plan) if plan else ()


def _records_of(entry: Entry) -> Iterable[str]:
    return (call["path"] for call in entry.attributes.get(CALLS, ()) if call.get("path"))


def run_message(entry: Entry, parts: Mapping[str, Entry], turn: Turn | None, read_record: ReadRecord) -> RunMessage:
    """The message of an entry, from its parts that exist and its turn.

    `read_record` decodes records of commands. Only for entries with a `kind_of`.
    """
    kind = kind_of(entry) or MessageKind.UNSPECIFIED
    match kind:
        case MessageKind.REPLY | MessageKind.SUMMARY:
            return _reply(entry, parts, turn, read_record)
        case MessageKind.RESULT:
            return _as_message(entry, kind, _result(entry, read_record))
        case MessageKind.EVENT:
            event = entry.attributes.get("event") or {}
            return _as_message(entry, kind, _hidden(Role.EVENT, entry.body, {"event": event}))
        case MessageKind.PLAN:
            plan = _plan_of(entry) or {}
            shown = next((parts[path] for path in _plan_paths(plan) if _shows(parts.get(path), plan)), entry)
            return _as_message(entry, kind, _hidden(Role.PLAN, shown.body, {"plan": plan}), shown)
        case _:
            said = _as_message(entry, kind, Message(Role.USER, (*_text(entry.body), *_images(entry))))
            return replace(said, create_ms=turn.begin_ms) if kind is MessageKind.PROMPT and turn else said


def _as_message(entry: Entry, kind: MessageKind, message: Message, shown: Entry | None = None) -> RunMessage:
    text = shown or entry
    cut = text.body_size_bytes if len(text.body.encode()) < text.body_size_bytes else 0
    return RunMessage(entry.path, kind, turn_of(entry), entry.position, entry.update_ms, message, text_size_bytes=cut)


def _text(body: str) -> tuple[Text, ...]:
    return (Text(body),) if body else ()


def _images(entry: Entry) -> tuple[Image, ...]:
    """The images of a prompt, by the paths of their entries, which only the runtime writes."""
    paths = entry.attributes.get(IMAGES)
    kept = paths if isinstance(paths, list) else ()
    return tuple(Image(path=path) for path in kept if isinstance(path, str) and path.startswith("image://"))


def _hidden(role: Role, body: str, extra: dict[str, Any]) -> Message:
    return Message(role, _text(body), extra=json.dumps(extra, ensure_ascii=False, separators=(",", ":")))


def _result(entry: Entry, read_record: ReadRecord) -> Message:
    """The result of a command, or the error of a call that became no command."""
    attributes = entry.attributes
    call = read_record(entry.record) if entry.record else None
    return Message(
        Role.TOOL,
        _text(entry.body or entry.outcome),
        call_id=call.call_id if call else str(attributes.get("call_id") or ""),
        tool=call.tool if call else "",
        failed=entry.state is not State.RESOLVED,
    )


_to_thinking: Final = converter(tuple[ThinkingBlock, ...])
_to_server_blocks: Final = converter(tuple[ServerBlock, ...])


def _reply(entry: Entry, parts: Mapping[str, Entry], turn: Turn | None, read_record: ReadRecord) -> RunMessage:
    attributes = entry.attributes
    thinking, server_blocks = attributes.get("thinking"), attributes.get("server_blocks")
    reasoning = parts.get(f"reasoning://{turn_of(entry)}")
    message = Message(
        Role.ASSISTANT,
        _text(entry.body),
        reasoning.body if reasoning else "",
        tuple(_call(place, kept, parts, read_record) for place, kept in enumerate(attributes.get(CALLS, ()))),
        _to_thinking(thinking) if thinking else (),
        _to_server_blocks(server_blocks) if server_blocks else (),
        tuple(attributes.get("citations", ())),
        attributes.get("extra", ""),
        turn.request.vendor_model if turn else str((attributes.get("call") or {}).get("model") or ""),
    )
    ended = turn.result if turn else None
    said = _as_message(entry, kind_of(entry) or MessageKind.REPLY, message)
    if ended is None:
        return said
    result = MessageResult(ended.finish, ended.error, ended.answer, ended.kind or ReplyKind.REPLY)
    kind = MessageKind.SUMMARY if ended.kind is ReplyKind.SUMMARY else said.kind
    return replace(said, kind=kind, usage=ended.usage, result=result)


def _call(place: int, kept: Mapping[str, Any], parts: Mapping[str, Entry], read_record: ReadRecord) -> ToolCall:
    """One call of a reply: from its record, or from the reply if it became no command."""
    record = parts.get(kept.get("path", ""))
    call = read_record(record.record) if record and record.record else None
    name, arguments = kept.get("name", ""), kept.get("arguments")
    if call and arguments is None:
        name, arguments = call.tool, call.arguments
    # Somebody took the record away: its path still says which tool it was.
    name = name or "".join(str(kept.get("path", "")).split("/")[3:4]) or "unknown"
    return ToolCall(
        name, arguments or "", place, kept.get("id", ""), kept.get("call_id", ""), kept.get("signature", ""),
        kept.get("block"),
    )  # fmt: skip


# ---- Plans: an operation is an event; what it set or added is in an entry of the plan.


def _plan_of(entry: Entry) -> dict[str, Any] | None:
    """Plan, version and delta in an event about a plan; None for any other event."""
    event = entry.attributes.get("event")
    payload = event.get("payload") if isinstance(event, dict) and event.get("source") == _PLAN else None
    if not isinstance(payload, dict) or not isinstance(payload.get("version"), int):
        return None
    plan_id = payload.get("plan_id")
    return payload if isinstance(plan_id, str) and PLAN_ID.fullmatch(plan_id) else None


def _plan_paths(plan: Mapping[str, Any]) -> tuple[str, ...]:
    plan_id, version = plan["plan_id"], plan["version"]
    if isinstance(plan.get("sequence"), int):
        return (delta_path(plan_id, version, plan["sequence"]),)
    return () if plan.get("change") == "removed" else (plan_path(plan_id), version_path(plan_id, version))


def _shows(entry: Entry | None, plan: Mapping[str, Any]) -> bool:
    """Whether an entry holds the version that is meant: a plan's own entry holds the latest."""
    return entry is not None and ("sequence" in plan or entry.attributes.get("version") == plan["version"])
