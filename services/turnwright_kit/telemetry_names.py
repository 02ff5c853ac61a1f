"""Names of metrics and attributes. Those of OpenTelemetry are as in its semantic conventions 1.45, and GenAI's 0.1.

The GenAI conventions are still "in development": when they change, they change here alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import unquote, urlsplit

SpanAttributes = Mapping[str, str | int | float | bool | Sequence[str]]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.45.0"

OTHER: Final = "_other"
"""The label of values that are not among those known beforehand: whoever calls must not be able to grow a metric."""

# GenAI, semantic conventions 0.1, status "Development".
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION: Final = "gen_ai.conversation.id"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
MODALITY: Final = "gen_ai.token.modality"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
INPUT_USAGE: Final = "gen_ai.client.inference.usage.input_tokens"
OUTPUT_USAGE: Final = "gen_ai.client.inference.usage.output_tokens"
MODEL_DURATION: Final = "gen_ai.client.inference.duration"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.inference.time_to_first_chunk"

# RPC, semantic conventions 1.45.
RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_CODE: Final = "rpc.response.status_code"
RPC_DURATION: Final = "rpc.server.call.duration"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"

# Who calls, semantic conventions 1.45.
END_USER: Final = "enduser.id"
CLIENT_ADDRESS: Final = "client.address"
CLIENT_PORT: Final = "client.port"

# Our own.
AUDIT_EVENT: Final = "turnwright.audit"
AUDIT: Final = "turnwright.audit."
"""What the attributes of a row begin with that no convention has."""

TURN: Final = "turnwright.turn"
PROJECT: Final = "turnwright.project"
VERDICT: Final = "turnwright.verdict"
REASON: Final = "turnwright.reason"
COST: Final = "turnwright.cost"
COMMANDS: Final = "turnwright.turn.commands"
TURN_DURATION: Final = "turnwright.turn.duration"
LOOPS: Final = "turnwright.loops"
LEASES: Final = "turnwright.leases"
LEASES_LOST: Final = "turnwright.leases.lost"
PROPOSALS_WAITING: Final = "turnwright.proposals.waiting"
LOOPS_QUEUED: Final = "turnwright.loops.queued"
QUEUE_AGE: Final = "turnwright.queue.age"
VENDOR_ERRORS: Final = "turnwright.vendor.errors"
CERTIFICATES_REFUSED: Final = "turnwright.tls.certificates.refused"
CERTIFICATE_EXPIRY: Final = "turnwright.tls.certificate.expiry"
SANDBOX: Final = "turnwright.sandbox"
LOOP_LAG: Final = "turnwright.event_loop.lag"

METRICS: Final = {
    RPC_DURATION: ("histogram", "s", "Time that an rpc took, by method and status code."),
    TURN_DURATION: ("histogram", "s", "Time of work on a turn, by verdict and reason."),
    MODEL_DURATION: ("histogram", "s", "Time of a model call, from the first attempt to the end of the reply."),
    TIME_TO_FIRST_CHUNK: ("histogram", "s", "Time of a model call, from the first attempt to the first delta."),
    INPUT_USAGE: ("counter", "{token}", "Tokens that models were sent, cached ones included."),
    OUTPUT_USAGE: ("counter", "{token}", "Tokens that models wrote, reasoning included."),
    COST: ("counter", "{USD}", "Cost of model calls in US dollars, where it is known."),
    COMMANDS: ("counter", "{command}", "Commands that turns contained."),
    VENDOR_ERRORS: ("counter", "{error}", "Failed attempts at model calls, by vendor and class."),
    LOOPS: ("gauge", "{loop}", "Loops that this executor works on."),
    LEASES: ("gauge", "{lease}", "Runs that this executor holds."),
    LEASES_LOST: ("counter", "{lease}", "Leases that expired, or were taken by another executor, during work."),
    PROPOSALS_WAITING: ("gauge", "{proposal}", "Proposals that wait for a decision, in the whole store."),
    LOOPS_QUEUED: ("gauge", "{loop}", "Loops that wait for an executor, in the whole store."),
    QUEUE_AGE: ("gauge", "s", "Age of the loop that has waited longest for an executor, in the whole store."),
    CERTIFICATES_REFUSED: ("counter", "{file}", "Replaced certificates that could not be used."),
    CERTIFICATE_EXPIRY: ("gauge", "s", "Time until the certificate in use expires; negative: since it has."),
    LOOP_LAG: ("gauge", "s", "How late the process is with what is due: the worst of the last 30 to 60 seconds."),
    SANDBOX: ("gauge", "{backend}", "1, with the backend that confines commands as an attribute."),
}
"""Every metric: its kind, unit and meaning."""

SECONDS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0
)  # fmt: skip
"""Upper limits of the buckets of histograms. From an rpc within a host to a model that reasons for minutes."""


def error_type(error: BaseException) -> str:
    """Why an operation has failed, in a word."""
    return getattr(getattr(error, "reason", None), "name", type(error).__name__)


def client_of(peer: str) -> dict[str, str | int]:
    """Where a call came from, of its peer as gRPC says it: `ipv4:10.0.0.7:50412`, `unix:`."""
    family, _, place = peer.partition(":")
    host, _, port = unquote(place).rpartition(":")
    if family in ("ipv4", "ipv6") and port.isdecimal():
        return {CLIENT_ADDRESS: host.strip("[]"), CLIENT_PORT: int(port)}
    return {CLIENT_ADDRESS: peer} if peer else {}


def server_of(url: str) -> dict[str, str | int]:
    """Where a vendor is reached; empty for one without a URL."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname:
            return {SERVER_ADDRESS: parts.hostname, SERVER_PORT: parts.port or (80 if parts.scheme == "http" else 443)}
    return {}


_PROVIDERS: Final = {"gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai", "xai": "x_ai"}
"""Vendors that the conventions name in another way than we do."""


def provider_of(vendor: str) -> str:
    """How the conventions name a vendor."""
    return _PROVIDERS.get(vendor, vendor)
