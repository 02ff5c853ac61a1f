"""One model call: deltas go to the watchers as they arrive, the complete reply to the loop.

Source: architecture 7, 8; rows RU243, RE05.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Final, Protocol

from turnwright_values.provider import Finish, Retry
from turnwright_values.types import CallStyle, Model, RunPath, Turn, Usage

from turnwright_core.backoff import Backoff
from turnwright_core.chat.deltas import AppendContent, AppendReasoning, Delta, PartDelta, SetToolCalls, SetUsage
from turnwright_core.chat.message import Image
from turnwright_core.chat.reply import PartialReply
from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault
from turnwright_core.model_calls import REFUSABLE, GeneratePart
from turnwright_executor.domain.endings import AWAY, outcome_of
from turnwright_executor.ports.models import Models
from turnwright_executor.ports.packets import AssembledMessage
from turnwright_executor.ports.publishing import Activity, Publisher, StreamBegan, StreamBroke, StreamGrew

if TYPE_CHECKING:
    from turnwright_grammar.reader.parts import PartsReader

ATTEMPTS_MAX: Final = 3
"""Maximum model calls of a turn if streams break off: each may be charged in full."""

RESTART_BACKOFF: Final = Backoff(1.0, 5.0)
"""Backoff before a model call whose stream broke off is repeated."""

UNTOLD: Final = (Reason.STREAM_INTERRUPTED, Reason.VENDOR_TIMEOUT, Reason.VENDOR_PROTOCOL, Reason.INTERNAL)
"""Errors after which the vendor may have served the call although nothing arrived."""


SILENT_S: Final = 10.0
"""Seconds after which people are told that a vendor sends nothing, and then after twice as long each time."""


class SilenceAlarm:
    """Reports how long nothing was received."""

    def __init__(self, after_s: float, report: Callable[[float], None]) -> None:
        """`report` gets the seconds of silence: `after_s`, twice that, and so on."""
        self._after_s = self._due_s = after_s
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._begin_s = self._loop.time()
        self._timer = self._loop.call_later(after_s, self._ring)

    def restart(self, pause_s: float = 0.0) -> None:
        """Something was received; for this many seconds nothing more is expected. Costs no timer."""
        self._begin_s, self._due_s = self._loop.time() + pause_s, self._after_s

    def _ring(self) -> None:
        left_s = self._begin_s + self._due_s - self._loop.time()
        if left_s <= 0:
            self._report(self._due_s)
            left_s += self._due_s
            self._due_s *= 2
        self._timer = self._loop.call_later(left_s, self._ring)

    def stop(self) -> None:
        self._timer.cancel()


class Draft(PartialReply):
    """The reply while it streams; it holds what had arrived if the call is interrupted."""

    finish: str = ""
    is_cut: bool = False
    """Whether the vendor cut the reply off."""
    vendor_model: str = ""
    """The model that answered, by the vendor's name."""
    dropped: tuple[str, ...] = ()
    """Fields of the request that did not reach the vendor."""
    first_delta_ms: int = 0
    model_ms: int = 0
    bytes_: int = 0
    retried: tuple[Usage, ...] = ()
    """What failed attempts of the call have consumed, as far as the vendor reported it."""
    unmade_calls: int = 0
    """Calls of the turn that were counted but consumed nothing: the vendor refused them, or was not reached."""
    work_ms: int = 0
    """Working time of the turn in milliseconds when it was left."""
    turn: int = 0
    """Its turn; 0: none."""
    path: RunPath | None = None
    """Where the turn runs."""
    is_whole: bool = False
    """Whether the reply is complete."""
    reader: PartsReader | None = None
    """The incremental parser; None: everything is parsed at the end."""

    def take(self, delta: Delta) -> Sequence[PartDelta] | None:
        """Grow by one increment. Returns what it comes to for who reads the reply in parts; None: itself."""
        self.add(delta)
        match delta:
            case AppendContent(text):
                self.bytes_ += len(text.encode())
                return self.reader.feed(text) if self.reader else None
            case AppendReasoning(text):
                self.bytes_ += len(text.encode())
            case SetToolCalls(calls) if self.reader:
                return self.reader.call([(call.name, call.arguments) for call in calls], self.text)
            case _:
                pass
        return None


class NewReader(Protocol):
    """Makes the reader of a reply, given whether the model is offered native tools."""

    def __call__(self, *, is_native: bool) -> PartsReader: ...


class Generation:
    """Makes the model call of a turn, and repeats it if its stream breaks off."""

    def __init__(
        self,
        models: Models,
        reply_bytes_max: int,
        clock_s: Callable[[], float],
        reader: NewReader,
        silent_s: float = SILENT_S,
    ) -> None:
        """`clock_s` is a monotonic clock in seconds, `reader` makes what reads a reply; `silent_s`: see SILENT_S."""
        self._silent_s = silent_s
        self._models = models
        self._reply_bytes_max = reply_bytes_max
        self._clock_s = clock_s
        self._reader = reader

    def reading(self, reader: NewReader) -> Generation:
        """The same with another reader."""
        return Generation(self._models, self._reply_bytes_max, self._clock_s, reader, self._silent_s)

    async def run(
        self,
        publisher: Publisher,
        turn: Turn,
        model: Model,
        messages: Sequence[AssembledMessage],
        call_index: int,
        begin: Callable[[], Draft],
        again: Callable[[], Awaitable[None]],
        sleeps: Callable[[], None],
        images: Sequence[Image] = (),
        *,
        refused: tuple[str, ...] = (),
        limits_cost: bool,
    ) -> None:
        """Fill a draft with the reply. Raises TurnwrightError; the draft then holds what came before.

        `begin` gives the draft of each call, empty. `refused`, `limits_cost`: see Models. `again` is told of a call
        that is lost and shall be made again; what it raises ends the calls. `sleeps` is told before it waits for
        another attempt.
        """
        for attempt in range(1, ATTEMPTS_MAX + 1):
            draft = begin()
            is_native = turn.request.calls is CallStyle.NATIVE
            draft.reader, draft.dropped = self._reader(is_native=is_native), refused
            try:
                call = self._models.generate(
                    model, messages, turn.request, call_index, images=images, refused=refused, limits_cost=limits_cost
                )
                await self._stream(publisher, turn, model, call, draft, sleeps)
            except TurnwrightError as error:
                draft.unmade_calls += not may_cost(draft, error)
                publisher.stream(turn.number, StreamBroke(outcome_of(error)))
                if error.reason is not Reason.STREAM_INTERRUPTED or attempt == ATTEMPTS_MAX:
                    raise
                refused = tuple(name for name in draft.dropped if name in REFUSABLE)
                await again()
                wait_s = RESTART_BACKOFF.pause_s(attempt)
                publisher.progress(Activity.RETRYING, turn.number, error.message, wait_s)
                sleeps()
                await asyncio.sleep(wait_s)
            else:
                return

    async def _stream(
        self,
        publisher: Publisher,
        turn: Turn,
        model: Model,
        call: AbstractAsyncContextManager[AsyncIterator[GeneratePart]],
        draft: Draft,
        sleeps: Callable[[], None],
    ) -> None:
        begin_s = self._clock_s()
        publisher.progress(Activity.THINKING, turn.number, model.vendor_model)
        publisher.stream(turn.number, StreamBegan())

        def warn(silent_s: float) -> None:
            silent = f"{model.vendor_model} has sent nothing for {silent_s:g} s"
            publisher.progress(Activity.THINKING, turn.number, f"{model.vendor_model}, silent for {silent_s:g} s")
            publisher.warn(f"{silent}. It may be busy or loading the model; an abort ends the wait.")

        alarm, left_out = SilenceAlarm(self._silent_s, warn), draft.dropped
        async with AsyncExitStack() as stack:
            stack.callback(alarm.stop)
            stream = await stack.enter_async_context(call)
            async for event in stream:
                alarm.restart(event.wait_s if isinstance(event, Retry) else 0.0)
                is_first = not draft.first_delta_ms and not isinstance(event, SetUsage | Retry | Finish)
                if is_first:
                    draft.first_delta_ms, draft.dropped = _elapsed_ms(begin_s, self._clock_s()), left_out
                if isinstance(event, Retry):
                    left_out = event.refused or left_out
                    sleeps()
                _fold(draft, event, publisher, turn.number)
                self._check_length(draft)
                if is_first:
                    # Watchers are sent it before what came with it is worked on.
                    await asyncio.sleep(0)
        draft.model_ms = _elapsed_ms(begin_s, self._clock_s())
        draft.is_whole = True

    def _check_length(self, draft: Draft) -> None:
        called = sum(len(call.arguments) for call in draft.calls)
        if draft.bytes_ + called > self._reply_bytes_max:
            raise fault(
                Reason.VENDOR_PROTOCOL,
                f"The reply is longer than {self._reply_bytes_max} bytes and does not end; it was given up.",
                detail="reply_bytes_max",
            )


def _elapsed_ms(begin_s: float, end_s: float) -> int:
    return max(1, round((end_s - begin_s) * 1000))


def may_cost(draft: Draft, error: TurnwrightError) -> bool:
    """Whether the vendor may want to be paid for a call that ended so."""
    if draft.text or draft.thoughts or draft.calls or draft.usage.total_tokens or error.reason in UNTOLD:
        return True
    return error.reason in AWAY and ANSWERED in error.metadata


def _fold(draft: Draft, event: GeneratePart, publisher: Publisher, turn: int) -> None:
    """Take a part of the answer in, and tell the watchers."""
    if isinstance(event, Finish):
        draft.finish, draft.is_cut, draft.vendor_model = event.reason, event.cut, event.vendor_model
        # Cache marks are sent to every vendor: one that takes none caches by itself.
        draft.dropped = tuple([one.field for one in event.dropped if one.field != "cache"])
        draft.usage = event.usage or draft.usage
    elif isinstance(event, Retry):
        publisher.progress(Activity.RETRYING, turn, f"{event.reason.name.lower()}: {event.detail}", event.wait_s)
        if event.usage:
            draft.retried = (*draft.retried, event.usage)
    else:
        parts = draft.take(event)
        publisher.stream(turn, event if parts is None else StreamGrew(event, parts))
