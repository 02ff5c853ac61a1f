"""Spans at a third of the library's price: recorded as plain values, and encoded in one step when they leave.

A turn has about fifteen spans. With the library's `start_span` and encoder they took a fifth of the turn's CPU.
Sampling, the queue, retries and the variables OTEL_* are the library's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import getrandbits
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace import Status as SpanStatus
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.trace.status import StatusCode

from turnwright_core.kit.scope import TRACEPARENT, TextMetadata
from turnwright_core.kit.telemetry import SpanAttributes
from turnwright_core.kit.telemetry_names import ERROR_TYPE

SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)

_UNSET: Final = SpanStatus()
_ERROR: Final = SpanStatus(StatusCode.ERROR)
_HAS_IS_REMOTE: Final = trace_pb2.SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE: Final = trace_pb2.SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
_KINDS: Final = {
    SpanKind.INTERNAL: trace_pb2.Span.SPAN_KIND_INTERNAL,
    SpanKind.SERVER: trace_pb2.Span.SPAN_KIND_SERVER,
    SpanKind.CLIENT: trace_pb2.Span.SPAN_KIND_CLIENT,
}
_STATUSES: Final = {
    StatusCode.UNSET: trace_pb2.Status(),
    StatusCode.ERROR: trace_pb2.Status(code=trace_pb2.Status.STATUS_CODE_ERROR),
}


class RecordedSpan:
    """A span that has begun. `attributes` may be added to until it ends."""

    __slots__ = ("attributes", "begin_ns", "context", "kind", "links", "name", "parent", "status")

    def __init__(
        self,
        name: str,
        kind: SpanKind,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: SpanAttributes,
        links: Sequence[Link] = (),
    ) -> None:
        self.name, self.kind, self.context, self.parent, self.links = name, kind, context, parent, links
        self.attributes = dict(attributes)
        self.status = _UNSET
        self.begin_ns = time.time_ns()

    def fail(self, error: str) -> None:
        self.attributes[ERROR_TYPE] = error
        self.status = _ERROR

    def ended(self, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
        """It ends now: as the library exports it."""
        end_ns = time.time_ns()
        return ReadableSpan(
            self.name, self.context, self.parent, resource, self.attributes, (), self.links, self.kind, None,
            self.status, self.begin_ns, end_ns, scope,
        )  # fmt: skip

    @property
    def trace_id(self) -> str:
        return f"{self.context.trace_id:032x}"

    def metadata(self) -> TextMetadata:
        """What calls below this span carry."""
        context = self.context
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        state = context.trace_state.to_header() if context.trace_state else ""
        return ((TRACEPARENT, parent), ("tracestate", state)) if state else ((TRACEPARENT, parent),)


def context_in(metadata: TextMetadata) -> SpanContext | None:
    """The span that a call came from. Its metadata has been validated; None: it came without a trace."""
    if not metadata:
        return None
    parent = metadata[0][1]
    state = TraceState.from_header([metadata[1][1]]) if len(metadata) > 1 else None
    flags = SAMPLED if int(parent[53:55], 16) & TraceFlags.SAMPLED else NOT_SAMPLED
    return SpanContext(int(parent[3:35], 16), int(parent[36:52], 16), True, flags, state)


def child_of(parent: SpanContext | None) -> SpanContext:
    """A new context below another one, sampled as that is; or of a new trace."""
    if parent is None:
        return SpanContext(getrandbits(128) or 1, getrandbits(64) or 1, False)
    return SpanContext(parent.trace_id, getrandbits(64) or 1, False, parent.trace_flags, parent.trace_state)


def with_decision(context: SpanContext, is_sampled: bool, state: TraceState | None) -> SpanContext:
    """The context as a sampler has decided."""
    return SpanContext(context.trace_id, context.span_id, False, SAMPLED if is_sampled else NOT_SAMPLED, state)


def library_context(parent: SpanContext | None) -> Context | None:
    """As samplers of the library take a parent."""
    return None if parent is None else set_span_in_context(NonRecordingSpan(parent))


class SpanExporter(OTLPSpanExporter):
    """The library's exporter, with an encoder for spans of one resource and scope whose attributes are plain values."""

    def _translate_data(self, data: Sequence[ReadableSpan]) -> ExportTraceServiceRequest:
        request = encode_spans(data[:1])
        spans = request.resource_spans[0].scope_spans[0].spans
        spans.extend([_encoded(span) for span in data[1:]])
        return request


def _encoded(span: ReadableSpan) -> trace_pb2.Span:
    context, parent = span.context, span.parent
    made = trace_pb2.Span(
        trace_id=context.trace_id.to_bytes(16, "big"),
        span_id=context.span_id.to_bytes(8, "big"),
        parent_span_id=parent.span_id.to_bytes(8, "big") if parent else b"",
        name=span.name,
        kind=_KINDS[span.kind],
        start_time_unix_nano=span.start_time or 0,
        end_time_unix_nano=span.end_time or 0,
        attributes=[KeyValue(key=key, value=_value(value)) for key, value in (span.attributes or {}).items()],
        status=_STATUSES[span.status.status_code],
        flags=_HAS_IS_REMOTE | (_IS_REMOTE if parent and parent.is_remote else 0),
    )
    if context.trace_state:
        made.trace_state = context.trace_state.to_header()
    for link in span.links:
        made.links.add(
            trace_id=link.context.trace_id.to_bytes(16, "big"),
            span_id=link.context.span_id.to_bytes(8, "big"),
            flags=_HAS_IS_REMOTE | _IS_REMOTE,
        )
    return made


def _value(value: object) -> AnyValue:
    match value:
        case str():
            return AnyValue(string_value=value)
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case _:
            return AnyValue(string_value=str(value))
