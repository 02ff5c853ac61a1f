"""The events of a run as updates of a session: chunks of text, calls of tools, plans, modes, usage.

Stateful: a call is told once and then updated, a text that was streamed is not told again. Source: rows AP35, AP43,
AG07, AG08.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from turnwright.types.v1 import command_record_pb2, delta_pb2, entry_pb2, settings_pb2, turn_pb2, usage_pb2

from turnwright_acp.editor_tools import RUN
from turnwright_acp.plans import path_in
from turnwright_acp.shapes import SessionUpdate
from turnwright_core.patterns.patch import hunks_of
from turnwright_core.streams import record_of_channel

RESULT_CHARS_MAX: Final = 16_384
"""Characters of a result that an update carries; the rest is in the run."""
OUTPUT_CHARS_MAX: Final = 8192
"""Latest characters of the output of a command that runs, which each update of it carries."""

_KINDS: Final[Mapping[str, str]] = {
    "get": "read",
    "env": "execute",
    "search": "search",
    "skill": "read",
    "think": "think",
    "set": "edit",
    "cp": "edit",
    "mv": "move",
    "rm": "delete",
    "sh": "execute",
    "editor_read": "read",
    "editor_write": "edit",
}
_GOES_ON: Final = "102"
"""What an update says that does not end its task."""
UPDATE: Final = "update"
SILENT_TOOLS: Final = (UPDATE, "set_plan", "update_plan", "get_plan", "think", "ask_user")
"""Tools whose calls are shown as what they say or set, and not as calls."""
_FILE_TOOLS: Final = ("get", "set", "cp", "mv", "rm")
_SPEAKERS: Final = {"prompt": "user_message", "assistant": "agent_message", "reasoning": "agent_thought"}
"""Whose chunks the text of an entry is, by its scheme."""
_ENDED: Final = ("completed", "failed")
_SETTLED: Final = (entry_pb2.STATE_RESOLVED, entry_pb2.STATE_FAILED)
_STATUSES: Final = {
    entry_pb2.STATE_RECORDED: "pending",
    entry_pb2.STATE_PROPOSED: "pending",
    entry_pb2.STATE_STREAMING: "in_progress",
    entry_pb2.STATE_RESOLVED: "completed",
    entry_pb2.STATE_FAILED: "failed",
    entry_pb2.STATE_CANCELLED: "failed",
}


def chunk(kind: str, text: str, message_id: str = "") -> SessionUpdate:
    update: SessionUpdate = {"sessionUpdate": f"{kind}_chunk", "content": {"type": "text", "text": text}}
    return {**update, "messageId": message_id} if message_id else update


class TextUpdates:
    """The messages of a session, by their paths: what was streamed is not told again.

    What was shown of a reply that is given up stays. The one in its place is told from where it goes on, or, if it says
    something else, as a message of its own.
    """

    def __init__(self) -> None:
        self._sent: set[str] = set()
        """Messages that were told whole."""
        self._growing: dict[str, list[str]] = {}
        """Texts of messages that are streaming, in pieces."""
        self._given_up: dict[str, str] = {}
        """Texts that were told before a reply began again, while it has said nothing else."""
        self._begun: Counter[str] = Counter()
        """How often a message was begun anew by another text."""
        self._spoken: set[str] = set()
        """Messages of which something was told."""

    def begin(self, turn: int) -> None:
        """The reply of a turn begins; what was streamed of one before it was given up."""
        shown = {path: "".join(pieces) for path, pieces in self._growing.items()} | self._given_up
        self._given_up = {path: shown[path] for path in (f"assistant://{turn}", f"reasoning://{turn}") if path in shown}
        self._growing.clear()

    def grown(self, turn: int, delta: delta_pb2.Delta) -> Iterator[SessionUpdate]:
        match delta.WhichOneof("change"):
            case "append_content":
                yield from self._grow(f"assistant://{turn}", delta.append_content)
            case "append_reasoning":
                yield from self._grow(f"reasoning://{turn}", delta.append_reasoning)
            case "take_back" if delta.take_back.chars:
                # What was shown cannot be taken back; what follows counts from there.
                path = f"assistant://{turn}"
                self._growing[path] = ["".join(self._growing.get(path, ()))[: -delta.take_back.chars]]

    def to(self, path: str, text: str) -> Iterator[SessionUpdate]:
        """What a text that is streaming adds to what was told of it."""
        before = "".join(self._growing.get(path, ()))
        if path in self._sent:
            return
        if not text.startswith(before):
            self._given_up.setdefault(path, before)
            before = ""
        self._growing[path] = [before]
        if len(text) > len(before):
            yield from self._grow(path, text[len(before) :])

    def whole(self, entry: entry_pb2.Entry) -> Iterator[SessionUpdate]:
        """What a message that is complete adds to what was told of it."""
        if entry.path not in self._sent:
            yield from self.to(entry.path, entry.body)
            self._sent.add(entry.path)
            self._growing.pop(entry.path, None)
            self._given_up.pop(entry.path, None)

    def answer(self, entry: entry_pb2.Entry) -> Iterator[SessionUpdate]:
        """The text of the update that ends a task, behind what the reply has said beside it."""
        if entry.record.tool != UPDATE or entry.state not in _SETTLED or entry.path in self._sent:
            return
        self._sent.add(entry.path)
        status = next((one.value for one in entry.record.command.attributes if one.name == "status"), "")
        if status != _GOES_ON and entry.body:
            space = "\n\n" if f"assistant://{entry.turn}" in self._spoken else ""
            yield chunk("agent_message", space + entry.body, entry.path)

    def _grow(self, path: str, text: str) -> Iterator[SessionUpdate]:
        pieces = self._growing.setdefault(path, [])
        pieces.append(text)
        if (shown := self._given_up.get(path)) is not None:
            now = "".join(pieces)
            if shown.startswith(now):
                return
            del self._given_up[path]
            if now.startswith(shown):
                text = now[len(shown) :]
            else:
                text = now
                self._begun[path] += 1
        self._spoken.add(path)
        message_id = f"{path}#{self._begun[path]}" if self._begun[path] else path
        yield chunk(_SPEAKERS[path.partition(":")[0]], text, message_id)


class CallUpdates:
    """The calls of tools of a session, by the paths of their records."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sent: dict[str, SessionUpdate] = {}
        """Calls as they were told; empty for one that has ended."""
        self._outputs: dict[str, str] = {}
        """Latest output of calls that are under way."""

    def take(self, entry: entry_pb2.Entry) -> Iterator[SessionUpdate]:
        """What is to be told of a record that is new or has changed; nothing for what is no call, or told already."""
        before = self._sent.get(entry.path)
        if not entry.HasField("record") or entry.record.tool in SILENT_TOOLS or before == {}:
            return
        call = self.call_of(entry)
        has_ended = call["status"] in _ENDED
        self._sent[entry.path] = {} if has_ended else call
        if has_ended:
            self._outputs.pop(entry.path, None)
        if before is None:
            yield {"sessionUpdate": "tool_call", **call}
        elif changed := {name: value for name, value in call.items() if before.get(name) != value}:
            yield {"sessionUpdate": "tool_call_update", "toolCallId": entry.path, **changed}

    def grown(self, path: str, text: str) -> Iterator[SessionUpdate]:
        """The latest output of a call that is under way, when a channel of it has grown."""
        channel = record_of_channel(path)
        if channel is not None and self._sent.get(channel[0]):
            record = channel[0]
            output = self._outputs[record] = (self._outputs.get(record, "") + text)[-OUTPUT_CHARS_MAX:]
            yield {"sessionUpdate": "tool_call_update", "toolCallId": record, "content": [_text(output)]}

    def call_of(self, entry: entry_pb2.Entry) -> SessionUpdate:
        record = entry.record
        given = {one.name: one.value for one in record.command.attributes}
        target = str(_attributes(entry).get("target") or given.get("path") or given.get("command") or "")
        status = _STATUSES.get(entry.state, "pending")
        if status == "pending" and record.HasField("dispatched"):
            status = "in_progress"
        call: SessionUpdate = {
            "toolCallId": entry.path,
            "title": " ".join(filter(None, (record.tool, target.partition("\n")[0][:200]))) or "command",
            "kind": _KINDS.get(record.tool, "other"),
            "status": status,
            "rawInput": {**given, "body": record.command.body} if record.command.body else given,
        }
        if locations := self._locations(record, given):
            call["locations"] = locations
        content = list(diffs_of(record, self._root))
        if status in _ENDED:
            text = entry.body[:RESULT_CHARS_MAX]
            call["rawOutput"] = {"text": text, "status": entry.status}
            # A terminal that is shown stays.
            output = [text, self._outputs.get(entry.path, "")] if record.tool != RUN else []
            content += [_text(one) for one in output if one]
        if content:
            call["content"] = content
        return call

    def _locations(self, record: command_record_pb2.CommandRecord, given: Mapping[str, str]) -> list[SessionUpdate]:
        named = [given.get("path", ""), given.get("to", "")] if record.tool in _FILE_TOOLS else []
        return [
            {"path": str(path)} for name in named if name and "://" not in name and (path := path_in(self._root, name))
        ]


def diffs_of(record: command_record_pb2.CommandRecord, root: Path) -> Iterator[SessionUpdate]:
    """What a command changes in files, or has changed, as far as its diffs are kept: an update for each hunk."""
    stages = (record.proposed, record.accepted, record.dispatched)
    edits = next((list(stage.effect.files.edits) for stage in stages if stage.effect.files.edits), ())
    for edit in edits or record.settled.files:
        if path := path_in(root, edit.path):
            with contextlib.suppress(ValueError, IndexError):
                for hunk in hunks_of(edit.patch):
                    old = "".join(hunk.old) if edit.HasField("base_hash") else None
                    yield diff(path, old, "".join(hunk.new))


def diff(path: Path, old: str | None, new: str) -> SessionUpdate:
    """A change of a file. `old` is None for a new file, and where the text before was not kept."""
    made = {"type": "diff", "path": str(path), "newText": new}
    return made if old is None else {**made, "oldText": old}


def _text(text: str) -> SessionUpdate:
    return {"type": "content", "content": {"type": "text", "text": text}}


def usage_update(turn: turn_pb2.Turn, cost_usd: float) -> SessionUpdate | None:
    """How much of the window a turn took; None where nobody knows."""
    usage, size = turn.result.usage, turn.request.context_length
    used = (usage.prompt_tokens or turn.result.packet_tokens) + usage.completion_tokens
    if not used or not size:
        return None
    update: SessionUpdate = {"sessionUpdate": "usage_update", "used": used, "size": size}
    return {**update, "cost": {"amount": cost_usd, "currency": "USD"}} if cost_usd else update


def answered_usage(usage: usage_pb2.Usage) -> SessionUpdate:
    """What a task has used, as the answer to its prompt says it; empty where nobody knows."""
    if not usage.total_tokens:
        return {}
    used = {
        "totalTokens": usage.total_tokens,
        "inputTokens": usage.prompt_tokens,
        "outputTokens": usage.completion_tokens,
        "thoughtTokens": usage.reasoning_tokens,
        "cachedReadTokens": usage.cached_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }
    return {"usage": used}


COMMANDS: Final = {
    "undo": "Take back what the latest turn changed in files.",
    "retry": "Send the latest prompt again, and forget how it was answered; files stay.",
}
"""What a prompt may be instead of a task, with a slash before it."""


def available_commands() -> SessionUpdate:
    offered = [{"name": name, "description": text} for name, text in COMMANDS.items()]
    return {"sessionUpdate": "available_commands_update", "availableCommands": offered}


MODES: Final = {
    "ask": ("Ask", "Answers questions; changes nothing."),
    "act": ("Act", "Works on the project; asks before it changes files or runs commands."),
    "yolo": ("Yolo", "Works on the project without asking."),
}
REASONING: Final = ("default", "off", "low", "medium", "high")


def modes(current: str) -> SessionUpdate:
    offered = [{"id": one, "name": name, "description": text} for one, (name, text) in MODES.items()]
    return {"currentModeId": current, "availableModes": offered}


def config_options(model: str, models: Iterable[str], reasoning: str) -> list[SessionUpdate]:
    """What can be set beside the mode: the model, and how much it reasons."""
    names = sorted({*models, *([model] if model else [])})
    found = [_select("reasoning", "Reasoning", "thought_level", reasoning, REASONING)]
    return [_select("model", "Model", "model", model, names), *found] if names and model else found


def _select(name: str, title: str, category: str, current: str, values: Iterable[str]) -> SessionUpdate:
    options = [{"value": value, "name": value} for value in values]
    return {
        "type": "select",
        "id": name,
        "name": title,
        "category": category,
        "currentValue": current,
        "options": options,
    }


def reasoning_of(word: str) -> settings_pb2.Reasoning:
    if word == "default":
        return settings_pb2.Reasoning()
    return settings_pb2.Reasoning(effort=settings_pb2.ReasoningEffort.Value(f"REASONING_EFFORT_{word.upper()}"))


def _attributes(entry: entry_pb2.Entry) -> Mapping[str, Any]:
    try:
        found = json.loads(entry.attributes_json or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
