"""OpenTelemetry behind kit/telemetry: loaded only where telemetry is on.

Spans and metrics leave in batches from threads of the library. A collector that is away or slow costs spans, not calls:
the queue is bounded (2,048 spans), and the library drops what does not fit. OTEL_* variables tune sampling, resource
attributes and the exporter as they do for any program.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import start_http_server

from turnwright_core.kit.scope import TRACEPARENT, CallScope, TextMetadata, current_scope, own_scope
from turnwright_core.kit.telemetry import SpanAttributes, TelemetrySettings
from turnwright_core.kit.telemetry_names import (
    BOUNDARIES,
    ERROR_TYPE,
    METRICS,
    RPC_CODE,
    RPC_DURATION,
    RPC_METHOD,
    RPC_SYSTEM,
    SCHEMA_URL,
)

EXPORT_TIMEOUT_S: Final = 5
"""Timeout of one export, in seconds."""

STOP_S_MAX: Final = 3.0
"""Seconds that the last spans have to leave when the process ends."""

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FAILURES: Final = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS", "UNIMPLEMENTED"})
"""Codes that are errors of the server, as the conventions for rpcs list them."""


class Sdk:
    """Tracer and meters of this process."""

    def __init__(self, settings: TelemetrySettings, services: str) -> None:
        """Start. Raises OSError if /metrics cannot be served."""
        release = version("turnwright")
        resource = Resource.create(
            {"service.namespace": "turnwright", "service.name": f"turnwright-{services}", "service.version": release}
        )
        readers: list[MetricReader] = []
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        if endpoint := settings.otlp_endpoint:
            exporter: dict[str, Any] = {
                "endpoint": endpoint, "insecure": not endpoint.startswith("https://"), "timeout": EXPORT_TIMEOUT_S,
            }  # fmt: skip
            self._tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(**exporter)))
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(**exporter)))
        self._page: Any = None
        if address := settings.metrics_listen:
            readers.append(PrometheusMetricReader())
            host, _, port = address.rpartition(":")
            self._page = start_http_server(int(port), host.strip("[]"))[0]
        self._meters = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
        self._tracer = self._tracers.get_tracer("turnwright", release, schema_url=SCHEMA_URL)
        meter: Any = self._meters.get_meter("turnwright", release, schema_url=SCHEMA_URL)
        self._instruments: dict[str, Any] = {}
        for name, (kind, unit, meaning) in METRICS.items():
            if kind == "counter":
                self._instruments[name] = meter.create_counter(name, unit, meaning)
            elif kind == "histogram":
                bounds = BOUNDARIES[unit]
                self._instruments[name] = meter.create_histogram(
                    name, unit, meaning, explicit_bucket_boundaries_advisory=bounds
                )
        self._meter = meter
        self._gauges: dict[str, list[tuple[Callable[[], float | None], SpanAttributes]]] = {}

    def stop(self) -> None:
        """Send what is left, and stop. A collector that does not answer is waited for no longer than STOP_S_MAX."""
        leaving = [
            threading.Thread(target=provider.shutdown, name="telemetry", daemon=True)
            for provider in (self._tracers, self._meters)
        ]
        end_s = time.monotonic() + STOP_S_MAX
        for thread in leaving:
            thread.start()
        for thread in leaving:
            thread.join(max(0.0, end_s - time.monotonic()))
        if self._page:
            self._page.shutdown()
            self._page.server_close()

    # Spans ------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def span(self, name: str, attributes: SpanAttributes, *, calls_out: bool) -> Iterator[None]:
        scope = own_scope()
        kind = SpanKind.CLIENT if calls_out else SpanKind.INTERNAL
        made = self._tracer.start_span(name, _parent(scope.trace), kind, attributes)
        before = scope.trace, scope.span
        scope.trace, scope.span = _trace(made), made
        try:
            yield
        except BaseException as error:
            _fail(made, getattr(getattr(error, "reason", None), "name", type(error).__name__))
            raise
        finally:
            # The step that ends a turn begins the next one: then its span is the scope's already.
            if scope.span is made:
                scope.trace, scope.span = before
            made.end()

    def add_attributes(self, attributes: SpanAttributes) -> None:
        if isinstance(found := current_scope().span, Span):
            found.set_attributes(attributes)

    def turn_begun(self, attributes: SpanAttributes) -> None:
        self.turn_ended({})
        scope = own_scope()
        asked = trace.get_current_span(_parent(scope.asked)).get_span_context()
        links = [Link(asked)] if asked.is_valid else []
        made = self._tracer.start_span("turn", Context(), SpanKind.INTERNAL, attributes, links)
        scope.turn, scope.span, scope.trace = made, made, _trace(made)
        scope.bound["trace_id"] = f"{made.get_span_context().trace_id:032x}"

    def turn_ended(self, attributes: SpanAttributes) -> None:
        scope = own_scope()
        if isinstance(scope.turn, Span):
            scope.turn.set_attributes(attributes)
            scope.turn.end()
            scope.turn, scope.span, scope.trace = None, None, scope.asked

    # Calls ------------------------------------------------------------------------------------------------------

    def call_begun(self, method: str, scope: CallScope) -> object:
        attributes = {RPC_SYSTEM: "grpc", RPC_METHOD: method.lstrip("/")}
        made = self._tracer.start_span(method.lstrip("/"), _parent(scope.trace), SpanKind.SERVER, attributes)
        scope.trace, scope.span = _trace(made), made
        scope.bound["trace_id"] = f"{made.get_span_context().trace_id:032x}"
        return made

    def call_ended(self, found: object, method: str, code: str, seconds: float) -> None:
        self.record(RPC_DURATION, seconds, {RPC_METHOD: method.lstrip("/"), RPC_CODE: code})
        if isinstance(found, Span):
            found.set_attribute(RPC_CODE, code)
            if code in _FAILURES:
                _fail(found, code)
            found.end()

    # Metrics ----------------------------------------------------------------------------------------------------

    def add(self, name: str, amount: float, attributes: SpanAttributes) -> None:
        self._instruments[name].add(amount, attributes)

    def record(self, name: str, value: float, attributes: SpanAttributes) -> None:
        self._instruments[name].record(value, attributes)

    def observe(self, name: str, read: Callable[[], float | None], attributes: SpanAttributes) -> None:
        """Several readers of one gauge are several series: their attributes differ."""
        if name in self._gauges:
            self._gauges[name].append((read, attributes))
            return
        observed = self._gauges[name] = [(read, attributes)]
        _, unit, meaning = METRICS[name]

        def collect(_options: CallbackOptions) -> Iterator[Observation]:
            for get, labels in observed:
                if (value := get()) is not None:
                    yield Observation(value, labels)

        self._meter.create_observable_gauge(name, [collect], unit, meaning)


def _parent(found: TextMetadata) -> Any:
    """The context of a trace that came with a call; an empty one starts a trace."""
    return _PROPAGATOR.extract(dict(found), Context())


def _trace(made: Span) -> TextMetadata:
    context = made.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
    state = context.trace_state.to_header()
    return ((TRACEPARENT, parent), *((("tracestate", state),) if state else ()))


def _fail(made: Span, error: str) -> None:
    made.set_attribute(ERROR_TYPE, error)
    made.set_status(Status(StatusCode.ERROR))
