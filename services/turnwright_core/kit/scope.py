"""What a call brings along for the calls that it leads to: how long its caller waits, and the trace that it is part of.

A trace (W3C `traceparent` and `tracestate`) is passed on as it came, also by work that goes on when the call has ended:
tasks take it along. A deadline holds for the call itself; work that outlives it is begun by `detached`.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
from collections.abc import Coroutine, Iterable
from typing import Any, Final, TypeVar

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACESTATE_CHARS_MAX: Final = 512
"""Longest `tracestate` that is passed on; the specification asks for as much at least."""

_TRACE_ID: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")

T = TypeVar("T")
TextMetadata = tuple[tuple[str, str], ...]


class CallScope:
    """One call that is handled."""

    __slots__ = ("_ends_s", "bound", "trace")

    def __init__(self, metadata: Iterable[tuple[str, str | bytes]], left_s: float | None) -> None:
        """`left_s` are the seconds that the caller waits from now; None: nobody counts them."""
        self._ends_s = None if left_s is None else time.monotonic() + left_s
        self.trace, trace_id = _trace_of(metadata)
        self.bound: dict[str, object] = {"trace_id": trace_id} if trace_id else {}
        """What each line that is logged for the call says: ids, and nothing of what it is about."""

    def timeout_s(self, wanted_s: float) -> float:
        """How long to wait for another service. What is called behind the deadline tidies up, and has its own time."""
        left_s = 0.0 if self._ends_s is None else self._ends_s - time.monotonic()
        return min(wanted_s, left_s) if left_s > 0 else wanted_s

    def end(self) -> None:
        """The call has ended: what goes on has nobody who waits."""
        self._ends_s = None


def current_scope() -> CallScope:
    """The call that is being handled; outside of one, one without trace and deadline."""
    return _scope.get()


def enter_scope(metadata: Iterable[tuple[str, str | bytes]], left_s: float | None) -> CallScope:
    """Handle a call from now on, in this task."""
    scope = CallScope(metadata, left_s)
    _scope.set(scope)
    return scope


def bind(**values: object) -> None:
    """Have what is logged in this task, and in those that it begins, say these ids from now on."""
    if _scope.get() is _NONE:
        enter_scope((), None)
    _scope.get().bound.update(values)


def detached(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """A task that outlives the call in which it is begun: with its trace, without its deadline and its ids."""
    context = contextvars.copy_context()
    context.run(enter_scope, current_scope().trace, None)
    return asyncio.create_task(work, name=name, context=context)


def _trace_of(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[TextMetadata, str]:
    """What is passed on of a trace, and its id; nothing of one that is broken, or of two."""
    sent = [(key, value) for key, value in metadata if key in (TRACEPARENT, TRACESTATE) and isinstance(value, str)]
    parents = [value for key, value in sent if key == TRACEPARENT]
    found = _TRACE_ID.fullmatch(parents[0]) if len(parents) == 1 else None
    if found is None:
        return (), ""
    state = ",".join(value for key, value in sent if key == TRACESTATE)
    kept = ((TRACESTATE, state),) if state and len(state) <= TRACESTATE_CHARS_MAX else ()
    return ((TRACEPARENT, parents[0]), *kept), found[1]


_NONE: Final = CallScope((), None)
_scope: Final[contextvars.ContextVar[CallScope]] = contextvars.ContextVar("turnwright_scope", default=_NONE)
