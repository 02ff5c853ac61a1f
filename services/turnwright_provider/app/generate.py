"""One model call: tries with retries before the first delta, then the reply's deltas, joined, to the caller.

    Generate ── checks the vendor
       └─ a task reads: try ── fails before a delta ── Retry is told, wait ── try ...
                          └── deltas into the outbox ── Finish
       └─ the caller reads the outbox; when the caller goes, the task is cancelled and the connection closed

Source: architecture 8, 12.6, 15; RU305.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import count as numbers

from msgspec import Struct

from turnwright_core.chat.deltas import SetUsage
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.kit.telemetry import add_attributes, count, is_on, measure, span
from turnwright_core.kit.telemetry_names import (
    CACHED_TOKENS,
    ERROR_TYPE,
    FINISH_REASON,
    INPUT_TOKENS,
    MODEL_DURATION,
    OPERATION,
    OUTPUT_TOKENS,
    PROVIDER,
    REQUEST_MODEL,
    RESPONSE_MODEL,
    TOKEN_TYPE,
    TOKEN_USAGE,
    VENDOR_ERRORS,
)
from turnwright_core.runs import Usage
from turnwright_core.suggestions import unknown_vendor
from turnwright_provider.app.outbox import Outbox
from turnwright_provider.domain.coalesce import DeltaBuffer
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, clean, failed, to_fault
from turnwright_provider.domain.model_call import Finish, ModelCall, ReplyPart, Retry
from turnwright_provider.domain.retry import RetryPolicy
from turnwright_provider.ports import Vendor


class FlowControl(Struct, frozen=True):
    """Flow control of a reply. `outbox_bytes_max`: how far the caller may fall behind."""

    flush_s: float
    flush_bytes: int
    outbox_bytes_max: int = 256 * 1024


class RetryClock(Struct, frozen=True):
    """Time and randomness as dependencies: a monotonic clock in seconds, sleep in seconds, and numbers from [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]


def find_vendor(vendors: Mapping[str, Vendor], name: str) -> Vendor:
    """The vendor, configured. Raises PreconditionError that names what is missing. Source: RU306, RU307."""
    vendor = vendors.get(name)
    if vendor is None:
        raise fault(Reason.VENDOR_NOT_CONFIGURED, unknown_vendor(name, vendors), vendor=name, setting="")
    state = vendor.describe()
    if state.problem:
        setting = ",".join(state.settings)
        raise fault(Reason.VENDOR_NOT_CONFIGURED, f"{name}: {state.problem}", vendor=name, setting=setting)
    return vendor


class ReplyStream:
    """One call in progress; not reusable."""

    def __init__(self, name: str, vendor: Vendor, policy: RetryPolicy, pace: FlowControl, chance: RetryClock) -> None:
        """Prepare; nothing is sent before `parts` is iterated."""
        self._name = name
        self._vendor = vendor
        self._policy = policy
        self._pace = pace
        self._chance = chance
        self._outbox = Outbox(DeltaBuffer(pace.flush_s, pace.flush_bytes), pace.outbox_bytes_max, chance.clock)
        self._started = False
        self._failed_at: float | None = None

    async def parts(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        """Retries, deltas, the end. Raises TurnwrightError."""
        reading = asyncio.create_task(self._read(call), name=f"generate {self._name}/{call.model}")
        try:
            async with aclosing(self._outbox.parts()) as parts:
                async for part in parts:
                    yield part
            await reading
        finally:
            reading.cancel()
            # Its error was reported above, or the caller is gone.
            with suppress(asyncio.CancelledError, TurnwrightError):
                await reading

    async def _read(self, call: ModelCall) -> None:
        with span(f"chat {call.model}", {**self._span_attributes(call), OPERATION: "chat"}, calls_out=True):
            begin_s = self._chance.clock()
            try:
                await self._read_on(call)
            finally:
                measure(MODEL_DURATION, self._chance.clock() - begin_s, self._span_attributes(call))

    def _span_attributes(self, call: ModelCall) -> dict[str, str]:
        return {PROVIDER: self._name, REQUEST_MODEL: call.model}

    async def _read_on(self, call: ModelCall) -> None:
        try:
            for attempt in numbers(1):
                try:
                    return await self._try(call, attempt)
                except VendorError as error:
                    failure = error.failure
                count(VENDOR_ERRORS, 1, {PROVIDER: self._name, ERROR_TYPE: failure.kind.name.lower()})
                wait_s = self._wait_s(attempt, failure)
                if wait_s is None:
                    key_setting = self._vendor.describe().key_setting
                    raise to_fault(failure, self._name, call.model, started=self._started, key_setting=key_setting)
                self._outbox.post(Retry(attempt, wait_s, failure.retry_class, clean(failure.detail)))
                await self._chance.sleep(wait_s)
        finally:
            self._outbox.close()

    async def _try(self, call: ModelCall, attempt: int) -> None:
        early: SetUsage | None = None
        async with aclosing(self._vendor.stream(call, attempt)) as events:
            async for event in events:
                if isinstance(event, Finish):
                    self._outbox.post(event)
                    self._measure(call, event)
                    return
                if isinstance(event, SetUsage) and not self._started:
                    # Usage alone does not begin a reply: an attempt that fails after it can still be retried.
                    early = event
                    continue
                if early is not None:
                    await self._outbox.put(early)
                is_first, self._started, early = not self._started, True, None
                await self._outbox.put(event)
                if is_first:
                    # It is sent before more is read: vendors send the first words together with others. The event loop
                    # runs once for the caller's task, and once for the stream that carries the call.
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
        raise failed(FailureClass.SERVER, "the stream ended without an end")

    def _measure(self, call: ModelCall, finish: Finish) -> None:
        if not is_on():
            return
        usage = finish.usage or Usage()
        tokens = {INPUT_TOKENS: usage.prompt_tokens, OUTPUT_TOKENS: usage.completion_tokens}
        add_attributes(
            {
                **tokens,
                CACHED_TOKENS: usage.cached_tokens,
                RESPONSE_MODEL: finish.vendor_model,
                FINISH_REASON: finish.reason,
            }
        )
        if finish.usage:
            measure(TOKEN_USAGE, usage.prompt_tokens, {**self._span_attributes(call), TOKEN_TYPE: "input"})
            measure(TOKEN_USAGE, usage.completion_tokens, {**self._span_attributes(call), TOKEN_TYPE: "output"})

    def _wait_s(self, attempt: int, failure: Failure) -> float | None:
        """Seconds before the next attempt; None if there is none: a reply has begun, or it would come too late."""
        if self._started or not failure.is_retryable():
            return None
        now_s = self._chance.clock()
        self._failed_at = now_s if self._failed_at is None else self._failed_at
        wait_s = self._policy.wait_s(attempt, failure, self._chance.jitter())
        return None if self._policy.gives_up(failure, now_s - self._failed_at, wait_s) else wait_s
