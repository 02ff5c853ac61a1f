"""What is typed with a slash in a session, and what the session knows of its run."""

from __future__ import annotations

import asyncio
import codecs
import inspect
import os
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from rich.console import Console
from rich.text import Text
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import run_pb2, session_command_pb2, settings_pb2, usage_pb2

from turnwright_cli.changes import recorded_changes, show_changes, show_undone, undone
from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import TaskDefaults, budget_of
from turnwright_cli.keyboard import make_blocking
from turnwright_cli.lists import spend_words
from turnwright_cli.output import put, show_table
from turnwright_cli.plain import safe_line, safe_text
from turnwright_cli.plans import plan_lines, progress_words
from turnwright_cli.run_list import NO_RUNS, RUNS, full_alias
from turnwright_cli.status_words import usage_words
from turnwright_cli.tasks import reasoning_of
from turnwright_client import Client, QueuedLoop
from turnwright_client.sessions import user_message
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.suggestions import did_you_mean
from turnwright_core.text import cut_bytes

# `!command` in a session: the person's shell runs it on this host. The model reads its output only if asked to.

OUTPUT_BYTES_MAX: Final = 64 * 1024
"""Output that is kept for the model; the rest is only shown."""

_CHUNK_BYTES: Final = 4096

_INTERRUPT_S: Final = 1.0
"""Seconds within which Ctrl-C has come here, too, once it has ended a command."""


async def run_locally(command: str, root: Path, show: Callable[[str], None] | None = None) -> tuple[int, str]:
    """The exit code, and with `show` what was written: it is shown piece by piece, or else by the command itself.

    Ctrl-C is for the command.
    """
    make_blocking()
    out, errors = (asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT) if show else (None, None)
    loop = asyncio.get_running_loop()
    interrupted = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, interrupted.set)
    try:
        shell = os.environ.get("SHELL") or "/bin/sh"
        process = await asyncio.create_subprocess_exec(shell, "-c", command, cwd=root, stdout=out, stderr=errors)
        written = await _shown(process.stdout, show) if process.stdout and show else ""
        code = await process.wait()
        if code == -signal.SIGINT:
            # The terminal interrupts both; without a handler ours would end the session.
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERRUPT_S):
                    await interrupted.wait()
        return code, written
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        make_blocking()


async def _shown(stream: asyncio.StreamReader, show: Callable[[str], None]) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    written = ""
    while data := await stream.read(_CHUNK_BYTES):
        text = decoder.decode(data)
        show(text)
        written = cut_bytes(written + text, OUTPUT_BYTES_MAX)
    return written


COMMANDS: Final = {
    "help": "what can be typed",
    "model": "show the models, or use another one from the next turn on: /model NAME",
    "ask": "only answer from now on, change nothing; /act goes back",
    "act": "work on the project from now on",
    "yolo": "accept every proposal of your messages, or ask again",
    "decide": "decide on a proposal that was left for later",
    "now": "tell the model something in the midst of its task: /now TEXT; it reads that in its next turn",
    "queue": "show the messages that wait, or take one back: /queue NUMBER",
    "retry": "send the latest message again, and forget how it was answered; files stay",
    "rewind": "list the turns, or show the run as it was at the end of one: /rewind TURN; files stay",
    "plan": "show the plan",
    "diff": "show what the run has changed in files",
    "undo": "take back what the latest turn changed in files, or another one: /undo TURN",
    "cost": "show what the run has used",
    "runs": "list the runs of the project",
    "run": "continue another run: /run NAME",
    "new": "begin a new run with the next message",
    "quit": "leave; the run can be continued later",
}
"""Every command and its meaning."""

PREVIEW_CHARS: Final = 60
"""Length of a message in a line about it."""

TURNS_LISTED: Final = 30
"""Latest turns that `/rewind` lists."""

TURNS_READ: Final = 5
"""Latest turns among which one is looked for whose prompt was counted: those that were stopped have no count."""

_FILES: Final = re.compile(r'@(?:"([^"]+)"|(\S+))')
_TURN: Final = re.compile(r"[0-9]{1,9}")
_IMAGE_ENDINGS: Final = (".png", ".jpg", ".jpeg", ".gif", ".webp")


class ChatState(Struct):
    """The run of a session, and the settings of its next turn."""

    project: str
    root: Path
    run: str = ""
    """Empty: the next message begins one."""
    model: str = ""
    """Empty: that of the run, or the only one."""
    asks: bool = False
    """Whether nothing is to be changed."""
    yolo: bool = False
    defaults: TaskDefaults = TaskDefaults()
    _answer: run_service_pb2.GetRunResponse | None = None
    _plan: str = ""
    _outputs: list[str] = field(default_factory=list)
    """Outputs of local commands, for the next message."""

    async def refresh(self, client: Client) -> run_service_pb2.GetRunResponse:
        self._answer = await client.get_run(self.project, self.its_run(), turns_max=TURNS_READ)
        plans = [progress_words(plan) async for plan in client.list_plans(self.project, self.run)]
        self._plan = next(filter(None, plans), "")
        return self._answer

    def its_run(self) -> str:
        """The run. Raises FailureError if no message has begun one."""
        if not self.run:
            raise usage("There is no run yet: send a message first.")
        return self.run

    def with_outputs(self, prompt: str) -> str:
        """The message, with what commands wrote whose output is for it."""
        outputs, self._outputs = self._outputs, []
        return "\n\n".join([prompt, *outputs])

    def add_output(self, command: str, code: int, written: str) -> None:
        self._outputs.append(f"Output of `{command}` (exit code {code}):\n{written}")

    def loop_settings(self, prompt: str) -> settings_pb2.LoopSettings:
        return settings_pb2.LoopSettings(
            model=self.model,
            yolo=self.yolo,
            images=self.images_in(prompt),
            budget=budget_of(**self.defaults.limits()),
            reasoning=reasoning_of(self.defaults.reasoning),
        )

    def images_in(self, prompt: str) -> list[str]:
        """Images of the project that a message names with @."""
        named = ((quoted or word.rstrip(".,;:!?)")) for quoted, word in _FILES.findall(prompt))
        return [path for path in named if path.lower().endswith(_IMAGE_ENDINGS) and (self.root / path).is_file()]

    def model_name(self) -> str:
        """The model of the next turn, as far as it is known."""
        answer = self._answer if self.run else None
        return self.model or (answer.run.loop.settings.model or answer.run.settings.model if answer else "")

    def accepts(self) -> bool:
        """Whether proposals are accepted unasked: in what is given next, in the run, or in its loop under way."""
        run = self._answer.run if self.run and self._answer else run_pb2.Run()
        return self.yolo or run.settings.yolo or (run.loop.settings.yolo and run.loop.status not in LOOP_ENDED)

    def status(self) -> str:
        answer = self._answer if self.run else None
        parts = [self.model_name() or "no model: /model NAME", self.run or "new run"]
        parts += _context(answer) if answer else []
        if answer and answer.spent.cost_usd:
            parts.append(f"${answer.spent.cost_usd:.4f}")
        parts += ["ask"] * self.asks + ["yolo"] * self.accepts()
        parts += [self._plan] if answer and self._plan else []
        return safe_line("  ".join(parts))


def _context(answer: run_service_pb2.GetRunResponse) -> list[str]:
    """How much of the window the last prompt took that is known."""
    for turn in answer.turns:
        window, used = turn.request.context_length, turn.result.usage.prompt_tokens or turn.result.packet_tokens
        if window and used:
            share = min(1.0, used / window)
            filled = round(share * 10)
            return [f"context [{'=' * filled}{' ' * (10 - filled)}] {share:.0%}"]
    return []


class ChatCommands:
    """Carries the commands out."""

    def __init__(self, client: Client, state: ChatState, out: Console, say: Callable[[str, str], None]) -> None:
        self._client = client
        self._state = state
        self._out = out
        self._aside = say

    async def obey(self, line: str) -> bool:
        """Carry out `/command [argument]`; True once that is done."""
        name, _, argument = line[1:].partition(" ")
        work: Callable[[str], object] | None = getattr(self, f"_{name}", None) if name in COMMANDS else None
        if work is None:
            near = did_you_mean(f"/{name}", (f"/{known}" for known in COMMANDS))
            self._say(f"There is no command /{safe_line(name)}{near}; /help lists them.", "yellow")
            return True
        done = work(argument.strip())
        if inspect.isawaitable(done):
            await done
        return True

    def _say(self, text: str, style: str = "") -> None:
        self._aside(text, style)

    async def run_here(self, line: str) -> None:
        """`!command`, or `!!command` for one whose output the model reads with the next message."""
        command = line.lstrip("!").strip()
        for_model = line.startswith("!!")
        show = (lambda text: put(self._out, Text(safe_text(text)), end="")) if for_model else None
        code, written = await run_locally(command, self._state.root, show) if command else (0, "")
        if for_model and command:
            self._state.add_output(command, code, safe_text(written))
            self._say("The model reads it with your next message.", "dim")
        if code:
            self._say(f"exit code {code}", "yellow")

    async def at_once(self, line: str) -> QueuedLoop | None:
        """`/now`, `/queue` or `/yolo`; a loop if the message has begun one."""
        name, _, argument = line.partition(" ")
        if name == "/yolo":
            await self._yolo(argument)
            return None
        if name == "/queue":
            await self._queue(argument.strip())
            return None
        project, run = self._state.project, self._state.its_run()
        if not (text := argument.strip()):
            self._say("Say what the model is to read: /now TEXT", "yellow")
            return None
        settings = self._state.loop_settings(text)
        settings.mode = settings_pb2.MODE_ASK if self._state.asks else settings_pb2.MODE_ACT
        message = user_message(text, settings=settings, priority=True)
        answer = await self._client.submit(project, run, user_message=message)
        if answer.HasField("loop"):
            return QueuedLoop(project, run, answer.loop.sequence, answer.event_cursor, answer.run)
        self._say(f"The model reads it in its next turn: {safe_line(text, PREVIEW_CHARS)}", "dim")
        return None

    async def _queue(self, argument: str) -> None:
        project, run = self._state.project, self._state.its_run()
        waiting = await self._client.list_commands(project, run)
        if argument and not (_TURN.fullmatch(argument) and 0 < int(argument) <= len(waiting)):
            return self._say("Name a message by its number: /queue 1", "yellow")
        if argument:
            one = waiting.pop(int(argument) - 1)
            own = {"loop": one.loop} if one.loop else {"command_id": one.command_id}
            await self._client.cancel_command(project, run, **own)
            self._say(f"Taken back: {safe_line(one.preview, PREVIEW_CHARS)}")
        for number, one in enumerate(waiting, 1):
            self._say(f"{number}. {safe_line(one.preview, PREVIEW_CHARS)}")
        return None if waiting or argument else self._say("Nothing waits.")

    def _help(self, _argument: str) -> None:
        for name, meaning in COMMANDS.items():
            self._say(f"  /{name:<8}{meaning}")
        self._say("  !COMMAND  run a command in your shell, here; !!COMMAND also shows the model its output.")
        self._say("  @file   name a file of the project; Tab completes. Images are shown to the model.")
        self._say("  Esc or Ctrl-C stops a turn; Enter during a turn queues a message.")
        self._say("  Alt-Enter begins another line; Ctrl-D leaves.")

    async def _model(self, argument: str) -> None:
        models = await self._client.list_models()
        if not argument:
            for one in models:
                mark = "*" if one.alias == self._state.model_name() else " "
                self._say(f"{mark} {safe_line(one.alias)}  {safe_line(one.vendor_model)}")
            if not models:
                self._say(
                    "No model has an alias yet. Use one as /model VENDOR/MODEL; `turnwright init` finds a model server "
                    "on this host."
                )
            return
        if "/" not in argument and argument not in {one.alias for one in models}:
            near = did_you_mean(argument, (one.alias for one in models))
            self._say(f"There is no model {safe_line(argument)}{near}; /model lists them.", "yellow")
            return
        self._state.model = argument
        self._say(f"{safe_line(argument)} answers from the next turn on.")

    def _ask(self, _argument: str) -> None:
        self._state.asks = True
        self._say("Nothing will be changed from now on; /act goes back.")

    def _act(self, _argument: str) -> None:
        self._state.asks = False
        self._say("The model may propose changes from now on.")

    async def _yolo(self, _argument: str) -> None:
        """Accept all, or ask again: off is taken back from the run too, and so from a loop that is under way."""
        state = self._state
        if state.run:
            await state.refresh(self._client)
        if not state.accepts():
            state.yolo = True
            return self._say("Every proposal of your next messages is accepted.")
        state.yolo = False
        if state.run:
            await self._client.configure_run(state.project, state.run, settings_pb2.RunSettingsPatch(yolo=False))
            await state.refresh(self._client)
        return self._say("You are asked again, from the next command on.")

    async def _plan(self, _argument: str) -> None:
        plans = [plan async for plan in self._client.list_plans(self._state.project, self._state.its_run())]
        for plan in plans:
            for line in plan_lines(plan):
                put(self._out, line)
        if not plans:
            self._say("There is no plan yet.")

    async def _diff(self, _argument: str) -> None:
        show_changes(self._out, await recorded_changes(self._client, self._state.project, self._state.its_run()))

    async def _undo(self, argument: str) -> None:
        if argument and not _TURN.fullmatch(argument):
            return self._say("Name a turn by its number, or none for the latest: /undo 3", "yellow")
        turn = int(argument or 0)
        return show_undone(self._out, await undone(self._client, self._state.project, self._state.its_run(), turn))

    async def _rewind(self, argument: str) -> None:
        project, run = self._state.project, self._state.its_run()
        answer = await self._client.get_run(project, run, turns_max=TURNS_LISTED)
        prompts = {loop.sequence: safe_line(loop.prompt, PREVIEW_CHARS) for loop in answer.loops}
        if not argument:
            for turn in reversed(answer.turns):
                self._say(f"{turn.number:>4}  {prompts.get(turn.loop, '')}")
            return self._say("Name one by its number: /rewind 3" if answer.turns else "There is no turn yet.")
        if not _TURN.fullmatch(argument):
            return self._say("Name a turn by its number: /rewind 3", "yellow")
        back = session_command_pb2.RewindToTurn(turn=int(argument))
        await self._client.submit(project, run, rewind_to_turn=back)
        await self._state.refresh(self._client)
        about = next((prompts.get(turn.loop, "") for turn in answer.turns if turn.number == back.turn), "")
        self._say(f"The run is as it was at the end of turn {argument}. Files stay as they are.")
        return self._say(f"Its message: {about}", "dim") if about else None

    async def _cost(self, _argument: str) -> None:
        await self._state.refresh(self._client)
        answer = await self._client.get_run(self._state.project, self._state.its_run(), turns_max=PAGE_SIZE_MAX)
        self._say(f"used {spend_words(answer.spent)}")
        models: dict[str, usage_pb2.Usage] = {}
        for turn in answer.turns:
            one, usage = models.setdefault(turn.request.model, usage_pb2.Usage()), turn.result.usage
            one.prompt_tokens += usage.prompt_tokens
            one.cached_tokens += usage.cached_tokens
            one.completion_tokens += usage.completion_tokens
            if usage.HasField("cost_usd"):
                one.cost_usd += usage.cost_usd
        for model, used in models.items():
            unpriced = [] if used.HasField("cost_usd") else ["price unknown"]
            self._say(f"  {safe_line(model)}: {', '.join([*usage_words(used), *unpriced])}")

    async def _runs(self, _argument: str) -> None:
        show_table(RUNS, [run async for run in self._client.list_runs(self._state.project)], empty=NO_RUNS)

    async def _run(self, argument: str) -> None:
        if not argument:
            return self._say("Name a run; /runs lists them.", "yellow")
        self._state.run = await full_alias(self._client, self._state.project, argument)
        await self._state.refresh(self._client)
        return self._say(f"{safe_line(self._state.run)} continues with the next message.")

    def _new(self, _argument: str) -> None:
        self._state.run = ""
        self._say("The next message begins a new run.")
