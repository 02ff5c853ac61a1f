"""`turnwright` alone: a session at the terminal. Each message is a task of one run.

What is entered while a turn is followed waits for its end: a message in the queue of the run, a command here. The
session ends with Ctrl-D or /quit; what ends a turn (Esc, Ctrl-C, an error) leaves it open.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
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
from rich.text import Text
from turnwright.types.v1 import run_pb2, session_command_pb2, settings_pb2

from turnwright_cli.changes import changes_of
from turnwright_cli.chat_commands import COMMANDS, ChatCommands, ChatState
from turnwright_cli.exit_codes import FailureError, advice_after, failure_of, usage
from turnwright_cli.following import Follower, ShownRun
from turnwright_cli.interrupts import Interrupts, unless_stopped
from turnwright_cli.invocation import Invocation
from turnwright_cli.keyboard import Keyboard, basic_keys, make_blocking, typed_text
from turnwright_cli.output import console, put
from turnwright_cli.plain import safe_line
from turnwright_cli.prompting import Prompter
from turnwright_cli.render import TextScreen
from turnwright_cli.run_list import full_alias, names_of_models, names_of_runs
from turnwright_cli.session import announce, open_session
from turnwright_cli.status_words import title_of
from turnwright_cli.tasks import LoopToFollow, has_terminal, waiting_loop
from turnwright_client import Client, QueuedLoop
from turnwright_client.client import EventCursor
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import LOOP_ENDED

# The line editor of a session: prompt_toolkit with a history, completion and a line of status.

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


HISTORY_FILE: Final = "chat_history"
"""File in the home with what was typed before."""

_WELCOME: Final = "Type a task. /help lists commands, @ completes files, Esc stops a turn, Ctrl-D leaves."
_STILL_WAITS: Final = "The proposal still waits: /decide asks again. Your next message comes behind it."
_QUEUED: Final = "Queued: {}  (/queue lists what waits)"
_QUEUED_CHARS: Final = 60
AT_ONCE: Final = ("/now", "/queue", "/yolo")
"""Commands that are carried out while a turn is followed; the others wait for its end."""


async def chat(call: Invocation, *, run: str | None, last: bool, model: str | None, yolo: bool) -> int:
    """Chat until the person leaves. Raises FailureError without a terminal, or if there is no run to continue."""
    if call.as_json or not has_terminal():
        raise usage("A session needs a terminal. In a script, give a task with `turnwright act PROMPT`.")
    if run and last:
        raise usage("Use only one of --run and --continue.")
    async with open_session(call.settings) as session:
        await announce(session)
        project = (await session.client.init_project(call.root)).name
        named = await full_alias(session.client, project, run) if run else ""
        state = ChatState(project, Path(call.root), named, model or "", yolo=yolo, defaults=call.defaults)
        if last:
            state.run = (await _latest(session.client, project)).run
        if not state.run and not state.model:
            models = await session.client.list_models()
            # A run of several has to name one.
            state.model = call.defaults.model or (models[0].alias if len(models) == 1 else "")
        return await _Chat(session.client, state, call.settings.home / HISTORY_FILE).converse()


async def _latest(client: Client, project: str) -> run_pb2.Run:
    async for run in client.list_runs(project):
        return run
    raise usage("There is no run to continue yet. Start one with `turnwright`.")


class _Chat:
    """One session: reads what is typed, and follows each turn to its end."""

    def __init__(self, client: Client, state: ChatState, history: Path) -> None:
        self._client = client
        self._state = state
        self._out = console()
        self._screen = TextScreen(self._out, session=True)
        names = {"/model": lambda: names_of_models(client), "/run": lambda: names_of_runs(client, state.project)}
        self._input = ChatInput(history, state.status, ChatCompleter(state.root, names))
        self._commands = ChatCommands(client, state, self._out, self._screen.aside)
        self._keys = Keyboard(self._screen.pause, self._entered, self._screen.typing)
        self._person = Prompter(self._keys, self._screen.note)
        self._place = ShownRun()
        self._follower: Follower | None = None
        self._sending: asyncio.Task[None] | None = None
        self._later: list[str] = []

    async def converse(self) -> int:
        put(self._out, Text(_WELCOME, style="dim"))
        if self._state.run:
            await self._recall()
        async for line in self._typed():
            try:
                if line.split()[0] == "/quit":
                    break
                await self._carry_out(line)
            except TurnwrightError as error:
                self._say(str(failure_of(error)))
            except FailureError as error:
                self._say(error.message)
        if self._state.run:
            put(self._out, Text(f"Continue with: turnwright -c, or turnwright --run {self._state.run}", style="dim"))
        return 0

    async def _carry_out(self, line: str) -> None:
        follows: dict[str, Callable[[], Awaitable[None]]] = {
            "/decide": self._decide,
            "/retry": self._retry,
            "/now": partial(self._now, line),
        }
        if followed := follows.get(line.split(maxsplit=1)[0]):
            await followed()
        elif line.startswith("!"):
            await self._commands.run_here(line)
        elif line.startswith("/"):
            await self._obey(line)
        else:
            await self._turn(line)

    async def _typed(self) -> AsyncIterator[str]:
        while True:
            while self._later:
                yield self._later.pop(0)
            if (line := await self._input.read(self._keys.taken())) is None:
                return
            if text := line.strip():
                yield text

    def _say(self, text: str, style: str = "red") -> None:
        self._screen.pause()
        put(self._out, Text(text, style=style), wrap=True)

    async def _obey(self, line: str) -> None:
        """Carry out a command, unless Ctrl-C ends the waiting for it."""
        with Interrupts().entered() as stop:
            if not await unless_stopped(self._commands.obey(line), stop):
                self._say("Stopped waiting for it.", "yellow")

    async def _turn(self, prompt: str) -> None:
        """Give a task and follow it. Esc or Ctrl-C stops it, and asks nothing more of it."""
        # A message that is refused can be edited and sent again.
        self._keys.typed = prompt
        with self._keys.watched() as stop:
            queued = await self._give(prompt)
            self._state.run, self._keys.typed = queued.run, ""
            if earlier := earlier_loops(queued):
                first = "one earlier message" if earlier == 1 else f"{earlier} earlier messages"
                self._say(f"Queued: {first} must finish first.", "yellow")
            await self._follow(LoopToFollow(queued), stop)
        await self._state.refresh(self._client)

    async def _give(self, prompt: str) -> QueuedLoop:
        state = self._state
        give = self._client.ask if state.asks else self._client.act
        return await give(
            state.project,
            state.with_outputs(prompt),
            run=state.run,
            settings=state.loop_settings(prompt),
            run_settings=settings_pb2.RunSettings(model=state.model),
            request_id=secrets.token_hex(16),
        )

    def _entered(self, line: str) -> None:
        """A line that was entered while a turn is followed: one is carried out after the other."""
        self._sending = asyncio.create_task(self._send(line, self._sending))

    async def _send(self, line: str, before: asyncio.Task[None] | None) -> None:
        if before:
            await before
        try:
            if line.split(maxsplit=1)[0] in AT_ONCE:
                if queued := await self._commands.at_once(line):
                    self._add(queued)
            elif line.startswith(("/", "!")):
                self._later.append(line)
                self._screen.aside(f"After this turn: {safe_line(line, _QUEUED_CHARS)}")
            else:
                self._add(await self._give(line))
                self._screen.aside(_QUEUED.format(safe_line(line, _QUEUED_CHARS)))
        except (TurnwrightError, FailureError) as error:
            self._keys.typed = self._keys.typed or line
            self._screen.aside(str(failure_of(error)) if isinstance(error, TurnwrightError) else error.message, "red")

    def _add(self, queued: QueuedLoop) -> None:
        if self._follower:
            self._follower.add(queued)

    async def _now(self, line: str) -> None:
        """Say something to the task that waits; without one it is a message like others."""
        with self._keys.watched() as stop:
            if queued := await self._commands.at_once(line):
                await self._follow(LoopToFollow(queued), stop)

    async def _decide(self) -> None:
        with self._keys.watched() as stop:
            await self._follow(await waiting_loop(self._client, self._state.project, self._state.its_run()), stop)
        await self._state.refresh(self._client)

    async def _retry(self) -> None:
        with self._keys.watched() as stop:
            run = self._state.its_run()
            answer = await self._client.submit(self._state.project, run, regenerate=session_command_pb2.Regenerate())
            self._say("The message is sent again. Files stay as they are; /undo takes their changes back.", "yellow")
            queued = QueuedLoop(self._state.project, run, answer.loop.sequence, answer.event_cursor, answer.run)
            await self._follow(LoopToFollow(queued), stop)
        await self._state.refresh(self._client)

    async def _follow(self, begun: LoopToFollow, stop: Interrupts) -> None:
        follower = Follower(self._client, self._screen, self._person, stop, self._place)
        self._follower = follower
        followed = await follower.follow(begun.queued, asked=begun.asked)
        if followed.loop.status in LOOP_ENDED:
            self._screen.changed(await changes_of(self._client, followed.run, followed.loop.sequence))
        if advice := advice_after(followed.loop.reason):
            self._say(advice)
        if self._sending:
            await self._sending
        if followed.undecided or followed.of_agents:
            self._say(_STILL_WAITS, "yellow")
        elif follower.latest.sequence > followed.loop.sequence:
            # It was given when the last one had just ended.
            stop.asked.clear()
            await self._follow(LoopToFollow(follower.latest), stop)

    async def _recall(self) -> None:
        answer = await self._state.refresh(self._client)
        next_loop = answer.run.loop.sequence + 1
        self._place.enter(QueuedLoop(answer.run.project, answer.run.run, next_loop, EventCursor(), answer.run))
        put(self._out, Text(f"Continuing {safe_line(answer.run.run)}: {safe_line(title_of(answer.run), 200)}"))
        if answer.run.loop.prompt != answer.run.title:
            put(self._out, Text(f"> {safe_line(answer.run.loop.prompt, 200)}", style="dim"))
        if answer.run.loop.summary:
            put(self._out, Text(safe_line(answer.run.loop.summary, 200), style="dim"))


def earlier_loops(queued: QueuedLoop) -> int:
    """How many messages are worked on before this one."""
    latest = queued.state.loop
    return 0 if not latest.sequence or latest.status in LOOP_ENDED else queued.sequence - latest.sequence
