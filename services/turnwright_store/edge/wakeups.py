"""Who wants to know when a scope changes, inside this process. Wake-ups are hints: the woken read for themselves."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection


class ScopeSubscription:
    """Wakes one task."""

    def __init__(self, wakeups: Wakeups, scopes: Collection[int]) -> None:
        """Made by Wakeups.subscribe."""
        self.woken = asyncio.Event()
        self.scopes = tuple(scopes)
        self._wakeups = wakeups

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
        """Wake whoever subscribed to one of these scopes."""
        for scope in scopes:
            for subscription in self._by_scope.get(scope, ()):
                subscription.woken.set()

    def wake_all(self) -> None:
        """Wake everybody: nobody knows what was missed."""
        self.wake(tuple(self._by_scope))
