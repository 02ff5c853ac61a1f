"""Spans at a tenth of the library's price: recorded as plain values, and encoded in one step when they leave.

A turn has about fifteen spans. With the library's `start_span` and encoder they took a fifth of the turn's CPU.
Sampling, the queue, retries and the variables OTEL_* are the library's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from random import getrandbits
from struct import Struct
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState
from opentelemetry.trace.propagation import set_span_in_context

from turnwright_kit.scope import TRACEPARENT, TRACESTATE, TextMetadata
from turnwright_kit.telemetry import SpanAttributes
from turnwright_kit.telemetry_names import ERROR_TYPE

INTERNAL: Final = trace_pb2.Span.SPAN_KIND_INTERNAL
SERVER: Final = trace_pb2.Span.SPAN_KIND_SERVER
CLIENT: Final = trace_pb2.Span.SPAN_KIND_CLIENT

_SAMPLED: Final = "01"
_NOT_SAMPLED: Final = "00"
_HAS_IS_REMOTE: Final = trace_pb2.SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK
_IS_REMOTE: Final = _HAS_IS_REMOTE | trace_pb2.SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK

ENCODED_ATTRIBUTES_MAX: Final = 1024
"""Encoded spans that are kept without what differs each time: most differ in their ids and times alone."""


class SpanId:
    """A span as its children know it. The ids are hexadecimal, as in `traceparent`."""

    __slots__ = ("is_remote", "is_sampled", "span_id", "state", "trace_id")

    def __init__(self, trace_id: str, span_id: str, state: str, *, is_sampled: bool, is_remote: bool) -> None:
        self.trace_id, self.span_id, self.state = trace_id, span_id, state
        self.is_sampled, self.is_remote = is_sampled, is_remote

    def metadata(self) -> TextMetadata:
        """What calls below this span carry."""
        sampled = _SAMPLED if self.is_sampled else _NOT_SAMPLED
        parent = (TRACEPARENT, f"00-{self.trace_id}-{self.span_id}-{sampled}")
        return (parent, (TRACESTATE, self.state)) if self.state else (parent,)

    def library_context(self) -> Context:
        """As samplers of the library take a parent."""
        flags = TraceFlags(TraceFlags.SAMPLED if self.is_sampled else TraceFlags.DEFAULT)
        state = TraceState.from_header([self.state])
        found = SpanContext(int(self.trace_id, 16), int(self.span_id, 16), self.is_remote, flags, state)
        return set_span_in_context(NonRecordingSpan(found))


class RecordedSpan(SpanId):
    """A span that has begun. `attributes` may be added to until it ends."""

    __slots__ = ("attributes", "begin_ns", "end_ns", "is_failed", "kind", "link", "name", "parent")

    context: ClassVar = SimpleNamespace(trace_flags=SimpleNamespace(sampled=True))
    """What the library's queue looks at: only sampled spans are given to it."""

    def __init__(
        self,
        name: str,
        kind: trace_pb2.Span.SpanKind.ValueType,
        parent: SpanId | None,
        attributes: SpanAttributes,
        link: SpanId | None = None,
    ) -> None:
        """Sampled as its parent is; one without a parent begins a trace."""
        self.name, self.kind, self.parent, self.link = name, kind, parent, link
        self.span_id, self.is_remote = f"{getrandbits(64) or 1:016x}", False
        if parent is None:
            self.trace_id, self.state, self.is_sampled = f"{getrandbits(128) or 1:032x}", "", True
        else:
            self.trace_id, self.state, self.is_sampled = parent.trace_id, parent.state, parent.is_sampled
        self.attributes = dict(attributes)
        self.is_failed = False
        self.begin_ns = time.time_ns()
        self.end_ns = 0

    def fail(self, error: str) -> None:
        self.attributes[ERROR_TYPE] = error
        self.is_failed = True


def caller_in(metadata: TextMetadata) -> SpanId | None:
    """The span that a call came from. Its metadata has been validated; None: it came without a trace."""
    if not metadata:
        return None
    parent = metadata[0][1]
    state = metadata[1][1] if len(metadata) > 1 else ""
    is_sampled = bool(int(parent[53:55], 16) & TraceFlags.SAMPLED)
    return SpanId(parent[3:35], parent[36:52], state, is_sampled=is_sampled, is_remote=True)


class SpanExporter(OTLPSpanExporter):
    """The library's exporter, with an encoder for recorded spans."""

    def __init__(self, resource: Resource, scope: InstrumentationScope, **options: Any) -> None:
        super().__init__(**options)
        # Encoded by the library, with a span that is taken out again.
        self._envelope = encode_spans(
            [ReadableSpan("", SpanContext(1, 1, False), resource=resource, instrumentation_scope=scope)]
        )
        self._envelope.resource_spans[0].scope_spans[0].ClearField("spans")

    def _translate_data(self, data: Sequence[Any]) -> ExportTraceServiceRequest:
        request = ExportTraceServiceRequest()
        request.CopyFrom(self._envelope)
        request.resource_spans[0].scope_spans[0].MergeFromString(b"".join(map(encoded, data)))
        return request


def encoded(span: RecordedSpan) -> bytes:
    """A span as protobuf has it in a `ScopeSpans`: what differs in each span, then what is equal in many."""
    parent, more = span.parent, b""
    if span.state or span.link:
        more = _state_and_link(span.state, span.link)
    # Ids are bytes and times are fixed64, each after the byte or bytes that name its field.
    own = _OWN.pack(
        _TRACE_ID, bytes.fromhex(span.trace_id), _SPAN_ID, bytes.fromhex(span.span_id),
        _BEGIN, span.begin_ns, _END, span.end_ns,
    )  # fmt: skip
    if parent:
        own += _PARENT_ID + bytes.fromhex(parent.span_id)
    length, fixed = _fixed(
        span.name, span.kind, tuple(span.attributes.items()), span.is_failed, bool(parent and parent.is_remote),
        len(own) + len(more),
    )  # fmt: skip
    return length + own + more + fixed


_SPAN: Final = b"\x12"
_TRACE_ID: Final = b"\x0a\x10"
_SPAN_ID: Final = b"\x12\x08"
_PARENT_ID: Final = b"\x22\x08"
_BEGIN: Final = b"\x39"
_END: Final = b"\x41"
_OWN: Final = Struct("<2s16s2s8scQcQ")


def _state_and_link(state: str, link: SpanId | None) -> bytes:
    made = trace_pb2.Span(trace_state=TraceState.from_header([state]).to_header() if state else "")
    if link:
        ids = bytes.fromhex(link.trace_id), bytes.fromhex(link.span_id)
        made.links.add(trace_id=ids[0], span_id=ids[1], flags=_IS_REMOTE)
    return made.SerializeToString()


@lru_cache(ENCODED_ATTRIBUTES_MAX)
def _fixed(
    name: str,
    kind: trace_pb2.Span.SpanKind.ValueType,
    attributes: tuple[tuple[str, object], ...],
    is_failed: bool,
    is_remote: bool,
    own_bytes: int,
) -> tuple[bytes, bytes]:
    """What is equal in many spans, and the bytes before a span that has `own_bytes` more."""
    code = trace_pb2.Status.STATUS_CODE_ERROR if is_failed else trace_pb2.Status.STATUS_CODE_UNSET
    fixed = trace_pb2.Span(
        name=name,
        kind=kind,
        attributes=[KeyValue(key=key, value=_value(value)) for key, value in attributes],
        status=trace_pb2.Status(code=code),
        flags=_IS_REMOTE if is_remote else _HAS_IS_REMOTE,
    ).SerializeToString()
    return _SPAN + _varint(own_bytes + len(fixed)), fixed


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*made, number))


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
