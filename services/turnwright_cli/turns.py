"""The turns of a run that are over or open: what each cost, what the model wrote, and how every command ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.text import Text
from turnwright.executor.v1 import query_pb2
from turnwright.types.v1 import entry_pb2, turn_pb2

from turnwright_cli.output import put
from turnwright_cli.plain import safe_line
from turnwright_cli.records import record_line
from turnwright_cli.render import turn_words

RECORDS: Final = "log://**"
"""Pattern of the records of commands."""


def show_turns(out: Console, answer: query_pb2.GetRunResponse, entries: Iterable[entry_pb2.Entry]) -> None:
    """Print the turns of an answer, oldest first, each with the records in it."""
    icons = "utf" in (out.encoding or "").lower()
    records = sorted(entries, key=lambda entry: entry.position)
    oldest = answer.turns[-1].number if answer.turns else 0
    if oldest > 1 and not answer.run.HasField("forked_from"):
        put(out, Text(f"({oldest - 1} earlier turns are not shown)", style="dim"))
    for turn in reversed(answer.turns):
        put(out, Text(_title(turn), style="bold"))
        for entry in records:
            if entry.turn == turn.number:
                put(out, record_line(entry, icons=icons))


def _title(turn: turn_pb2.Turn) -> str:
    parts = [safe_line(turn.request.model)]
    if turn.HasField("result"):
        reason = f" {safe_line(turn.result.reason)}" if turn.result.reason else ""
        parts += [*turn_words(turn), f"{turn.result.status}{reason}"]
    else:
        parts.append("open")
    return f"turn {turn.number}: {', '.join(parts)}"
