"""What the executor needs from outside: the ledger in the store, the packet, the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from turnwright.executor.v1 import executor_service_pb2, proposal_pb2, query_pb2, stream_pb2, task_pb2
from turnwright.types.v1 import loop_pb2, project_pb2, run_pb2

from turnwright_core.constraints import FileConstraint
from turnwright_core.entries import Cursor, Entry, EntryWrite
from turnwright_core.kit.auth import Caller
from turnwright_core.runs import Loop, LoopEnd, Model, Run, Spending, Turn, TurnRequest, TurnResult, Usage
from turnwright_executor.tools.ports import ScannedFile


@dataclass(frozen=True, slots=True)
class RunAddress:
    """How a run is named: project and alias."""

    project: str
    run: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The ledger of a run as its owner takes it over. Fields as in ClaimRunResponse."""

    epoch: int
    run: Run
    loop: Loop | None
    model: Model | None
    open_turn: Turn | None
    records: tuple[Entry, ...]
    recent_turns: tuple[Turn, ...]
    abort_requested: bool
    project_root: str
    workspace_id: str
    lease_ms: int
    turn_losses: int


@dataclass(frozen=True, slots=True)
class LeaseState:
    """How one lease stands after its renewal: whether it is still held, and whether an abort was requested."""

    held: bool
    abort_requested: bool


@dataclass(frozen=True, slots=True)
class Holding:
    """Who has a run: the owner and where it answers, empty for nobody; and the run's status."""

    owner: str
    address: str
    run_status: int


@dataclass(frozen=True, slots=True)
class Renewal:
    """How leases stand, in the order in which they were asked for, and their length from now on."""

    states: tuple[LeaseState, ...]
    lease_ms: int


@dataclass(frozen=True, slots=True)
class WriteAck:
    """What a write made: the path of each written entry, and the run's cursor after it."""

    paths: tuple[str, ...]
    cursor: Cursor


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed in a run since the last ones, as it is now; `entries` in revision order."""

    entries: tuple[Entry, ...]
    removed_paths: tuple[str, ...]
    run: Run | None
    loops: tuple[Loop, ...]
    turns: tuple[Turn, ...]
    cursor: Cursor
    abort_requested: bool = False
    """With the run: whether somebody has asked that the active loop ends."""


class Ledger(Protocol):
    """The rows of runs, as their owner writes them. Every method raises TurnwrightError."""

    async def claim(self, address: RunAddress) -> Claim:
        """Take over a run. Raises LEASE_HELD while another executor has it."""
        ...

    async def claim_work(self, limit: int, workspaces: Sequence[str]) -> list[Claim]:
        """Take over runs that have work and no owner, of these workspaces; none: of any."""
        ...

    async def renew(self, leases: Sequence[tuple[RunAddress, int]], workspaces: Sequence[str]) -> Renewal:
        """Make leases longer, each a run and its epoch, and tell which workspaces this executor has."""
        ...

    async def holding(self, address: RunAddress) -> Holding:
        """Who has a run now."""
        ...

    async def release(self, address: RunAddress, epoch: int) -> None:
        """Give a run back."""
        ...

    async def begin_turn(
        self, address: RunAddress, epoch: int, request: TurnRequest, writes: Sequence[EntryWrite]
    ) -> tuple[Turn, WriteAck]:
        """Open the next turn."""
        ...

    async def write(
        self,
        address: RunAddress,
        epoch: int,
        writes: Sequence[EntryWrite],
        *,
        full: bool = False,
        run_status: int = 0,
    ) -> WriteAck:
        """Write entries; `full` survives the loss of power."""
        ...

    async def write_packet(self, address: RunAddress, epoch: int, turn: int, packet: Packet) -> WriteAck:
        """Commit what the assembler wants written, and what the model is sent, before it is sent."""
        ...

    async def read_packet(self, address: RunAddress, turn: int) -> Packet | None:
        """The packet of a turn as it was stored; None where the turn had not come so far."""
        ...

    async def end_turn(
        self,
        address: RunAddress,
        epoch: int,
        turn: int,
        result: TurnResult,
        writes: Sequence[EntryWrite],
        loop_end: LoopEnd | None,
    ) -> WriteAck:
        """End a turn, and the loop with it where `loop_end` says so."""
        ...

    async def get_entries(self, address: RunAddress, paths: Sequence[str]) -> list[Entry]:
        """The entries that exist among the paths."""
        ...

    async def find_entries(
        self, address: RunAddress, pattern: str, body_pattern: str, limit: int, *, bodies: bool
    ) -> list[Entry]:
        """The entries that match, at most `limit`."""
        ...

    async def read_view(
        self, address: RunAddress, *, files: bool, body_bytes_max: int | None
    ) -> tuple[list[Entry], Cursor]:
        """The project files, or the timeline, of a run's view; None leaves bodies out."""
        ...

    async def read_body(self, address: RunAddress, path: str, offset: int, bytes_max: int) -> str:
        """A part of a body, cut at a character: from so many bytes on, at most so many."""
        ...

    async def file_constraints(self, project: str) -> list[FileConstraint]:
        """What a project says of its files."""
        ...

    def watch(self, address: RunAddress, after: Cursor, body_bytes_max: int) -> AsyncIterator[Changes]:
        """What changes in the timeline, until the caller ends it."""
        ...

    async def get_run(self, address: RunAddress) -> Run:
        """The run."""
        ...

    async def spending(self, address: RunAddress, loop: int) -> tuple[Spending, Spending]:
        """What a run has spent, and one of its loops; an open turn counts as one that has taken nothing."""
        ...


@dataclass(frozen=True, slots=True)
class PacketMessage:
    """One message for the model: `system` or `user`, and its text."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Packet:
    """What the model will read, and what the assembler wants written before that."""

    messages: tuple[PacketMessage, ...]
    effects: tuple[EntryWrite, ...]
    overflow: bool
    digest: str
    tokens: int
    ceiling: int
    cursor: Cursor


class Packets(Protocol):
    """The assembler."""

    async def assemble(self, address: RunAddress, turn: Turn, at_least: Cursor | None, calibration: float) -> Packet:
        """The packet of a turn. Raises TurnwrightError."""
        ...


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A native tool call: the tool's name, and the arguments as the model wrote them."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that the model added, to its content or to its reasoning."""

    text: str
    is_reasoning: bool = False


@dataclass(frozen=True, slots=True)
class CallsDelta:
    """The native tool calls so far."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class RetryNotice:
    """A failed try that will be repeated in `wait_s` seconds."""

    wait_s: float
    error_class: str
    detail: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of a reply."""

    reason: str
    usage: Usage | None


ModelEvent = TextDelta | CallsDelta | Usage | RetryNotice | Finished


class Models(Protocol):
    """The provider."""

    def generate(
        self, model: Model, messages: Sequence[PacketMessage], temperature: float, call_index: int
    ) -> AsyncIterator[ModelEvent]:
        """One model call as it streams; ends after Finished. Raises TurnwrightError."""
        ...


@dataclass(frozen=True, slots=True)
class Scan:
    """What a scan found: files that are new or changed since the scan before, and paths that are gone."""

    changed: tuple[ScannedFile, ...]
    removed: tuple[str, ...]


class FileScanner(Protocol):
    """Finds the files of one project; each scan tells what changed since the one before."""

    async def scan(self) -> Scan:
        """Look again. Raises OSError when the root cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class Queued:
    """A task that is in its run's queue: the run and the loop as the contract has them, and whether the run is new."""

    run: Run
    run_pb: run_pb2.Run
    loop_pb: loop_pb2.Loop
    cursor: Cursor
    created: bool


@dataclass(frozen=True, slots=True)
class Ruling:
    """A decision on a proposal. `comment` is also the answer to a question; `contents` are texts by path."""

    accept: bool
    comment: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    client_runs: bool = False
    """Whether who decides runs the command."""


class Inbox(Protocol):
    """What waits for a decision, across runs. Every method raises TurnwrightError."""

    async def resolve(
        self, address: RunAddress, path: str, ruling: Ruling, request_id: str, caller: Caller
    ) -> run_pb2.Run:
        """Record a decision, in the name of the caller."""
        ...

    async def list(self, request: proposal_pb2.ListProposalsRequest) -> proposal_pb2.ListProposalsResponse:
        """A page of what waits."""
        ...

    def watch(
        self, request: proposal_pb2.WatchProposalsRequest
    ) -> AsyncGenerator[proposal_pb2.WatchProposalsResponse, None]:
        """What waits, and what waits no more, until the caller ends it."""
        ...


class Registry(Protocol):
    """The rows that clients address through the executor. Every method raises TurnwrightError."""

    async def init_project(self, root: str, workspace_id: str, name: str) -> project_pb2.Project:
        """Register a project, or find the one of the workspace."""
        ...

    async def run_exists(self, address: RunAddress) -> bool:
        """Whether there is such a run."""
        ...

    async def enqueue(self, task: task_pb2.Task) -> Queued:
        """Put a task into its run's queue."""
        ...

    async def request_abort(self, address: RunAddress, request_id: str) -> run_pb2.Run:
        """Mark that the active loop shall end."""
        ...


@dataclass(frozen=True, slots=True)
class FoundWorkspace:
    """A directory on this host: its real absolute path, and the id in its marker."""

    root: str
    id: str


Locate = Callable[[str], Awaitable[FoundWorkspace | None]]
"""Finds a directory by its absolute path, making its marker where there is none; None when it is no directory."""


class Streams(Protocol):
    """Streams that callers produce, in the words of the contract. Every method raises TurnwrightError."""

    async def open(self, request: stream_pb2.OpenStreamRequest, caller: Caller) -> stream_pb2.OpenStreamResponse:
        """Begin a stream."""
        ...

    async def append(self, request: stream_pb2.AppendStreamRequest, caller: Caller) -> stream_pb2.AppendStreamResponse:
        """Add to a channel."""
        ...

    async def complete(
        self, request: stream_pb2.CompleteStreamRequest, caller: Caller
    ) -> stream_pb2.CompleteStreamResponse:
        """End a stream with its result."""
        ...

    async def abort(self, request: stream_pb2.AbortStreamRequest, caller: Caller) -> stream_pb2.AbortStreamResponse:
        """Give a stream up."""
        ...

    async def cancel(self, request: stream_pb2.CancelStreamRequest, caller: Caller) -> stream_pb2.CancelStreamResponse:
        """End a stream whoever produces it."""
        ...


class Queries(Protocol):
    """What clients read through the executor, in the words of the contract. Every method raises TurnwrightError."""

    async def get_run(self, request: query_pb2.GetRunRequest) -> query_pb2.GetRunResponse:
        """A run with its loops and turns."""
        ...

    async def list_runs(self, request: query_pb2.ListRunsRequest) -> query_pb2.ListRunsResponse:
        """The runs of a project."""
        ...

    async def get_entry(self, request: query_pb2.GetEntryRequest) -> query_pb2.GetEntryResponse:
        """One entry with its whole body."""
        ...

    async def list_models(self, request: query_pb2.ListModelsRequest) -> query_pb2.ListModelsResponse:
        """The models."""
        ...

    async def get_status(self, request: query_pb2.GetStatusRequest) -> query_pb2.GetStatusResponse:
        """How this executor and the services behind it are."""
        ...

    async def create_run(self, request: executor_service_pb2.StartRunRequest) -> run_pb2.Run:
        """A new run without work."""
        ...
