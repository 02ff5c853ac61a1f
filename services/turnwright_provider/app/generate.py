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

from msgspec import Struct
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from turnwright_core.deltas import SetUsage
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_provider.app.outbox import Outbox
from turnwright_provider.domain.coalesce import DeltaBuffer
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, clean, failed, to_fault
from turnwright_provider.domain.model_call import Finish, ModelCall, Part, Retry
from turnwright_provider.domain.retry import RetryPolicy
from turnwright_provider.ports import Vendor


class Pace(Struct, frozen=True):
    """How a reply is handed on. `outbox_bytes_max`: how far the caller may be behind."""

    flush_s: float
    flush_bytes: int
    outbox_bytes_max: int = 256 * 1024


class Chance(Struct, frozen=True):
    """What comes from outside: a monotonic clock in seconds, sleep in seconds, and numbers from [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]


def find_vendor(vendors: Mapping[str, Vendor], name: str) -> Vendor:
    """The vendor, configured. Raises PreconditionError naming what is missing. Source: RU306, RU307."""
    vendor = vendors.get(name)
    if vendor is None:
        known = ", ".join(sorted(vendors))
        raise fault(
            Reason.VENDOR_NOT_CONFIGURED, f"There is no vendor {name}; there are {known}.", vendor=name, setting=""
        )
    state = vendor.describe()
    if state.problem:
        setting = ",".join(state.settings)
        raise fault(Reason.VENDOR_NOT_CONFIGURED, f"{name}: {state.problem}", vendor=name, setting=setting)
    return vendor


class ReplyStream:
    """One call under way. Made anew for each."""

    def __init__(self, name: str, vendor: Vendor, policy: RetryPolicy, pace: Pace, chance: Chance) -> None:
        """Prepare; nothing is sent before `parts` is read."""
        self._name = name
        self._vendor = vendor
        self._policy = policy
        self._pace = pace
        self._chance = chance
        self._outbox = Outbox(DeltaBuffer(pace.flush_s, pace.flush_bytes), pace.outbox_bytes_max, chance.clock)
        self._started = False
        self._failed_at: float | None = None
        self._attempt = 0

    async def parts(self, call: ModelCall) -> AsyncGenerator[Part, None]:
        """Retries, deltas, the end. Raises TurnwrightError."""
        reading = asyncio.create_task(self._read(call), name=f"generate {self._name}/{call.model}")
        try:
            async with aclosing(self._outbox.parts()) as parts:
                async for part in parts:
                    yield part
            await reading
        finally:
            reading.cancel()
            # What it raised was told above; when the caller is gone there is nobody to tell.
            with suppress(asyncio.CancelledError, TurnwrightError):
                await reading

    async def _read(self, call: ModelCall) -> None:
        retrying = AsyncRetrying(
            retry=retry_if_exception(self._may_retry),
            wait=self._wait_s,
            stop=self._gives_up,
            before_sleep=self._tell_retry,
            sleep=self._chance.sleep,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    await self._try(call)
        except VendorError as error:
            raise to_fault(error.failure, self._name, call.model, started=self._started) from None
        finally:
            self._outbox.close()

    async def _try(self, call: ModelCall) -> None:
        self._attempt += 1
        early: SetUsage | None = None
        async with aclosing(self._vendor.stream(call, self._attempt)) as events:
            async for event in events:
                if isinstance(event, Finish):
                    self._outbox.tell(event)
                    return
                if isinstance(event, SetUsage) and not self._started:
                    # A figure alone begins no reply: what breaks after it can be tried again.
                    early = event
                    continue
                if early is not None:
                    await self._outbox.put(early)
                self._started, early = True, None
                await self._outbox.put(event)
        raise failed(FailureClass.SERVER, "the stream ended without an end")

    def _may_retry(self, error: BaseException) -> bool:
        return isinstance(error, VendorError) and not self._started and error.failure.is_retryable()

    def _wait_s(self, state: RetryCallState) -> float:
        self._failed_at = self._chance.clock() if self._failed_at is None else self._failed_at
        return self._policy.wait_s(state.attempt_number, _failure(state), self._chance.jitter())

    def _gives_up(self, state: RetryCallState) -> bool:
        elapsed_s = self._chance.clock() - (self._failed_at or 0.0)
        return self._policy.gives_up(_failure(state), elapsed_s, state.upcoming_sleep)

    def _tell_retry(self, state: RetryCallState) -> None:
        failure = _failure(state)
        self._outbox.tell(Retry(state.attempt_number, state.upcoming_sleep, failure.retry_class, clean(failure.detail)))


def _failure(state: RetryCallState) -> Failure:
    error = state.outcome.exception() if state.outcome else None
    if not isinstance(error, VendorError):
        raise TypeError(f"only failures of vendors are retried, not {error!r}")
    return error.failure
