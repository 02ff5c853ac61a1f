"""One line for the record of a command: what it was, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from rich.text import Text
from turnwright.types.v1 import entry_pb2, loop_pb2
from turnwright_values.types import State

from turnwright_cli.exit_codes import DONE, EXIT_OF_LOOP, FAILED
from turnwright_cli.plain import safe_line
from turnwright_cli.status_words import (
    is_undone,
    reason_sentence,
    reason_word,
    seconds_words,
    turns_words,
    usage_words,
    went_well,
)
from turnwright_core.errors import Reason
from turnwright_core.json_text import JsonMapping, json_object
from turnwright_core.runs import COMPLETED, STATUSES, TERMINAL_UPDATES

BODY_CHARS: Final = 100
TARGET_CHARS: Final = 80

SETTLED: Final[Mapping[int, tuple[str, str, str]]] = {
    State.RESOLVED: ("✓", "ok", "green"),
    State.FAILED: ("✗", "failed", "red"),
    State.CANCELLED: ("⊘", "cancelled", "yellow"),
}
"""Icon, word for terminals without icons, and style of each final state."""
_SILENT_TOOLS: Final = ("set_plan", "update_plan", "think")
"""Tools whose success says nothing: plans are shown as they change, and a thought was read."""
_REJECTED: Final = "rejected"
_RUN: Final = re.compile(r"^ran '.*', (?=exit=|stopped )|, Output: .*$")
"""What the result of a shell command says besides its exit code, or why it was stopped."""
_OPEN: Final = ("…", "open", "yellow")


def session_line(entry: entry_pb2.Entry, *, icons: bool) -> Text | None:
    """The line of a command in a session; None if something else says it: a plan, or the end of the loop.

    It has no codes, an update is what it says, and the output of a command was shown when it came.
    """
    attributes = attributes_of(entry)
    tool = _tool(entry, attributes)
    if State(entry.state) is State.RESOLVED:
        if tool == "update":
            body = safe_line(entry.body, BODY_CHARS)
            return Text(f"  {body}", style="dim") if body and not is_last_update(entry) else None
        if tool in _SILENT_TOOLS:
            return None
    elif ends_loop(entry):
        return None
    line = _command(entry, attributes, icons=icons)
    body = _result_line(entry)
    if body == attributes.get("target"):
        body = ""
    word = _outcome(entry)
    if word == _REJECTED:
        body = f"{word}: {body}" if body and body != "Rejected." else word
    if body or word:
        line.append(f"  {body or word}", "dim")
    return line


def record_line(entry: entry_pb2.Entry, *, icons: bool) -> Text:
    attributes = attributes_of(entry)
    line = _command(entry, attributes, icons=icons)
    words = filter(None, (str(_status(entry, attributes)), _outcome(entry)))
    line.append(f" {' '.join(words)}", SETTLED.get(entry.state, _OPEN)[2])
    if body := _result_line(entry):
        line.append(f"  {body}", "dim")
    return line


def _command(entry: entry_pb2.Entry, attributes: JsonMapping, *, icons: bool) -> Text:
    icon, word, style = SETTLED.get(entry.state, _OPEN)
    target = safe_line(str(attributes.get("target") or ""), TARGET_CHARS)
    tool = f" {_tool(entry, attributes)}"
    return Text.assemble("  ", (icon if icons else word, style), (tool, "bold"), f" {target}" if target else "")


def _result_line(entry: entry_pb2.Entry) -> str:
    """The beginning of the result, without what the line says anyway."""
    target = str(attributes_of(entry).get("target") or "")
    return safe_line(_RUN.sub("", entry.body.partition("\n")[0]).removeprefix(f"edit {target} "), BODY_CHARS)


def _outcome(entry: entry_pb2.Entry) -> str:
    return safe_line(entry.outcome.removesuffix(f":{entry.status}"))


def ends_loop(entry: entry_pb2.Entry) -> bool:
    """Whether it is the error that ends the loop: the end shows it in full."""
    word = entry.outcome.partition(":")[0].upper()
    return entry.path.partition("/error/")[1] != "" and word in Reason.__members__


def is_last_update(entry: entry_pb2.Entry) -> bool:
    """Whether it is an update that ends the loop: the end says what it says."""
    attributes = attributes_of(entry)
    return attributes.get("tool") == "update" and attributes.get("status") in TERMINAL_UPDATES


def _status(entry: entry_pb2.Entry, attributes: JsonMapping) -> int:
    """The status; of an accepted update the one that the model gave: 102 goes on, which is no success."""
    status = attributes.get("status")
    if State(entry.state) is State.RESOLVED and attributes.get("tool") == "update" and isinstance(status, int):
        return status
    return entry.status


def attributes_of(entry: entry_pb2.Entry) -> JsonMapping:
    """The attributes of an entry; empty if they cannot be read."""
    return json_object(entry.attributes_json or "{}") or {}


def _tool(entry: entry_pb2.Entry, attributes: JsonMapping) -> str:
    return safe_line(str(attributes.get("tool") or [*entry.path.split("/"), "", "", "", ""][3]))


_STYLES: Final = {DONE: "bold green", FAILED: "bold red"}
"""By exit code; all others are a warning."""


def end_line(loop: loop_pb2.Loop, strikes: int = 0) -> Text:
    """How a loop ended, for people. `strikes`: failed turns in a row at its end, as far as they were seen."""
    if reason_word(loop.reason) == "strikes" and strikes > 1:
        return Text.assemble((f"Stopped after {strikes} failed turns in a row", "bold yellow"), (" (strikes).", "dim"))
    words = STATUSES[loop.status].sentence if loop.status in STATUSES else f"Ended with {loop.status}"
    style = _STYLES.get(EXIT_OF_LOOP.get(loop.status, FAILED), "bold yellow")
    if loop.status == COMPLETED and not went_well(loop):
        style = "bold yellow"
    if is_undone(loop):
        words = "Not done"
    sentence = reason_sentence(loop.reason)
    reason = f" ({loop.status} {reason_word(loop.reason)})" if loop.reason else f" ({loop.status})"
    return Text.assemble((f"{words}: {sentence}" if sentence else words, style), (reason, "dim"))


def figures_line(loop: loop_pb2.Loop, *names: str, icons: bool) -> Text:
    parts = [*names, turns_words(loop.turns), *usage_words(loop.usage), *seconds_words(loop)]
    return Text((" · " if icons else ", ").join(parts), style="dim")
