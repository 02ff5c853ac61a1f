"""The line editor of a session: prompt_toolkit with a history, completion and a line of status."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import HTML
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from turnwright_cli.chat_commands import COMMANDS
from turnwright_cli.keyboard import basic_keys, make_blocking, typed_text
from turnwright_core.errors import TurnwrightError

Names = Callable[[], Awaitable[Iterable[tuple[str, str]]]]

FILES_MAX: Final = 20_000
"""Files that completion looks through."""

SHOWN_MAX: Final = 50
"""Completions that are offered at a time."""

_FILE: Final = re.compile(r'(?<!\S)@(?:"([^"]*)|(\S*))\Z')
"""The beginning of a file's name before the cursor; one with spaces stands in quotes."""


class ChatInput:
    """The line editor. Enter sends, Alt-Enter begins another line, Ctrl-C clears the line, Ctrl-D leaves."""

    def __init__(self, history: Path, status: Callable[[], str], completer: ChatCompleter) -> None:
        """`status` is shown above the line."""
        self._completer = completer
        # Readable by its owner alone.
        history.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        history.touch(mode=0o600)
        self._session: PromptSession[str] = PromptSession(
            history=FileHistory(str(history)),
            auto_suggest=AutoSuggestFromHistory(),
            completer=self._completer,
            complete_while_typing=True,
            enable_suspend=True,
            key_bindings=_bindings(),
            message=lambda: HTML("<ansibrightblack>{}</ansibrightblack>\n> ").format(status()),
        )

    async def read(self, typed: str = "") -> str | None:
        """What was typed, from a beginning that may be edited; None to leave."""
        self._completer.forget()
        while True:
            try:
                return typed_text(await self._session.prompt_async(default=typed))
            except KeyboardInterrupt:
                typed = ""
            except EOFError:
                return None
            finally:
                make_blocking()


def _bindings() -> KeyBindings:
    bindings = basic_keys()

    @bindings.add(Keys.Escape, Keys.Enter)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return bindings


class ChatCompleter(Completer):
    """Completes `/command` and its argument at the beginning, and `@file` anywhere."""

    def __init__(self, root: Path, names: Mapping[str, Names]) -> None:
        """`names` has what finds the arguments of a command, each with its meaning."""
        self._root = root
        self._names = names
        self._files: list[str] | None = None

    def get_completions(self, _document: Document, _event: CompleteEvent) -> Iterator[Completion]:
        """Nothing: files and names are looked for without blocking."""
        yield from ()

    async def get_completions_async(
        self, document: Document, _complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        before = document.text_before_cursor
        command, space, argument = before.partition(" ")
        if before.startswith("/") and not space:
            for name, meaning in COMMANDS.items():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display_meta=meaning)
        elif command in self._names:
            with contextlib.suppress(TurnwrightError):
                for name, meaning in await self._names[command]():
                    if name.startswith(argument):
                        yield Completion(name, -len(argument), display_meta=meaning)
        elif typed := _FILE.search(before):
            wanted = (typed[1] or typed[2] or "").lower()
            if self._files is None:
                self._files = await asyncio.to_thread(_files, self._root)
            found = [file for file in self._files if wanted in file.lower()]
            found.sort(key=lambda file: (not Path(file).name.lower().startswith(wanted), len(file)))
            for file in found[:SHOWN_MAX]:
                yield Completion(f'@"{file}"' if " " in file else f"@{file}", -len(typed[0]))

    def forget(self) -> None:
        """Look for files again: a turn may have created some."""
        self._files = None


def _files(root: Path) -> list[str]:
    """Files of the project; names with a line feed or another control character cannot be typed."""
    return [file for file in islice(_listed(root), FILES_MAX) if file.isprintable()]


def _listed(root: Path) -> Iterator[str]:
    """Those that git knows and does not ignore, or all but hidden ones."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(command, capture_output=True, timeout=2, check=True).stdout  # noqa: S603 - git itself
        yield from filter(None, listed.decode(errors="replace").split("\0"))
        return
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (str((Path(folder) / name).relative_to(root)) for name in names)
