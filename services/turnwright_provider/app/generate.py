"""One model call: tries with retries before the first delta, then the reply's deltas, joined, to the caller.

    Generate ── checks the vendor
       └─ the caller's task reads: try ── fails before a delta ── Retry is told, wait ── try ... ── the first delta
       └─ then a task reads on: deltas into the outbox ── Finish
       └─ the caller reads the outbox; when the caller goes, the task is cancelled and the connection closed

Source: architecture 8, 12.6, 15; RU305.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from itertools import count as numbers
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.provider import Finish, Retry, RetryReason
from turnwright_values.types import Usage

from turnwright_core.chat.deltas import SetUsage
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.suggestions import unknown_vendor
from turnwright_kit import telemetry_names as names
from turnwright_kit.telemetry import add_attributes, count, is_on, measure, span
from turnwright_provider.app.outbox import FlowControl, Outbox
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, failed, retry_detail, to_fault
from turnwright_provider.domain.model_call import ModelCall, ReplyPart
from turnwright_provider.domain.refused import next_refused
from turnwright_provider.domain.retry import RetryPolicy
from turnwright_provider.ports import Vendor, VendorState


class ModelLabels:
    """The models that metrics name. A client may ask for any `vendor/model`, and each label is series for good."""

    def __init__(self, names_max: int = 100) -> None:
        self._names_max = names_max
        self._names: set[str] = set()

    def of(self, call: ModelCall) -> str:
        """The name of a model that is configured; OTHER for others, and for those beyond the maximum."""
        is_configured = bool(call.alias) and "/" not in call.alias
        if is_configured and (call.model in self._names or len(self._names) < self._names_max):
            self._names.add(call.model)
            return call.model
        return names.OTHER


MODEL_LABELS: Final = ModelLabels()


class RetryClock(Struct, frozen=True):
    """Time and randomness as dependencies: a monotonic clock in seconds, sleep in seconds, and numbers from [0, 1)."""

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    jitter: Callable[[], float]


def find_vendor(vendors: Mapping[str, Vendor], name: str) -> tuple[Vendor, VendorState]:
    """The vendor and its state; it is configured. Raises PreconditionError that names what is missing.

    Source: RU306, RU307.
    """
    vendor = vendors.get(name)
    if vendor is None:
        raise fault(Reason.VENDOR_NOT_CONFIGURED, unknown_vendor(name, vendors), vendor=name, setting="")
    state = vendor.describe()
    if state.problem:
        setting = ",".join(state.settings)
        raise fault(Reason.VENDOR_NOT_CONFIGURED, f"{name}: {state.problem}", vendor=name, setting=setting)
    return vendor, state


async def _read_ahead(parts: AsyncIterator[ReplyPart], outbox: Outbox) -> None:
    try:
        async for part in parts:
            if isinstance(part, Finish):
                outbox.end(part)
            elif not isinstance(part, Retry) and not outbox.add(part):
                await outbox.wait_for_room()
    finally:
        outbox.close()


class ReplyStream:
    """One call in progress; not reusable."""

    def __init__(self, name: str, vendor: Vendor, policy: RetryPolicy, pace: FlowControl, chance: RetryClock) -> None:
        """Prepare; nothing is sent before `parts` is iterated."""
        self._name = name
        self._vendor = vendor
        self._policy = policy
        self._pace = pace
        self._chance = chance
        self._started = False
        self._begin_s = 0.0
        self._labels: names.SpanAttributes = {names.OPERATION: "chat", names.PROVIDER: names.provider_of(name)}
        """Those of its measurements."""
        self._failed_at: float | None = None
        self._refusal: Failure | None = None
        """The first failure because of which something is left out of the conversation."""

    async def parts(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        """Retries, deltas, the end. Raises TurnwrightError."""
        async with aclosing(self._read(call)) as read:
            # Until the reply begins, the caller's task reads itself: the first delta waits for no other one, and it is
            # sent before more is read. Vendors send the first words together with others.
            async for part in read:
                yield part
                if not isinstance(part, Retry):
                    break
            # The transport sends it before there is more to do.
            await asyncio.sleep(0)
            outbox = Outbox(self._pace, self._chance.clock)
            reading = asyncio.create_task(_read_ahead(read, outbox), name=f"generate {self._name}/{call.model}")
            try:
                while parts := await outbox.take():
                    for part in parts:
                        yield part
                await reading
            finally:
                reading.cancel()
                # Its error was reported above, or the caller is gone.
                with suppress(asyncio.CancelledError, TurnwrightError):
                    await reading

    @contextmanager
    def _measured(self, call: ModelCall) -> Iterator[None]:
        if not is_on():
            yield
            return
        self._begin_s = self._chance.clock()
        attributes = {**self._labels, names.REQUEST_MODEL: call.model, names.REQUEST_STREAM: True}
        self._labels = {**self._labels, names.REQUEST_MODEL: MODEL_LABELS.of(call)}
        with span(f"chat {call.model}", attributes | names.server_of(self._vendor.describe().endpoint), calls_out=True):
            try:
                yield
            except BaseException as error:
                self._labels = {**self._labels, names.ERROR_TYPE: names.error_type(error)}
                raise
            finally:
                measure(names.MODEL_DURATION, self._chance.clock() - self._begin_s, self._labels)

    async def _read(self, call: ModelCall) -> AsyncGenerator[ReplyPart, None]:
        """As `parts`, while the vendor sends it."""
        with self._measured(call):
            for attempt in numbers(1):
                early: SetUsage | None = None
                try:
                    async with aclosing(self._vendor.stream(call, attempt)) as events:
                        async for event in events:
                            if self._started and not isinstance(event, Finish):
                                yield event
                            elif isinstance(event, Finish):
                                self._measure(event)
                                yield event
                                return
                            elif isinstance(event, SetUsage):
                                # Usage alone does not begin a reply: an attempt that fails after it can be retried.
                                early = event
                            else:
                                self._begin_reply()
                                yield event
                                if early is not None:
                                    yield early
                    raise failed(FailureClass.SERVER, "the stream ended without an end")
                except VendorError as error:
                    failure = error.failure
                used = early if early is not None and not self._started else None
                try:
                    retry = self._retry(call, attempt, failure)
                except TurnwrightError:
                    if used is not None:
                        yield used
                    raise
                yield replace(retry, usage=used and used.usage)
                call = replace(call, refused=frozenset(retry.refused))
                await self._chance.sleep(retry.wait_s)

    def _retry(self, call: ModelCall, attempt: int, failure: Failure) -> Retry:
        """The next attempt. Raises TurnwrightError if there is none: a reply has begun, or it would come too late."""
        labels = {names.PROVIDER: names.provider_of(self._name), names.ERROR_TYPE: failure.kind.name.lower()}
        count(names.VENDOR_ERRORS, 1, labels)
        detail, refused = retry_detail(failure, self._name), tuple(sorted(call.refused))
        if not self._started and (part := next_refused(call, failure)):
            self._refusal = self._refusal or failure
            return Retry(attempt, 0.0, RetryReason.REFUSED, detail, refused=(*refused, part))
        if self._refusal and failure.kind is self._refusal.kind:
            # Nothing has helped: the first answer is the one about the conversation as it is.
            failure = self._refusal
        now_s = self._chance.clock()
        self._failed_at = now_s if self._failed_at is None else self._failed_at
        wait_s = self._policy.wait_s(attempt, failure, self._chance.jitter())
        is_final = self._started or not failure.is_retryable()
        if is_final or self._policy.gives_up(failure, now_s - self._failed_at, wait_s):
            key_setting = self._vendor.describe().key_setting
            raise to_fault(failure, self._name, call.model, started=self._started, key_setting=key_setting)
        return Retry(attempt, wait_s, failure.retry_reason, detail, refused=refused)

    def _begin_reply(self) -> None:
        self._started, waited_s = True, self._chance.clock() - self._begin_s
        add_attributes({names.FIRST_CHUNK: waited_s})
        measure(names.TIME_TO_FIRST_CHUNK, waited_s, self._labels)

    def _measure(self, finish: Finish) -> None:
        if not is_on():
            return
        usage = finish.usage or Usage()
        add_attributes(
            {
                names.INPUT_TOKENS: usage.prompt_tokens,
                names.OUTPUT_TOKENS: usage.completion_tokens,
                names.CACHED_TOKENS: usage.cached_tokens,
                names.RESPONSE_MODEL: finish.vendor_model,
                names.FINISH_REASONS: [finish.reason],
            }
        )
        if finish.usage:
            # Vendors do not say how many of them were images.
            labels = {**self._labels, names.MODALITY: "unknown"}
            count(names.INPUT_USAGE, usage.prompt_tokens, labels)
            count(names.OUTPUT_USAGE, usage.completion_tokens, labels)
