"""Who wants to know when a scope changes, inside this process. Wake-ups are hints: the woken read for themselves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from turnwright_store.ports import ANY_SCOPE

HEARD_MAX: Final = 10_000
"""Scopes that a subscriber to any scope can hear of before it looks; more, and it looks at everything."""


class ScopeSubscription:
    """Wakes one task."""

    def __init__(self, wakeups: Wakeups, scopes: Collection[int]) -> None:
        """Made by Wakeups.subscribe."""
        self.woken = asyncio.Event()
        self.scopes = tuple(scopes)
        self._wakeups = wakeups
        self._heard: set[int] = set()
        self._missed = False

    def hear(self, scopes: Collection[int], *, missed: bool = False) -> None:
        """Wake for a commit that raised these scopes; `missed`: others may have been raised as well."""
        self._missed = self._missed or missed or len(self._heard) + len(scopes) > HEARD_MAX
        if self._missed:
            self._heard.clear()
        elif ANY_SCOPE in self.scopes:
            self._heard.update(scopes)
        self.woken.set()

    def take(self) -> frozenset[int] | None:
        """What a subscriber to any scope has heard of since the last call; None: it may have missed some."""
        heard, missed = frozenset(self._heard), self._missed
        self._heard.clear()
        self._missed = False
        return None if missed else heard

    def close(self) -> None:
        """End it."""
        self._wakeups.unsubscribe(self)


class Wakeups:
    """The subscriptions, by scope."""

    def __init__(self) -> None:
        self._by_scope: defaultdict[int, set[ScopeSubscription]] = defaultdict(set)

    def subscribe(self, scopes: Collection[int]) -> ScopeSubscription:
        """Wake for each of these scopes."""
        subscription = ScopeSubscription(self, scopes)
        for scope in subscription.scopes:
            self._by_scope[scope].add(subscription)
        return subscription

    def unsubscribe(self, subscription: ScopeSubscription) -> None:
        """Forget it."""
        for scope in subscription.scopes:
            self._by_scope[scope].discard(subscription)
            if not self._by_scope[scope]:
                del self._by_scope[scope]

    def wake(self, scopes: Collection[int]) -> None:
        """Wake whoever subscribed to one of these scopes, or to any."""
        for scope in (*scopes, ANY_SCOPE) if scopes else ():
            for subscription in self._by_scope.get(scope, ()):
                subscription.hear(scopes)

    def wake_all(self) -> None:
        """Wake everybody: nobody knows what was missed."""
        for subscriptions in self._by_scope.values():
            for subscription in subscriptions:
                subscription.hear((), missed=True)
