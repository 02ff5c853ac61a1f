"""The state of one walk over a reply, shared by the handlers."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, Struct, field

from turnwright_grammar.dialects import Payload, has_text_before_close
from turnwright_grammar.find import Balance, Finder, SearchTrigger
from turnwright_grammar.native import LEFT_OVER, RISKY, command_from_value, tool_name
from turnwright_grammar.reader.bodies import Bodies
from turnwright_grammar.reply import COMMANDS_MAX, WARNINGS_MAX, Command, ReadWarning, Span

LOOKBACK_CHARS: Final = 4_096
"""How far behind its position a walk may look: the name of a conflict block's file, the start of a line."""


class Fenced(Struct, frozen=True):
    """A fence that held only our tags: it fires if nothing outside does (C25).

    `span` counts in the whole reply; `said` is its place among the pieces of the narration.
    """

    commands: list[Command]
    span: Span
    said: int


_FIRED = ("fenced_commands", "Commands in a code fence were run; write them outside.")
_CUT_FENCE = ("cut_reply", "The reply was cut off, so the commands in a code fence were not run; write them outside.")
_INERT = ("fenced_inert", "Commands in a code fence were not run.")

Mark = tuple[int, int, int, int, int, int, str | None, int, "re.Pattern[str] | None", int]


class Reading(Struct):
    """What was found so far, and what the handlers need to find more.

    `position` is where the walk stands. `walk` reads a whole reading; it is given here so that a fence
    can be read like a reply. `offset` maps spans of this text to the outer one. `natives` counts the
    commands that came in another notation than our tags. `fence` is the end of a fence that holds
    conflict blocks, while the walk is inside it; `path` is the file of the last such block, which ended at `path_end`.
    `cut_at` is the first thing without an end in a reply that was cut; if it is a list, its complete calls end at
    `whole_to`.

    A handler that would need more text to be sure calls `wait`; the walk then takes back what the
    handler did and stops before its trigger, until more text has come. `wake` is what must come.
    """

    finder: Finder
    tools: frozenset[str]
    walk: Callable[[Reading], None]
    commands_max: int = COMMANDS_MAX
    offset: int = 0
    depth: int = 0
    position: int = 0
    waiting: bool = False
    wake: SearchTrigger | Balance | None = None
    commands: list[Command] = field(default_factory=list)
    warnings: list[ReadWarning] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    said_to: int = 0
    deferred: list[Fenced] = field(default_factory=list)
    natives: int = 0
    fence: re.Pattern[str] | None = None
    path: str | None = None
    path_end: int = 0
    cut_at: int = -1
    whole_to: int = 0
    bodies: Bodies = UNSET  # type: ignore[assignment] # __post_init__ sets it

    def __post_init__(self) -> None:
        self.bodies = Bodies(self.finder, self.tools)

    @property
    def is_full(self) -> bool:
        """Whether further commands need not be built: the warning names only the first over the cap."""
        return len(self.commands) > self.commands_max

    @property
    def has_called(self) -> bool:
        """Whether there was a call that waits for an answer."""
        # A reply of thoughts alone is not looked at from its begin on at every line; later commands are dropped.
        return any(command.name != "think" for command in islice(self.commands, COMMANDS_MAX))

    @property
    def text(self) -> str:
        """The text as far as it has come, without what was dropped behind the walk."""
        return self.finder.text

    def wait(self, wake: SearchTrigger | Balance | None = None) -> bool:
        """Ask for more text; False when there is none to come and the handler has to decide.

        `wake` is a sign without which more text would not help, or the brackets that have to close; None
        wakes at any text.
        """
        if self.finder.final:
            return False
        self.waiting, self.wake = True, wake
        return True

    def mark(self) -> Mark:
        """Return what `reset` needs to take back everything that happens from here on."""
        return (
            len(self.commands),
            len(self.warnings),
            len(self.said),
            self.said_to,
            len(self.deferred),
            self.natives,
            self.path,
            self.path_end,
            self.fence,
            self.finder.budget_chars,
        )

    def reset(self, mark: Mark) -> None:
        """Take back what happened since `mark`."""
        commands, warnings, said, self.said_to, deferred, self.natives, *rest = mark
        self.path, self.path_end, self.fence, self.finder.budget_chars = rest  # type: ignore[assignment]
        del self.commands[commands:], self.warnings[warnings:], self.said[said:], self.deferred[deferred:]

    def extend(self, more: str, *, final: bool = False) -> int:
        """Append text, and drop what lies so far behind the walk that nobody looks at it again.

        Returns how many characters were dropped; offsets into the text have shrunk by as much.
        """
        text = self.finder.text + more if more else self.finder.text
        passed = self.position - LOOKBACK_CHARS
        if passed <= LOOKBACK_CHARS or final:
            self.finder.replace_text(text, final=final)
            return 0
        self.drop(passed, passed)
        self.offset += passed
        self.position -= passed
        self.said_to -= passed
        self.path_end -= passed
        self.finder.replace_text(text[passed:], final=False)
        return passed

    def drop(self, start: int, end: int) -> None:
        """Leave a part of the text out of the narration; what lies before it is said."""
        if start > self.said_to:
            self.said.append(self.text[self.said_to : start])
        self.said_to = max(self.said_to, end)

    def narration(self) -> str:
        """Return everything that was said so far, up to `position`."""
        return "".join((*self.said, self.text[self.said_to : self.position]))

    def outer(self, span: Span) -> Span:
        return span[0] + self.offset, span[1] + self.offset

    def warn(self, kind: str, message: str, span: Span) -> None:
        """Note a repair or a refusal; far beyond the cap nothing more is kept."""
        if len(self.warnings) < 2 * WARNINGS_MAX:
            self.warnings.append(ReadWarning(kind, message, self.outer(span)))

    def defer(self, commands: list[Command], span: Span) -> None:
        """Keep the commands of a fence until it is known whether anything outside of it is called."""
        self.drop(*span)
        self.deferred.append(Fenced(commands, self.outer(span), len(self.said)))
        self.said.append(self.text[slice(*span)])

    def warn_inert(self, start: int, end: int, where: str) -> None:
        """Say that a command between two offsets was not run, if there is one."""
        if self.bodies.any_tool.search(self.text, start, end):
            self.warn("inert_code", f"A command inside {where} was not run.", (start, end))

    def add(self, name: str, attributes: dict[str, str], body: str, span: Span) -> None:
        """Keep a command that is canonical already; its span counts in this reading's text."""
        self.commands.append(Command(name, MappingProxyType(attributes), body, self.outer(span), name in self.tools))

    def take(self, payload: Payload, span: Span) -> None:
        """Keep the calls of a vendor's payload."""
        if payload.repaired:
            self.warn("repaired_call", "The arguments of a call were malformed and repaired.", span)
        is_over = self.is_risky(payload) and (
            payload.over or has_text_before_close(self.finder, span[1], repaired=payload.repaired)
        )
        for name, arguments in payload.calls:
            command = command_from_value(name, arguments, self.outer(span), self.tools)
            if is_over and command.name in RISKY:
                self.warn("arguments_left_over", LEFT_OVER.format(name=command.name), span)
            elif command.name:
                self.commands.append(command)
                self.natives += 1
            else:
                self.warn("unreadable_call", "A tool call without a name was not run.", span)
        self.drop(*span)

    def take_whole(self, payload: Payload, span: Span) -> None:
        """Keep the calls that come before the one that the end of the text cuts off."""
        if not payload.whole:
            return
        is_first = span[0] <= self.cut_at <= span[1]
        self.take(Payload(payload.end, payload.calls[: payload.whole]), span)
        if is_first:
            self.whole_to = len(self.commands)

    def is_risky(self, payload: Payload) -> bool:
        """Whether a call is among them that must not run with arguments that may be incomplete."""
        return any(tool_name(name, self.tools) in RISKY for name, _ in payload.calls)

    def nested(self, content: str, start: int) -> Reading:
        """Return a part of the text, which begins at `start`, read on its own."""
        inner = Reading(Finder(content), self.tools, self.walk, self.commands_max, self.offset + start, self.depth + 1)
        inner.walk(inner)
        return inner

    def adopt(self, inner: Reading) -> None:
        """Keep what a nested reading found."""
        self.commands.extend(inner.commands)
        self.warnings.extend(inner.warnings[:WARNINGS_MAX])
        self.natives += inner.natives

    def conclude(self, *, is_cut: bool = False) -> None:
        """Run fenced tags if nothing else was called, else say that they were not run (C25).

        Where the reply was cut, nobody knows what else was going to be called.
        """
        fire = not (self.commands or is_cut)
        kind, message = _FIRED if fire else _CUT_FENCE if is_cut else _INERT
        for fenced in self.deferred:
            if fire:
                self.commands.extend(fenced.commands)
                self.said[fenced.said] = ""
            self.warnings.append(ReadWarning(kind, message, fenced.span))
