"""RECORD: the reply and all of its commands become durable before any of them is carried out.

Each command goes through the chain `entry.recording`, in which the runtime's gate and plugins' filters refuse or
replace it. A refused command is recorded as failed and never dispatched. Source: rows RU128-RU131, RU155, RU284, RU293;
architecture 11; decisions C12, C28.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.replies import ToolCall
from turnwright_values.store import EntryWrite
from turnwright_values.types import ClientCall, Mode, ResponseFormat

from turnwright_core.chat.deltas import PartDelta
from turnwright_core.json_schema import answer_problem, answer_text
from turnwright_core.limits import NAME_CHARS_MAX, RECORD_BYTES_MAX, REPLY_CALLS_MAX
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.command_record import CommandRecord, failed
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.policy import GATE, Recording, RecordingContext
from turnwright_executor.domain.records import own_call_id, record_path, target_of
from turnwright_executor.domain.tally import TOO_LARGE_OUTCOME, WORDS_ONLY, LostChange, lost_changes
from turnwright_executor.domain.verdict import ANSWER_INVALID
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.points import ENTRY_RECORDING
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.delegating import handed_on
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.tool_search import called_tool
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.records import error_write, record_bytes
from turnwright_grammar.reply import Command, ReadWarning, Span

if TYPE_CHECKING:
    from turnwright_grammar.reader.parts import PartsReader
    from turnwright_grammar.reply import Reply

TOO_MANY: Final = "too_many_commands"
CUT_REPLY: Final = "cut_reply"
ANSWER: Final = "answer"

UNREADABLE: Final = "unreadable_call"

LOST_KINDS: Final = frozenset({ANSWER, CUT_REPLY, "invented", TOO_MANY, UNREADABLE})
"""Warnings about something lost that is no certain command; the others without one report successful repairs."""

_WRITE_OUTSIDE: Final = "Those that are meant stand in the reply itself, outside of fences, quotes and indented code."

_OUTCOMES: Final = {CUT_REPLY: "cut:400", ANSWER: ANSWER_INVALID}

_CUT_CALL: Final = "The reply was cut off, so this call of {name} was not carried out. Send it again, in smaller parts."
_DROPPED: Final = "Only the first {taken} commands were taken; {dropped} were dropped."
_MORE: Final = "{dropped} or more"

_HALVES: Final = re.compile("[\ud800-\udfff]")

COMMAND_BYTES_MAX: Final = RECORD_BYTES_MAX // 2
"""Maximum size of a command in a record, in bytes: its effect must fit as well."""

RECORD_OVERHEAD_BYTES: Final = 4096
"""More bytes than a record has beside its command."""

RECORDED_ID_CHARS_MAX: Final = 256
"""Longest id of a vendor's call that stands in a record, in code points; the reply keeps longer ones."""

READ_ASIDE_CHARS: Final = 4 * 1024
"""Length from which a reply is parsed in a thread at its end, in code points: the worst case is 10 us each."""

TOO_LARGE = failed(
    TOO_LARGE_OUTCOME,
    f"A command has at most {COMMAND_BYTES_MAX} bytes, and this one is longer. Write it in several parts with APPEND.",
)


class LostCall(Struct, frozen=True):
    """A native call that became no command, and the error for the model."""

    call: ToolCall
    warning: ReadWarning


class ParsedReply(Struct, frozen=True):
    """A parsed reply: its commands, warnings, and the text around them."""

    commands: tuple[Command, ...] = ()
    warnings: tuple[ReadWarning, ...] = ()
    narration: str = ""
    calls: tuple[ToolCall | None, ...] = ()
    """For each command its native call; None, or an empty tuple: a tag."""
    lost_calls: tuple[LostCall, ...] = ()
    lost_changes: tuple[LostChange, ...] = ()
    """Of files, in the order of the reply."""
    dropped: int = 0
    """Commands over the limit, without those that only speak."""
    prose: tuple[Span, ...] | None = None
    """Where the narration stands in the stored text, if that has more."""
    parts: tuple[PartDelta, ...] = ()
    """What those who read the reply in parts are still to be sent."""

    @property
    def ignored(self) -> int:
        """Number of commands that were not run because of where they stood, or because there were too many."""
        return self.dropped + sum(warning.ignored for warning in self.warnings)

    @property
    def losses(self) -> tuple[ReadWarning, ...]:
        """The warnings that the model must read, because something it wrote did not happen."""
        return tuple(filter(_is_loss, self.warnings))

    @property
    def unread(self) -> int:
        """Number of commands that a model wrote so that nobody could read them."""
        return sum(bool(warning.lost) or warning.kind == UNREADABLE for warning in self.warnings)


def _is_loss(warning: ReadWarning) -> bool:
    return bool(warning.lost) or warning.kind in LOST_KINDS


def reply_reader(commands_max: int, tools: Collection[str], *, is_native: bool = False) -> PartsReader:
    """An incremental parser for one reply; `tools` are all tools that exist. `is_native`: as in `read_draft`."""
    # Imported with the first reply: an executor is ready for work long before there is one.
    from turnwright_grammar.reader.parts import PartsReader  # noqa: PLC0415

    return PartsReader(known_tools=frozenset(tools), commands_max=commands_max, calls_only=is_native)


def read_draft(
    draft: Draft,
    commands_max: int,
    tools: Collection[str] = TOOL_ORDER,
    *,
    is_native: bool = False,
    is_stopped: Callable[[], bool] = bool,
) -> ParsedReply:
    """The commands of a reply, those in its text before its native calls; `tools` are all that exist.

    `is_native`: the model was offered native tools, so if it made calls, its text is only text. Of a reply that its
    vendor cut off, everything before the first unfinished thing (C54). What stands before the close of a thought that
    was never opened becomes reasoning in the draft (C59). Once `is_stopped` says so, the result is void. Never raises.
    """
    from turnwright_grammar.reply import Reply  # noqa: PLC0415

    reader, draft.reader = draft.reader, None
    if reader:
        reply, parts = reader.finish(is_cut=draft.is_cut, is_stopped=is_stopped)
    else:
        # It was not parsed while streaming, or it is parsed again: watchers have its parts.
        again, parts = reply_reader(commands_max, tools), []
        reply, _ = again.finish(draft.text, is_cut=draft.is_cut, is_stopped=is_stopped)
    is_text = is_native and bool(draft.calls)
    if reply.thought_ends:
        thought, text = reply.split_thought(draft.text)
        draft.reasoning.append(thought)
        draft.content[:] = [text] if text else []
    if is_text:
        reply = Reply(narration=draft.text)
    found = _Commands(list(reply.commands), list(reply.warnings), [None] * len(reply.commands), dropped=reply.dropped)
    for warning in reply.warnings:
        found.lose(warning, sum(command.span < warning.span for command in reply.commands) if warning.lost else 0)
    if draft.calls and not is_stopped():
        found.add_calls(draft, frozenset(tools))
    found.limit(commands_max)
    storable = tuple(map(_storable, found.commands))
    return ParsedReply(
        storable,
        tuple(found.warnings),
        reply.narration.strip(),
        tuple(found.sources),
        tuple(found.lost),
        tuple(found.lost_changes),
        found.dropped - found.words,
        _prose(reply, draft.text),
        tuple(parts),
    )


def _prose(reply: Reply, text: str) -> tuple[Span, ...] | None:
    """Where the narration stands in the text that is stored, which begins behind the last thought; None: it is all."""
    begin = reply.thought_ends[-1][1] if reply.thought_ends else 0
    spans = tuple((start - begin, end - begin) for start, end in reply.narration_spans)
    return None if reply.narration == text.strip() else spans or ((0, 0),)


class _Commands(Struct):
    """The commands of a reply, while its native calls are read."""

    commands: list[Command]
    warnings: list[ReadWarning]
    sources: list[ToolCall | None]
    """For each command its native call."""
    dropped: int
    """Commands that were not taken: of the text, and at the end of all."""
    words: int = 0
    """Those among them that are known to speak only."""
    more: int = 0
    """Calls that were not read, because there are too many."""
    lost: list[LostCall] = field(default_factory=list)
    lost_changes: list[LostChange] = field(default_factory=list)

    def lose(self, warning: ReadWarning, ordinal: int) -> None:
        """Keep what a warning's commands would have changed; they stood behind so many others."""
        for command in warning.lost:
            self.lost_changes += lost_changes(_storable(command), ordinal)

    def add_calls(self, draft: Draft, tools: frozenset[str]) -> None:
        """Read the native calls of a reply."""
        from turnwright_grammar.native import commands_from_call  # noqa: PLC0415

        is_over = any(warning.kind == CUT_REPLY for warning in self.warnings)
        for number, call in enumerate(draft.calls[:REPLY_CALLS_MAX], 1):
            called, found = commands_from_call(call.name[:NAME_CHARS_MAX], call.arguments, tools)
            if is_over or (draft.is_cut and number == len(draft.calls) and (found or not call.arguments.strip())):
                message = _CUT_CALL.format(name=call.name[:NAME_CHARS_MAX])
                lost = next((warning.lost for warning in found if warning.lost), called)
                found = (ReadWarning(CUT_REPLY, message, (0, 0), lost=lost),)
            self.warnings.extend(found)
            for warning in found:
                self.lose(warning, len(self.commands))
            losses = [LostCall(call, warning) for warning in filter(_is_loss, found)]
            if not (is_over or losses):
                self.commands.extend(called)
                self.sources.append(call)
            self.lost.extend(losses[:1])
        self.more = max(0, len(draft.calls) - REPLY_CALLS_MAX)
        self.words = sum(call.name in WORDS_ONLY for call in draft.calls[REPLY_CALLS_MAX:])

    def limit(self, commands_max: int) -> None:
        """Keep the first commands, and say how many were dropped."""
        over = max(0, len(self.commands) - commands_max)
        if self.more or over:
            self.warnings = [warning for warning in self.warnings if warning.kind != TOO_MANY]
            self.dropped += over + self.more
            self.words += sum(command.name in WORDS_ONLY for command in self.commands[commands_max:])
            counted = _MORE.format(dropped=self.dropped) if self.more else self.dropped
            message = _DROPPED.format(taken=len(self.commands) - over, dropped=counted)
            self.warnings.append(ReadWarning(TOO_MANY, message, (0, 0)))
            calls = dict.fromkeys(self.sources[commands_max:])
            self.lost.extend(LostCall(call, self.warnings[-1]) for call in calls if call)
            del self.commands[commands_max:], self.sources[commands_max:]
        if self.lost:
            # What is sent back has a limit too; what is not in it is told by the warning.
            del self.lost[max(0, REPLY_CALLS_MAX - sum(source is not None for source in self.sources)) :]


async def answer_checked(reading: ParsedReply, form: ResponseFormat | None) -> ParsedReply:
    """The parsed reply for a text meant as an answer, with a warning if it does not match the response format."""
    if form is None or reading.commands or reading.losses or not reading.narration:
        return reading
    problem = await asyncio.to_thread(answer_problem, form.schema, answer_text(reading.narration))
    return replace(reading, warnings=(*reading.warnings, ReadWarning(ANSWER, problem, (0, 0)))) if problem else reading


async def read_aside(
    draft: Draft, commands_max: int, tools: Collection[str], *, is_native: bool = False
) -> ParsedReply:
    """Like `read_draft`, but a long reply is parsed in a thread, to keep the event loop free for lease renewals.

    The thread stops with its caller.
    """
    if len(draft.text) + sum(len(call.arguments) for call in draft.calls) < READ_ASIDE_CHARS:
        return read_draft(draft, commands_max, tools, is_native=is_native)
    stopped = threading.Event()
    try:
        return await asyncio.to_thread(
            read_draft, draft, commands_max, tools, is_native=is_native, is_stopped=stopped.is_set
        )
    finally:
        stopped.set()


def _storable(command: Command) -> Command:
    """The command in storable form: JSON can contain unpaired surrogates, which are not valid text."""
    if len(command.name) > NAME_CHARS_MAX:
        command = replace(command, name=command.name[:NAME_CHARS_MAX])
    if not _HALVES.search("".join(_texts(command))):
        return command
    attributes = {_whole(name): _whole(value) for name, value in command.attributes.items()}
    names = tuple(map(_whole, command.json_names))
    return replace(
        command, name=_whole(command.name), body=_whole(command.body), attributes=attributes, json_names=names
    )


def _texts(command: Command) -> tuple[str, ...]:
    return (command.name, command.body, *command.attributes, *command.attributes.values(), *command.json_names)


def _whole(text: str) -> str:
    return _HALVES.sub("\N{REPLACEMENT CHARACTER}", text)


def loss_writes(turn: int, reading: ParsedReply) -> list[EntryWrite]:
    """One error entry for each thing that the model wrote and that was lost or ignored (RU153, RU284, C67)."""
    ignored = [warning for warning in reading.warnings if warning.ignored]
    lost = [
        error_write(
            f"log://turn_{turn}/error/{warning.kind}_{number}",
            _OUTCOMES.get(warning.kind, "unreadable:400"),
            warning.message,
            _call_of_loss(turn, reading, warning),
        )
        for number, warning in enumerate(reading.losses, 1)
    ]
    return lost + [
        error_write(f"log://turn_{turn}/error/ignored_{number}", "ignored:400", f"{warning.message} {_WRITE_OUTSIDE}")
        for number, warning in enumerate(ignored, 1)
    ]


def _call_of_loss(turn: int, reading: ParsedReply, warning: ReadWarning) -> str:
    """Our id of the single native call that a loss is about; empty if there is none, or several."""
    places = [index for index, lost in enumerate(reading.lost_calls) if lost.warning is warning]
    return lost_call_id(turn, reading, places[0]) if len(places) == 1 else ""


def lost_call_id(turn: int, reading: ParsedReply, place: int) -> str:
    """Our id of a call that became no command: numbered after those that did."""
    return own_call_id(turn, len(reading.commands) + place)


class RecordingGate(Struct, frozen=True):
    """The gate for commands: the chain, in a loop with this mode and these tools."""

    hooks: Hooks
    tools: Mapping[str, Tool]
    at: TurnAddress
    mode: Mode
    offered: tuple[str, ...]
    targets: Mapping[str, str]
    """As in RecordingContext."""
    principal: str = ""
    """The client that called the command; empty: the model wrote it."""

    async def filtered(self, command: Command, ordinal: int) -> Recording:
        """The command after the chain. If a filter replaced it, it must pass the runtime's own rules again."""
        context = RecordingContext(self.at, self.mode, self.offered, ordinal, self.principal, self.targets)
        recording = await self.hooks.apply(ENTRY_RECORDING, Recording(command), context)
        for _, rule in GATE if recording.command is not command else ():
            if recording.is_refused:
                break
            recording = rule(recording, context)
        tool = self.tools.get(recording.command.name)
        if recording.is_refused or not (isinstance(tool, OutsideTool) and tool.is_checked):
            return recording
        # Aside: a schema may take half a second, and the first one loads the library.
        problem = await asyncio.to_thread(tool.problem_with, recording.command)
        return recording.refused("invalid:400", problem) if problem else recording


async def new_records(gate: RecordingGate, reading: ParsedReply) -> list[CommandRecord]:
    """The records of the commands; a refused one is failed before anything is dispatched (RU155)."""
    records: list[CommandRecord] = []
    taken: set[str] = set()
    for ordinal, written in enumerate(reading.commands):
        call = reading.calls[ordinal] if reading.calls else None
        recording = await gate.filtered(handed_on(called_tool(written, gate.tools), gate.tools), ordinal)
        target = target_of(recording.command, gate.targets)
        path = record_path(gate.at.turn, recording.command.name, target, ordinal, taken)
        taken.add(path)
        record = new_record(gate, recording, path, target, ordinal=ordinal)
        if call:
            own_id = own_call_id(gate.at.turn, ordinal)
            vendor_id = call.id if len(call.id) <= RECORDED_ID_CHARS_MAX else ""
            record = replace(record, call_id=own_id, vendor_call_id=vendor_id)
        records.append(record)
    return records


def new_record(
    gate: RecordingGate,
    recording: Recording,
    path: str,
    target: str,
    *,
    ordinal: int | None = None,
    call: ClientCall | None = None,
) -> CommandRecord:
    """The record of a command that has passed the gate: from a reply, or a client's call."""
    command, tool = recording.command, gate.tools.get(recording.command.name)
    effect_class = tool.effect_class if tool else EffectClass.OUTSIDE
    record = CommandRecord(
        path=path,
        tool=command.name,
        target=target,
        command=command,
        ordinal=ordinal,
        effect_class=effect_class,
        key=secrets.token_hex(8) if effect_class is EffectClass.IDEMPOTENT else "",
        call=call,
    )
    if _bytes_at_most(command) > COMMAND_BYTES_MAX and record_bytes(record) > COMMAND_BYTES_MAX:
        name = command.name[:NAME_CHARS_MAX]
        return replace(record, tool=name, target=record.target[:200], command=Command(name)).settled(TOO_LARGE)
    return record.settled(failed(recording.outcome, recording.body)) if recording.is_refused else record


def _bytes_at_most(command: Command) -> int:
    """Upper bound for the size of a new record with this command, which takes no message to find out."""
    texts = (command.body, *command.attributes, *command.attributes.values(), *command.json_names)
    return 4 * sum(map(len, texts)) + 16 * len(texts) + RECORD_OVERHEAD_BYTES
