"""Runs, loops, turns, and their settings. Source: architecture 3; rows RU001-RU008, RU101-RU111, decisions C6, C27."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from msgspec import Struct, field

from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.entries import Cursor
from turnwright_core.models import Reasoning, ReportedWindow
from turnwright_core.tool_settings import ClientTool, ToolRules


class Mode(IntEnum):
    """Whether a loop may change anything."""

    UNSPECIFIED = 0
    ASK = 1
    ACT = 2


class CallStyle(IntEnum):
    """How a model calls tools; numbered as in the contract. A turn is never AUTO."""

    UNSPECIFIED = 0
    TAGS = 1
    NATIVE = 2
    AUTO = 3


class Assembly(IntEnum):
    """How a run is sent to its model; the numbers of the contract. UNSPECIFIED is that of no loop that was queued."""

    UNSPECIFIED = 0
    PACKET = 1
    TRANSCRIPT = 2


class RequestKind(IntEnum):
    """What a turn asks its model for; the numbers of the contract."""

    UNSPECIFIED = 0
    PRIMARY = 1
    COMPACTION = 2
    TITLE = 3


class ReplyKind(IntEnum):
    """What a reply is; the numbers of the contract."""

    UNSPECIFIED = 0
    REPLY = 1
    SUMMARY = 2


class TokenSource(IntEnum):
    """How the tokens of a prompt were counted; the numbers of the contract."""

    UNSPECIFIED = 0
    ESTIMATE = 1
    TOKENIZER = 2
    VENDOR = 3
    USAGE = 4


class SessionState(IntEnum):
    """What a run is doing, for people; the numbers of the contract. `core.session` says which one."""

    UNSPECIFIED = 0
    IDLE = 1
    GENERATING = 2
    EXECUTING_TOOLS = 3
    PAUSED = 4
    WAITING_IDE = 5
    WAITING_USER_INPUT = 6
    COMPLETED = 7
    ERROR = 8


QUEUED: Final = 100
RUNNING: Final = 102
COMPLETED: Final = 200
PROPOSED: Final = 202
NO_CONTENT: Final = 204
TOO_LARGE: Final = 413
UNPROCESSABLE: Final = 422
ABORTED: Final = 499
FAILED: Final = 500


class LoopStatus(Struct, frozen=True):
    """What there is to know of a status of loops; runs have those from which `to` leads on."""

    code: int
    word: str
    """For lists."""
    sentence: str = ""
    """How a command that follows the loop ends, for people; empty: it goes on following."""
    exit_code: int = 0
    """The exit code of such a command; 0 is success."""
    after: int = 0
    """Status of the run after the loop; 0: the same."""
    error: bool = False
    """Whether the run is in the state ERROR after the loop, unless a terminal update ended it."""
    update: str = ""
    """What a model says by it in an update; empty: it cannot."""
    to: tuple[int, ...] = ()
    """To which statuses a run can go from it (RU101-RU107)."""


_STATUSES: Final = (
    LoopStatus(QUEUED, "queued", to=(RUNNING, ABORTED)),
    LoopStatus(RUNNING, "running", update="I go on", to=(COMPLETED, PROPOSED, FAILED, ABORTED)),
    LoopStatus(PROPOSED, "waits", "Waiting for a decision", 6, to=(RUNNING, COMPLETED, ABORTED)),
    LoopStatus(COMPLETED, "done", "Done", update="all is done", to=(RUNNING, ABORTED)),
    LoopStatus(NO_CONTENT, "done", "Done, with nothing to report", 0, COMPLETED, update="nothing had to be done"),
    LoopStatus(TOO_LARGE, "too large", "Failed: the context does not fit the model's window", 5, FAILED, error=True),
    LoopStatus(UNPROCESSABLE, "cannot", "Cannot be done", 3, COMPLETED, error=True, update="it cannot be done"),
    LoopStatus(ABORTED, "stopped", "Stopped", 4, to=(RUNNING,)),
    LoopStatus(FAILED, "failed", "Failed", 5, error=True, to=(RUNNING, ABORTED)),
)
STATUSES: Final = {one.code: one for one in _STATUSES}
"""All statuses of loops. The tables of the store, the tool `update`, exit codes and words for people follow from it."""

RUN_TRANSITIONS: Final = {one.code: frozenset(one.to) for one in STATUSES.values() if one.to}
"""The state machine of a run (RU101-RU107). Writing the same status again is always allowed."""

LOOP_ACTIVE: Final = (RUNNING, PROPOSED)
LOOP_OPEN: Final = (QUEUED, *LOOP_ACTIVE)
LOOP_ENDED: Final = frozenset(STATUSES) - frozenset(LOOP_OPEN)
"""Final statuses of a loop (C6)."""

TERMINAL_UPDATES: Final = frozenset(one.code for one in STATUSES.values() if one.update and one.code in LOOP_ENDED)
"""Statuses of an update that end a loop (RU076)."""


def run_status_after(loop_status: int, reason: str) -> int:
    """The run's status after a loop has ended. Source: C27."""
    return COMPLETED if reason in (REJECTED, EXPIRED) else STATUSES[loop_status].after or loop_status


REJECTED: Final = "rejected"
"""Reason of a loop that was ended by a rejection (C20)."""

EXPIRED: Final = "expired"
"""Reason of a loop whose proposal was not decided in time."""


class Project(Struct, frozen=True):
    """A directory of files that owns runs, and with `clients` is open to derived tokens; `config_path` is for those."""

    name: str
    root: str
    workspace_id: str
    create_ms: int
    config_path: str = ""
    assembly: Assembly = Assembly.UNSPECIFIED
    """That of runs whose loops do not say; UNSPECIFIED: the store's."""
    clients: bool = False


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of model calls; cached and cache writes are part of prompt, reasoning is part of completion."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    cost_usd: float | None = None
    cache_write_tokens: int = 0


class Budget(Struct, frozen=True):
    """Limits for a run or a loop; 0 is no limit. Turns, tokens, US dollars, seconds of work."""

    turns_max: int = 0
    tokens_max: int = 0
    cost_usd_max: float = 0.0
    wall_s_max: float = 0.0


class Spend(Struct, frozen=True):
    """What was spent; `lost_tokens` and `prompt_tokens` are part of `tokens`. Fields as in the contract."""

    turns: int = 0
    tokens: int = 0
    lost_tokens: int = 0
    cost_usd: float = 0.0
    turns_without_cost: int = 0
    wall_s: float = 0.0
    prompt_tokens: int = 0


class AnswerFormat(Struct, frozen=True, omit_defaults=True):
    """Response format: JSON that matches the schema, which is JSON text; empty: any object."""

    schema: str = ""
    name: str = ""
    strict: bool = False


class LoopSettings(Struct, frozen=True):
    """What one loop runs with."""

    mode: Mode
    model: str = ""
    no_repo: bool = False
    no_interaction: bool = False
    no_web: bool = False
    no_proposals: bool = False
    yolo: bool = False
    budget: Budget | None = None
    reasoning: Reasoning | None = None
    response_format: AnswerFormat | None = None
    images: tuple[str, ...] = ()
    assembly: Assembly = Assembly.UNSPECIFIED
    edits: tuple[PromptEdit, ...] = ()
    project_instructions: bool | None = None
    """Whether AGENTS.md and CLAUDE.md are read; None: as in the latest task of a user, or else yes."""
    summaries: bool | None = None
    """Whether the model summarizes messages of a transcript before they are evicted; None: as in the latest task of a
    user, or else no."""
    client_tools: tuple[ClientTool, ...] = ()
    synthetic: bool = False
    """Whether a program wrote the prompt."""
    model_of_run: bool = False
    """Whether its model was named by the run, or was that of an earlier loop: it follows the run's while it waits. Only
    the store knows."""


class RunSettings(Struct, frozen=True):
    """The settings that all loops of a run share; None means the default of the contract."""

    model: str = ""
    temperature: float | None = None
    persona: str | None = None
    context_limit: int | None = None
    budget: Budget | None = None
    yolo: bool = False
    calls: CallStyle = CallStyle.UNSPECIFIED
    tool_rules: ToolRules | None = None


class Loop(Struct, frozen=True):
    """One task, given by ask or act, and all its turns."""

    sequence: int
    settings: LoopSettings
    prompt: str
    status: int
    reason: str = ""
    summary: str = ""
    first_turn: int = 0
    turns: int = 0
    usage: Usage = field(default_factory=Usage)
    create_ms: int = 0
    end_ms: int = 0
    revision: int = 0
    command_id: str = ""
    """The command that has added it; empty for a task that was given by another call."""


class ForkOrigin(Struct, frozen=True):
    """Where a fork began: the parent's alias at that time, and the parent's turn at whose end it began."""

    run: str
    turn: int


class Run(Struct, frozen=True):
    """A series of loops in one project with shared settings and state."""

    project: str
    run: str
    settings: RunSettings
    status: int
    turn: int = 0
    loop: Loop | None = None
    summary: str = ""
    loops_queued: int = 0
    revision: int = 0
    create_ms: int = 0
    update_ms: int = 0
    forked_from: ForkOrigin | None = None
    held: bool = False
    """Whether somebody holds its lease, if it is running; set for readers only."""
    state: SessionState = SessionState.UNSPECIFIED
    title: str = ""
    """The beginning of its first prompt. It and the state are set for readers only."""


class CompressionStrength(IntEnum):
    """How far the messages of a transcript were compressed to fit."""

    UNSPECIFIED = 0
    ABSENT = 1
    LOW = 2
    """Results are condensed."""
    MEDIUM = 3
    """Replies, or events, are left out."""
    HIGH = 4
    """What users said is left out, or a result was condensed before the model read it."""


class KnowledgeHit(Struct, frozen=True):
    """An entry of the project that was found for a prompt, as of a revision of the project."""

    path: str
    revision: int
    score: float


class TurnRequest(Struct, frozen=True):
    """The settings one turn ran with; immutable."""

    model: str
    vendor_model: str
    context_length: int
    temperature: float
    tools: tuple[str, ...]
    reasoning: Reasoning | None = None
    calls: CallStyle = CallStyle.UNSPECIFIED
    """How the model was told to call tools: TAGS or NATIVE; TAGS if the turn does not say."""
    mode: Mode = Mode.UNSPECIFIED
    """UNSPECIFIED in turns of earlier releases: as their loop."""
    persona: str | None = None
    response_format: AnswerFormat | None = None
    kind: RequestKind = RequestKind.UNSPECIFIED
    assembly: Assembly = Assembly.UNSPECIFIED
    output_reserve: int = 0
    """Tokens of the window that are kept free for the reply; 0: as many as the assembler's budget leaves."""
    knowledge: tuple[KnowledgeHit, ...] = ()


class LoopTally(Struct, frozen=True, omit_defaults=True):
    """What a loop has done so far, by which its end is judged: numbers of commands, and files whose change failed."""

    commands: int = 0
    unknown_commands: int = 0
    ignored_commands: int = 0
    failed_paths: tuple[str, ...] = ()


class TurnResult(Struct, frozen=True, omit_defaults=True):
    """How a turn ended. `status` is the verdict: 102 if the loop goes on, else the status that it ended with."""

    finish: str = ""
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    status: int = RUNNING
    reason: str = ""
    strikes: int = 0
    fingerprint: str = ""
    packet_digest: str = ""
    packet_tokens: int = 0
    cursor: Cursor | None = None
    first_delta_ms: int = 0
    model_ms: int = 0
    lost_tokens: int = 0
    lost_cost_usd: float = 0.0
    work_ms: int = 0
    answer: str = ""
    vendor_model: str = ""
    dropped: tuple[str, ...] = ()
    kind: ReplyKind = ReplyKind.UNSPECIFIED
    calibration: float = 0.0
    token_source: TokenSource = TokenSource.UNSPECIFIED
    edits: tuple[PromptEdit, ...] = ()
    """Those of the prompt, as they were applied."""
    compression: CompressionStrength = CompressionStrength.UNSPECIFIED
    reported_window: ReportedWindow | None = None
    tally: LoopTally | None = None


class Turn(Struct, frozen=True):
    """One packet sent and one reply read."""

    number: int
    loop: int
    request: TurnRequest
    result: TurnResult | None = None
    begin_ms: int = 0
    end_ms: int = 0
    revision: int = 0


class LoopEnd(Struct, frozen=True):
    """How a loop ends: status (see LOOP_ENDED), one-word reason, and the text of its last update."""

    status: int
    reason: str
    summary: str = ""
