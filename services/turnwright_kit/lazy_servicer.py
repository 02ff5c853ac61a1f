"""A lazy servicer: made when its first call comes.

Half of what a process loads before it is ready is there for turns: to put packets together, to call models. Many
processes never take one, such as a command that lists runs on a stack of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class LazyServicer:
    """Has every method of the servicer that `make` returns; calls `make` once, in the event loop of the first call."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._servicer: Any = None

    def __getattr__(self, method: str) -> Any:
        def call(request: Any, context: Any) -> Any:
            """What the servicer's method returns: an awaitable, or a stream."""
            if self._servicer is None:
                self._servicer = self._make()
            return getattr(self._servicer, method)(request, context)

        return call
