"""What no vendor has a role for, as text: events, plans, results of tags, errors."""

from __future__ import annotations

import json

from turnwright_values.types import MessageKind, RunMessage

from turnwright_assembler.domain.envelope import element
from turnwright_assembler.domain.fixed import EventPart, event_element
from turnwright_assembler.domain.framing import framed_result
from turnwright_core.events import COMPRESSION_SOURCE, Subkind


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
