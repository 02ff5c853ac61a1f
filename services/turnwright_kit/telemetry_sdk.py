"""OpenTelemetry behind kit/telemetry: loaded only where telemetry is on.

Spans and metrics leave in batches from threads of the library. A collector that is away or slow costs spans, not calls:
the queue is bounded (2,048 spans), and the library drops what does not fit. OTEL_* variables tune sampling, resource
attributes and the exporter as they do for any program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind
from prometheus_client import make_wsgi_app

from turnwright_kit.pages import App, HttpPage, Start, answered
from turnwright_kit.scope import CallScope, current_scope, own_scope
from turnwright_kit.telemetry import SpanAttributes, TelemetrySettings
from turnwright_kit.telemetry_metrics import SERIES_MAX, ExportingReader, PrometheusReader, Sums
from turnwright_kit.telemetry_names import (
    METRICS,
    RPC_CODE,
    RPC_DURATION,
    RPC_METHOD,
    RPC_SYSTEM,
    SCHEMA_URL,
)
from turnwright_kit.telemetry_spans import CLIENT, INTERNAL, SERVER, RecordedSpan, SpanExporter, SpanId, caller_in

EXPORT_TIMEOUT_S: Final = 5
"""Timeout of one export, in seconds."""

UNTRACED: Final = ("/grpc.health.", "/grpc.reflection.")
"""Calls without spans: probes ask every few seconds, and nobody looks for what they did."""

METRICS_PATH: Final = "/metrics"

STOP_S_MAX: Final = 3.0
"""Seconds that the last spans have to leave when the process ends."""

_FAILURES: Final = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS", "UNIMPLEMENTED"})
"""Codes that are errors of the server, as the conventions for rpcs list them."""


_KINDS: Final = {INTERNAL: SpanKind.INTERNAL, SERVER: SpanKind.SERVER, CLIENT: SpanKind.CLIENT}
"""As samplers of the library take them."""


class Sdk:
    """Tracer and meters of this process."""

    def __init__(self, settings: TelemetrySettings, services: str) -> None:
        """Start. Raises OSError if /metrics cannot be served."""
        release = version("turnwright")
        resource = Resource.create(
            {"service.namespace": "turnwright", "service.name": f"turnwright-{services}", "service.version": release}
        )
        readers: list[ExportingReader | PrometheusReader] = []
        # It knows the sampler of OTEL_TRACES_SAMPLER, and ends the processor.
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._sampler = self._tracers.sampler
        self._inherits = isinstance(self._sampler, ParentBased)
        scope = InstrumentationScope("turnwright", release, SCHEMA_URL)
        self._processor: Any = None
        if endpoint := settings.otlp_endpoint:
            exporter: dict[str, Any] = {
                "endpoint": endpoint, "insecure": not endpoint.startswith("https://"), "timeout": EXPORT_TIMEOUT_S,
            }  # fmt: skip
            self._processor = BatchSpanProcessor(SpanExporter(resource, scope, **exporter))
            self._tracers.add_span_processor(self._processor)
            readers.append(ExportingReader(OTLPMetricExporter(**exporter)))
        if settings.metrics_listen:
            readers.append(PrometheusReader())
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._meter: Any = self._meters.get_meter("turnwright", release, schema_url=SCHEMA_URL)
        sums = Sums(self._meter)
        for reader in readers:
            reader.sums = sums
        self.add, self.record = sums.add, sums.record
        self._rpc_duration = lru_cache(SERIES_MAX)(
            lambda method, code: sums.histogram(RPC_DURATION, {RPC_METHOD: method, RPC_CODE: code})
        )
        self._gauges: dict[str, list[tuple[Callable[[], float | None], SpanAttributes]]] = {}
        self._page = HttpPage(settings.metrics_listen, _metrics_page()) if settings.metrics_listen else None

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
            self._page.stop()

    # Spans ------------------------------------------------------------------------------------------------------

    def _begin(
        self,
        name: str,
        kind: trace_pb2.Span.SpanKind.ValueType,
        parent: SpanId | None,
        attributes: SpanAttributes,
        link: SpanId | None = None,
    ) -> RecordedSpan:
        """A span. One that is not sampled is only passed on."""
        span = RecordedSpan(name, kind, parent, attributes, link)
        if parent is None or not self._inherits:
            above = parent.library_context() if parent else None
            found: Any = self._sampler.should_sample(above, int(span.trace_id, 16), name, _KINDS[kind], attributes)
            span.is_sampled = found.decision.is_sampled()
            span.state = found.trace_state.to_header() if found.trace_state else ""
        return span

    def _end(self, span: RecordedSpan) -> None:
        if self._processor and span.is_sampled:
            span.end_ns = time.time_ns()
            self._processor.on_end(span)

    def span(self, name: str, attributes: SpanAttributes, *, calls_out: bool) -> _Block:
        return _Block(self, name, attributes, CLIENT if calls_out else INTERNAL)

    def add_attributes(self, attributes: SpanAttributes) -> None:
        if isinstance(found := current_scope().span, RecordedSpan):
            found.attributes.update(attributes)

    def turn_begun(self, attributes: SpanAttributes) -> None:
        self.turn_ended({})
        scope = own_scope()
        made = self._begin("turn", INTERNAL, None, attributes, caller_in(scope.asked))
        scope.turn = scope.span = made
        scope.bound["trace_id"] = made.trace_id

    def turn_ended(self, attributes: SpanAttributes) -> None:
        scope = own_scope()
        if isinstance(scope.turn, RecordedSpan):
            scope.turn.attributes.update(attributes)
            self._end(scope.turn)
            scope.turn = scope.span = None

    # Calls ------------------------------------------------------------------------------------------------------

    def call_begun(self, method: str, scope: CallScope) -> object:
        if method.startswith(UNTRACED):
            return None
        name = method[1:]
        parent = caller_in(scope.asked)
        made = self._begin(name, SERVER, parent, {RPC_SYSTEM: "grpc", RPC_METHOD: name})
        scope.span = made
        if parent is None:
            scope.bound["trace_id"] = made.trace_id
        return made

    def call_ended(self, found: object, method: str, code: str, seconds: float) -> None:
        self._rpc_duration(method[1:], code).add(seconds)
        if isinstance(found, RecordedSpan):
            found.attributes[RPC_CODE] = code
            if code in _FAILURES:
                found.fail(code)
            self._end(found)

    # Metrics ----------------------------------------------------------------------------------------------------

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


def _metrics_page() -> App:
    """The library's page, at its path alone."""
    found = make_wsgi_app()

    def app(request: dict[str, Any], start: Start) -> Iterable[bytes]:
        if request["PATH_INFO"] != METRICS_PATH:
            return answered(start, "404 Not Found", f"Ask for {METRICS_PATH}.")
        page: Iterable[bytes] = found(request, start)
        return page

    return app


class _Block:
    """A span around a block."""

    __slots__ = ("_before", "_made", "_scope", "_sdk", "_what")

    def __init__(
        self, sdk: Sdk, name: str, attributes: SpanAttributes, kind: trace_pb2.Span.SpanKind.ValueType
    ) -> None:
        self._sdk, self._what = sdk, (name, kind, attributes)

    def __enter__(self) -> None:
        scope = self._scope = own_scope()
        name, kind, attributes = self._what
        self._before = scope.span
        above = scope.span if isinstance(scope.span, RecordedSpan) else caller_in(scope.asked)
        scope.span = self._made = self._sdk._begin(name, kind, above, attributes)  # noqa: SLF001 - a part of it

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error:
            self._made.fail(getattr(getattr(error, "reason", None), "name", type(error).__name__))
        # The step that ends a turn begins the next one: then its span is the scope's already.
        if self._scope.span is self._made:
            self._scope.span = self._before
        self._sdk._end(self._made)  # noqa: SLF001 - a part of it
