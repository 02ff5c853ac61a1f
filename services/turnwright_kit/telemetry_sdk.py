"""OpenTelemetry's SDK behind kit/telemetry: loaded only where telemetry is on.

All leaves in batches from threads of the library. A collector that is away or slow costs spans and events, not calls:
each queue is bounded (2,048), and the library drops what does not fit. OTEL_* variables tune sampling, resource
attributes and the exporter as they do for any program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Final

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import make_wsgi_app

from turnwright_kit.pages import App, HttpPage, Start, answered
from turnwright_kit.scope import CallScope, TextMetadata, current_scope, own_scope
from turnwright_kit.telemetry_names import (
    ERROR_TYPE,
    METRICS,
    RPC_CODE,
    RPC_DURATION,
    RPC_METHOD,
    RPC_SYSTEM,
    SCHEMA_URL,
    SECONDS,
    SERVER_ADDRESS,
    SERVER_PORT,
    SpanAttributes,
    error_type,
)

EXPORT_TIMEOUT_S: Final = 5
"""Timeout of one export, in seconds."""

UNTRACED: Final = ("/grpc.health.", "/grpc.reflection.")
"""Calls without spans: probes ask every few seconds, and nobody looks for what they did."""

METRICS_PATH: Final = "/metrics"

STOP_S_MAX: Final = 3.0
"""Seconds that the last spans and events have to leave when the process ends."""

_FAILURES: Final = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED", "DATA_LOSS", "UNIMPLEMENTED"})
"""Codes that are errors of the server, as the conventions for rpcs list them. For a client all but OK are errors."""

_W3C: Final = TraceContextTextMapPropagator()


class OpenSpan:
    """A span that has begun, as scopes know it."""

    __slots__ = ("span",)

    def __init__(self, span: Span) -> None:
        self.span = span

    @property
    def span_id(self) -> str:
        return format_span_id(self.span.get_span_context().span_id)

    @property
    def trace_id(self) -> str:
        return format_trace_id(self.span.get_span_context().trace_id)

    def metadata(self) -> TextMetadata:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier, set_span_in_context(self.span))
        return tuple(carrier.items())

    def end(self, attributes: SpanAttributes, error: str = "") -> None:
        """`error` says why it has failed; empty: it has not."""
        self.span.set_attributes(attributes)
        if error:
            self.fail(error)
        self.span.end()

    def fail(self, error: str) -> None:
        self.span.set_attribute(ERROR_TYPE, error)
        self.span.set_status(Status(StatusCode.ERROR))


def _caller_in(metadata: TextMetadata) -> Context:
    """The span that a call came from. Its metadata has been validated; empty: it came without a trace."""
    return _W3C.extract(dict(metadata), Context())


class Sdk:
    """Tracer, meter and logger of this process."""

    def __init__(self, otlp_endpoint: str, metrics_listen: str, services: str) -> None:
        """Start. Raises OSError if /metrics cannot be served."""
        release = version("turnwright")
        resource = Resource.create(
            {"service.namespace": "turnwright", "service.name": f"turnwright-{services}", "service.version": release}
        )
        readers: list[MetricReader] = []
        self._tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._loggers = LoggerProvider(resource, shutdown_on_exit=False)
        if otlp_endpoint:
            insecure = not otlp_endpoint.startswith("https://")
            exporter = OTLPSpanExporter(otlp_endpoint, insecure, timeout=EXPORT_TIMEOUT_S)
            self._tracers.add_span_processor(BatchSpanProcessor(exporter))
            logs = OTLPLogExporter(otlp_endpoint, insecure, timeout=EXPORT_TIMEOUT_S)
            self._loggers.add_log_record_processor(BatchLogRecordProcessor(logs))
            metrics = OTLPMetricExporter(otlp_endpoint, insecure, timeout=EXPORT_TIMEOUT_S)
            readers.append(PeriodicExportingMetricReader(metrics))
        if metrics_listen:
            readers.append(PrometheusMetricReader())
        self._meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._tracer = self._tracers.get_tracer("turnwright", release, schema_url=SCHEMA_URL)
        self._logger = self._loggers.get_logger("turnwright", release, schema_url=SCHEMA_URL)
        self._meter = self._meters.get_meter("turnwright", release, schema_url=SCHEMA_URL)
        self._counters = {
            name: self._meter.create_counter(name, unit, meaning)
            for name, (kind, unit, meaning) in METRICS.items()
            if kind == "counter"
        }
        self._histograms = {
            name: self._meter.create_histogram(name, unit, meaning, explicit_bucket_boundaries_advisory=SECONDS)
            for name, (kind, unit, meaning) in METRICS.items()
            if kind == "histogram"
        }
        self._gauges: dict[str, list[tuple[Callable[[], float | None], SpanAttributes]]] = {}
        self._page = HttpPage(metrics_listen, _metrics_page()) if metrics_listen else None

    def stop(self) -> None:
        """Send what is left, and stop. A collector that does not answer is waited for no longer than STOP_S_MAX."""
        leaving = [
            threading.Thread(target=provider.shutdown, name="telemetry", daemon=True)
            for provider in (self._tracers, self._meters, self._loggers)
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
        self, name: str, kind: SpanKind, above: Context, attributes: SpanAttributes, links: Sequence[Link] = ()
    ) -> OpenSpan:
        return OpenSpan(self._tracer.start_span(name, above, kind, attributes, links))

    @contextmanager
    def span(self, name: str, attributes: SpanAttributes, *, calls_out: bool) -> Iterator[None]:
        scope = own_scope()
        before = scope.span
        made = self._begin(name, SpanKind.CLIENT if calls_out else SpanKind.INTERNAL, _above(scope), attributes)
        scope.span, failure = made, ""
        try:
            yield
        except BaseException as error:
            failure = error_type(error)
            raise
        finally:
            # The step that ends a turn begins the next one: then its span is the scope's already.
            if scope.span is made:
                scope.span = before
            made.end({}, failure)

    def add_attributes(self, attributes: SpanAttributes) -> None:
        if isinstance(found := current_scope().span, OpenSpan):
            found.span.set_attributes(attributes)

    def fail(self, error: str) -> None:
        if isinstance(found := current_scope().span, OpenSpan):
            found.fail(error)

    def turn_begun(self, attributes: SpanAttributes) -> None:
        self.turn_ended({})
        scope = own_scope()
        # A trace of its own: a run may wait for days between two turns.
        asked = get_current_span(_caller_in(scope.asked)).get_span_context()
        links = [Link(asked)] if asked.is_valid else []
        made = self._begin("invoke_agent", SpanKind.INTERNAL, Context(), attributes, links)
        scope.turn = scope.span = made
        scope.bound["trace_id"] = made.trace_id

    def turn_ended(self, attributes: SpanAttributes, error: str = "") -> None:
        scope = own_scope()
        if isinstance(scope.turn, OpenSpan):
            scope.turn.end(attributes, error)
            scope.turn = scope.span = None

    # Calls ------------------------------------------------------------------------------------------------------

    def call_begun(self, method: str, scope: CallScope) -> OpenSpan | None:
        if method.startswith(UNTRACED):
            return None
        above = _caller_in(scope.asked)
        scope.span = made = self._begin(method[1:], SpanKind.SERVER, above, _rpc(method))
        if not scope.asked:
            scope.bound["trace_id"] = made.trace_id
        return made

    def call_ended(self, found: object, method: str, code: str, seconds: float) -> None:
        error = code if code in _FAILURES else ""
        labels = {**_rpc(method), RPC_CODE: code, **({ERROR_TYPE: error} if error else {})}
        self.record(RPC_DURATION, seconds, labels)
        if isinstance(found, OpenSpan):
            found.end({RPC_CODE: code}, error)

    @contextmanager
    def outgoing(self, method: str, address: str) -> Iterator[TextMetadata]:
        scope, code = current_scope(), "OK"
        if method.startswith(UNTRACED):
            yield scope.trace
            return
        made = self._begin(method[1:], SpanKind.CLIENT, _above(scope), {**_rpc(method), **_server_at(address)})
        try:
            yield made.metadata()
        except BaseException as error:
            # gRPC's errors have their code; with any other, whoever makes the call has ended it.
            code = error.code().name if hasattr(error, "code") else "CANCELLED"
            raise
        finally:
            made.end({RPC_CODE: code}, "" if code == "OK" else code)

    def event(self, name: str, text: str, attributes: SpanAttributes) -> None:
        above = _above(current_scope())
        self._logger.emit(
            timestamp=time.time_ns(), context=above, severity_number=SeverityNumber.INFO, body=text,
            attributes=attributes, event_name=name,
        )  # fmt: skip

    # Metrics ----------------------------------------------------------------------------------------------------

    def add(self, name: str, amount: float, attributes: SpanAttributes) -> None:
        self._counters[name].add(amount, attributes)

    def record(self, name: str, value: float, attributes: SpanAttributes) -> None:
        self._histograms[name].record(value, attributes)

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


def _above(scope: CallScope) -> Context:
    """What a new span of a scope stands below."""
    return set_span_in_context(scope.span.span) if isinstance(scope.span, OpenSpan) else _caller_in(scope.asked)


def _rpc(method: str) -> dict[str, str]:
    return {RPC_SYSTEM: "grpc", RPC_METHOD: method[1:]}


@lru_cache(256)
def _server_at(address: str) -> SpanAttributes:
    """The server that a channel was opened to: host and port, the path of a socket, or what names several hosts."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        return {SERVER_ADDRESS: rest.removeprefix("//")}
    host, _, port = address.removeprefix("dns:").rpartition("/")[2].rpartition(":")
    is_one = scheme not in ("ipv4", "ipv6") and host and port.isdecimal()
    return {SERVER_ADDRESS: host.strip("[]"), SERVER_PORT: int(port)} if is_one else {SERVER_ADDRESS: address}


def _metrics_page() -> App:
    """The library's page, at its path alone."""
    found = make_wsgi_app()

    def app(request: dict[str, object], start: Start) -> Iterable[bytes]:
        if request["PATH_INFO"] != METRICS_PATH:
            return answered(start, "404 Not Found", f"Ask for {METRICS_PATH}.")
        page: Iterable[bytes] = found(request, start)
        return page

    return app
