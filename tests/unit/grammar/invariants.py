"""What holds for every reply, whatever a model wrote; shared by the tests of properties and the fuzzer."""

from __future__ import annotations

from itertools import pairwise

from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reply import Reply
from turnwright_grammar.tools import resolve

from .canonical import is_writable, unplaced, written


def check_reading(text: str) -> Reply:
    """Read a text and hold the reply to everything that is true of all replies."""
    reply = read_reply(text)
    check_spans(text, reply)
    check_narration(text, reply)
    check_commands(reply)
    check_rewriting(reply)
    return reply


def check_spans(text: str, reply: Reply) -> None:
    """Spans lie in the text, in order; only the calls of one payload share a span."""
    for item in (*reply.commands, *reply.warnings):
        assert 0 <= item.span[0] <= item.span[1] <= len(text)
    for earlier, later in pairwise(reply.commands):
        assert earlier.span == later.span or earlier.span[1] <= later.span[0]
    starts = [warning.span for warning in reply.warnings]
    assert starts == sorted(starts)


def check_narration(text: str, reply: Reply) -> None:
    """The narration is taken, in order, from what no command covers."""
    assert reply.narration == reply.narration.strip()
    rest = iter(uncovered(text, reply))
    missing = next((char for char in reply.narration if char not in rest), None)
    assert missing is None, f"{missing!r} is narrated but belongs to a command"


def uncovered(text: str, reply: Reply) -> str:
    """Return the text without the spans of its commands."""
    parts, position = [], 0
    for command in reply.commands:
        parts.append(text[position : command.span[0]])
        position = max(position, command.span[1])
    return "".join((*parts, text[position:]))


def check_commands(reply: Reply) -> None:
    """Commands are resolved, and their bodies are edits or say why not."""
    for command in reply.commands:
        assert command.name
        assert resolve(command) == command
        parse_body(command.body)


def check_rewriting(reply: Reply) -> None:
    """Repairing what was repaired already changes nothing and finds nothing to repair."""
    if not all(map(is_writable, reply.commands)):
        return
    again = read_reply(written(reply.commands))
    assert unplaced(again.commands) == unplaced(reply.commands)
    assert (again.warnings, again.narration) == ((), "")
