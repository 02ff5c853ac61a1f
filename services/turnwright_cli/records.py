"""One line for the record of a command: what it was, and how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from rich.text import Text
from turnwright.types.v1 import entry_pb2

from turnwright_cli.plain import safe_line
from turnwright_core.entries import State
from turnwright_core.errors import Reason
from turnwright_core.runs import TERMINAL_UPDATES

BODY_CHARS: Final = 100
TARGET_CHARS: Final = 80

SETTLED: Final[Mapping[int, tuple[str, str, str]]] = {
    State.RESOLVED: ("✓", "ok", "green"),
    State.FAILED: ("✗", "failed", "red"),
    State.CANCELLED: ("⊘", "cancelled", "yellow"),
}
"""Icon, word for terminals without icons, and style of each final state."""
_PLAN_TOOLS: Final = ("set_plan", "update_plan")
_RUN: Final = re.compile(r"^ran '.*', (?=exit=)|, Output: .*$")
"""What the result of a shell command says besides its exit code."""
_OPEN: Final = ("…", "open", "yellow")


def session_line(entry: entry_pb2.Entry, *, icons: bool) -> Text | None:
    """The line of a command in a session; None if something else says it: a plan, or the end of the loop.

    Success has no status, an update is what it says, and the output of a command was shown when it came.
    """
    attributes = attributes_of(entry)
    tool = _tool(entry, attributes)
    if State(entry.state) is not State.RESOLVED:
        return None if ends_loop(entry) else record_line(entry, icons=icons)
    if tool == "update":
        body = safe_line(entry.body, BODY_CHARS)
        return Text(f"  {body}", style="dim") if body and not is_last_update(entry) else None
    if tool in _PLAN_TOOLS:
        return None
    icon, word, style = SETTLED[State.RESOLVED]
    target = safe_line(str(attributes.get("target") or ""), TARGET_CHARS)
    line = Text.assemble("  ", (icon if icons else word, style), (f" {tool}", "bold"), f" {target}" if target else "")
    if body := safe_line(_RUN.sub("", entry.body.partition("\n")[0]), BODY_CHARS):
        line.append(f"  {body}", "dim")
    return line


def record_line(entry: entry_pb2.Entry, *, icons: bool) -> Text:
    """Tool, target, status, and the beginning of the result."""
    icon, word, style = SETTLED.get(entry.state, _OPEN)
    attributes = attributes_of(entry)
    line = Text.assemble("  ", (icon if icons else word, style), (f" {_tool(entry, attributes)}", "bold"))
    if target := safe_line(str(attributes.get("target") or ""), TARGET_CHARS):
        line.append(f" {target}")
    line.append(f" {_status(entry, attributes)}", style)
    if entry.outcome:
        line.append(f" {safe_line(entry.outcome)}", style)
    if body := safe_line(entry.body.partition("\n")[0], BODY_CHARS):
        line.append(f"  {body}", "dim")
    return line


def ends_loop(entry: entry_pb2.Entry) -> bool:
    """Whether it is the error that ends the loop: the end shows it in full."""
    word = entry.outcome.partition(":")[0].upper()
    return entry.path.partition("/error/")[1] != "" and word in Reason.__members__


def is_last_update(entry: entry_pb2.Entry) -> bool:
    """Whether it is an update that ends the loop: the end says what it says."""
    attributes = attributes_of(entry)
    return attributes.get("tool") == "update" and attributes.get("status") in TERMINAL_UPDATES


def _status(entry: entry_pb2.Entry, attributes: Mapping[str, Any]) -> int:
    """The status; of an accepted update the one that the model gave: 102 goes on, which is no success."""
    status = attributes.get("status")
    if State(entry.state) is State.RESOLVED and attributes.get("tool") == "update" and isinstance(status, int):
        return status
    return entry.status


def attributes_of(entry: entry_pb2.Entry) -> Mapping[str, Any]:
    """The attributes of an entry; empty if they cannot be read."""
    try:
        found = json.loads(entry.attributes_json or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tool(entry: entry_pb2.Entry, attributes: Mapping[str, Any]) -> str:
    """The name of the tool, from the attributes, or else from the path."""
    return safe_line(str(attributes.get("tool") or [*entry.path.split("/"), "", "", "", ""][3]))
