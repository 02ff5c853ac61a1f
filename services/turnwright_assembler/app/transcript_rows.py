"""The messages of one run as a transcript shows them: updated with changes, and read by one turn after another.

A message is made when its entry, or one that it consists of, arrives; what a turn does not change costs it nothing.
Source: architecture 4; rows RL02-RL06, RH05; decisions C40-C44.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from sys import getsizeof
from typing import Final

from msgspec.structs import replace
from turnwright_values.types import CompressionStrength, Cursor, Entry, MessageKind, RunMessage, Visibility

from turnwright_assembler.app.packet import PIECE_CHARS_MAX, MessagesDelta, PacketMessages, SentPacket, short_pieces
from turnwright_assembler.domain.blocks import EventPart, event_element
from turnwright_assembler.domain.compression import Compression, compression_in, restorable
from turnwright_assembler.domain.envelope import answer_text, divided, element, framed_result, user_text, well_formed
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.built_in import end_of_system
from turnwright_assembler.sections.system import system_text, tools_text
from turnwright_core.chat.message import Message, Role, Text, text_message
from turnwright_core.chat.timeline import SUMMARIZES, RecordedCall, content_of, kind_of, turn_of
from turnwright_core.chat.transcript import Conversation, PlacedMessage, to_json_lines
from turnwright_core.events import COMPRESSION_SOURCE, Subkind
from turnwright_core.instructions import INSTRUCTION_PATHS, SYSTEM_PATH
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.wire.command_records import recorded_call

END_CHARS: Final = 300
"""Code points of each end that a condensed result keeps."""

STUB: Final = "This result was left out to save room. `get` of {path} shows it again."
"""What a model reads in the place of an archived result."""

_CUT: Final = "[{count} characters were left out here to save room. `get` of {path} with line and limit shows them.]"


def condensed(path: str, text: str) -> str:
    """Both ends of a result; all of it where that would not be longer."""
    count = len(text) - 2 * END_CHARS
    if count <= 0:
        return text
    short = "\n".join((text[:END_CHARS], _CUT.format(count=count, path=path), text[-END_CHARS:]))
    return short if len(short) < len(text) else text


def stub(path: str, text: str) -> str:
    """The line in place of a result; the result itself where that would not be longer."""
    short = STUB.format(path=path)
    return short if len(short) < len(text) else text


def in_words(message: RunMessage, comment: str = "") -> str:
    """The text of such a message, with what somebody said who decided; empty if it says nothing."""
    content = message.message
    extra = json.loads(content.extra) if content.extra else {}
    if message.kind is MessageKind.EVENT:
        event = extra.get("event") or {}
        if event.get("source") == COMPRESSION_SOURCE and event.get("subkind") == Subkind.SUMMARIZATION_MARKER.value:
            return ""
        part = EventPart(str(event.get("subkind") or ""), str(event.get("source") or ""), event.get("payload"))
        return event_element(message.path, part, content.text)
    body = framed_result(message.path, content.text, comment)
    if message.kind is MessageKind.PLAN:
        plan = extra.get("plan") or {}
        attributes = {name: plan[name] for name in ("plan_id", "version", "sequence", "change") if name in plan}
        return element("plan-update" if "sequence" in plan else "plan", attributes, body)
    if not body:
        return ""
    tags: dict[MessageKind, tuple[str, dict[str, str | int]]] = {
        MessageKind.SUMMARY: ("summary", {"turn": message.turn}),
        MessageKind.RESULT: ("result", {"tool": content.tool, "failed": "true" if content.failed else ""}),
    }
    return element(*tags.get(message.kind, ("notice", {})), body)


_ROW_BYTES: Final = 1_600
"""Memory of a message besides its body and its line, in bytes: objects, path, table slots, digest."""

# Python 3.11 takes as long to look up a member of an enum as for all else that is done for a short message.
_VISIBLE: Final = Visibility.VISIBLE
_ARCHIVED: Final = Visibility.ARCHIVED
_REPLY: Final = MessageKind.REPLY
_RESULT: Final = MessageKind.RESULT
_REPORTING: Final = (MessageKind.EVENT, MessageKind.SYNTHETIC)
_WRITTEN_BY_USERS: Final = (MessageKind.PROMPT, MessageKind.STEERING)
_WITHOUT_PARTS: Final = (_RESULT, *_WRITTEN_BY_USERS)

_STRENGTHS: Final = {
    MessageKind.RESULT: CompressionStrength.LOW,
    MessageKind.PROMPT: CompressionStrength.HIGH,
    MessageKind.STEERING: CompressionStrength.HIGH,
}
"""How far a transcript is compressed if a message of a kind is evicted; MEDIUM for all others."""

_SPEAKERS: Final = {
    MessageKind.EVENT: Role.EVENT,
    MessageKind.PLAN: Role.PLAN,
    MessageKind.SYNTHETIC: Role.EVENT,
    MessageKind.RESULT: Role.TOOL,
}
"""Who speaks in messages that may be sent as the user's."""


def pieces_of(lines: str) -> Sequence[str]:
    if len(lines) <= PIECE_CHARS_MAX and lines.isascii():
        return (lines,)
    return short_pieces((well_formed(lines),))


class TranscriptRows:
    """The entries that messages are made of, by path, and the conversation that they make, as of `cursor`."""

    def __init__(self, rules: str = system_text("{}")) -> None:
        """`rules`: the system message, until the run's instructions come."""
        self.cursor: Cursor | None = None
        self.size_bytes = 0
        self.entries: dict[str, Entry] = {}
        self.conversation = Conversation(pieces_of)
        self.kinds: dict[str, MessageKind] = {}
        """Of the entries that are messages."""
        self._reports: dict[str, Compression] = {}
        self._evicted: dict[str, CompressionStrength] = {}
        self._calls: dict[bytes, RecordedCall] = {}
        """By record, while changes are applied."""
        self._used_by: dict[str, tuple[str, ...]] = {}
        """The messages that an entry is a part of beside its own."""
        self._rules = rules
        self._of_project = ""
        """The end of the system message: the instructions of the project."""
        self._system: Sequence[str] = short_pieces((self._rules,))
        self._tools: Sequence[str] = ()
        self._sent = SentPacket()

    def apply(self, part: ViewPart) -> None:
        """Apply added, changed and removed entries. Parts of one read belong together: apply all or drop the rows."""
        entries, used_by = self.entries, self._used_by
        changed: dict[str, None] = {}
        for entry in part.entries:
            path = entry.path
            before = entries.get(path)
            entries[path] = entry
            self.size_bytes += _weight(entry) - (_weight(before) if before else 0)
            changed[path] = None
            if path in used_by and (before is None or _content(before) != _content(entry)):
                changed.update(dict.fromkeys(used_by[path]))
        for path in part.removed:
            if before := entries.pop(path, None):
                self.size_bytes -= _weight(before)
                changed[path] = None
                changed.update(dict.fromkeys(used_by.get(path, ())))
        for path in changed:
            self._make(path)
        self._calls = {}
        if part.cursor:
            self.cursor = part.cursor

    def _make(self, path: str) -> None:
        entry = self.entries.get(path)
        if path in INSTRUCTION_PATHS:
            if path == SYSTEM_PATH:
                attributes = entry.attributes_json if entry else "{}"
                self._rules, tools = system_text(attributes), tools_text(attributes)
                self._tools = short_pieces((tools,)) if tools else ()
            else:
                self._of_project = end_of_system(entry)
            self._system = short_pieces((self._rules + self._of_project,))
            return
        if path in self.kinds:
            del self.kinds[path]
            self._reports.pop(path, None)
            self._evicted.pop(path, None)
            if entry is None or kind_of(entry) is None:
                self.conversation.put(path, None)
        if entry and (kind := kind_of(entry)):
            self.kinds[path] = kind
            if kind in _REPORTING and (report := compression_in(entry)):
                self._reports[path] = report
            if entry.visibility is not _VISIBLE and (_is_gone(entry, kind) or kind is _RESULT):
                self._evicted[path] = _STRENGTHS.get(kind, CompressionStrength.MEDIUM)
            self.conversation.put(path, self._placed(entry, kind))

    def speaker(self, path: str) -> Role | None:
        """Who speaks in a message that is sent as the user's and is none of theirs; None for all others."""
        kind = self.kinds.get(path)
        return _SPEAKERS.get(kind) if kind else None

    def _read_record(self, record: bytes) -> RecordedCall:
        """The call in a record, which a reply and its result both need."""
        call = self._calls.get(record)
        if call is None:
            call = self._calls[record] = recorded_call(record)
        return call

    def _placed(self, entry: Entry, kind: MessageKind) -> PlacedMessage:
        path, position = entry.path, entry.position
        find = self.entries.get if kind in _WITHOUT_PARTS else partial(self._part_of, path)
        message = content_of(entry, kind, find, self._read_record)
        is_gone, comment = entry.visibility is not _VISIBLE and _is_gone(entry, kind), ""
        if kind in _WRITTEN_BY_USERS:
            return PlacedMessage(path, position, _with_text(message, user_text(path, message.text)), is_gone)
        if kind is _RESULT:
            content, comment = _left_of(entry, message.text)
            message = _with_text(message, answer_text(path, content, comment) if message.call_id else content)
        if kind is _REPLY or (kind is _RESULT and message.call_id):
            return PlacedMessage(path, position, message, is_gone)
        if kind is MessageKind.SUMMARY:
            position = self._place_of_summary(entry)
        text = in_words(RunMessage(path, kind, turn_of(entry), position, 0, message), comment)
        return PlacedMessage(path, position, text_message(Role.USER, text), is_gone)

    def _part_of(self, path: str, part: str) -> Entry | None:
        """An entry that a message is made of, which changes with it from now on."""
        users = self._used_by.get(part, ())
        if path not in users:
            self._used_by[part] = (*users, path)
        return self.entries.get(part)

    def _place_of_summary(self, entry: Entry) -> int:
        """A summary stands where the first of the messages stood that it replaces."""
        listed = entry.attributes.get(SUMMARIZES)
        paths = listed if isinstance(listed, list) else ()
        replaced = (self._part_of(entry.path, path) for path in paths)
        return min((one.position for one in replaced if one), default=entry.position)

    def chars_as(self, path: str, visibility: Visibility) -> int:
        """Code points of a message if it were shown so."""
        entry = replace(self.entries[path], visibility=visibility)
        return len(to_json_lines([self._placed(entry, self.kinds[path]).message])[0])

    @property
    def strength(self) -> CompressionStrength:
        return max(self._evicted.values(), default=CompressionStrength.ABSENT)

    @property
    def broken_in(self) -> int:
        """The latest turn in which a compression broke the prefix; 0: none."""
        return max((one.turn for one in self._reports.values() if one.breaks_prefix), default=0)

    @property
    def reports(self) -> list[Compression]:
        """The evictions, turn by turn."""
        return sorted(self._reports.values(), key=lambda one: one.turn)

    def condensed_by_packets(self) -> list[Entry]:
        """The results that were summarized so that a packet fits."""
        if not any(report.of_packet for report in self._reports.values()):
            return []
        found = (self.entries.get(path) for path in restorable(self.reports))
        return [
            entry
            for entry in found
            if entry and entry.visibility is Visibility.SUMMARIZED and self.kinds.get(entry.path) is _RESULT
        ]

    def messages(self) -> PacketMessages:
        """Roles with their pieces: the system message, the conversation, and the tools where there are some."""
        self.conversation.compose()
        tools = [("tools", self._tools)] if self._tools else []
        return (("system", self._system), (CONVERSATION, self.conversation.pieces), *tools)

    @property
    def chars(self) -> int:
        return self.conversation.chars + self.fixed_chars

    @property
    def system_chars(self) -> tuple[int, int]:
        """Code points of the system message and of the tools."""
        return sum(map(len, self._system)), sum(map(len, self._tools))

    @property
    def fixed_chars(self) -> int:
        return sum(self.system_chars)

    def as_delta(self, base_digest: str, pieces: Sequence[str] | None = None) -> tuple[MessagesDelta, str]:
        """The transcript, delta-encoded against the last one if that is the named base, else whole; and its digest.

        `pieces` are another conversation in the place of the own one: what edits have made of it.
        """
        messages = self.messages()
        if pieces is not None:
            messages = tuple((role, pieces if role == CONVERSATION else texts) for role, texts in messages)
        return self._sent.replace(messages, base_digest), self._sent.digest


def _weight(entry: Entry) -> int:
    # The body stands in the line of its message too.
    return _ROW_BYTES + 2 * getsizeof(entry.body) + getsizeof(entry.attributes_json) + len(entry.record)


def _content(entry: Entry) -> tuple[object, ...]:
    """What a message takes of an entry that is a part of it."""
    return entry.body, entry.attributes_json, entry.record


def _is_gone(entry: Entry, kind: MessageKind) -> bool:
    return entry.visibility is _ARCHIVED and kind is not MessageKind.PLAN


def _left_of(entry: Entry, text: str) -> tuple[str, str]:
    """What is shown of a result: of what it is, and of what somebody said about it."""
    if entry.visibility is _ARCHIVED and (short := stub(entry.path, text)) != text:
        return short, ""
    content, comment = divided(entry, text)
    if entry.visibility is Visibility.SUMMARIZED:
        return condensed(entry.path, content), condensed(entry.path, comment)
    return content, comment


def _with_text(message: Message, text: str) -> Message:
    """The message with another text; images stay behind it."""
    if text == message.text:
        return message
    return replace(message, parts=(Text(text), *(part for part in message.parts if not isinstance(part, Text))))
