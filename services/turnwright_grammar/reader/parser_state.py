"""The state of one parse of a reply, shared by the handlers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from types import MappingProxyType
from typing import Final

from msgspec import UNSET, Struct, field

from turnwright_grammar.dialects import Payload, has_text_before_close
from turnwright_grammar.native import LEFT_OVER, RISKY, command_from_value, tool_name
from turnwright_grammar.reader.bodies import THOUGHT_END, BodyFinder
from turnwright_grammar.reply import COMMANDS_MAX, WARNINGS_MAX, Command, ReadWarning, Span
from turnwright_grammar.scanner import BracketBalance, SearchTrigger, TextScanner

LOOKBACK_CHARS: Final = 4_096
"""Lookbehind of the parser: the file name of a conflict block, the start of a line."""


class DeferredFence(Struct, frozen=True):
    """A fence with only our tags: its commands run if there is no command outside of fences (C25).

    `span` counts in the whole reply; `narration_index` is its place in `narration_parts`.
    """

    commands: list[Command]
    span: Span
    narration_index: int


_CLOSERS = (">", "]", ")", "}")
_FIRED = ("fenced_commands", "Commands in a code fence were run; write them outside.")
_CUT_FENCE = ("cut_reply", "The reply was cut off, so the commands in a code fence were not run; write them outside.")
INERT_FENCE: Final = ("fenced_inert", "Commands in a code fence were not run.")

Savepoint = tuple[int, int, int, int, int, int, str | None, int, "re.Pattern[str] | None", int]


class ParserState(Struct):
    """What was found so far, and what the handlers need to find more.

    `parse` is the parser itself, for nested texts such as fences. `offset` maps spans of a nested text to the outer
    one. `native_calls` counts commands in another notation than our tags. `fence` matches the end of the fence with
    conflict blocks that the parser is in; `path` is the file of the last such block, which ended at `path_end`.
    `thought_ends` are the closes of thoughts that were never opened, in the whole reply; `is_code`: this text is of a
    fence, where they mean nothing. `is_stopped`: nobody waits for the result any more. `cut_at` is where the first
    unterminated construct of a truncated reply begins; of a list, the complete calls end at `complete_commands`.

    A handler that needs more lookahead calls `needs_more`. The parser then rolls back to before the handler and stops
    there until new text contains `resume_on`.
    """

    scanner: TextScanner
    tools: frozenset[str]
    parse: Callable[[ParserState], None]
    commands_max: int = COMMANDS_MAX
    offset: int = 0
    depth: int = 0
    position: int = 0
    is_waiting: bool = False
    resume_on: SearchTrigger | BracketBalance | None = None
    commands: list[Command] = field(default_factory=list)
    warnings: list[ReadWarning] = field(default_factory=list)
    narration_parts: list[str] = field(default_factory=list)
    narration_spans: list[Span] = field(default_factory=list)
    narrated_to: int = 0
    deferred: list[DeferredFence] = field(default_factory=list)
    native_calls: int = 0
    fence: re.Pattern[str] | None = None
    thought_ends: list[Span] = field(default_factory=list)
    is_code: bool = False
    is_stopped: Callable[[], bool] = bool
    path: str | None = None
    path_end: int = 0
    cut_at: int = -1
    complete_commands: int = 0
    bodies: BodyFinder = UNSET  # type: ignore[assignment] # __post_init__ sets it

    def __post_init__(self) -> None:
        self.bodies = BodyFinder(self.scanner, self.tools)

    @property
    def is_full(self) -> bool:
        """Whether the cap is exceeded, so that further commands need not be built."""
        return len(self.commands) > self.commands_max

    @property
    def has_called(self) -> bool:
        """Whether there was a command other than `think`."""
        # Bounded, because it is asked at many lines: a reply may consist of `think` alone.
        return any(command.name != "think" for command in islice(self.commands, COMMANDS_MAX))

    @property
    def text(self) -> str:
        """The text received so far, without what the parser no longer needs."""
        return self.scanner.text

    def needs_more(self, resume_on: SearchTrigger | BracketBalance | None = None) -> bool:
        """Ask for more lookahead; False at the end of the text: then the handler has to decide.

        `resume_on` is what new text must contain, or the brackets that it must close; None: any text will do.
        """
        if self.scanner.final:
            return False
        self.is_waiting, self.resume_on = True, resume_on
        return True

    def savepoint(self) -> Savepoint:
        return (
            len(self.commands),
            len(self.warnings),
            len(self.narration_parts),
            self.narrated_to,
            len(self.deferred),
            self.native_calls,
            self.path,
            self.path_end,
            self.fence,
            self.scanner.spent_chars,
        )

    def rollback(self, mark: Savepoint) -> None:
        """Undo everything since the savepoint."""
        commands, warnings, parts, self.narrated_to, deferred, self.native_calls, *rest = mark
        self.path, self.path_end, self.fence, self.scanner.spent_chars = rest  # type: ignore[assignment]
        del self.commands[commands:], self.warnings[warnings:], self.deferred[deferred:]
        del self.narration_parts[parts:], self.narration_spans[parts:]

    def extend(self, more: str, *, final: bool = False) -> int:
        """Append text, and drop text that is out of the parser's lookbehind.

        Returns how many characters were dropped; all offsets are smaller by that number.
        """
        text = self.scanner.text + more if more else self.scanner.text
        passed = self.position - LOOKBACK_CHARS
        if passed <= LOOKBACK_CHARS or final:
            self.scanner.replace_text(text, final=final)
            return 0
        self.skip(passed, passed)
        self.offset += passed
        self.position -= passed
        self.narrated_to -= passed
        self.path_end -= passed
        self.scanner.replace_text(text[passed:], final=False, dropped=passed)
        return passed

    def skip(self, start: int, end: int) -> None:
        """Leave a part of the text out of the narration."""
        if start > self.narrated_to:
            self._narrate(self.narrated_to, start)
        self.narrated_to = max(self.narrated_to, end)

    def _narrate(self, start: int, end: int) -> None:
        self.narration_parts.append(self.text[start:end])
        self.narration_spans.append(self.outer_span((start, end)))

    def narration(self) -> tuple[str, tuple[Span, ...]]:
        """The text up to `position` without commands, without blanks around it, and where it stands in the reply."""
        self.skip(self.position, self.position)
        whole = "".join(self.narration_parts)
        text = whole.strip()
        begin = len(whole) - len(whole.lstrip())
        return text, _within(self.narration_spans, begin, begin + len(text))

    def outer_span(self, span: Span) -> Span:
        return span[0] + self.offset, span[1] + self.offset

    def warn(self, kind: str, message: str, span: Span, ignored: int = 0, *, lost: tuple[Command, ...] = ()) -> None:
        """Add a warning; dropped far beyond the cap."""
        if len(self.warnings) < 2 * WARNINGS_MAX:
            self.warnings.append(ReadWarning(kind, message, self.outer_span(span), ignored, lost))

    def end_thought(self, start: int, end: int) -> int:
        """Handle the close of a thought that was never opened: what was found before it is reasoning. Source: C59."""
        self.skip(start, end)
        if self.is_code:
            return end
        self.thought_ends.append(self.outer_span((start, end)))
        self.commands.clear()
        self.warnings.clear()
        self.deferred.clear()
        self.native_calls, self.path, self.fence, self.complete_commands = 0, None, None, 0
        return end

    def end_thought_within(self, start: int, end: int) -> int | None:
        """Handle closes of thoughts in a part of the text that is not closed; the offset behind the last, or None."""
        position = None
        while not self.is_code and (found := self.scanner.search(THOUGHT_END, start)) and found.end() <= end:
            start = position = self.end_thought(*found.span())
        return position

    def adopt_thought_ends(self, inner: ParserState) -> int | None:
        """Handle the closes that a nested parse has found; the offset behind the last, or None."""
        position = None
        for start, end in inner.thought_ends:
            position = self.end_thought(start - self.offset, end - self.offset)
        return position

    def defer(self, commands: list[Command], span: Span) -> None:
        """Keep the commands of a fence until it is known whether there are commands outside of fences."""
        self.skip(*span)
        self.deferred.append(DeferredFence(commands, self.outer_span(span), len(self.narration_parts)))
        self._narrate(*span)

    def warn_inert(self, start: int, end: int, where: str) -> None:
        """Warn if a command stands between two offsets, where it is not run."""
        if self.bodies.any_tool.search(self.text, start, end):
            self.warn("inert_code", f"A command inside {where} was not run.", (start, end))

    def add(self, name: str, attributes: dict[str, str], body: str, span: Span) -> None:
        """Add a canonical command; `span` counts in this text."""
        self.commands.append(
            Command(name, MappingProxyType(attributes), body, self.outer_span(span), name in self.tools)
        )

    def add_calls(self, payload: Payload, span: Span) -> int:
        """Add the calls of a payload; the offset to continue at."""
        is_open = payload.repaired and not self.text.endswith(_CLOSERS, *span)
        if is_open and (after := self.end_thought_within(*span)) is not None:
            return after
        if payload.repaired:
            self.warn("repaired_call", "The arguments of a call were malformed and repaired.", span)
        is_over = self.is_risky(payload) and (
            payload.over or has_text_before_close(self.scanner, span[1], repaired=payload.repaired)
        )
        for name, arguments in payload.calls:
            command = command_from_value(name, arguments, self.outer_span(span), self.tools)
            if is_over and command.name in RISKY:
                self.warn("arguments_left_over", LEFT_OVER.format(name=command.name), span, lost=(command,))
            elif command.name:
                self.commands.append(command)
                self.native_calls += 1
            else:
                self.warn("unreadable_call", "A tool call without a name was not run.", span)
        self.skip(*span)
        return span[1]

    def add_complete_calls(self, payload: Payload, span: Span) -> None:
        """Add the calls before the truncated one."""
        if not payload.whole:
            return
        is_first = span[0] <= self.cut_at <= span[1]
        self.add_calls(Payload(payload.end, payload.calls[: payload.whole]), span)
        if is_first:
            self.complete_commands = len(self.commands)

    def is_risky(self, payload: Payload) -> bool:
        """Whether one of the calls must not run with arguments that may be incomplete."""
        return any(tool_name(name, self.tools) in RISKY for name, _ in payload.calls)

    def parse_nested(self, content: str, start: int, *, is_code: bool = False) -> ParserState:
        """Parse a part of the text that begins at `start` by itself."""
        offset, depth = self.offset + start, self.depth + 1
        inner = ParserState(TextScanner(content), self.tools, self.parse, self.commands_max, offset, depth)
        inner.is_code, inner.is_stopped = is_code or self.is_code, self.is_stopped
        inner.parse(inner)
        return inner

    def merge(self, inner: ParserState) -> None:
        """Add what a nested parse found."""
        self.commands.extend(inner.commands)
        self.warnings.extend(inner.warnings[:WARNINGS_MAX])
        self.native_calls += inner.native_calls

    def resolve_fences(self, *, is_cut: bool = False) -> None:
        """Add the commands of fences if there are no others, else warn that they were not run (C25).

        Not if the reply was truncated: commands outside of fences might have followed.
        """
        fire = not (self.commands or is_cut)
        kind, message = _FIRED if fire else _CUT_FENCE if is_cut else INERT_FENCE
        for fenced in self.deferred:
            if fire:
                self.commands.extend(fenced.commands)
                self.narration_parts[fenced.narration_index] = ""
                self.narration_spans[fenced.narration_index] = (0, 0)
            ignored = 0 if fire or is_cut else len(fenced.commands)
            self.warnings.append(ReadWarning(kind, message, fenced.span, ignored))


def _within(spans: Iterable[Span], begin: int, end: int) -> tuple[Span, ...]:
    """The spans that cover this part of the text which they make together; neighbours are one."""
    found: list[Span] = []
    passed = 0
    for first, last in spans:
        start, stop = max(first, first + begin - passed), min(last, first + end - passed)
        passed += last - first
        if start < stop:
            if found and found[-1][1] == start:
                start = found.pop()[0]
            found.append((start, stop))
    return tuple(found)
