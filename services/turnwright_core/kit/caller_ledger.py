"""What each caller makes a server hold: its calls under way, and the bytes of answers that it has not read yet.

An answer leaves as fast as its caller reads; until then it is in our memory. So a caller that opens calls and never
reads would have a server hold as much as it likes. Calls are counted on their caller, which is its principal, and on
their connection, and a call beyond a limit is refused before its message is read. Holders of the deployment's secret
are not counted: services call each other with it, and a client's limit must not stop them.
Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX

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


class _Account(Struct):
    """What one caller, or one connection, has under way."""

    calls: int = 0
    streams: int = 0
    unsent_bytes: int = 0


class CallerLedger:
    """The accounts of one server."""

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        self._accounts: dict[tuple[str, str], _Account] = {}

    def check(self, principal: str, *, is_stream: bool) -> None:
        """Refuse a call of a caller that has too much under way, before its message is read. Raises QUEUE_FULL."""
        self._check(self._accounts.get(("caller", principal)) or _Account(), 1, is_stream=is_stream)

    def begin(self, principal: str, peer: str, *, is_stream: bool) -> CountedCall:
        """Count a call; a principal that is empty is a stranger's, who is known by the connection alone.

        Raises QUEUE_FULL if there are too many already, or no room for one more answer.
        """
        keys = {("connection", peer): CALLERS_PER_CONNECTION, **({("caller", principal): 1} if principal else {})}
        for key, share in keys.items():
            self._check(self._accounts.get(key) or _Account(), share, is_stream=is_stream)
        accounts = [(self._accounts.setdefault(key, _Account()), share) for key, share in keys.items()]
        for account, _ in accounts:
            account.streams += is_stream
            account.calls += not is_stream

        def end() -> None:
            for key, (account, _) in zip(keys, accounts, strict=True):
                account.streams -= is_stream
                account.calls -= not is_stream
                if account == _Account():
                    self._accounts.pop(key, None)

        return CountedCall(accounts, self._limits.unsent_bytes, end)

    def _check(self, account: _Account, share: int, *, is_stream: bool) -> None:
        limits = self._limits
        if account.unsent_bytes + STOCK_MESSAGE_BYTES_MAX > limits.unsent_bytes * share:
            raise unread_error(limits.unsent_bytes * share)
        under_way, limit = (account.streams, limits.streams) if is_stream else (account.calls, limits.calls)
        if under_way >= limit * share:
            what, setting = ("streams", "STREAMS") if is_stream else ("calls", "CALLS")
            raise fault(
                Reason.QUEUE_FULL,
                f"This caller has {under_way} {what} under way, the most that this service takes: wait until some have "
                f"ended, then retry. The operator can raise TURNWRIGHT_CALLER_{setting}_MAX.",
                queue=what,
                limit=limit * share,
            )


class CountedCall:
    """One call that is counted, until its `end`."""

    __slots__ = ("_accounts", "_end", "_held", "_unsent_bytes_max")

    def __init__(self, accounts: list[tuple[_Account, int]], unsent_bytes_max: int, end: Callable[[], None]) -> None:
        self._accounts, self._unsent_bytes_max, self._end = accounts, unsent_bytes_max, end
        self._held = 0

    def hold(self, size: int) -> None:
        """Count the bytes of an answer that is sent now. Raises QUEUE_FULL if there is no room for them."""
        for account, share in self._accounts:
            limit = self._unsent_bytes_max * share
            if size > SMALL_BYTES and account.unsent_bytes + size > limit:
                raise unread_error(limit)
        self._count(size)

    def sent(self) -> None:
        """What was held has been sent."""
        self._count(-self._held)

    def end(self) -> None:
        self.sent()
        self._end()

    def _count(self, size: int) -> None:
        self._held += size
        for account, _ in self._accounts:
            account.unsent_bytes += size


def unread_error(limit: int) -> TurnwrightError:
    return fault(
        Reason.QUEUE_FULL,
        f"Answers to this caller wait to be read, and with this one they would be more than {limit} bytes: read or "
        "cancel the calls that are open, then retry. The operator can raise TURNWRIGHT_CALLER_UNSENT_BYTES_MAX.",
        queue="unsent_bytes",
        limit=limit,
    )
