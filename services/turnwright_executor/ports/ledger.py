"""The port to the store: the rows of runs, as their owner reads and writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec import Struct
from turnwright.store.v1 import queue_pb2
from turnwright_values.plans import PlanWriter
from turnwright_values.store import (
    ClaimRunResponse,
    EndTurnRequest,
    EndTurnResponse,
    EntryWrite,
    GetLeaseResponse,
    RenewLeasesResponse,
    StartAgentRequest,
    StartAgentResponse,
    TitleCall,
    WaitAgentsResponse,
    WatchChangesResponse,
    WriteEntriesResponse,
)
from turnwright_values.types import (
    Cursor,
    Entry,
    FileConstraint,
    Model,
    QueuedCommand,
    RuleSet,
    Run,
    SearchHit,
    Turn,
    ViewFilter,
)

from turnwright_core.plans.plan import Plan
from turnwright_core.schemes import Scheme
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.packets import Packet
from turnwright_kit.identity.caller import Caller


class CreatedRun(Struct, frozen=True):
    """A run with its first task."""

    answer: queue_pb2.EnqueueLoopResponse
    claim: ClaimRunResponse | None
    """If there is one, its owner works on the run at once."""


class Ledger(Protocol):
    """The rows of runs, as their owner writes them. Every method that waits raises TurnwrightError."""

    async def find_places(self, names: Sequence[str]) -> tuple[Sequence[str], str]:
        """Those of the names that are places of runs, and the identity of the deployment."""

    def scheme(self, name: str) -> Scheme:
        """The rules of a scheme, as of the latest claim, turn or run that was read."""

    async def create_run(
        self, request: queue_pb2.EnqueueLoopRequest, caller: Caller, like_run: str, claims: bool
    ) -> CreatedRun:
        """Store the first task of a run on behalf of a caller, and claim the run. Raises RUN_EXISTS.

        `like_run`: the run whose files it adopts with the claim; empty: none.
        """

    async def claim(self, address: RunAddress) -> ClaimRunResponse:
        """ClaimRunResponse a run: take its lease. Raises LEASE_HELD while another executor holds it."""

    async def claim_work(self, limit: int, workspaces: Sequence[str]) -> list[ClaimRunResponse]:
        """ClaimRunResponse runs that have work and no owner; only of these workspaces if some are given."""

    async def renew(self, leases: Sequence[tuple[RunAddress, int]], workspaces: Sequence[str]) -> RenewLeasesResponse:
        """Renew leases, each a run and its epoch, and register the workspaces of this executor."""

    async def holding(self, address: RunAddress) -> GetLeaseResponse:
        """The current owner of a run."""

    async def release(self, address: RunAddress, epoch: int) -> None:
        """Release a run's lease."""

    async def adopt_files(self, address: RunAddress, epoch: int, like_run: str) -> dict[str, str]:
        """The project's files that a run sees, with the hashes of their bodies.

        If it sees none, it first adopts those of `like_run`, unless that is empty.
        """

    async def write(
        self,
        address: RunAddress,
        epoch: int | None,
        writes: Sequence[EntryWrite],
        *,
        full: bool = False,
        run_status: int = 0,
        view_filter: ViewFilter = ViewFilter.UNSPECIFIED,
        caller: Caller | None = None,
    ) -> WriteEntriesResponse:
        """Write entries, for a caller if there is one. With `full` they survive a loss of power.

        Without an `epoch` it is a write from outside of loops: unfenced, not allowed on records of an open turn, and
        atomic. `view_filter` asks what the write changes in the view.
        """

    async def write_packet(
        self,
        address: RunAddress,
        epoch: int,
        turn: int,
        packet: Packet,
        base_turn: int,
        view_filter: ViewFilter,
        reserved: tuple[int, float],
    ) -> WriteEntriesResponse:
        """Commit the effects of an assembly and the packet before it is sent.

        The packet is stored as a delta of the one of turn `base_turn`; 0: whole. `view_filter` asks what the
        effects change in the view. `reserved`: the tokens that the call may take, and what they may cost, in US
        dollars. Raises QUOTA_EXCEEDED.
        """

    async def call_again(self, address: RunAddress, epoch: int, turn: int, reserved: tuple[int, float]) -> None:
        """Count another model call with the stored packet of the open turn, which is about to be made.

        Raises QUOTA_EXCEEDED.
        """

    async def read_packet(self, address: RunAddress, turn: int) -> Packet | None:
        """The stored packet of a turn; None if the turn did not come that far."""

    async def end_turn(
        self, address: RunAddress, epoch: int, end: EndTurnRequest, view_filter: ViewFilter = ViewFilter.UNSPECIFIED
    ) -> EndTurnResponse:
        """End a turn, and perhaps its loop, or open the next one."""

    async def write_title(self, address: RunAddress, call: TitleCall) -> Model | None:
        """Write the call for a run's title, before it is made and once it has ended; None: it must not be made."""

    async def get_model(self, alias: str) -> Model | None:
        """A model; None: there is none."""

    async def start_agent(self, address: RunAddress, wanted: StartAgentRequest) -> StartAgentResponse:
        """Start an agent for a command, once. Raises RULE_DENIED, INVALID_FIELD, LIMIT_EXCEEDED, MODEL_NOT_FOUND."""

    async def wait_agents(
        self, address: RunAddress, epoch: int, record: str, names: Sequence[str]
    ) -> WaitAgentsResponse:
        """Say that a command waits for agents; how they are. Raises ENTRY_NOT_FOUND."""

    async def settle_agents(self, address: RunAddress) -> Sequence[str]:
        """Do what is due for the agents of a run, and for it where it is one; which runs can be gone on with."""

    async def get_entries(self, address: RunAddress, paths: Sequence[str]) -> list[Entry]:
        """Those of the entries that exist."""

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
        """The matching entries, at most `limit`; `files_only`: project files only."""

    async def read_timeline(
        self, address: RunAddress, body_bytes_max: int, whole_schemes: Sequence[str]
    ) -> tuple[list[Entry], Cursor]:
        """The entries of a run's timeline; bodies are truncated except those of `whole_schemes`."""

    async def read_body(self, address: RunAddress, path: str, offset: int, bytes_max: int) -> str:
        """At most `bytes_max` bytes of a body from an offset in bytes; never cuts a character."""

    async def get_plan(self, address: RunAddress, plan_id: str, version: int = 0) -> Plan:
        """A plan with its deltas; version 0: the latest. Raises ENTRY_NOT_FOUND."""

    async def list_plans(self, address: RunAddress) -> list[Plan]:
        """The latest versions of the plans, with their deltas."""

    async def set_plan(self, address: RunAddress, by: PlanWriter, plan: Plan, request_id: str) -> tuple[Plan, Cursor]:
        """Create or replace a plan. Idempotent by request id."""

    async def update_plan(
        self, address: RunAddress, by: PlanWriter, plan_id: str, delta: str, request_id: str
    ) -> tuple[Plan, Cursor]:
        """Append to a plan. Idempotent by request id. Raises ENTRY_NOT_FOUND."""

    async def file_constraints(self, project: str) -> list[FileConstraint]: ...

    def watch(
        self, address: RunAddress, after: Cursor, body_bytes_max: int, whole_schemes: tuple[str, ...]
    ) -> AsyncGenerator[WatchChangesResponse, None]:
        """The change feed of a run's timeline, as `read_timeline`, with whole plans, until the caller closes it."""

    async def get_run(self, address: RunAddress) -> Run: ...

    async def get_run_and_rules(self, address: RunAddress) -> tuple[Run, RuleSet]:
        """A run, and the approval rules that hold in it."""

    async def get_turns(self, address: RunAddress, numbers: Sequence[int]) -> list[Turn]:
        """Turns of a run by their numbers, those that there are."""

    async def list_commands(self, address: RunAddress) -> list[QueuedCommand]:
        """What waits in the queue of a run, the next one first."""

    async def search(self, project: str, query: str, limit: int) -> Sequence[SearchHit]:
        """Entries of a project that contain words of the query, best first."""
