"""Telemetry of a process: spans, metrics, events. Off unless the settings name a collector or an address for /metrics.

While it is off, each function here costs a comparison, and OpenTelemetry is not imported. Ids, names, figures and
reasons are recorded, never prompts, replies, contents or arguments.

| span | kind | parent |
|---|---|---|
| `invoke_agent` | internal | none: a trace for each turn, linked to the trace of the call that asked for the loop |
| `assemble`, `generate`, `record`, `judge` and so on | internal | `invoke_agent`: one for each step of the turn |
| `execute_tool TOOL` | internal | `invoke_agent`: one for the steps of a command that follow each other |
| `turnwright.store.v1.StoreService/EndTurn` and so on | client | what made the call |
| the same | server | the client's span |
| `chat MODEL` | client | the provider's `Generate` |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from turnwright_kit.scope import CallScope, TextMetadata, current_scope
from turnwright_kit.telemetry_names import SpanAttributes

if TYPE_CHECKING:
    from turnwright_kit.telemetry_sdk import Sdk

OpenBlock = contextlib.AbstractContextManager[object]


class TelemetrySettings(Struct, frozen=True):
    """Where telemetry goes; empty: nowhere."""

    otlp_endpoint: str = ""
    """URL of an OpenTelemetry collector that takes OTLP over gRPC."""
    metrics_listen: str = ""
    """Address at which Prometheus finds /metrics."""


_OFF: Final[OpenBlock] = contextlib.nullcontext()
_sdk: Sdk | None = None


def configure_telemetry(settings: TelemetrySettings, services: str) -> Callable[[], None]:
    """Turn telemetry on, if the settings say so; returns what turns it off and sends the rest.

    `services` names what runs in this process. Raises OSError if /metrics cannot be served, and ModuleNotFoundError
    with a sentence if the libraries are not installed.
    """
    global _sdk  # noqa: PLW0603 - one process has one telemetry
    if not (settings.otlp_endpoint or settings.metrics_listen):
        return lambda: None
    try:
        from turnwright_kit.telemetry_sdk import Sdk  # noqa: PLC0415 - most processes have no telemetry
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Telemetry needs libraries that are not installed ({error.name}): pip install 'turnwright[telemetry]'."
        ) from None
    started = _sdk = Sdk(settings.otlp_endpoint, settings.metrics_listen, services)

    def stop() -> None:
        global _sdk  # noqa: PLW0603 - one process has one telemetry
        _sdk = None
        started.stop()

    return stop


def is_on() -> bool:
    return _sdk is not None


def span(name: str, attributes: SpanAttributes | None = None, *, calls_out: bool = False) -> OpenBlock:
    """A span around a block, below that of the current scope. An exception that leaves the block marks it as failed."""
    return _OFF if _sdk is None else _sdk.span(name, attributes or {}, calls_out=calls_out)


def add_attributes(attributes: SpanAttributes) -> None:
    if _sdk is not None:
        _sdk.add_attributes(attributes)


def fail(error: str) -> None:
    """Mark the open span as failed. `error` is a word for why."""
    if _sdk is not None:
        _sdk.fail(error)


def turn_begun(attributes: SpanAttributes) -> None:
    """A turn is worked on from now on, in the current scope."""
    if _sdk is not None:
        _sdk.turn_begun(attributes)


def turn_ended(attributes: SpanAttributes, error: str = "") -> None:
    """The turn of the current scope, if there is one, has ended, or is not worked on any more.

    `error` is a word for why it has failed; empty: it has not.
    """
    if _sdk is not None:
        _sdk.turn_ended(attributes, error)


def call_begun(method: str, scope: CallScope) -> object:
    """An rpc is being handled in a new scope. Returns its span for `call_ended`; None while telemetry is off."""
    return None if _sdk is None else _sdk.call_begun(method, scope)


def call_ended(found: object, method: str, code: str, seconds: float) -> None:
    if _sdk is not None:
        _sdk.call_ended(found, method, code, seconds)


def outgoing(method: str, address: str) -> contextlib.AbstractContextManager[TextMetadata]:
    """Around a call of another service, such as `/turnwright.store.v1.StoreService/EndTurn`: the trace that it carries.

    An AioRpcError that leaves the block says how it has failed.
    """
    return contextlib.nullcontext(current_scope().trace) if _sdk is None else _sdk.outgoing(method, address)


def event(name: str, text: str, attributes: SpanAttributes) -> None:
    """Log what has happened, for the collector alone, in the trace of the current scope. `text` is for people."""
    if _sdk is not None:
        _sdk.event(name, text, attributes)


def count(name: str, amount: float = 1, attributes: SpanAttributes | None = None) -> None:
    """Add to a counter of METRICS."""
    if _sdk is not None:
        _sdk.add(name, amount, attributes or {})


def measure(name: str, value: float, attributes: SpanAttributes | None = None) -> None:
    """Record a value in a histogram of METRICS."""
    if _sdk is not None:
        _sdk.record(name, value, attributes or {})


def observe(name: str, read: Callable[[], float | None], attributes: SpanAttributes | None = None) -> None:
    """Have a gauge of METRICS read whenever metrics are collected, by another thread. None: it has no value now."""
    if _sdk is not None:
        _sdk.observe(name, read, attributes or {})
