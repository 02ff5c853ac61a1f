"""The messages of a run: which entries are messages, their order, and their content.

Clients, exports and transcripts all use this mapping. A call is stored once, in the record of its command, and a plan
in its own entries; `parts_of` names the entries that a message needs besides its own.
Source: architecture 4; rows OM01, OM02, OM07-OM09, OM15, RH01; decisions C40, C41.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from msgspec import DecodeError, Struct
from msgspec.json import Decoder
from msgspec.structs import replace
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall
from turnwright_values.types import Entry, MessageKind, MessageResult, ReplyKind, RunMessage, State, Tier, Turn

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.converters import converter
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.plans.plan import PLAN_ID, delta_path, plan_path, version_path

MESSAGE_SCHEMES: Final = ("prompt", "assistant", "log", "event")
"""The schemes of entries that are messages; not every entry of the log is one."""

CALLS: Final = "calls"
"""Attribute of a reply: its native calls."""

PROSE: Final = "prose"
"""Attribute of a reply whose text is not all prose: where its prose stands, as begins and ends in code points."""

COMMANDS: Final = "commands"
"""Attribute of a reply with commands in its text: the paths of their records."""

SUMMARIZES: Final = "summarizes"
"""Attribute of a reply that is a summary: the paths of the messages that it replaces."""

IMAGES: Final = "images"
"""Attribute of a message: the paths of the images that go with it."""

APPENDED: Final = "appended"
"""Attribute of a prompt: what its body ends with that its author did not write."""

SYNTHETIC: Final = "synthetic"
"""Attribute of a prompt that no user wrote: true."""

ERROR_TOOL: Final = "error"
"""Value of the attribute `tool` of an error that belongs to no command."""

INJECT_TOOL: Final = "inject"
"""Value of the same attribute of a message that a client injected."""

KNOWLEDGE_TOOL: Final = "knowledge"
"""Value of the same attribute of what was found in the project for a prompt."""

REPO_TOOL: Final = "repo"
"""Value of the same attribute of the list of the project's files."""

_MESSAGE_TOOLS: Final = frozenset({ERROR_TOOL, KNOWLEDGE_TOOL, REPO_TOOL})
_NUMBERED: Final = ("prompt", "assistant", "reasoning")
"""Schemes whose paths are `scheme://TURN`."""
_TURN: Final = "turn_"
_TURN_DIGITS_MAX: Final = 9
"""Plugins can write such paths too: a number too large for the contract does not count."""
_PLAN: Final = "plan"

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
_REPLY: Final = MessageKind.REPLY
_SUMMARY: Final = MessageKind.SUMMARY
_RESULT: Final = MessageKind.RESULT
_ASSISTANT: Final = Role.ASSISTANT
_TOOL: Final = Role.TOOL
_RESOLVED: Final = State.RESOLVED


class RecordedCall(Struct, frozen=True):
    """The tool call in the record of a command; `arguments` are JSON text."""

    tool: str
    arguments: str
    call_id: str = ""
    vendor_call_id: str = ""


ReadRecord = Callable[[bytes], RecordedCall]
FindEntry = Callable[[str], Entry | None]


def prose_of(text: str, spans: Iterable[Sequence[int]]) -> str:
    """The prose in the text of a reply. `spans`: its attribute PROSE."""
    return "".join([text[begin:end] for begin, end in spans])


def kind_of(entry: Entry) -> MessageKind | None:
    """The kind of message that an entry is; None if it is none, or not yet."""
    scheme = entry.scheme
    if scheme == "log":
        return _kind_in_log(entry)
    if scheme == "assistant":
        return _SUMMARY if f'"{SUMMARIZES}":' in entry.attributes_json else _REPLY
    if scheme == "prompt":
        return MessageKind.PROMPT
    if scheme == "event":
        return MessageKind.PLAN if _plan_of(entry) else MessageKind.EVENT
    return None


def is_synthetic(entry: Entry) -> bool:
    """Whether a message is a prompt that no user wrote. It is a prompt for its model, and none for its readers."""
    return entry.scheme == "prompt" and entry.attributes.get(SYNTHETIC) is True


def _kind_in_log(entry: Entry) -> MessageKind | None:
    if entry.record:
        return _RESULT if entry.state is _RESOLVED or entry.state.is_settled else None
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
    scheme, _, number = path.partition("://")
    if scheme in ("log", "event"):
        folder, slash, _ = number.partition("/")
        number = folder.removeprefix(_TURN) if slash and folder.startswith(_TURN) else ""
    elif scheme not in _NUMBERED:
        return None
    is_number = number.isascii() and number.isdecimal() and len(number) <= _TURN_DIGITS_MAX
    return int(number) if is_number else None


def messages_in(entries: Iterable[Entry]) -> list[Entry]:
    return sorted((entry for entry in entries if kind_of(entry)), key=lambda entry: entry.position)


def parts_of(entry: Entry) -> tuple[str, ...]:
    """Paths of further entries that a message is made of; some may not exist."""
    if entry.scheme == "assistant":
        kept = _kept(entry)
        return (_reasoning_path(entry.path), *(call.path for call in kept.calls if call.path), *kept.commands)
    plan = _plan_of(entry) if entry.scheme == "event" else None
    return _plan_paths(plan) if plan else ()


def run_message(entry: Entry, parts: Mapping[str, Entry], turn: Turn | None, read_record: ReadRecord) -> RunMessage:
    """The message of an entry, from its parts that exist and its turn.

    `read_record` decodes records of commands. Only for entries with a `kind_of`.
    """
    kind = kind_of(entry) or MessageKind.UNSPECIFIED
    message = content_of(entry, kind, parts.get, read_record)
    if kind is _REPLY or kind is _SUMMARY:
        message = _in_parts(entry, message, parts.get, read_record)
    elif kind is _RESULT and entry.record and not message.call_id:
        message = replace(message, call_id=entry.path)
    text = _planned(entry, _plan_of(entry) or {}, parts.get) if kind is MessageKind.PLAN else entry
    cut = text.body_size_bytes if len(text.body.encode()) < text.body_size_bytes else 0
    shown = RunMessage(entry.path, kind, turn_of(entry), entry.position, entry.update_ms, message, text_size_bytes=cut)
    if turn is None:
        return shown
    if kind is MessageKind.PROMPT:
        return replace(shown, create_ms=turn.begin_ms)
    return _ended(shown, turn) if kind in (MessageKind.REPLY, MessageKind.SUMMARY) else shown


def _ended(shown: RunMessage, turn: Turn) -> RunMessage:
    shown = replace(shown, message=replace(shown.message, vendor_model=turn.request.vendor_model))
    if (ended := turn.result) is None:
        return shown
    result = MessageResult(ended.finish, ended.error, ended.answer, ended.kind or ReplyKind.REPLY, ended.path)
    kind = MessageKind.SUMMARY if ended.kind is ReplyKind.SUMMARY else shown.kind
    return replace(shown, kind=kind, usage=ended.usage, result=result)


def content_of(entry: Entry, kind: MessageKind, find: FindEntry, read_record: ReadRecord) -> Message:
    """What a message says, without what its turn tells of it. `find` looks up the entries that it is made of."""
    if kind is _RESULT:
        return _result(entry, read_record)
    if kind is _REPLY or kind is _SUMMARY:
        return _reply(entry, find, read_record)
    if kind is MessageKind.EVENT:
        return _hidden(Role.EVENT, entry.body, {"event": entry.attributes.get("event") or {}})
    if kind is MessageKind.PLAN:
        plan = _plan_of(entry) or {}
        return _hidden(Role.PLAN, _planned(entry, plan, find).body, {"plan": plan})
    return Message(Role.USER, (*_text(entry.body), *_images(entry)))


def _text(body: str) -> tuple[Text, ...]:
    return (Text(body),) if body else ()


def _images(entry: Entry) -> tuple[Image, ...]:
    paths = entry.attributes.get(IMAGES)
    kept = paths if isinstance(paths, list) else ()
    return tuple(Image(path=path) for path in kept if isinstance(path, str) and path.startswith("image://"))


def _hidden(role: Role, body: str, extra: JsonObject) -> Message:
    return Message(role, _text(body), extra=json.dumps(extra, ensure_ascii=False, separators=(",", ":")))


def _result(entry: Entry, read_record: ReadRecord) -> Message:
    """The result of a command, or the error of a call that became no command."""
    output, failed = entry.body or entry.outcome, entry.state is not _RESOLVED
    parts: tuple[Part, ...] = (Text(output),) if output else ()
    if f'"{IMAGES}":' in entry.attributes_json:
        parts = (*parts, *_images(entry))
    if entry.record:
        call = read_record(entry.record)
        return Message(_TOOL, parts, call_id=call.call_id, tool=call.tool, failed=failed)
    return Message(_TOOL, parts, call_id=str(entry.attributes.get("call_id") or ""), failed=failed)


class _KeptCall(Struct, frozen=True):
    """A call in the attributes of a reply: its record, or else the call itself."""

    path: str = ""
    name: str = ""
    arguments: str | None = None
    id: str = ""
    call_id: str = ""
    signature: str = ""
    block: int | None = None


class _ModelCall(Struct, frozen=True):
    model: str | None = None


class _KeptReply(Struct, frozen=True):
    """What a message takes of the attributes of a reply, which only the runtime writes."""

    calls: tuple[_KeptCall, ...] = ()
    thinking: tuple[ThinkingBlock, ...] = ()
    server_blocks: tuple[ServerBlock, ...] = ()
    citations: tuple[str, ...] = ()
    extra: str = ""
    call: _ModelCall = _ModelCall()
    prose: tuple[tuple[int, int], ...] | None = None
    commands: tuple[str, ...] = ()


_KEPT: Final = Decoder(_KeptReply)
_to_kept: Final = converter(_KeptReply)


def _kept(reply: Entry) -> _KeptReply:
    try:
        return _KEPT.decode(reply.attributes_json or "{}")
    except (DecodeError, UnicodeEncodeError):
        # See parse_attributes.
        return _to_kept(reply.attributes)


def _reply(entry: Entry, find: FindEntry, read_record: ReadRecord) -> Message:
    kept = _kept(entry)
    reasoning = find(_reasoning_path(entry.path))
    return Message(
        _ASSISTANT,
        (Text(entry.body),) if entry.body else (),
        reasoning.body if reasoning else "",
        tuple([_call(index, call, find, read_record) for index, call in enumerate(kept.calls)]),
        kept.thinking,
        kept.server_blocks,
        kept.citations,
        kept.extra,
        kept.call.model or "",
    )


def _in_parts(entry: Entry, message: Message, find: FindEntry, read_record: ReadRecord) -> Message:
    """A reply as people read it: its prose, and commands in its text like native calls, which come behind them."""
    kept = _kept(entry)
    if kept.prose is None:
        return message
    text = prose_of(entry.body, kept.prose)
    commands = [_KeptCall(path, call_id=path) for path in kept.commands]
    calls = [_call(place, one, find, read_record) for place, one in enumerate((*commands, *kept.calls))]
    return replace(message, parts=_text(text), calls=tuple(calls))


def _reasoning_path(reply: str) -> str:
    return "reasoning" + reply[len("assistant") :]


def _call(place: int, kept: _KeptCall, find: FindEntry, read_record: ReadRecord) -> ToolCall:
    """One call of a reply: from its record, or from the reply if it became no command."""
    record = find(kept.path) if kept.path else None
    name, arguments = kept.name, kept.arguments
    if record and record.record and arguments is None:
        call = read_record(record.record)
        name, arguments = call.tool, call.arguments
    # Somebody took the record away: its path still says which tool it was.
    name = name or "".join(kept.path.split("/")[3:4]) or "unknown"
    return ToolCall(name, arguments or "", place, kept.id, kept.call_id, kept.signature, kept.block)


# ---- Plans: an operation is an event; what it set or added is in an entry of the plan.


def _plan_of(entry: Entry) -> JsonObject | None:
    """Plan, version and delta in an event about a plan; None for any other event."""
    event = entry.attributes.get("event")
    payload = event.get("payload") if isinstance(event, dict) and event.get("source") == _PLAN else None
    if not isinstance(payload, dict) or not isinstance(payload.get("version"), int):
        return None
    plan_id = payload.get("plan_id")
    return payload if isinstance(plan_id, str) and PLAN_ID.fullmatch(plan_id) else None


def _plan_paths(plan: JsonMapping) -> tuple[str, ...]:
    plan_id, version = plan["plan_id"], plan["version"]
    if isinstance(plan.get("sequence"), int):
        return (delta_path(plan_id, version, plan["sequence"]),)
    return () if plan.get("change") == "removed" else (plan_path(plan_id), version_path(plan_id, version))


def _planned(event: Entry, plan: JsonMapping, find: FindEntry) -> Entry:
    """The entry with the text of what an event about a plan tells: its own if there is none."""
    return next((found for path in _plan_paths(plan) if (found := find(path)) and _shows(found, plan)), event)


def _shows(entry: Entry, plan: JsonMapping) -> bool:
    """Whether an entry holds the version that is meant: a plan's own entry holds the latest."""
    return "sequence" in plan or entry.attributes.get("version") == plan["version"]
