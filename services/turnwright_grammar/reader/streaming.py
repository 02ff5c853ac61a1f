"""Reading a reply while it is written.

The walk of `reader` stops before a trigger that cannot be judged yet and says what it waits for. Here the
pieces are collected until that may have come, so that a piece which changes nothing costs next to nothing.
"""

from __future__ import annotations

from typing import Final

from turnwright_grammar.find import Balance, Finder, SearchTrigger
from turnwright_grammar.reader.reading import Reading
from turnwright_grammar.reader.walk import CANDIDATE, HALF_TRIGGER, TRIGGER, concluded, cut_off, walk
from turnwright_grammar.reply import COMMANDS_MAX, Command, Reply
from turnwright_grammar.tools import DEFAULT_TOOLS


class ReplyReader:
    """Reads a reply while it is written.

    `feed` takes the next piece of text and returns the commands that it completed; `finish` returns the
    whole reply, equal to what `read_reply` makes of the whole text. Commands that only the end of the
    reply makes certain (an unclosed tag, a fence that fires because nothing outside does) come with
    `finish` alone. Never raises; linear in the length of the text, however small the pieces.
    """

    def __init__(self, *, known_tools: frozenset[str] = DEFAULT_TOOLS, commands_max: int = COMMANDS_MAX) -> None:
        self._reading = Reading(Finder("", final=False), known_tools, walk, commands_max)
        self._pieces: list[str] = []
        self._watch = WakePolicy()
        self._yielded = 0

    def feed(self, delta: str) -> tuple[Command, ...]:
        """Take the next piece of the reply; return the commands that are complete with it."""
        self._pieces.append(delta)
        if not self._watch.wakes(delta):
            return ()
        reading, position = self._reading, self._reading.position
        dropped = reading.extend("".join(self._pieces))
        self._pieces.clear()
        walk(reading)
        self._watch.rest(reading, moved=reading.position + dropped > position)
        commands = reading.commands
        if len(commands) == self._yielded:
            return ()
        start, self._yielded = self._yielded, len(commands)
        return tuple(commands[start : reading.commands_max])

    def finish(self, rest: str = "", *, is_cut: bool = False) -> Reply:
        """Take the reply as ended with `rest`, or as cut off there by its vendor, and return all of it.

        Nothing may be fed afterwards.
        """
        self._reading.extend("".join((*self._pieces, rest)), final=not is_cut)
        self._pieces.clear()
        walk(self._reading)
        if is_cut:
            cut_off(self._reading)
        return concluded(self._reading, is_cut=is_cut)


class WakePolicy:
    """Decides which pieces of text are worth another look at what is waiting.

    A walk that waits for something is woken when it comes. One that holds much text and was woken in vain
    often is woken only when that has grown by an eighth, so that all the looks together stay linear.
    """

    TRIES_MAX: Final = 8
    HELD_CHARS_MIN: Final = 512

    def __init__(self) -> None:
        self._is_idle = True
        self._wake: SearchTrigger | Balance | None = None
        self._tries = 0
        self._grown_chars = 0
        self._needed_chars = 0
        self._seen = False

    def wakes(self, delta: str) -> bool:
        """Whether the walk should look again, with `delta` as the newest text."""
        if self._is_idle:
            return CANDIDATE.search(delta) is not None and (
                TRIGGER.search(delta) is not None or HALF_TRIGGER.search(delta) is not None
            )
        self._grown_chars += len(delta)
        if not self._seen:
            self._seen = self._wake is None or self._wake.comes(delta)
        return self._seen and self._grown_chars >= self._needed_chars

    def rest(self, reading: Reading, *, moved: bool) -> None:
        """Settle down after a walk that stopped at `reading.position`."""
        held = len(reading.text) - reading.position
        self._is_idle = held == 0
        if self._is_idle:
            return
        self._tries = 1 if moved else self._tries + 1
        self._needed_chars = held // 8 if self._tries > self.TRIES_MAX and held > self.HELD_CHARS_MIN else 0
        self._grown_chars, self._seen = 0, False
        wake = reading.wake if reading.waiting else None
        self._wake = wake.after(reading.text) if isinstance(wake, SearchTrigger) else wake
