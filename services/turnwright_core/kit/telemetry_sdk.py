"""OpenTelemetry behind kit/telemetry: loaded only where telemetry is on.

Spans and metrics leave in batches from threads of the library. A collector that is away or slow costs spans, not calls:
the queue is bounded (2,048 spans), and the library drops what does not fit. OTEL_* variables tune sampling, resource
attributes and the exporter as they do for any program.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind
from prometheus_client import start_http_server

from turnwright_core.kit.scope import CallScope, current_scope, own_scope
from turnwright_core.kit.telemetry import SpanAttributes, TelemetrySettings
from turnwright_core.kit.telemetry_names import (
    BOUNDARIES,
    METRICS,
    RPC_CODE,
    RPC_DURATION,
    RPC_METHOD,
    RPC_SYSTEM,
    SCHEMA_URL,
)
from turnwright_core.kit.telemetry_spans import (
    RecordedSpan,
    SpanExporter,
    child_of,
    context_in,
    library_context,
    with_decision,
)

EXPORT_TIMEOUT_S: Final = 5
"""Timeout of one export, in seconds."""

STOP_S_MAX: Final = 3.0
"""Seconds that the last spans have to leave when the process ends."""

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
        # It knows the sampler of OTEL_TRACES_SAMPLER, and ends the processor.
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._sampler = self._tracers.sampler
        self._inherits = isinstance(self._sampler, ParentBased)
        self._resource, self._scope = resource, InstrumentationScope("turnwright", release, SCHEMA_URL)
        self._processor: BatchSpanProcessor | None = None
        if endpoint := settings.otlp_endpoint:
            exporter: dict[str, Any] = {
                "endpoint": endpoint, "insecure": not endpoint.startswith("https://"), "timeout": EXPORT_TIMEOUT_S,
            }  # fmt: skip
            self._processor = BatchSpanProcessor(SpanExporter(**exporter))
            self._tracers.add_span_processor(self._processor)
            readers.append(PeriodicExportingMetricReader(OTLPMetricExporter(**exporter)))
        self._page: Any = None
        if address := settings.metrics_listen:
            readers.append(PrometheusMetricReader())
            host, _, port = address.rpartition(":")
            self._page = start_http_server(int(port), host.strip("[]"))[0]
        # Exemplars would take longer than the figures themselves.
        no_exemplars = AlwaysOffExemplarFilter()
        self._meters = MeterProvider(readers, resource, no_exemplars, shutdown_on_exit=False)
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

    def _begin(
        self,
        name: str,
        kind: SpanKind,
        parent: SpanContext | None,
        attributes: SpanAttributes,
        links: Sequence[Link] = (),
    ) -> RecordedSpan:
        """A span. One that is not sampled is only passed on."""
        context = child_of(parent)
        if parent is None or not self._inherits:
            found: Any = self._sampler.should_sample(
                library_context(parent), context.trace_id, name, kind, attributes, links
            )
            context = with_decision(context, found.decision.is_sampled(), found.trace_state)
        return RecordedSpan(name, kind, context, parent, attributes, links)

    def _end(self, span: RecordedSpan) -> None:
        if self._processor and span.context.trace_flags.sampled:
            self._processor.on_end(span.ended(self._resource, self._scope))

    @contextlib.contextmanager
    def span(self, name: str, attributes: SpanAttributes, *, calls_out: bool) -> Iterator[None]:
        scope = own_scope()
        kind = SpanKind.CLIENT if calls_out else SpanKind.INTERNAL
        made = self._begin(name, kind, _above(scope), attributes)
        before = scope.trace, scope.span
        scope.trace, scope.span = made.metadata(), made
        try:
            yield
        except BaseException as error:
            made.fail(getattr(getattr(error, "reason", None), "name", type(error).__name__))
            raise
        finally:
            # The step that ends a turn begins the next one: then its span is the scope's already.
            if scope.span is made:
                scope.trace, scope.span = before
            self._end(made)

    def add_attributes(self, attributes: SpanAttributes) -> None:
        if isinstance(found := current_scope().span, RecordedSpan):
            found.attributes.update(attributes)

    def turn_begun(self, attributes: SpanAttributes) -> None:
        self.turn_ended({})
        scope = own_scope()
        asked = context_in(scope.asked)
        made = self._begin("turn", SpanKind.INTERNAL, None, attributes, [Link(asked)] if asked else ())
        scope.turn, scope.span, scope.trace = made, made, made.metadata()
        scope.bound["trace_id"] = made.trace_id

    def turn_ended(self, attributes: SpanAttributes) -> None:
        scope = own_scope()
        if isinstance(scope.turn, RecordedSpan):
            scope.turn.attributes.update(attributes)
            self._end(scope.turn)
            scope.turn, scope.span, scope.trace = None, None, scope.asked

    # Calls ------------------------------------------------------------------------------------------------------

    def call_begun(self, method: str, scope: CallScope) -> object:
        name = method.lstrip("/")
        made = self._begin(name, SpanKind.SERVER, context_in(scope.trace), {RPC_SYSTEM: "grpc", RPC_METHOD: name})
        scope.trace, scope.span = made.metadata(), made
        scope.bound["trace_id"] = made.trace_id
        return made

    def call_ended(self, found: object, method: str, code: str, seconds: float) -> None:
        self.record(RPC_DURATION, seconds, {RPC_METHOD: method.lstrip("/"), RPC_CODE: code})
        if isinstance(found, RecordedSpan):
            found.attributes[RPC_CODE] = code
            if code in _FAILURES:
                found.fail(code)
            self._end(found)

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


def _above(scope: CallScope) -> SpanContext | None:
    """The parent of a new span: the open one, or the span that the call came from."""
    return scope.span.context if isinstance(scope.span, RecordedSpan) else context_in(scope.trace)
