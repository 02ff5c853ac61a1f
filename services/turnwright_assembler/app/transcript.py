"""A turn as a transcript: the run's messages in their order, of which each turn begins with those of the turn before.

It is made anew of the entries each time: they say all of it, and nothing that was said changes. Nothing is demoted.
Source: architecture 4; rows RL01-RL04, RH05; decisions C40-C44.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from msgspec import Struct

from turnwright_assembler.app.packet import short_pieces
from turnwright_assembler.domain.envelope import element, fenced, well_formed
from turnwright_assembler.domain.fixed import EventPart, event_element
from turnwright_assembler.ports import RunReader
from turnwright_assembler.sections.system import SYSTEM_PATH, system_text, tools_text
from turnwright_core.chat.run_message import MessageKind, RunMessage
from turnwright_core.chat.timeline import messages_in, parts_of, run_message
from turnwright_core.chat.transcript import CONVERSATION, encoded, transcript
from turnwright_core.entries import Cursor, Entry
from turnwright_core.errors import Reason, fault
from turnwright_core.packet_digest import packet_digest
from turnwright_core.text import tokens_of
from turnwright_core.wire.command_records import recorded_call


class Transcript(Struct, frozen=True):
    """What a model is sent: roles with their pieces, and the moment that it shows."""

    messages: tuple[tuple[str, Sequence[str]], ...]
    cursor: Cursor
    tokens: int

    @property
    def chars(self) -> int:
        """Code points of all pieces."""
        return sum(len(piece) for _, pieces in self.messages for piece in pieces)

    def digest(self) -> str:
        """SHA-256 over roles and texts, in hexadecimal."""
        return packet_digest(self.messages)


async def read_transcript(reader: RunReader, project: str, run: str, divisor: int) -> Transcript:
    """The transcript of a run as it is now. Raises TurnwrightError."""
    entries: dict[str, Entry] = {}
    cursor = None
    async for part in reader.read_messages(project, run):
        entries |= {entry.path: entry for entry in part.entries}
        cursor = part.cursor
    if cursor is None:
        raise fault(Reason.SERVICE_UNAVAILABLE, "The store's answer ended early; retry.", service="store")
    return compose_transcript(entries, cursor, divisor)


def compose_transcript(entries: dict[str, Entry], cursor: Cursor, divisor: int) -> Transcript:
    """The transcript of these entries."""
    system = entries.pop(SYSTEM_PATH, None)
    attributes = system.attributes_json if system else "{}"
    listed = messages_in(entries.values())
    messages = [run_message(one, _parts(one, entries), None, recorded_call) for one in listed]
    lines = [well_formed(line) for line in encoded(transcript(messages, shown))]
    told: list[tuple[str, Sequence[str]]] = [
        ("system", short_pieces((system_text(attributes),))),
        (CONVERSATION, short_pieces(lines)),
    ]
    if tools := tools_text(attributes):
        told.append(("tools", short_pieces((tools,))))
    chars = sum(len(piece) for _, pieces in told for piece in pieces)
    return Transcript(tuple(told), cursor, tokens_of(chars, divisor))


def _parts(entry: Entry, entries: dict[str, Entry]) -> dict[str, Entry]:
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
