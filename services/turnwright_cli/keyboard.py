"""The keyboard while a loop is followed: messages and single keys during a turn, answers to questions.

prompt_toolkit reads both. uvloop makes what it watches non-blocking, and a terminal is one file for input and output:
it is made blocking again after each use, or long output would fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import termios
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys

from turnwright_cli.interrupts import Interrupts, hang_up

ESCAPE_S: Final = 0.1
"""Seconds after which an Esc is the key, and not the beginning of another key's sequence."""

# Asking the terminal for the cursor's position gains a few lines for menus, and fails on simple terminals.
os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")


class Keyboard:
    """During a turn Esc or Ctrl-C stops it, a second Ctrl-C leaves at once; at a question they leave it for later."""

    def __init__(
        self,
        pause: Callable[[], None],
        entered: Callable[[str], None] | None = None,
        typing: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`pause` has the screen print nothing while a question is asked.

        During a turn `entered` is told each line that Enter has ended, `typing` what stands in the line until then;
        without `entered` nothing is typed.
        """
        self._pause = pause
        self._typing = typing
        self._entered = entered
        self._stop = Interrupts()
        self.typed = ""
        """What was typed during the turn and not sent: the beginning of the next message."""
        self._attached = contextlib.ExitStack()
        self._line: PromptSession[str] = PromptSession(key_bindings=question_keys(), enable_suspend=True)
        self._key: PromptSession[str] = PromptSession(key_bindings=deciding_keys(), enable_suspend=True)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Interrupts]:
        """Watch the keys within the block."""
        self._stop = Interrupts(self._detach)
        with self._stop.entered():
            self._attach()
            try:
                yield self._stop
            finally:
                self._detach()

    def taken(self) -> str:
        typed, self.typed = self.typed, ""
        return typed

    async def ask(self, question: str, *, typed_ahead: bool = False, one_key: bool = False) -> str | None:
        """The answer; None to leave it for later. What was typed before the question was seen is no answer.

        With `one_key` a single one is the answer, unless somebody is writing a message: then Enter ends it.
        """
        session = self._key if one_key and not self.typed else self._line
        self._pause()
        with self.released():
            if not typed_ahead:
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
                clear_typeahead(session.input)
            columns = session.output.get_size().columns
            # The line editor breaks within words.
            wrapped = textwrap.fill(question, max(10, columns - 1), break_on_hyphens=False)
            try:
                return typed_text(await session.prompt_async(f"{wrapped} ", handle_sigint=False))
            except (KeyboardInterrupt, EOFError):
                return None
            finally:
                make_blocking()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Leave the keyboard to somebody else within the block, such as an editor."""
        self._detach()
        try:
            yield
        finally:
            self._attach()

    def _attach(self) -> None:
        if in_background():
            return
        keys = create_input(sys.stdin)
        loop = asyncio.get_running_loop()

        def read() -> None:
            self._take(keys.read_keys())
            loop.call_later(ESCAPE_S, lambda: self._take(keys.flush_keys()))
            if keys.closed:
                hang_up()

        self._attached.enter_context(keys.raw_mode())
        self._attached.enter_context(keys.attach(read))
        make_blocking()

    def _detach(self) -> None:
        self._attached.close()
        make_blocking()

    def _take(self, pressed: Iterable[KeyPress]) -> None:
        for press in pressed:
            match press.key:
                case Keys.ControlC:
                    self._stop.interrupt(signal.SIGINT)
                case Keys.Escape:
                    self._stop.asked.set()
                case Keys.ControlZ:
                    with self.released():
                        os.kill(0, signal.SIGTSTP)
                case Keys.ControlH:
                    self._type(self.typed[:-1])
                case Keys.ControlM if self._entered:
                    line = self.typed.strip()
                    self._type("")
                    if line:
                        self._entered(line)
                case _ if press.key == Keys.BracketedPaste or press.data.isprintable():
                    self._type(self.typed + " ".join(press.data.split("\n")))

    def _type(self, text: str) -> None:
        if self._entered:
            self.typed = text
            self._typing(text)


def basic_keys() -> KeyBindings:
    """Ctrl-C and Ctrl-D: on simple terminals prompt_toolkit has no keys of its own."""
    bindings = KeyBindings()

    @bindings.add(Keys.ControlC)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    @bindings.add(Keys.ControlD)
    def _(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError())

    return bindings


def question_keys() -> KeyBindings:
    bindings = basic_keys()

    @bindings.add(Keys.Escape, eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    return bindings


def deciding_keys() -> KeyBindings:
    """A letter is the answer. Enter, a pasted text and keys without a letter are none."""
    bindings = question_keys()

    @bindings.add(Keys.Any)
    def _(event: KeyPressEvent) -> None:
        if len(event.data) == 1 and event.data.isprintable() and event.data != " ":
            event.current_buffer.insert_text(event.data)
            event.app.exit(result=event.data)

    @bindings.add(Keys.ControlM)
    @bindings.add(Keys.ControlJ)
    @bindings.add(Keys.BracketedPaste)
    def _(event: KeyPressEvent) -> None:
        del event

    return bindings


def in_background() -> bool:
    """Whether the kernel would stop this process if it touched its terminal."""
    with contextlib.suppress(OSError):
        return os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp()
    return False


def typed_text(line: str) -> str:
    """The line as text: a terminal with another encoding sends bytes that are not UTF-8, each of which becomes `?`."""
    return line.encode(errors="replace").decode()


def make_blocking() -> None:
    for stream in (sys.stdin, sys.stdout):
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), True)
