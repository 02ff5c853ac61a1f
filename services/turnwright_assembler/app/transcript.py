"""A turn as a transcript: the run's messages in their order, of which each turn begins with those of the turn before.

It is made anew of the entries each time: they say all of it, and nothing that was said changes. Where it does not fit,
messages give way (domain.limit), and that is written down as their visibility: it can be undone, and the next turns
begin with what was sent then.
Source: architecture 4; rows RL02, RL05, RL06, RL08, RL09, RH05; decisions C40-C44.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler.app.packet import short_pieces
from turnwright_assembler.domain.envelope import element, fenced, well_formed
from turnwright_assembler.domain.fixed import EventPart, event_element
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.domain.limit import EXEMPT, TARGET_SHARE, WeighedMessage, limited
from turnwright_assembler.ports import RunReader
from turnwright_assembler.sections.system import SYSTEM_PATH, system_text, tools_text
from turnwright_core.chat.message import Text
from turnwright_core.chat.run_message import MessageKind, RunMessage
from turnwright_core.chat.timeline import kind_of, messages_in, parts_of, run_message
from turnwright_core.chat.transcript import CONVERSATION, encoded, transcript
from turnwright_core.entries import Cursor, Entry, EntryWrite, SetEntry, Tier, Visibility
from turnwright_core.errors import Reason, fault
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import tokens_of
from turnwright_core.wire.command_records import recorded_call

STUB: Final = "This result was left out to save room. `get` of {path} shows it again."
"""What a model reads in the place of a result that has given way."""


class Transcript(Struct, frozen=True):
    """What a model is sent: roles with their pieces, the moment that it shows, and what is to be written with it."""

    messages: tuple[tuple[str, Sequence[str]], ...]
    cursor: Cursor
    tokens: int
    effects: tuple[EntryWrite, ...] = ()

    @property
    def chars(self) -> int:
        """Code points of all pieces."""
        return sum(len(piece) for _, pieces in self.messages for piece in pieces)

    def digest(self) -> str:
        """SHA-256 over roles and texts, in hexadecimal."""
        return packet_digest(self.messages)


async def read_transcript(reader: RunReader, project: str, run: str, divisor: int, budget: TokenBudget) -> Transcript:
    """The transcript of a run as it is now. Raises TurnwrightError."""
    entries: dict[str, Entry] = {}
    cursor = None
    async for part in reader.read_messages(project, run):
        entries |= {entry.path: entry for entry in part.entries}
        cursor = part.cursor
    if cursor is None:
        raise fault(Reason.SERVICE_UNAVAILABLE, "The store's answer ended early; retry.", service="store")
    return fitting_transcript(entries, cursor, divisor, budget)


def fitting_transcript(entries: dict[str, Entry], cursor: Cursor, divisor: int, budget: TokenBudget) -> Transcript:
    """The transcript of these entries, with what gives way where it would not fit; that stays so, by its effects."""
    whole = compose_transcript(entries, cursor, divisor)
    excess = budget.excess(whole.tokens)
    if not excess:
        return whole
    wanted = budget.expected(whole.tokens) - budget.ceiling * TARGET_SHARE
    listed = messages_in(entries.values())
    gone = _gone(listed)
    weighed = [_weighed(one, entries) for one in listed if one.path not in gone]
    gives_way = limited(weighed, round(whole.chars * wanted / budget.expected(whole.tokens)))
    effects = [
        *(_made(path, Visibility.SUMMARIZED) for path in gives_way.stubs),
        *(_made(path, Visibility.ARCHIVED) for path in gives_way.dropped),
    ]
    for effect in effects:
        assert isinstance(effect.change, SetEntry)
        entries[effect.path] = replace(entries[effect.path], visibility=effect.change.visibility)
    return replace(compose_transcript(entries, cursor, divisor), effects=tuple(effects))


def _made(path: str, visibility: Visibility) -> EntryWrite:
    return EntryWrite(path, SetEntry(visibility=visibility), Tier.SYSTEM)


def _weighed(entry: Entry, entries: Mapping[str, Entry]) -> WeighedMessage:
    """A message as it stands in the transcript now."""
    kind = kind_of(entry) or MessageKind.SYNTHETIC
    said = _message(entry, entries)
    chars = sum(map(len, encoded([said.message])))
    freed = chars - sum(map(len, encoded([_stub(entry, said).message]))) if kind is MessageKind.RESULT else 0
    records = tuple(path for path in parts_of(entry) if path in entries and entries[path].scheme == "log")
    read = str(entry.attributes.get("target") or "") if said.message.tool == "get" else ""
    return WeighedMessage(entry.path, kind, chars, max(0, freed), read, records)


def compose_transcript(entries: Mapping[str, Entry], cursor: Cursor, divisor: int) -> Transcript:
    """The transcript of these entries, whether it fits or not."""
    system = entries.get(SYSTEM_PATH)
    attributes = system.attributes_json if system else "{}"
    listed = messages_in(entries.values())
    gone = _gone(listed)
    messages = [_message(one, entries) for one in listed if one.path not in gone]
    lines = [well_formed(line) for line in encoded(transcript(messages, shown))]
    told: list[tuple[str, Sequence[str]]] = [
        ("system", short_pieces((system_text(attributes),))),
        (CONVERSATION, short_pieces(lines)),
    ]
    if tools := tools_text(attributes):
        told.append(("tools", short_pieces((tools,))))
    chars = sum(len(piece) for _, pieces in told for piece in pieces)
    return Transcript(tuple(told), cursor, tokens_of(chars, divisor))


def _gone(listed: Sequence[Entry]) -> frozenset[str]:
    """The messages that were archived: events and plans stand whole, and a result stands as long as its call."""
    replies = (one for one in listed if kind_of(one) is MessageKind.REPLY and one.visibility is not Visibility.ARCHIVED)
    answers = {path for reply in replies for path in parts_of(reply)}
    archived = (one for one in listed if one.visibility is Visibility.ARCHIVED and kind_of(one) not in EXEMPT)
    return frozenset(one.path for one in archived if one.path not in answers)


def _message(entry: Entry, entries: Mapping[str, Entry]) -> RunMessage:
    said = run_message(entry, _parts(entry, entries), None, recorded_call)
    is_stub = said.kind is MessageKind.RESULT and entry.visibility is not Visibility.VISIBLE
    return _stub(entry, said) if is_stub else said


def _stub(entry: Entry, said: RunMessage) -> RunMessage:
    text = (Text(STUB.format(path=entry.path)),)
    return (
        replace(said, message=replace(said.message, parts=text)) if len(said.message.text) > len(text[0].text) else said
    )


def _parts(entry: Entry, entries: Mapping[str, Entry]) -> dict[str, Entry]:
    return {path: entries[path] for path in parts_of(entry) if path in entries}


def shown(message: RunMessage) -> str:
    """In words, what no vendor has a role for: an event, a plan, a result of a tag, an error."""
    said = message.message
    extra = json.loads(said.extra) if said.extra else {}
    if message.kind is MessageKind.EVENT:
        event = extra.get("event") or {}
        part = EventPart(str(event.get("subkind") or ""), str(event.get("source") or ""), event.get("payload"))
        return event_element(message.path, part, said.text)
    body = fenced(message.path, said.text)
    if message.kind is MessageKind.PLAN:
        plan = extra.get("plan") or {}
        told = {name: plan[name] for name in ("plan_id", "version", "sequence", "change") if name in plan}
        return element("plan-update" if "sequence" in plan else "plan", told, body)
    if not body:
        return ""
    if message.kind is MessageKind.RESULT:
        return element("result", {"tool": said.tool, "failed": "true" if said.failed else ""}, body)
    return element("notice", {}, body)
