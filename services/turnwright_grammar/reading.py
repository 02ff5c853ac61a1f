"""The state of one walk over a reply, shared by the handlers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from turnwright_grammar.dialects import Payload
from turnwright_grammar.find import Finder
from turnwright_grammar.native import command_from_value
from turnwright_grammar.pairing import Pairing
from turnwright_grammar.reply import WARNINGS_MAX, Command, ReadWarning, Span
from turnwright_grammar.tags import lex_tags


@dataclass(slots=True)
class Fenced:
    """A fence that held only our tags: it fires if nothing outside does (C25)."""

    commands: list[Command]
    span: Span


@dataclass(slots=True)
class Reading:
    """What was found so far, and what the handlers need to find more.

    `walk` reads a whole reading; it is given here so that a fence can be read like a reply. `offset`
    maps spans of a nested reading to the outer text. `natives` counts the commands that came in
    another notation than our tags. `fence` is the end of a fence that holds conflict blocks, while
    the walk is inside it; `path` is the file that the last conflict block named.
    """

    text: str
    tools: frozenset[str]
    walk: Callable[[Reading], None]
    offset: int = 0
    depth: int = 0
    finder: Finder = field(init=False)
    pairing: Pairing = field(init=False)
    commands: list[Command] = field(default_factory=list)
    warnings: list[ReadWarning] = field(default_factory=list)
    narration: list[str] = field(default_factory=list)
    deferred: list[Fenced] = field(default_factory=list)
    natives: int = 0
    fence: re.Pattern[str] | None = None
    path: str | None = None
    foreign_tried: int = 0

    def __post_init__(self) -> None:
        self.finder = Finder(self.text)
        self.pairing = Pairing(self.text, lex_tags(self.text, self.tools))

    def warn(self, kind: str, message: str, span: Span) -> None:
        """Note a repair or a refusal; far beyond the cap nothing more is kept."""
        if len(self.warnings) < 2 * WARNINGS_MAX:
            start, end = span
            self.warnings.append(ReadWarning(kind, message, (start + self.offset, end + self.offset)))

    def warn_inert(self, start: int, end: int, where: str) -> None:
        """Say that a command between two offsets was not run, if there is one."""
        position = self.text.find("<", start, end)
        while position >= 0:
            if position in self.pairing.index_at:
                self.warn("inert_code", f"A command inside {where} was not run.", (start, end))
                return
            position = self.text.find("<", position + 1, end)

    def narrate(self, found: re.Match[str]) -> int:
        """Keep a trigger as text and return where it ends."""
        self.narration.append(found[0])
        return found.end()

    def add(self, command: Command) -> None:
        """Keep a command whose span counts in this reading's text."""
        start, end = command.span
        self.commands.append(replace(command, span=(start + self.offset, end + self.offset)))

    def take(self, payload: Payload, span: Span) -> None:
        """Keep the calls of a vendor's payload."""
        if payload.repaired:
            self.warn("repaired_call", "The arguments of a call were malformed and repaired.", span)
        for name, arguments in payload.calls:
            self.add(command_from_value(name, arguments, span, self.tools))
            self.natives += 1

    def nested(self, content: str, start: int) -> Reading:
        """Return a part of the text, which begins at `start`, read on its own."""
        inner = Reading(content, self.tools, self.walk, self.offset + start, self.depth + 1)
        inner.walk(inner)
        return inner

    def adopt(self, inner: Reading) -> None:
        """Keep what a nested reading found."""
        self.commands.extend(inner.commands)
        self.warnings.extend(inner.warnings[:WARNINGS_MAX])
        self.natives += inner.natives

    def fire_deferred(self) -> None:
        """Run fenced tags if nothing else was called, else say that they were not run (C25)."""
        fire = not self.commands
        for fenced in self.deferred:
            if fire:
                self.commands.extend(fenced.commands)
                self.warn("fenced_commands", "Commands in a code fence were run; write them outside.", fenced.span)
            else:
                self.warn("fenced_inert", "Commands in a code fence were not run.", fenced.span)
