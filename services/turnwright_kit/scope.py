"""Context of an incoming call that is propagated to outgoing calls: its deadline, and its trace.

A trace (W3C `traceparent` and `tracestate`) is passed on unchanged, also by tasks that outlive the call. A deadline
applies to the call itself; start work that outlives it with `detached`.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, Protocol, TypeVar

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACESTATE_CHARS_MAX: Final = 512
"""Maximum length of a propagated `tracestate`; the specification requires at least this much."""

_TRACE_ID: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")

T = TypeVar("T")
Metadata = Sequence[tuple[str, str | bytes]]
TextMetadata = tuple[tuple[str, str], ...]


class TracedSpan(Protocol):
    """A span that has begun."""

    @property
    def span_id(self) -> str:
        """In hexadecimal, as in `traceparent`."""

    def metadata(self) -> TextMetadata:
        """What calls below it carry."""


class CallScope:
    """One call being handled."""

    __slots__ = ("_ends_s", "asked", "bound", "span", "turn")

    def __init__(self, metadata: Metadata, left_s: float | None) -> None:
        """`left_s` is the deadline in seconds from now; None: no deadline."""
        self._ends_s = None if left_s is None else time.monotonic() + left_s
        self.asked, trace_id = _trace_of(metadata)
        """The trace that came with the call."""
        self.span: TracedSpan | None = None
        """The span that is open, while telemetry is on."""
        self.turn: TracedSpan | None = None
        """The span of the turn that is worked on."""
        self.bound: dict[str, object] = {"trace_id": trace_id} if trace_id else {}
        """Fields of each line that is logged for the call: ids only, never content."""

    @property
    def trace(self) -> TextMetadata:
        """What outgoing calls carry."""
        return self.asked if self.span is None else self.span.metadata()

    @property
    def fields(self) -> dict[str, object]:
        """Fields of the lines that are logged now."""
        return self.bound if self.span is None else {**self.bound, "span_id": self.span.span_id}

    def timeout_s(self, wanted_s: float) -> float:
        """Timeout for calling another service. Clean-up calls made after the deadline get their own time."""
        left_s = 0.0 if self._ends_s is None else self._ends_s - time.monotonic()
        return min(wanted_s, left_s) if left_s > 0 else wanted_s

    def end(self) -> None:
        """The call has ended: whatever goes on has no deadline."""
        self._ends_s = None


def current_scope() -> CallScope:
    """The scope of the call being handled; outside a call, a scope without trace and deadline."""
    return _scope.get()


def enter_scope(metadata: Metadata, left_s: float | None) -> CallScope:
    """Start handling a call in this task."""
    scope = CallScope(metadata, left_s)
    _scope.set(scope)
    return scope


def bind(**values: object) -> None:
    """Add these ids to everything that this task, and tasks it starts, log from now on."""
    own_scope().bound.update(values)


def own_scope() -> CallScope:
    """The scope of the call being handled; outside a call, a new scope of this task."""
    scope = _scope.get()
    return enter_scope((), None) if scope is _NONE else scope


def detached(work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
    """Start a task that outlives the current call: with its trace, without its deadline and ids."""
    context = contextvars.copy_context()
    context.run(enter_scope, current_scope().trace, None)
    return asyncio.create_task(work, name=name, context=context)


def _trace_of(metadata: Metadata) -> tuple[TextMetadata, str]:
    """The trace to propagate, and its id; empty if it is malformed or duplicated."""
    parent, states, parents = "", [], 0
    for key, value in metadata:
        if key == TRACEPARENT and isinstance(value, str):
            parent, parents = value, parents + 1
        elif key == TRACESTATE and isinstance(value, str):
            states.append(value)
    found = _TRACE_ID.fullmatch(parent) if parents == 1 else None
    if found is None:
        return (), ""
    state = ",".join(states)
    kept = ((TRACESTATE, state),) if state and len(state) <= TRACESTATE_CHARS_MAX else ()
    return ((TRACEPARENT, parent), *kept), found[1]


_NONE: Final = CallScope((), None)
_scope: Final[contextvars.ContextVar[CallScope]] = contextvars.ContextVar("turnwright_scope", default=_NONE)
