"""The right of a caller to a stream, which it may lose while the stream lasts.

Nothing is done for each message, and no task waits: the policy calls when it changes, and a timer when a grant or the
caller's token ends. A stream that has nothing to tell ends, too. Source: architecture 10; docs/adr/0066.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

from turnwright_core.errors import TurnwrightError
from turnwright_kit.access import MethodAccess
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.gate import revoked_error
from turnwright_kit.identity.own_tokens import LEEWAY_S
from turnwright_kit.identity.policy import Policy
from turnwright_kit.identity.refusals import refusal

_TIMER_S_MAX: Final = 3600.0
"""Longest time of a timer, in seconds: the clock that says when a grant ends may be set."""

_current: Final[ContextVar[StreamRight | None]] = ContextVar("turnwright_stream_right", default=None)


class StreamRight:
    """Enter it around a stream: once the right is lost, its task is cancelled, and it ends with the reason."""

    __slots__ = ("_access", "_caller", "_check_more", "_error", "_policy", "_request", "_task", "_timer", "_token")

    def __init__(self, policy: Policy, access: MethodAccess | None, request: object) -> None:
        """`access`: what the method asks of its callers; None: nothing, and it may have none."""
        self._policy, self._access, self._request = policy, access, request
        caller = current_caller() if access else None
        self._caller = None if caller is None or caller.is_root or caller.is_answered_for else caller
        self._task = asyncio.current_task()
        self._error: TurnwrightError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._check_more: Callable[[Policy, Caller], None] = lambda _policy, _caller: None

    def __enter__(self) -> Self:
        """Raises UNAUTHENTICATED, PROJECT_NOT_FOUND, RIGHT_MISSING."""
        if caller := self._caller:
            # The policy may have changed since the call was admitted.
            self._check(caller)
            for looks in self._looks(caller):
                looks.add(self._look)
            self._wait(caller)
        self._token = _current.set(self)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        _current.reset(self._token)
        for looks in self._looks(self._caller):
            looks.discard(self._look)
        if self._timer:
            self._timer.cancel()
        if self._error and self._task and isinstance(error, asyncio.CancelledError):
            self._task.uncancel()
            raise self._error from None

    def also_needs(self, check: Callable[[Policy, Caller], None]) -> None:
        self._check_more = check
        if self._caller:
            self._check(self._caller)

    def _looks(self, caller: Caller | None) -> Iterator[set[Callable[[], None]]]:
        yield self._policy.looks
        if caller and (of_call := self._policy.calls.get(caller.token)) is not None:
            yield of_call

    def _look(self) -> None:
        if self._error or not (self._task and self._caller):
            return
        try:
            self._check(self._caller)
        except TurnwrightError as error:
            self._error = error
            self._task.cancel()
        else:
            self._wait(self._caller)

    def _check(self, caller: Caller) -> None:
        if caller.token in self._policy.revoked_token_ids:
            raise revoked_error()
        self._policy.check_call(caller)
        if caller.expires_ms and not caller.is_trusted and _left_s(caller) <= 0:
            raise refusal("expired", "This token has expired while the stream lasted: get a new one.")
        if self._access and self._access.is_granted:
            self._access.check_right(self._policy, caller, self._request)
        self._check_more(self._policy, caller)

    def _wait(self, caller: Caller) -> None:
        """Look again when the first of what the right depends on ends."""
        if self._timer:
            self._timer.cancel()
        # The tokens of services are renewed, and their streams last longer than these.
        lasts_s = [] if caller.is_trusted or not caller.expires_ms else [_left_s(caller)]
        if (until_ms := self._policy.until_ms(caller)) is not None:
            lasts_s.append(until_ms / 1000 - time.time())
        self._timer = None
        if lasts_s:
            wait_s = min(_TIMER_S_MAX, max(0.0, min(lasts_s))) + 0.01
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)


def also_needs(check: Callable[[Policy, Caller], None]) -> None:
    """The stream that is answered here, if any, needs more than its method declares: now, and whenever it is checked.

    `check` raises TurnwrightError, and so does this; a later one takes its place.
    """
    if right := _current.get():
        right.also_needs(check)


def _left_s(caller: Caller) -> float:
    return caller.expires_ms / 1000 + LEEWAY_S - time.time()
