"""What the executor needs from the store: the rows of runs, as their owner reads and writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct

from turnwright_core.constraints import FileConstraint
from turnwright_core.entries import Cursor, Entry, EntryWrite, Tier
from turnwright_core.owner_calls import RunChanges, TurnStart, ViewChange
from turnwright_core.plans import Plan
from turnwright_core.runs import Loop, LoopEnd, Model, Run, Spend, Turn, TurnResult
from turnwright_core.schemes import Scheme
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.packets import Packet


class Claim(Struct, frozen=True):
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
    turn_calls: int


class LeaseRenewal(Struct, frozen=True):
    """How one lease stands after its renewal: whether it is still held, and whether an abort was requested."""

    held: bool
    abort_requested: bool


class RunOwner(Struct, frozen=True):
    """Who has a run: the owner and where it answers, empty for nobody; and the run's status."""

    owner: str
    address: str
    run_status: int


class Renewal(Struct, frozen=True):
    """How leases stand, in the order in which they were asked for, and their length from now on."""

    states: tuple[LeaseRenewal, ...]
    lease_ms: int


class WriteAck(Struct, frozen=True):
    """What a write made: path and revision of each written entry, and the run's cursor after it.

    A revision of 0 says that the entry stayed as it was.
    """

    paths: tuple[str, ...]
    cursor: Cursor
    revisions: tuple[int, ...] = ()
    view_change: ViewChange | None = None
    """What it has changed of the run's view, if the store could tell it."""
    released: bool = False
    """Whether the run was given back with it."""


class PlanWriter(Struct, frozen=True):
    """Who writes plans."""

    epoch: int | None
    """Of the owner's fence; None: a write from outside the loop."""
    tier: Tier
    window: int = 0
    """Tokens that a packet of the loop may take; 0: not known here."""


class Ledger(Protocol):
    """The rows of runs, as their owner writes them. Every method that waits raises TurnwrightError."""

    def scheme(self, name: str) -> Scheme:
        """The rules of a scheme, as the store told them with its latest claim, turn or run."""
        ...

    async def claim(self, address: RunAddress) -> Claim:
        """Take over a run. Raises LEASE_HELD while another executor has it."""
        ...

    async def claim_work(self, limit: int, workspaces: Sequence[str]) -> list[Claim]:
        """Take over runs that have work and no owner, of these workspaces; none: of any."""
        ...

    async def renew(self, leases: Sequence[tuple[RunAddress, int]], workspaces: Sequence[str]) -> Renewal:
        """Make leases longer, each a run and its epoch, and tell which workspaces this executor has."""
        ...

    async def holding(self, address: RunAddress) -> RunOwner:
        """Who has a run now."""
        ...

    async def release(self, address: RunAddress, epoch: int) -> None:
        """Give a run back."""
        ...

    async def begin_turn(self, address: RunAddress, epoch: int, new: TurnStart) -> tuple[Turn, WriteAck]:
        """Open the next turn."""
        ...

    async def adopt_files(self, address: RunAddress, epoch: int, like_run: str) -> dict[str, str]:
        """The project's files that a run sees, with the hashes of their bodies.

        If it sees none it is shown those of another run before, unless `like_run` is empty.
        """
        ...

    async def write(
        self,
        address: RunAddress,
        epoch: int | None,
        writes: Sequence[EntryWrite],
        *,
        full: bool = False,
        run_status: int = 0,
        return_view_change: bool = False,
    ) -> WriteAck:
        """Write entries; `full` survives the loss of power.

        `epoch` None writes from outside of loops: without a fence, so that no record of an open turn is touched, and
        all of it or nothing.
        `return_view_change` asks what it has changed of the view.
        """
        ...

    async def write_packet(
        self, address: RunAddress, epoch: int, turn: int, packet: Packet, base_turn: int
    ) -> WriteAck:
        """Commit what the assembler wants written, and what the model is sent, before it is sent.

        `base_turn` is the turn of the packet that this one was based on; 0: none, it is stored whole.
        """
        ...

    async def call_again(self, address: RunAddress, epoch: int, turn: int) -> None:
        """The stored packet of the open turn is about to be sent once more: count it."""
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
        next_turn: TurnStart | None = None,
        *,
        return_view_change: bool = False,
        release: bool = False,
    ) -> tuple[Turn | None, WriteAck]:
        """End a turn, and the loop with it where `loop_end` says so; or open the next turn, which is returned.

        `release` gives the run back with the end of its last loop.
        """
        ...

    async def get_entries(self, address: RunAddress, paths: Sequence[str]) -> list[Entry]:
        """The entries that exist among the paths."""
        ...

    async def find_entries(
        self,
        address: RunAddress,
        pattern: str,
        body_pattern: str,
        limit: int,
        *,
        bodies: bool,
        files_only: bool = False,
    ) -> list[Entry]:
        """The entries that match, at most `limit`; `files_only`: of project files."""
        ...

    async def read_timeline(self, address: RunAddress, body_bytes_max: int) -> tuple[list[Entry], Cursor]:
        """The timeline of a run's view."""
        ...

    async def read_body(self, address: RunAddress, path: str, offset: int, bytes_max: int) -> str:
        """A part of a body, cut at a character: from so many bytes on, at most so many."""
        ...

    async def get_plan(self, address: RunAddress, plan_id: str, version: int = 0) -> Plan:
        """A plan with its deltas; version 0: the latest one. Raises ENTRY_NOT_FOUND."""
        ...

    async def set_plan(self, address: RunAddress, by: PlanWriter, plan: Plan, request_id: str) -> tuple[Plan, Cursor]:
        """Create or replace a plan, once for each request id."""
        ...

    async def update_plan(
        self, address: RunAddress, by: PlanWriter, plan_id: str, delta: str, request_id: str
    ) -> tuple[Plan, Cursor]:
        """Add to a plan, once for each request id. Raises ENTRY_NOT_FOUND."""
        ...

    async def file_constraints(self, project: str) -> list[FileConstraint]:
        """What a project says of its files."""
        ...

    def watch(self, address: RunAddress, after: Cursor, body_bytes_max: int) -> AsyncGenerator[RunChanges, None]:
        """What changes in the timeline, until the caller closes it."""
        ...

    async def get_run(self, address: RunAddress) -> Run: ...

    async def spending(self, address: RunAddress, loop: int) -> tuple[Spend, Spend]:
        """What a run has spent, and one of its loops; an open turn counts as one that has taken nothing."""
        ...
