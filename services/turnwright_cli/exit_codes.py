"""Exit codes and advice for errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import STATUSES

DONE: Final = 0
DIFFERENT: Final = 1
"""`policy backtest`: a decision or a verdict would differ. `replay`: a packet does. `eval`: a check failed."""
USAGE: Final = 2
FAILED: Final = 5
HUNG_UP: Final = 129
"""The terminal has vanished: the code that a shell reports for a process ended by SIGHUP."""
INTERRUPTED: Final = 130
"""A second Ctrl-C: the same for SIGINT."""

EXIT_OF_LOOP: Final = {one.code: one.exit_code for one in STATUSES.values() if one.sentence}
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
    values, hint = error.metadata, _ADVICE.get(error.reason, "")
    if error.reason is Reason.LIMIT_EXCEEDED and values.get("limit"):
        unit = f" {values['unit']}" if values.get("unit") else ""
        hint = f"The limit of {values.get('field', 'it')} is {values['limit']}{unit}."
    if error.reason is Reason.ENTRY_NOT_FOUND:
        hint = {"plan": _PLANS, "log": _PROPOSALS}.get(values.get("path", "").partition("://")[0], "")
    return FailureError(USAGE if error.reason in _USAGE else FAILED, f"{error.message}\n{hint}".rstrip())


def advice_after(loop_reason: str) -> str:
    """What to do about a failed loop, looked up by the first word of its reason; empty if there is no advice."""
    word = loop_reason.partition(":")[0].strip().upper()
    return _ENDINGS.get(word) or (_ADVICE.get(Reason.__members__[word], "") if word in Reason.__members__ else "")


_ENDINGS: Final[Mapping[str, str]] = {
    "BUDGET_EXHAUSTED": "Raise the limit with the next task (--max-turns, ...), or with `turnwright config RUN` if it "
    "is the run's limit.",
    "CYCLES": "Say what to do differently in the next task of the run, or give it another model with --model. "
    "`turnwright runs show RUN --turns` shows what it tried.",
    "STRIKES": "`turnwright runs show RUN --turns` shows what failed. Smaller steps, or another model, may help.",
    "LOOP_TURNS": "Give the run its next task to continue from there; TURNWRIGHT_LOOP_TURNS_MAX is the limit.",
    "CHANGE_FAILED": "`turnwright runs show RUN --turns` shows which change failed; the run can go on from there.",
    "NOTHING_RUN": "`turnwright runs show RUN --turns` shows the replies. Try --calls native, or another model.",
    "TEXT_AFTER_FAILURE": "`turnwright runs show RUN --turns` shows which commands failed.",
    "EXPIRED": "Nobody decided on the proposal in time. Give the run its task again; `turnwright inbox` lists what "
    "waits.",
}
"""Advice for reasons of loops that are not error reasons."""

_MODELS: Final = (
    "A model is an alias, or <vendor>/<model>: --model NAME, in a session /model NAME. `turnwright init` finds a "
    "model server on this host, `turnwright models add <alias> <vendor>/<model>` adds an alias."
)


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


_AGAIN: Final = "Call again."
_TASK_AGAIN: Final = "Give the run its task again later."

_USAGE: Final = frozenset(
    {
        *(Reason.INVALID_FIELD, Reason.LIMIT_EXCEEDED, Reason.PROJECT_NOT_FOUND, Reason.RUN_NOT_FOUND),
        *(Reason.ENTRY_NOT_FOUND, Reason.MODEL_NOT_FOUND, Reason.MODEL_REQUIRED, Reason.RUN_EXISTS),
        *(Reason.TRANSITION_FORBIDDEN, Reason.NOT_PROPOSED, Reason.WORKSPACE_UNAVAILABLE, Reason.COMMAND_GATED),
        *(Reason.PROMPT_MESSAGE_UNKNOWN, Reason.PROMPT_TARGET_MISSING, Reason.PROMPT_SHAPE_REFUSED),
        *(Reason.TURN_NOT_FOUND, Reason.SCHEME_FIXED),
    }
)
"""Reasons for which something is wrong with what was asked for; for any other, something failed."""

_ADVICE: Final[Mapping[Reason, str]] = {
    Reason.UNAUTHENTICATED: _TOKEN,
    Reason.TIER_FORBIDDEN: _TOKEN,
    Reason.PROJECT_NOT_FOUND: "Name the project's directory with --project.",
    Reason.RUN_NOT_FOUND: _RUNS,
    Reason.MODEL_NOT_FOUND: _MODELS,
    Reason.MODEL_REQUIRED: _MODELS,
    Reason.RUN_EXISTS: "Choose another alias with --run.",
    Reason.TRANSITION_FORBIDDEN: _RUNS,
    Reason.LEASE_LOST: "Another executor has taken over the run; try again.",
    Reason.REVISION_CONFLICT: _AGAIN,
    Reason.NOT_PROPOSED: _PROPOSALS,
    Reason.CURSOR_FOREIGN: _AGAIN,
    Reason.WORKSPACE_UNAVAILABLE: "Name an existing directory on the executor's host with --project, or HOST:/PATH on "
    "a sandbox host; for --place the top of a git repository with a commit.",
    Reason.QUEUE_FULL: "Wait until the run has finished some of its tasks, or use another run.",
    Reason.REQUEST_ID_REUSED: _AGAIN,
    Reason.SERVICE_UNAVAILABLE: _DOCTOR,
    Reason.VENDOR_NOT_CONFIGURED: _DOCTOR,
    Reason.VENDOR_UNREACHABLE: _DOCTOR,
    Reason.VENDOR_AUTH: _DOCTOR,
    Reason.VENDOR_RATE_LIMIT: "Wait, then give the run its task again.",
    Reason.VENDOR_FAILED: _TASK_AGAIN,
    Reason.STREAM_INTERRUPTED: _TASK_AGAIN,
    Reason.CONTEXT_EXCEEDED: _ROOM,
    Reason.VENDOR_TIMEOUT: _TASK_AGAIN,
    Reason.DRAINING: "The service is restarting; try again in a moment.",
    Reason.NOT_OWNER: "The run is moving to another executor. Repeat the command in a moment.",
    Reason.LEASE_HELD: "Another executor holds this run until it stops or its lease expires.",
    Reason.COMMAND_GATED: "`turnwright runs show RUN` tells what the run is doing.",
    Reason.PROMPT_MESSAGE_UNKNOWN: _MESSAGES,
    Reason.PROMPT_TARGET_MISSING: _MESSAGES,
    Reason.PACKET_BASE_MISSING: _AGAIN,
    Reason.TURN_NOT_FOUND: "`turnwright runs show RUN --turns` lists the turns of a run.",
    Reason.VERSION_MISMATCH: "Upgrade the older of the two.",
    Reason.PLUGIN_FAILED: "The assembler's log shows the plugin's error.",
    Reason.DATABASE_UNAVAILABLE: "Try again in a moment; the store's log shows the database's error.",
}
"""What to do next, where the error does not say it."""
