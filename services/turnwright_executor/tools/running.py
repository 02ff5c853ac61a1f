"""What sh and env share: a command that is proposed, and whose output becomes two channels.

The record stays terse; the output lives in `{tool}://turn_N/{slug}_1` and `_2`, summarized. When the command failed,
channels that hold something become visible, so that the model reads the reason in its next packet without asking.
Source: rows RU009, RU083, RU163, RU170-RU178; decision C30.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from turnwright_core.entries import AppendEntry, EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import SUMMARY_CHARS_MAX
from turnwright_executor.domain.effects import CommandEffect, Effect
from turnwright_executor.domain.records import channel_path
from turnwright_executor.tools.contract import Context, Done, Proposed, failed
from turnwright_executor.tools.limits import ToolLimits
from turnwright_executor.tools.listing import plural
from turnwright_executor.tools.ports import CommandEnd
from turnwright_grammar import Command

CHANNELS: Final = (1, 2)
CLOSE_TIMEOUT_S: Final = 5.0
"""Seconds that a cancelled command may take to say in the store that its output is complete."""


@dataclass(slots=True)
class _Channel:
    """One stream of output as it grows. Mutable: counted while the command runs."""

    path: str
    lines: int = 0
    bytes_: int = 0
    open_line: bool = False

    def count(self, text: str) -> None:
        """Take a piece of output into account."""
        self.lines += text.count("\n")
        self.bytes_ += len(text.encode())
        self.open_line = not text.endswith("\n")

    @property
    def line_count(self) -> int:
        return self.lines + self.open_line


class Running:
    """A tool that runs shell commands."""

    name = ""
    outside = True

    def __init__(self, limits: ToolLimits) -> None:
        """Keep to these limits."""
        self._limits = limits

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:  # noqa: ARG002
        """Propose to run the command."""
        text = command.attributes.get("command", "").strip()
        if not text:
            return failed("invalid:400", f"<{self.name}> needs a command: <{self.name}>ls -la</{self.name}>.")
        return Proposed(CommandEffect(text, self._limits.command_timeout_s), f"run '{text}'")

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """Run the command to its end."""
        if not isinstance(effect, CommandEffect):
            return failed("invalid:400", f"<{command.name}> runs commands and changes no files itself.")
        channels = {number: _Channel(channel_path(context.record_path, number)) for number in CHANNELS}
        await context.entries.write([_opened(channel, number, effect.command) for number, channel in channels.items()])

        async def keep(number: int, text: str) -> None:
            channels[number].count(text)
            await context.entries.write([EntryWrite(channels[number].path, AppendEntry(text), Tier.PLUGIN)])

        try:
            end = await context.shell.run(effect.command, effect.timeout_s, keep)
        except asyncio.CancelledError:
            with suppress(TurnwrightError, TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await context.entries.write(_closed(channels, State.CANCELLED, "aborted:499"))
            raise
        except OSError as error:
            text = f"'{effect.command}' could not be started: {error.strerror}."
            outcome = "unstartable:500"
            return Done(text, State.FAILED, outcome, writes=tuple(_closed(channels, State.FAILED, outcome)))
        return _ended(effect, end, channels)


def _opened(channel: _Channel, number: int, command: str) -> EntryWrite:
    summary = " ".join(command.split())[:SUMMARY_CHARS_MAX]
    attributes = to_attributes_json({"command": command, "channel": number, "summary": summary})
    change = SetEntry("", attributes, visibility=Visibility.SUMMARIZED, state=State.STREAMING)
    return EntryWrite(channel.path, change, Tier.PLUGIN)


def _closed(channels: dict[int, _Channel], state: State, outcome: str) -> list[EntryWrite]:
    return [
        EntryWrite(
            channel.path,
            SetEntry(
                state=state,
                outcome=outcome,
                visibility=Visibility.VISIBLE if state is State.FAILED and channel.bytes_ else Visibility.UNSPECIFIED,
            ),
            Tier.PLUGIN,
        )
        for channel in channels.values()
    ]


def _ended(effect: CommandEffect, end: CommandEnd, channels: dict[int, _Channel]) -> Done:
    outcome = _outcome(end)
    state = State.FAILED if outcome else State.RESOLVED
    how = f"stopped after {effect.timeout_s:g} s" if end.timed_out else f"exit={end.exit_code}"
    output = ", ".join(f"{channel.path} ({_size(channel)})" for channel in channels.values())
    body = f"ran '{effect.command}', {how}, Output: {output}"
    return Done(body, state, outcome, _figures(end, channels), tuple(_closed(channels, state, outcome)))


def _outcome(end: CommandEnd) -> str:
    if end.timed_out:
        return "timeout:504"
    if end.exit_code < 0:
        return f"signal_{-end.exit_code}:500"
    return f"exit_{end.exit_code}:500" if end.exit_code else ""


def _size(channel: _Channel) -> str:
    return plural(channel.line_count, "line") if channel.bytes_ else "empty"


def _figures(end: CommandEnd, channels: dict[int, _Channel]) -> dict[str, Any]:
    """Exit code, seconds and sizes, as row RU176 wants them on the record."""
    sizes = [
        {"path": channel.path, "lines": channel.line_count, "bytes": channel.bytes_} for channel in channels.values()
    ]
    cut = {"output_cut": True} if end.output_cut else {}
    return {"exit_code": end.exit_code, "duration_s": round(end.duration_s, 3), "channels": sizes} | cut
