"""Names of metrics and attributes. Those of OpenTelemetry are as in its semantic conventions 1.41.

The GenAI conventions are still "in development" there: when they change, they change here alone.
"""

from __future__ import annotations

from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"

OTHER: Final = "_other"
"""The label of values that are not among those known beforehand: whoever calls must not be able to grow a metric."""

# GenAI, semantic conventions 1.41, status "Development".
OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
FINISH_REASON: Final = "turnwright.finish_reason"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - no password
TOKEN_USAGE: Final = "gen_ai.client.token.usage"  # noqa: S105 - no password
MODEL_DURATION: Final = "gen_ai.client.operation.duration"

# RPC, semantic conventions 1.41.
RPC_SYSTEM: Final = "rpc.system.name"
RPC_METHOD: Final = "rpc.method"
RPC_CODE: Final = "rpc.response.status_code"
RPC_DURATION: Final = "rpc.server.call.duration"
ERROR_TYPE: Final = "error.type"

# Our own.
RUN: Final = "turnwright.run"
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
    TOKEN_USAGE: ("histogram", "{token}", "Tokens of a model call, by model and type (input, output)."),
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

BOUNDARIES: Final = {
    "s": (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
    "{token}": tuple(4.0**power for power in range(14)),
}
"""Upper limits of the buckets of histograms, by unit. From an rpc within a host to a model that reasons for minutes."""
