"""What each caller makes a server hold: its calls under way, its requests, and bytes of answers that it has not read.

An answer leaves as fast as its caller reads; until then it is in our memory. So a caller that opens calls and never
reads would have a server hold as much as it likes. Calls are counted on their caller, which is its principal, and on
their connection, and a call beyond a limit is refused before its message is read. How long an answer is shows only
after the work for it, so until then it is presumed to be a largest one, and calls for which there is no room wait: a
caller that reads makes room at once. Services, whom they
call for, and the holder of the deployment's secret are not counted: a client's limit must not stop those.
Source: architecture 10.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import MESSAGE_BYTES_MAX, STOCK_MESSAGE_BYTES_MAX
from turnwright_kit.identity.policy import CallerQuota

CALLERS_PER_CONNECTION: Final = 4
"""Callers that can reach their limits on one connection: an edge passes many callers on."""

SMALL_BYTES: Final = 64 * 1024
"""Length up to which an answer is never refused, in bytes: the number of calls bounds those."""


class CallerLimits(Struct, frozen=True):
    """How much one caller may have under way."""

    calls: int = 100
    """Calls with one answer."""
    streams: int = 1000
    """Calls that return a stream."""
    unsent_bytes: int = 64 * 1024 * 1024
    """Answers that it has not read yet, in bytes."""
    presumed_s: float = 2.0
    """Seconds for which a call counts as a largest answer before it has one."""
    is_quota: bool = False
    """Whether a quota says so."""
    whose: str = "This caller"

    def times(self, number: int) -> CallerLimits:
        """Those of so many callers together."""
        return replace(
            self, calls=self.calls * number, streams=self.streams * number, unsent_bytes=self.unsent_bytes * number
        )

    def raised_by(self, setting: str, metric: str) -> str:
        how = f"it with `turnwright quota set {metric}`" if self.is_quota else f"TURNWRIGHT_CALLER_{setting}_MAX"
        return f"The operator can raise {how}."


_BOUNDLESS: Final = 2**62


def _shared_limits(quota: CallerQuota) -> CallerLimits:
    """What several callers may have together."""
    calls, unsent_bytes = (_BOUNDLESS if one is None else one for one in (quota.calls, quota.unsent_bytes))
    kind, _, name = quota.subject.partition(":")
    whose = f"The {kind} {name}" if kind else "All callers together"
    where = f" in {quota.project}" if quota.project else ""
    return CallerLimits(calls, _BOUNDLESS, unsent_bytes, is_quota=True, whose=f"{whose}{where}")


class _Account(Struct):
    """What one caller, or one connection, has under way."""

    calls: int = 0
    streams: int = 0
    unsent_bytes: int = 0
    """Including what is presumed of the calls at work."""
    at_work: int = 0
    """Calls that began within `presumed_s` and have sent nothing."""
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    """Woken when one of the numbers above has become less."""

    def wake(self) -> None:
        for one in self.waiting:
            if not one.done():
                one.set_result(None)
        self.waiting.clear()


class CallerLedger:
    """The accounts of one server."""

    def __init__(
        self, limits: CallerLimits, quota_of: Callable[[str], CallerQuota | None] = lambda _principal: None
    ) -> None:
        """`quota_of` says what a principal may have in the place of these limits."""
        self._limits, self._quota_of = limits, quota_of
        self._of_connection = limits.times(CALLERS_PER_CONNECTION)
        self._accounts: dict[tuple[str, ...], _Account] = {}
        self._request_bytes: dict[str, int] = {}

    def take_in(self, principal: str, size: int) -> None:
        """Count bytes of a request as they come; less than 0: they are held no longer.

        Requests may have what unsent answers may have, and one alone has always room. Raises QUEUE_FULL.
        """
        limits, held = self._limits_of(principal), self._request_bytes.pop(principal, 0) + size
        if held:
            self._request_bytes[principal] = held
        if size > 0 and held > (limit := max(limits.unsent_bytes, MESSAGE_BYTES_MAX)):
            raise fault(
                Reason.QUEUE_FULL,
                f"{limits.whose}: requests under way have more than {limit} bytes: wait until some have ended, then "
                f"retry. {limits.raised_by('UNSENT_BYTES', 'unsent-bytes')}",
                queue="request_bytes",
                limit=limit,
            )

    def check(self, principal: str, *, is_stream: bool) -> None:
        """Refuse a call of a caller that has too much under way, before its message is read. Raises QUEUE_FULL."""
        account, limits = self._accounts.get(("caller", principal)) or _Account(), self._limits_of(principal)
        _check(account, limits, is_stream=is_stream)
        if not account.at_work and not _has_room(account, limits):
            raise unread_error(limits)

    def _limits_of(self, principal: str) -> CallerLimits:
        quota, limits = self._quota_of(principal), self._limits
        if quota is None:
            return limits
        calls = limits.calls if quota.calls is None else quota.calls
        unsent_bytes = limits.unsent_bytes if quota.unsent_bytes is None else quota.unsent_bytes
        return replace(limits, calls=calls, unsent_bytes=unsent_bytes, is_quota=True)

    async def begin(
        self, principal: str, peer: str, shared: Sequence[CallerQuota] = (), *, is_stream: bool
    ) -> CountedCall:
        """Count a call, once there is room for its answer; an empty principal is a stranger's, known by the connection.

        It counts for the quotas that its caller shares, too. Raises QUEUE_FULL if there are too many already, or if
        the answers in the way are not being read.
        """
        keys: dict[tuple[str, ...], CallerLimits] = {("connection", peer): self._of_connection}
        if principal:
            keys["caller", principal] = self._limits_of(principal)
        for quota in shared:
            keys["quota", quota.project, quota.subject] = _shared_limits(quota)
        for key, limits in keys.items():
            _check(self._accounts.get(key) or _Account(), limits, is_stream=is_stream)
        accounts = [(self._accounts.setdefault(key, _Account()), limits) for key, limits in keys.items()]
        for account, _ in accounts:
            account.streams += is_stream
            account.calls += not is_stream

        def end() -> None:
            for key, (account, _) in zip(keys, accounts, strict=True):
                account.streams -= is_stream
                account.calls -= not is_stream
                if not account.streams + account.calls:
                    self._accounts.pop(key, None)

        call = CountedCall(accounts, self._limits.presumed_s, end)
        try:
            await call.begin()
        except BaseException:
            call.end()
            raise
        return call


def _check(account: _Account, limits: CallerLimits, *, is_stream: bool) -> None:
    under_way, limit = (account.streams, limits.streams) if is_stream else (account.calls, limits.calls)
    if under_way >= limit:
        what = "streams" if is_stream else "calls"
        how = replace(limits, is_quota=limits.is_quota and not is_stream).raised_by(what.upper(), what)
        raise fault(
            Reason.QUEUE_FULL,
            f"{limits.whose}: {under_way} {what} under way, the most that this service takes: wait until some have "
            f"ended, then retry. {how}",
            queue=what,
            limit=limit,
        )


class CountedCall:
    """One call that is counted, until its `end`.

    It counts as a largest answer until the answer is known. If that takes longer than `presumed_s` the call waits for
    something else, and counts as nothing meanwhile.
    """

    __slots__ = ("_accounts", "_end", "_has_answer", "_held", "_presumed_s", "_timer")

    def __init__(
        self, accounts: list[tuple[_Account, CallerLimits]], presumed_s: float, end: Callable[[], None]
    ) -> None:
        self._accounts, self._presumed_s, self._end = accounts, presumed_s, end
        self._held, self._has_answer = 0, False
        self._timer: asyncio.TimerHandle | None = None

    async def begin(self) -> None:
        """Wait for room. Raises QUEUE_FULL if there is none, and no call at work that may make some."""
        loop = asyncio.get_running_loop()
        while full := self._full():
            account, limits = full
            if not account.at_work:
                raise unread_error(limits)
            woken = loop.create_future()
            account.waiting.append(woken)
            await woken
        for account, _ in self._accounts:
            account.at_work += 1
        self._count(STOCK_MESSAGE_BYTES_MAX)
        self._timer = loop.call_later(self._presumed_s, self._presume_no_more)

    def _full(self) -> tuple[_Account, CallerLimits] | None:
        return next((one for one in self._accounts if not _has_room(*one)), None)

    def hold(self, size: int, *, is_last: bool = True) -> None:
        """Count the bytes of an answer that is sent now. Raises QUEUE_FULL if there is no room for them.

        The first message of a stream (`is_last`: no) counts as a largest one: more has been read behind it.
        """
        presumed = self._held
        for account, limits in self._accounts:
            if size > SMALL_BYTES and account.unsent_bytes - presumed + size > limits.unsent_bytes:
                raise unread_error(limits)
        self._has_answer = True
        self._count((size if is_last else max(size, presumed)) - presumed)

    def sent(self) -> None:
        """What was held has been sent."""
        self._presume_no_more()
        self._count(-self._held)

    def end(self) -> None:
        self.sent()
        self._end()

    def _presume_no_more(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        for account, _ in self._accounts:
            account.at_work -= 1
        self._count(0 if self._has_answer else -self._held)

    def _count(self, size: int) -> None:
        self._held += size
        for account, _ in self._accounts:
            account.unsent_bytes += size
            if size <= 0 and account.waiting:
                account.wake()


def _has_room(account: _Account, limits: CallerLimits) -> bool:
    return account.unsent_bytes + STOCK_MESSAGE_BYTES_MAX <= limits.unsent_bytes


def unread_error(limits: CallerLimits) -> TurnwrightError:
    return fault(
        Reason.QUEUE_FULL,
        f"{limits.whose}: answers wait to be read, and with this one they would be more than "
        f"{limits.unsent_bytes} bytes: read or cancel the calls that are open, then retry. "
        f"{limits.raised_by('UNSENT_BYTES', 'unsent-bytes')}",
        queue="unsent_bytes",
        limit=limits.unsent_bytes,
    )
