"""The keyboard of a session: a line editor between turns, single keys during one.

prompt_toolkit edits lines, completes and keeps the history. uvloop makes what it watches non-blocking, and a terminal
is one file for input and output: it is made blocking again after each use, or long output would fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from turnwright_cli.chat_commands import COMMANDS
from turnwright_cli.interrupts import Interrupts, leave_at_once

ESCAPE_S: Final = 0.1
"""Seconds after which an Esc is the key, and not the beginning of another key's sequence."""

FILES_MAX: Final = 20_000
"""Files that completion looks through."""

SHOWN_MAX: Final = 50
"""Completions that are offered at a time."""

_FILE: Final = re.compile(r'(?<!\S)@(?:"([^"]*)|(\S*))\Z')
"""The beginning of a file's name before the cursor; one with spaces stands in quotes."""

# Asking the terminal for the cursor's position gains a few lines for menus, and fails on simple terminals.
os.environ.setdefault("PROMPT_TOOLKIT_NO_CPR", "1")


class ChatInput:
    """The line editor. Enter sends, Alt-Enter begins another line, Ctrl-C clears the line, Ctrl-D leaves."""

    def __init__(self, history: Path, root: Path, status: Callable[[], str]) -> None:
        """`status` is shown above the line."""
        self._completer = ChatCompleter(root)
        self._session: PromptSession[str] = PromptSession(
            history=_history(history),
            auto_suggest=AutoSuggestFromHistory(),
            completer=self._completer,
            complete_while_typing=True,
            key_bindings=_bindings(),
            message=lambda: HTML("<ansibrightblack>{}</ansibrightblack>\n> ").format(status()),
        )

    async def read(self) -> str | None:
        """What was typed; None to leave."""
        self._completer.forget()
        while True:
            try:
                return await self._session.prompt_async()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None
            finally:
                make_blocking()


def _history(file: Path) -> FileHistory:
    """What was typed before, readable by its owner alone."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    return FileHistory(str(file))


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add(Keys.Escape, Keys.Enter)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    # On simple terminals prompt_toolkit has no keys of its own.
    @bindings.add(Keys.ControlC)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    @bindings.add(Keys.ControlD)
    def _(event: KeyPressEvent) -> None:
        if not event.current_buffer.text:
            event.app.exit(exception=EOFError())

    return bindings


class ChatCompleter(Completer):
    """Completes `/command` at the beginning, and `@file` anywhere."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: list[str] | None = None

    def get_completions(self, document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        if before.startswith("/") and " " not in before:
            for name, meaning in COMMANDS.items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display_meta=meaning)
            return
        if typed := _FILE.search(before):
            wanted = (typed[1] or typed[2] or "").lower()
            found = [file for file in self._known() if wanted in file.lower()]
            found.sort(key=lambda file: (not Path(file).name.lower().startswith(wanted), len(file)))
            for file in found[:SHOWN_MAX]:
                yield Completion(f'@"{file}"' if " " in file else f"@{file}", -len(typed[0]))

    def forget(self) -> None:
        """Look for files again: a turn may have created some."""
        self._files = None

    def _known(self) -> list[str]:
        if self._files is None:
            # Names with a line feed or another control character cannot be typed.
            self._files = [file for file in _files(self._root) if file.isprintable()]
        return self._files


def _files(root: Path) -> Iterator[str]:
    """Files of the project: those that git knows and does not ignore, or all but hidden ones."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(command, capture_output=True, timeout=2, check=True).stdout  # noqa: S603 - git itself
        yield from listed.decode(errors="replace").split("\0")[:FILES_MAX]
        return
    count = 0
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            yield str((Path(folder) / name).relative_to(root))
            if (count := count + 1) >= FILES_MAX:
                return


class TurnKeys:
    """Keys during a turn: Esc or Ctrl-C stops it, a second Ctrl-C leaves at once."""

    def __init__(self) -> None:
        self._stop = Interrupts()
        self._attached: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[Interrupts]:
        """Watch the keys within the block."""
        self._stop = Interrupts()
        with self._stop.entered():
            self._attach()
            try:
                yield self._stop
            finally:
                self._detach()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Leave the keyboard to somebody else within the block, such as a question."""
        self._detach()
        try:
            yield
        finally:
            self._attach()

    def _attach(self) -> None:
        keys = create_input(sys.stdin)
        loop = asyncio.get_running_loop()

        def read() -> None:
            take(keys.read_keys())
            loop.call_later(ESCAPE_S, lambda: take(keys.flush_keys()))

        def take(pressed: Any) -> None:
            for press in pressed:
                if press.key is Keys.ControlC and self._stop.asked.is_set():
                    leave_at_once()
                if press.key in (Keys.Escape, Keys.ControlC):
                    self._stop.asked.set()

        self._attached = contextlib.ExitStack()
        self._attached.enter_context(keys.raw_mode())
        self._attached.enter_context(keys.attach(read))
        make_blocking()

    def _detach(self) -> None:
        if self._attached:
            self._attached.close()
            self._attached = None
            make_blocking()


class ChatLines:
    """Answers to questions during a turn. Esc, Ctrl-C and Ctrl-D leave the question for later."""

    def __init__(self, keys: TurnKeys, pause: Callable[[], None]) -> None:
        """`pause` has the screen print nothing while a question is asked."""
        self._keys = keys
        self._pause = pause
        self._session: PromptSession[str] = PromptSession(key_bindings=_leaving())

    def forget(self) -> None:
        """Drop what was typed before the question was seen."""
        import termios  # noqa: PLC0415 - a terminal has it

        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    async def read(self, question: str) -> str | None:
        """The answer; None to leave it for later."""
        self._pause()
        with self._keys.released():
            try:
                return await self._session.prompt_async(_wrapped(question, self._session.output.get_size().columns))
            except (KeyboardInterrupt, EOFError):
                return None


def _wrapped(question: str, columns: int) -> str:
    """The question, broken between words: the line editor breaks within them."""
    return textwrap.fill(question, max(10, columns - 1), break_on_hyphens=False) + " "


def _leaving() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add(Keys.Escape, eager=True)
    def _(event: KeyPressEvent) -> None:
        event.app.exit(exception=EOFError())

    return bindings


def make_blocking() -> None:
    for stream in (sys.stdin, sys.stdout):
        with contextlib.suppress(OSError, ValueError):
            os.set_blocking(stream.fileno(), True)
