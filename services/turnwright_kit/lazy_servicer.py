"""A lazy servicer: made when its first call comes.

Half of what a process loads before it is ready is there for turns: to put packets together, to call models. Many
processes never take one, such as a command that lists runs on a stack of its own.
"""

from __future__ import annotations

from collections.abc import Callable


class LazyServicer:
    """Has every method of the servicer that `make` returns; calls `make` once, in the event loop of the first call."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._servicer: object = None

    def __getattr__(self, method: str) -> object:
        def call(request: object, context: object) -> object:
            """What the servicer's method returns: an awaitable, or a stream."""
            if self._servicer is None:
                self._servicer = self._make()
            return getattr(self._servicer, method)(request, context)

        return call
