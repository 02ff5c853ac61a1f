"""In-process subscriptions to scopes. A wake-up is a hint: subscribers read for themselves."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from turnwright_store.ports import ANY_SCOPE, DELTA_BYTES_MAX, DELTAS_MAX, ScopeDelta

_NO_DELTAS: Final[Mapping[int, ScopeDelta]] = {}

SCOPES_MAX: Final = 10_000
"""Maximum number of scopes that a wildcard subscriber collects before it reads; beyond, it reads everything."""


class ScopeSubscription:
    """Wakes one task."""

    def __init__(self, wakeups: Wakeups, scopes: Collection[int], follows: int = ANY_SCOPE) -> None:
        self.woken = asyncio.Event()
        self.scopes = tuple(scopes)
        self.follows = follows
        self._deltas: deque[ScopeDelta] | None = deque()
        self._delta_bytes = 0
        self._wakeups = wakeups
        self._scopes: set[int] = set()
        self._missed = False

    def notify(self, scopes: Collection[int], *, missed: bool = False, delta: ScopeDelta | None = None) -> None:
        """Wake for a commit that changed these scopes; `missed`: others may have changed as well."""
        self._keep(delta)
        self._missed = self._missed or missed or len(self._scopes) + len(scopes) > SCOPES_MAX
        if self._missed:
            self._scopes.clear()
        elif ANY_SCOPE in self.scopes:
            self._scopes.update(scopes)
        self.woken.set()

    def _keep(self, delta: ScopeDelta | None) -> None:
        """Keep a delta until it is taken; if there are too many or one is missing, the database must be read."""
        waiting = self._deltas
        if waiting is None:
            return
        self._delta_bytes += delta.weight_bytes if delta else 0
        if delta is None or len(waiting) == DELTAS_MAX or self._delta_bytes > DELTA_BYTES_MAX:
            self._deltas = None
        else:
            waiting.append(delta)

    def take_deltas(self) -> Sequence[ScopeDelta] | None:
        taken, self._deltas, self._delta_bytes = self._deltas, deque(), 0
        return taken

    def take(self) -> frozenset[int] | None:
        scopes, missed = frozenset(self._scopes), self._missed
        self._scopes.clear()
        self._missed = False
        return None if missed else scopes

    def close(self) -> None:
        self._wakeups.unsubscribe(self)


class Wakeups:
    """The subscriptions, by scope."""

    def __init__(self) -> None:
        self._by_scope: defaultdict[int, set[ScopeSubscription]] = defaultdict(set)
        self._followed: Counter[int] = Counter()

    def subscribe(self, scopes: Collection[int], follows: int = ANY_SCOPE) -> ScopeSubscription:
        subscription = ScopeSubscription(self, scopes, follows)
        self._followed[follows] += 1
        for scope in subscription.scopes:
            self._by_scope[scope].add(subscription)
        return subscription

    def unsubscribe(self, subscription: ScopeSubscription) -> None:
        self._followed[subscription.follows] -= 1
        if not self._followed[subscription.follows]:
            del self._followed[subscription.follows]
        for scope in subscription.scopes:
            self._by_scope[scope].discard(subscription)
            if not self._by_scope[scope]:
                del self._by_scope[scope]

    def is_followed(self, scope: int) -> bool:
        """Whether a scope has followers, who want its deltas. Thread-safe."""
        return scope in self._followed

    def wake(self, scopes: Collection[int], deltas: Mapping[int, ScopeDelta] = _NO_DELTAS) -> None:
        """Wake subscribers of these scopes, and wildcard subscribers; `deltas` are for followers, by scope."""
        for scope in (*scopes, ANY_SCOPE) if scopes else ():
            for subscription in self._by_scope.get(scope, ()):
                subscription.notify(scopes, delta=deltas.get(subscription.follows))

    def wake_all(self) -> None:
        """Wake everybody: notifications may have been missed."""
        for subscriptions in self._by_scope.values():
            for subscription in subscriptions:
                subscription.notify((), missed=True)


class SubscribableDatabase:
    """The part of a database that wakes subscribers."""

    def __init__(self) -> None:
        self._wakeups = Wakeups()

    def subscribe(self, scopes: Collection[int], follows: int = ANY_SCOPE) -> ScopeSubscription:
        return self._wakeups.subscribe(scopes, follows)
