"""Tools of servers: the adapter between one of them and the pipeline, and the port by which it is called.

A call of such a tool is an effect like any other: proposed unless the tool changes nothing, marked, carried out, and
after a crash told of as its effect class says. One that `proposes` is asked first what it would do.
Source: architecture 6; docs/adr/0081.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Mode, State

from turnwright_core.json_text import JsonObject
from turnwright_core.streams import STOPPED
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord, Done, failed
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.domain.model_questions import STATE_BYTES_MAX, CallQuestion, ModelAnswer
from turnwright_executor.domain.tool_result import ToolResult, done_of
from turnwright_executor.domain.tool_spec import ServedTool
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.tools.contract import Context, OutcomeUnknownError, Proposed
from turnwright_executor.tools.output import CommandOutput, OutputEndedError
from turnwright_executor.tools.outside import OutsideTool, arguments_of
from turnwright_grammar.reply import Command

T = TypeVar("T")

EFFECTS: Final = "It may have had effects: look before you do it again."

ATTEMPTS_MAX: Final = 3
"""How often a call is sent that may be repeated."""

ASKS_MAX: Final = 20
"""How often one call may ask a model."""

ROUNDS_MAX: Final = 20
"""Proposals of one call: a server that asks for ever is not asked for ever."""

PROPOSAL_CHARS_MAX: Final = 64 * 1024
PROGRESS_BYTES_MAX: Final = 16 * 1024 * 1024
WAITING_CHARS_MAX: Final = 256 * 1024
"""Of progress that waits to be stored, in code points; then the server waits, too."""
PIECES_MAX: Final = 10_000
"""Pieces of progress after which each takes at least PIECE_S: a server that floods is read slowly."""
PIECE_S: Final = 0.001
SHOWN_ARGUMENTS_CHARS_MAX: Final = 4000


class RemoteCall(Struct, frozen=True):
    """One attempt of a call."""

    project: str
    run: str
    call_id: str
    tool: str
    """As its server names it."""
    arguments: str
    epoch: int
    key: str
    principal: str
    tool_version: str = ""
    state: bytes | None = None
    """What the server has given with its proposal; None: there was none."""
    comment: str = ""
    registration: str = ""
    """Of the server that the call is for; another one with its name does not get it."""
    calls_back: bool = False
    """Whether its server may call the runtime while it lasts."""
    timeout_s: float = 0.0
    """Time limit of all attempts together; 0: that of its server."""
    answer: tuple[ModelAnswer, bytes] | None = None
    """What a model has said to it, with the state that the server has given with its question."""
    began_s: float = 0.0
    """When the first attempt began, by the monotonic clock: its server is waited for. 0: this is it."""
    is_repeatable: bool = False
    """Whether it is sent again, with the same key, if nobody knows what became of it."""
    away_s: float = 0.0
    """How long a server that has left is waited for before it is sent again; 0: to the end of the call."""
    is_awaited: bool = False
    """Whether one that is away is waited for before it is sent at all."""


class CallProgress(Struct, frozen=True):
    """Text that a running call appends to its output."""

    text: str
    channel: int = 0
    """As in ToolProgress."""


class CallProposal(Struct, frozen=True):
    """A call that waits for a decision."""

    body: str
    state: bytes


CallEvent = CallProgress | CallProposal | CallQuestion | ToolResult


_Passed = CallProgress | CallProposal | ToolResult


class CallFailedError(Exception):
    """A call that came to no result. `outcome` is `word:code`; the text tells the model what to do."""

    def __init__(self, outcome: str, text: str, *, is_sent: bool, is_lost: bool = False) -> None:
        """`is_sent`: the server may have begun it. `is_lost`: nobody knows whether it has ended."""
        super().__init__(text)
        self.outcome, self.is_sent, self.is_lost = outcome, is_sent, is_lost


class ToolServers(Protocol):
    """The servers of tools, as a loop's tools call them."""

    def dispatch(self, server: str, call: RemoteCall) -> AsyncGenerator[CallEvent]:
        """What a call comes to; its last event is a proposal, a question or a result. Iterating raises CallFailedError.

        `server` is one of the call's project, or of the deployment. Closing the generator stops the call.
        """

    def cancel(self, server: str, call: RemoteCall) -> None:
        """Tell a server, in the background, that what it has proposed for a call is not carried out. Raises nothing."""


async def attempts(call: RemoteCall, sent: Callable[[RemoteCall], AsyncGenerator[T]]) -> AsyncGenerator[T | None]:
    """The events of a call; None: it is sent again, and what came before counts no more. Raises CallFailedError."""
    began_s, was_sent = time.monotonic(), False
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            async with aclosing(sent(call)) as events:
                async for event in events:
                    yield event
            return
        except CallFailedError as error:
            error.is_sent = was_sent = was_sent or error.is_sent
            is_repeated = error.is_lost and call.is_repeatable and not error.outcome.endswith("504")
            is_awaited = call.is_awaited and attempt == 1 and not was_sent
            if attempt == ATTEMPTS_MAX or not (is_repeated or is_awaited):
                raise
        call = replace(call, began_s=began_s)
        yield None


class RemoteTool(OutsideTool):
    """One tool of a server; implements Tool."""

    is_checked = True

    def __init__(self, spec: ServedTool, servers: ToolServers) -> None:
        self.name = spec.name
        self.effect_class = spec.effect_class
        self.spec = spec
        self.descriptor = ToolDescriptor(spec.name, "act" if spec.asks else "gather", spec.needs, "")
        self.doc = text_of(spec)
        self._servers = servers
        self._schema = spec.shown_schema

    @property
    def schema(self) -> JsonObject:
        return self._schema

    @property
    def schema_text(self) -> str:
        return self.spec.schema

    @property
    def native_text(self) -> str:
        return self.spec.description or self.spec.title or self.name

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        if not self.spec.proposes:
            return Proposed(CallEffect(self._effect()), self._question(command), needs_decision=self.spec.asks)
        try:
            return await self._called(command, context, 0, None)
        except OutcomeUnknownError as error:
            # It has changed nothing.
            return failed("unavailable:503", str(error))

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done | Proposed:
        if not isinstance(effect, CallEffect):
            return failed("invalid:400", f"{self.name} is carried out by its server.")
        state, rounds = effect.data.get("state"), int(effect.data.get("round", 0))
        number = rounds + 1 - self.spec.proposes
        output = CommandOutput(context, self.name, numbers=(number,)) if number in (1, 2) else None
        return await self._called(command, context, rounds, None if state is None else base64.b64decode(state), output)

    def _effect(self, **more: object) -> JsonObject:
        return {"server": self.spec.server, "tool": self.spec.server_name, **more}

    def _question(self, command: Command) -> str:
        """What whoever decides reads of a call."""
        spec = self.spec
        arguments = json.dumps(arguments_of(command, self._schema), ensure_ascii=False, indent=1)
        if len(arguments) > SHOWN_ARGUMENTS_CHARS_MAX:
            arguments = f"{arguments[:SHOWN_ARGUMENTS_CHARS_MAX]} ... ({len(arguments)} characters)"
        warning = " It may destroy what was there." if spec.destructive else ""
        return f"call {self.name}{f' ({spec.title})' if spec.title else ''} with {arguments}.{warning}"

    async def _called(
        self, command: Command, context: Context, rounds: int, state: bytes | None, output: CommandOutput | None = None
    ) -> Done | Proposed:
        call = RemoteCall(
            context.project,
            context.run,
            context.record_path,
            self.spec.server_name,
            json.dumps(arguments_of(command, self._schema), ensure_ascii=False),
            context.epoch,
            context.key or _key(context),
            context.principal,
            self.spec.version,
            state,
            context.comment,
            self.spec.registration,
            # What was not accepted changes nothing, and so gets nothing that could.
            self.spec.asks and context.mode is not Mode.ASK and (rounds > 0 or not self.spec.proposes),
            is_repeatable=self.effect_class is not EffectClass.OUTSIDE,
        )
        running = _Running(output)
        try:
            event = await running.to_end(attempts(call, lambda attempt: self._answered(attempt, context)))
        except OutputEndedError:
            return Done(f"{self.name} was stopped: it may have had effects.", State.FAILED, STOPPED)
        except CallFailedError as error:
            if not error.is_sent:
                context.not_started()
            if error.is_lost and self.effect_class is EffectClass.OUTSIDE:
                await running.close(State.FAILED)
                raise OutcomeUnknownError(str(error)) from None
            in_doubt = error.is_sent and self.effect_class is EffectClass.OUTSIDE and error.outcome[-3:] >= "500"
            return running.done(failed(error.outcome, f"{error} {EFFECTS}" if in_doubt else str(error)))
        if isinstance(event, CallProposal):
            await running.close(State.RESOLVED)
            proposed = self._proposed(event, context, rounds)
            if isinstance(proposed, Done):
                self._servers.cancel(self.spec.server, call)
            return proposed
        return running.done(done_of(event, context.record_path))

    async def _answered(self, call: RemoteCall, context: Context) -> AsyncGenerator[_Passed]:
        """The events of one attempt, with models asked between one Dispatch and the next."""
        for number in range(ASKS_MAX + 1):
            asked: CallQuestion | None = None
            try:
                async with aclosing(self._servers.dispatch(self.spec.server, call)) as events:
                    async for event in events:
                        if isinstance(event, CallQuestion):
                            asked = event
                        else:
                            yield event
            except CallFailedError as error:
                if number > 0 and not error.is_sent:
                    # It had begun, and nobody knows how far it went.
                    error.is_sent = error.is_lost = True
                raise
            if asked is None:
                return
            try:
                call = replace(call, state=None, answer=(await self._answer(asked, number, context), asked.state))
            except BaseException:
                # The server waits, and nobody goes on with it.
                self._servers.cancel(self.spec.server, call)
                raise

    async def _answer(self, asked: CallQuestion, number: int, context: Context) -> ModelAnswer:
        """What a model says, or why none does. Raises CallFailedError for one question too many."""
        if number == ASKS_MAX:
            text = f"{self.name} has asked a model {number + 1} times in one call and came to no result."
            raise CallFailedError("asked_again:500", text, is_sent=True)
        if asked.question is None:
            return ModelAnswer(problem=asked.problem)
        if context.models is None:
            text = "A model is asked for a task only: a client has called this tool, and nothing pays."
            return ModelAnswer(problem=text)
        return await context.models.ask(asked.question, number)

    def _proposed(self, proposal: CallProposal, context: Context, rounds: int) -> Done | Proposed:
        if context.mode is Mode.ASK:
            return failed("permission:403", "Ask mode is read-only, and the tool wants to change something.")
        if rounds >= ROUNDS_MAX:
            return failed("asked_again:500", f"{self.name} has asked {rounds} times and came to no result.")
        if len(proposal.state) > STATE_BYTES_MAX:
            return failed("too_large:413", f"The server of {self.name} wants {len(proposal.state)} bytes to be kept.")
        state = base64.b64encode(proposal.state).decode()
        body = proposal.body.replace("\0", "")[:PROPOSAL_CHARS_MAX] or f"call {self.name}"
        return Proposed(CallEffect(self._effect(state=state, round=rounds + 1)), body)


class _Running:
    """A call in progress and its output, which begins with the first piece of progress. Mutable."""

    def __init__(self, output: CommandOutput | None) -> None:
        self._output = output
        self._is_open = False
        self._bytes = 0
        self._pieces = 0
        self._waiting: list[str] = []
        self._chars = 0
        self._storing: asyncio.Task[None] | None = None

    async def to_end(self, events: AsyncGenerator[_Passed | None]) -> CallProposal | ToolResult:
        """The last event. Raises CallFailedError; OutputEndedError if somebody ends the output."""
        working = asyncio.ensure_future(self._last(events))
        tasks: list[asyncio.Future[object]] = [working]  # type: ignore[list-item]
        if self._output:
            tasks.append(asyncio.ensure_future(self._output.context.ended(self._output.paths)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise OutputEndedError
            return working.result()
        finally:
            tasks += [self._storing] if self._storing else []  # type: ignore[list-item]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _last(self, events: AsyncGenerator[_Passed | None]) -> CallProposal | ToolResult:
        async with aclosing(events):
            async for event in events:
                if isinstance(event, CallProgress):
                    await self._grow(event.text.replace("\0", ""))
                elif event is not None:
                    if self._storing:
                        await self._storing
                    return event
        raise CallFailedError("protocol:502", "The server ended the call without a result.", is_sent=True, is_lost=True)

    async def _grow(self, text: str) -> None:
        """Take a piece. What comes while an earlier one is being stored is stored together after it."""
        self._pieces += 1
        if self._pieces > PIECES_MAX:
            await asyncio.sleep(PIECE_S)
        left = PROGRESS_BYTES_MAX - self._bytes
        text = text[:left].encode()[:left].decode(errors="ignore")
        if not self._output or not text:
            return
        self._bytes += len(text.encode())
        self._waiting.append(text)
        self._chars += len(text)
        if self._storing is None or self._storing.done():
            if self._storing:
                self._storing.result()
            self._storing = asyncio.create_task(self._store(self._output), name="progress of a call")
        if self._chars > WAITING_CHARS_MAX:
            await self._storing

    async def _store(self, output: CommandOutput) -> None:
        if not self._is_open:
            await output.open()
            self._is_open = True
        while self._waiting:
            text = "".join(self._waiting)
            self._waiting.clear()
            self._chars = 0
            await output.append(output.numbers[0], text)

    async def close(self, state: State) -> None:
        if self._output and self._is_open:
            outcome = "" if state is State.RESOLVED else STOPPED
            await self._output.context.entries.write(self._output.closed(state, outcome))

    def done(self, done: Done) -> Done:
        """The result with the end of the output."""
        if not self._output or not self._is_open:
            return done
        closed = self._output.closed(done.state, done.outcome)
        body = f"{done.body}\n\nOutput: {self._output.summary()}".lstrip()
        return replace(done, body=body, writes=(*closed, *done.writes))


def give_up(servers: ToolServers, address: RunAddress, epoch: int, record: CommandRecord) -> None:
    """Tell the server that has made a proposal that nobody carries it out. Nothing happens for any other record."""
    effect = record.effect
    if isinstance(effect, CallEffect) and effect.data.get("state") is not None and not record.is_dispatched:
        tool = str(effect.data["tool"])
        call = RemoteCall(address.project, address.run, record.path, tool, "", epoch, key="", principal="")
        servers.cancel(str(effect.data["server"]), call)


def _key(context: Context) -> str:
    """The key of a call that has none of its own: it follows from its record."""
    return hashlib.sha256(f"{context.project}\0{context.run}\0{context.record_path}".encode()).hexdigest()[:32]


def text_of(spec: ServedTool) -> str:
    """What a model that writes tags reads about a tool: a server's words in lines that cannot pass for ours."""
    schema = spec.shown_schema
    given = schema.get("properties")
    properties = given if isinstance(given, dict) else {}
    required = schema.get("required")
    needed = [name for name in properties if isinstance(required, list) and name in required]
    shown = "".join(f' {_line(name)}="..."' for name in needed)
    first, *rest = (spec.description or spec.title or spec.server_name).strip().splitlines() or [spec.name]
    lines = [f"## <{spec.name}{shown}/> - {first}", *(f"> {line}" for line in rest if line.strip())]
    for name, about in properties.items():
        lines.append(
            f"* `{_line(name)}`{_of_argument(about if isinstance(about, dict) else {}, is_needed=name in needed)}"
        )
    return "\n".join(lines).replace("\0", "")


def _line(text: str) -> str:
    return " ".join(text.split())


def _of_argument(about: JsonObject, *, is_needed: bool) -> str:
    types = about.get("type", "")
    kind = " or ".join(map(str, types)) if isinstance(types, list) else str(types)
    words = about.get("enum")
    if isinstance(words, list):
        kind = ", ".join(json.dumps(word, ensure_ascii=False) for word in words[:32])
    marks = ", ".join(filter(None, [kind, "required" if is_needed else ""]))
    text = _line(str(about.get("description", "")))
    return f"{f' ({marks})' if marks else ''}{f': {text}' if text else ''}"
