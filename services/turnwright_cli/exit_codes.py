"""Exit codes and advice for errors: the two tables that decide both.

Source: architecture 15; the reasons are those of turnwright.types.v1.ErrorReason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from turnwright_core import runs
from turnwright_core.errors import Reason, TurnwrightError

DONE: Final = 0
DIFFERENT: Final = 1
"""`policy test`: a verdict would differ. `replay`: a packet does."""
USAGE: Final = 2
UNPROCESSABLE: Final = 3
ABORTED: Final = 4
FAILED: Final = 5
UNDECIDED: Final = 6
HUNG_UP: Final = 129
"""The terminal has vanished: the code that a shell reports for a process ended by SIGHUP."""
INTERRUPTED: Final = 130
"""A second Ctrl-C: the same for SIGINT."""

EXIT_OF_LOOP: Final[Mapping[int, int]] = {
    runs.COMPLETED: DONE,
    runs.NO_CONTENT: DONE,
    runs.PROPOSED: UNDECIDED,
    runs.UNPROCESSABLE: UNPROCESSABLE,
    runs.ABORTED: ABORTED,
    runs.TOO_LARGE: FAILED,
    runs.FAILED: FAILED,
}
"""The exit code of each status at which a command stops following its loop."""


@dataclass(slots=True)
class FailureError(Exception):
    """Ends the command with this exit code and this sentence on standard error."""

    exit_code: int
    message: str

    def __str__(self) -> str:
        return self.message


def usage(message: str) -> FailureError:
    return FailureError(USAGE, message)


def failure_of(error: TurnwrightError) -> FailureError:
    """The exit code of an error, and a sentence with what to do next."""
    exit_code, advice = _RULES[error.reason]
    hint = advice(error.metadata)
    return FailureError(exit_code, f"{error.message}\n{hint}" if hint else error.message)


def advice_after(loop_reason: str) -> str:
    """What to do about a failed loop, looked up by the first word of its reason; empty if there is no advice."""
    word = loop_reason.partition(":")[0].strip().upper()
    if word in _ENDINGS:
        return _ENDINGS[word]
    return _RULES[Reason[word]][1]({}) if word in Reason.__members__ else ""


_ENDINGS: Final[Mapping[str, str]] = {
    "BUDGET_EXHAUSTED": "Raise the limit with the next task (--max-turns, ...), or with `turnwright config RUN` if it "
    "is the run's limit.",
    "CYCLES": "Say what to do differently in the next task of the run, or give it another model with --model. "
    "`turnwright runs show RUN --turns` shows what it tried.",
    "STRIKES": "`turnwright runs show RUN --turns` shows what failed. Smaller steps, or another model, may help.",
    "LOOP_TURNS": "Give the run its next task to continue from there; TURNWRIGHT_LOOP_TURNS_MAX is the limit.",
    "TEXT_AFTER_FAILURE": "`turnwright runs show RUN --turns` shows which commands failed.",
    "EXPIRED": "Nobody decided on the proposal in time. Give the run its task again; `turnwright inbox` lists what "
    "waits.",
}
"""Advice for reasons of loops that are not error reasons."""

Advice = Callable[[Mapping[str, str]], str]


def _nothing(_values: Mapping[str, str]) -> str:
    return ""


def _say(hint: str) -> Advice:
    return lambda _values: hint


_MODELS: Final = (
    "A model is an alias, or <vendor>/<model>: --model NAME, in a session /model NAME. `turnwright init` finds a "
    "model server on this host, `turnwright models add <alias> <vendor>/<model>` adds an alias."
)


def _limit(values: Mapping[str, str]) -> str:
    if not values.get("limit"):
        return ""
    return f"The limit of {values.get('field', 'it')} is {values['limit']} {values.get('unit', '')}.".replace(" .", ".")


_TOKEN: Final = "Set TURNWRIGHT_TOKEN to the token of that deployment (the file `token` in its home)."  # noqa: S105 - advice
_DOCTOR: Final = "`turnwright doctor` shows which service or vendor has a problem."
_MESSAGES: Final = "`turnwright explain RUN --next` lists the messages that the next prompt will have."
_RUNS: Final = "`turnwright runs` lists the runs of this project."

_PROPOSALS: Final = "`turnwright runs show RUN` shows what waits for a decision."
_ROOM: Final = (
    "Use a model with a larger context window, make the run's plans shorter (`turnwright plan show RUN`), or start a "
    "new run."
)
_PLANS: Final = "`turnwright plan show RUN` shows the plans of a run, `turnwright plan set RUN TEXT` sets one."


def _missing(values: Mapping[str, str]) -> str:
    return _PLANS if values.get("path", "").startswith("plan://") else _PROPOSALS


_RULES: Final[Mapping[Reason, tuple[int, Advice]]] = {
    Reason.INTERNAL: (FAILED, _nothing),
    Reason.UNAUTHENTICATED: (FAILED, _say(_TOKEN)),
    Reason.TIER_FORBIDDEN: (FAILED, _say(_TOKEN)),
    Reason.WRITER_FORBIDDEN: (FAILED, _nothing),
    Reason.INVALID_FIELD: (USAGE, _nothing),
    Reason.LIMIT_EXCEEDED: (USAGE, _limit),
    Reason.PROJECT_NOT_FOUND: (USAGE, _say("Name the project's directory with --project.")),
    Reason.RUN_NOT_FOUND: (USAGE, _say(_RUNS)),
    Reason.ENTRY_NOT_FOUND: (USAGE, _missing),
    Reason.MODEL_NOT_FOUND: (USAGE, _say(_MODELS)),
    Reason.MODEL_REQUIRED: (USAGE, _say(_MODELS)),
    Reason.RUN_EXISTS: (USAGE, _say("Choose another alias with --run.")),
    Reason.TRANSITION_FORBIDDEN: (USAGE, _say(_RUNS)),
    Reason.LEASE_LOST: (FAILED, _say("Another executor has taken over the run; try again.")),
    Reason.REVISION_CONFLICT: (FAILED, _say("Call again.")),
    Reason.NOT_PROPOSED: (USAGE, _say(_PROPOSALS)),
    Reason.CURSOR_FOREIGN: (FAILED, _say("Call again.")),
    Reason.WORKSPACE_UNAVAILABLE: (USAGE, _say("Name an existing directory on the executor's host with --project.")),
    Reason.QUEUE_FULL: (FAILED, _say("Wait until the run has finished some of its tasks, or use another run.")),
    Reason.REQUEST_ID_REUSED: (FAILED, _say("Call again.")),
    Reason.SERVICE_UNAVAILABLE: (FAILED, _say(_DOCTOR)),
    Reason.VENDOR_NOT_CONFIGURED: (FAILED, _say(_DOCTOR)),
    Reason.VENDOR_UNREACHABLE: (FAILED, _say(_DOCTOR)),
    Reason.VENDOR_AUTH: (FAILED, _say(_DOCTOR)),
    Reason.VENDOR_REJECTED: (FAILED, _nothing),
    Reason.VENDOR_RATE_LIMIT: (FAILED, _say("Wait, then give the run its task again.")),
    Reason.VENDOR_FAILED: (FAILED, _say("Give the run its task again later.")),
    Reason.STREAM_INTERRUPTED: (FAILED, _say("Give the run its task again.")),
    Reason.VENDOR_PROTOCOL: (FAILED, _nothing),
    Reason.CONTEXT_EXCEEDED: (FAILED, _say(_ROOM)),
    Reason.VENDOR_TIMEOUT: (FAILED, _say("Give the run its task again later.")),
    Reason.DRAINING: (FAILED, _say("The service is restarting; try again in a moment.")),
    Reason.NOT_OWNER: (FAILED, _say("The run is moving to another executor. Repeat the command in a moment.")),
    Reason.LEASE_HELD: (
        FAILED,
        _say("Another executor holds this run until it stops or its lease expires."),
    ),
    Reason.MESSAGE_TOO_LARGE: (FAILED, _nothing),
    Reason.PLAN_ENTRY: (FAILED, _nothing),
    Reason.COMMAND_GATED: (USAGE, _say("`turnwright runs show RUN` tells what the run is doing.")),
    Reason.PROMPT_MESSAGE_UNKNOWN: (USAGE, _say(_MESSAGES)),
    Reason.PROMPT_TARGET_MISSING: (USAGE, _say(_MESSAGES)),
    Reason.PROMPT_SHAPE_REFUSED: (USAGE, _nothing),
    Reason.PACKET_BASE_MISSING: (FAILED, _say("Call again.")),
    Reason.TURN_NOT_FOUND: (USAGE, _say("`turnwright runs show RUN --turns` lists the turns of a run.")),
    Reason.SCHEME_FIXED: (USAGE, _nothing),
    Reason.VERSION_MISMATCH: (FAILED, _say("Upgrade the older of the two.")),
    Reason.PLUGIN_FAILED: (FAILED, _say("The assembler's log shows the plugin's error.")),
    Reason.DATABASE_UNAVAILABLE: (
        FAILED,
        _say("Try again in a moment; the store's log shows the database's error."),
    ),
}
"""Exit code and advice for every error reason; a test checks that the table is total."""
