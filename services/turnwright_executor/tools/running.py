"""sh and env: a proposed shell command whose output becomes two channels.

The record is short; the output is in `{tool}://turn_N/{slug}_1` and `_2`, summarized. If the command failed, short non-
empty channels become visible, so that the model reads the reason in its next packet without asking; of a long one it
reads the end, in the summary. Ending the channels of a running command stops it; the turn continues.
Source: rows RU009, RU083, RU163, RU170-RU178, RU237; decisions C30, C36, C63.
"""

from __future__ import annotations

import asyncio
import time

from turnwright_values.types import CommandEffect, State

from turnwright_core.json_text import JsonObject
from turnwright_core.streams import PRODUCER, STOPPED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.tools.contract import Context, Proposed
from turnwright_executor.tools.listing import changed_files
from turnwright_executor.tools.output import CommandOutput, OutputEndedError
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.ports import CommandEnd
from turnwright_grammar.reply import Command


class Running:
    """A tool that runs shell commands."""

    name = ""
    parameters = (ToolParameter("command", "The command line.", required=True),)
    effect_class = EffectClass.OUTSIDE

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        return self._proposed(command, context)

    def _proposed(self, command: Command, context: Context, *, read_only: bool = False) -> Done | Proposed:
        if refusal := context.shell.refusal:
            return failed("permission:403", f"{refusal}.")
        text = command.attributes.get("command", "").strip()
        if not text:
            return failed("invalid:400", f"<{self.name}> needs a command: <{self.name}>ls -la</{self.name}>.")
        effect = CommandEffect(text, self._settings.sh_timeout_s, read_only)
        return Proposed(effect, f"run '{text}'", needs_decision=not read_only)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        if not isinstance(effect, CommandEffect):
            return failed("invalid:400", f"<{command.name}> runs commands and changes no files itself.")
        output = CommandOutput(context, effect.command, effect.producer)
        if effect.producer:
            return _handed_over(effect, output)
        began_s = time.monotonic()
        try:
            end = await _run(effect, context, output, self._settings.sh_beat_s)
        except asyncio.CancelledError:
            context.stopped(_stopped(effect, time.monotonic() - began_s, output))
            raise
        except OutputEndedError:
            return _stopped(effect, time.monotonic() - began_s, output, is_ended=True)
        except OSError as error:
            text = f"'{effect.command}' could not be started: {error.strerror}."
            outcome = "unstartable:500"
            return Done(text, State.FAILED, outcome, writes=output.closed(State.FAILED, outcome))
        return _ended(effect, end, output)


class Sh(Running):
    """Runs after acceptance."""

    name = "sh"


class Env(Running):
    """Runs at once if the sandbox keeps the project unchanged, else after acceptance.

    Limits alone cannot make the project read-only; then somebody must approve each command, and if nobody does, as in a
    yolo run, the command is refused (C30).
    """

    name = "env"

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Propose to run the command; refuse it if it would run unapproved and could change the project."""
        if context.shell.keeps_read_only:
            return self._proposed(command, context, read_only=True)
        if context.yolo and not context.shell.refusal:
            return failed(
                "permission:403",
                "<env> promises to change nothing, which cannot be enforced here, and nobody reviews this run. "
                "Use <sh> where it is available, or <get> to read files.",
            )
        return self._proposed(command, context)


async def _run(effect: CommandEffect, context: Context, output: CommandOutput, beat_s: float) -> CommandEnd:
    """Run the command, and stop it if somebody ends its output. Raises OutputEndedError, OSError."""
    # The watch for ends needs the state before the channels are opened, which may be the second time.
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(context.ended(output.paths))]
    try:
        try:
            await output.open()
        except BaseException:
            context.not_started()
            raise
        running = asyncio.create_task(
            context.shell.run(
                effect.command,
                effect.timeout_s,
                output.append,
                read_only=effect.read_only,
                is_owners=context.is_owners,
                network=context.network,
            )
        )
        tasks.append(running)
        if not context.epoch:
            tasks.append(asyncio.create_task(output.send_heartbeats(beat_s)))
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise OutputEndedError
        return running.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _handed_over(effect: CommandEffect, output: CommandOutput) -> Done:
    """The client runs it from here on, and ends its channels and its record (RU170)."""
    body = f"started '{effect.command}', Output: {', '.join(output.paths)}"
    return Done(body, attributes={PRODUCER: effect.producer}, writes=output.opened())


def _stopped(effect: CommandEffect, duration_s: float, output: CommandOutput, *, is_ended: bool = False) -> Done:
    """It was stopped, by its owner or by somebody who ended its channels (`is_ended`): it may have had effects."""
    how = f"stopped after {duration_s:.1f} s: it may have had effects"
    figures = {"duration_s": round(duration_s, 3), "channels": output.size_attributes()}
    writes = () if is_ended else output.closed(State.FAILED, STOPPED)
    return Done(_result_body(effect, how, output), State.FAILED, STOPPED, figures, writes)


def _ended(effect: CommandEffect, end: CommandEnd, output: CommandOutput) -> Done:
    outcome = _outcome(end)
    state = State.FAILED if outcome else State.RESOLVED
    body = _result_body(effect, _how(effect, end), output)
    return Done(body, state, outcome, _figures(end, output), output.closed(state, outcome))


def _result_body(effect: CommandEffect, how: str, output: CommandOutput) -> str:
    body = f"ran '{effect.command}', {how}, Output: {output.summary()}"
    return f"{body}\n\n{output.tail()}".rstrip() if output.context.is_transcript else body


def _how(effect: CommandEffect, end: CommandEnd) -> str:
    if end.timed_out:
        return f"stopped after {effect.timeout_s:g} s"
    if end.out_of_memory:
        return "stopped because its processes held more memory than a command may"
    return "stopped with too many processes" if end.too_many_processes else f"exit={end.exit_code}"


def _outcome(end: CommandEnd) -> str:
    if end.timed_out:
        return "timeout:504"
    if end.too_many_processes:
        return "processes:500"
    if end.out_of_memory:
        return "memory:500"
    if end.exit_code < 0:
        return f"signal_{-end.exit_code}:500"
    return f"exit_{end.exit_code}:500" if end.exit_code else ""


def _figures(end: CommandEnd, output: CommandOutput) -> JsonObject:
    """Exit code, seconds and sizes, as row RU176 requires for the record."""
    figures = {"exit_code": end.exit_code, "duration_s": round(end.duration_s, 3), "channels": output.size_attributes()}
    if end.output_cut:
        figures["output_cut"] = True
    if end.changed is not None:
        figures |= changed_files({"path": file.path, "kind": file.kind} for file in end.changed)
    return figures
