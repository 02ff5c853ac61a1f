"""Incremental parsing of a reply while it is streamed.

The parser stops before a trigger that needs more lookahead and says what it needs. Deltas are buffered here until they
may contain that, so that most deltas cost next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from turnwright_grammar.reader.bodies import BODILESS
from turnwright_grammar.reader.parser import CANDIDATE, HALF_TRIGGER, TRIGGER, finish_reply, parse
from turnwright_grammar.reader.parser_state import ParserState
from turnwright_grammar.reader.tags import INDENT_CHARS_MAX, lex_tag
from turnwright_grammar.reply import COMMANDS_MAX, Command, Reply
from turnwright_grammar.scanner import BracketBalance, SearchTrigger, TextScanner
from turnwright_grammar.tools import DEFAULT_TOOLS

LOOK_BACK_CHARS: Final = INDENT_CHARS_MAX
_LOOKED_BACK: Final = re.compile(r"(?:(?<![^\n])[ \t>]+|\*\*?|\]|t|to|f(?:u(?:n(?:c(?:t(?:o(?:o(?:ls?)?)?)?)?)?)?)?)\Z")
"""What may turn out to be the beginning of a call once its trigger has come."""

FENCES: Final = ("```", "~~~")
"""What a fence of code begins with."""


class ReplyReader:
    """Incremental parser of one reply.

    `finish` returns the whole reply, equal to what `read_reply` makes of the whole text; no command is certain before
    (C59). Never raises; linear in the length of the text, however small the deltas.
    """

    def __init__(self, *, known_tools: frozenset[str] = DEFAULT_TOOLS, commands_max: int = COMMANDS_MAX) -> None:
        self._state = ParserState(TextScanner("", final=False), known_tools, parse, commands_max)
        self._pieces: list[str] = []
        self._watch = RescanPolicy()
        self._narrated = 0
        self._unshown: list[str] = []
        self._fence_at = -1
        self._fence_shown: list[str] = []
        self._thought_ends = 0
        self._after_thought: list[str] = []
        self.scans = 0
        """How often the parser has run."""

    def feed(self, delta: str) -> None:
        self._pieces.append(delta)
        self._unshown.append(delta)
        if self._thought_ends:
            self._after_thought.append(delta)
        if self._watch.should_rescan(delta):
            self._scan()

    def _scan(self) -> None:
        state, position = self._state, self._state.position
        dropped = state.extend("".join(self._pieces))
        self._pieces.clear()
        self.scans += 1
        parse(state)
        self._watch.stopped(state, moved=state.position + dropped > position)
        if len(state.thought_ends) > self._thought_ends:
            self._thought_ends = len(state.thought_ends)
            self._after_thought = [state.text[state.thought_ends[-1][1] - state.offset :]]

    def narrated(self) -> str:
        """The text outside of commands that has become certain since the last call; code in a fence as it is written.

        For a reader that is asked for it after each delta, and once more after `finish`.
        """
        if self._pieces and self._watch.is_idle:
            self._scan()
        state = self._state
        found = _LOOKED_BACK.search(
            state.text, max(state.narrated_to, state.position - LOOK_BACK_CHARS), state.position
        )
        certain = found.start() if found else state.position
        state.skip(certain, certain)
        text = "".join(state.narration_parts[self._narrated :])
        self._narrated = len(state.narration_parts)
        if text and self._fence_shown:
            text, self._fence_at = text.removeprefix("".join(self._fence_shown)), -1
            self._fence_shown.clear()
        if state.text.startswith(FENCES, state.position):
            if self._fence_at != state.offset + state.position:
                self._fence_at = state.offset + state.position
                self._unshown = [state.text[state.position :], *self._pieces]
                self._fence_shown.clear()
            self._fence_shown += self._unshown
            text += "".join(self._unshown)
        self._unshown = []
        return text

    @property
    def commands(self) -> list[Command]:
        """The commands so far, of which none is certain."""
        return self._state.commands

    @property
    def thought_ends(self) -> int:
        """How often all before turned out to be a thought."""
        return self._thought_ends

    @property
    def waits_at(self) -> int:
        """Where the parser waits for more of something that has begun, in the whole reply; -1: nowhere."""
        return self._state.offset + self._state.position if self._state.is_waiting else -1

    def open_call(self) -> Command | None:
        """The tag of ours whose close has not come, with its body so far; None if there is none."""
        state = self._state
        opener = state.bodies.any_tool.match(state.text, state.position)
        if opener is None or opener[1]:
            return None
        tag = lex_tag(state.text, opener)
        if tag.kind != "open" or not tag.complete or tag.repaired or tag.name in BODILESS:
            return None
        return Command(tag.name, tag.attributes, "".join((state.text[tag.end :], *self._pieces)))

    def finish(self, rest: str = "", *, is_cut: bool = False, is_stopped: Callable[[], bool] = bool) -> Reply:
        """Parse the end of the reply, and return the whole reply; nothing may be fed afterwards.

        `is_cut`: the vendor has truncated it. Once `is_stopped` says so, the rest is not parsed, and the reply is void.
        """
        self._state.is_stopped = is_stopped
        self._state.extend("".join((*self._pieces, rest)), final=not is_cut)
        self._pieces.clear()
        parse(self._state)
        after_thought = "".join((*self._after_thought, rest)) if self._thought_ends else ""
        return finish_reply(self._state, max(after_thought, self._state.text, key=len), is_cut=is_cut)


class RescanPolicy:
    """Decides after which deltas the parser runs again.

    A parser that waits for something runs when it may have come. After several runs in vain over much buffered text, it
    runs only when the buffer has grown by an eighth, so that all runs together stay linear.
    """

    TRIES_MAX: Final = 8
    HELD_CHARS_MIN: Final = 512

    def __init__(self) -> None:
        self.is_idle = True
        self._wake: SearchTrigger | BracketBalance | None = None
        self._tries = 0
        self._grown_chars = 0
        self._needed_chars = 0
        self._seen = False

    def should_rescan(self, delta: str) -> bool:
        """Whether the parser should run again after this delta."""
        if self.is_idle:
            return CANDIDATE.search(delta) is not None and (
                TRIGGER.search(delta) is not None or HALF_TRIGGER.search(delta) is not None
            )
        self._grown_chars += len(delta)
        if not self._seen:
            self._seen = self._wake is None or self._wake.feed(delta)
        return self._seen and self._grown_chars >= self._needed_chars

    def stopped(self, state: ParserState, *, moved: bool) -> None:
        """Note that the parser has stopped at `state.position`."""
        held = len(state.text) - state.position
        self.is_idle = held == 0
        if self.is_idle:
            return
        self._tries = 1 if moved else self._tries + 1
        self._needed_chars = held // 8 if self._tries > self.TRIES_MAX and held > self.HELD_CHARS_MIN else 0
        self._grown_chars, self._seen = 0, False
        resume_on = state.resume_on if state.is_waiting else None
        self._wake = resume_on.after(state.text) if isinstance(resume_on, SearchTrigger) else resume_on
