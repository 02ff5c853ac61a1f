"""The store's gRPC client: writes of a run's owner.

A request has a limited number of writes; more of them are sent in parts, the request itself with the last one. The
store reports its limit when it refuses: a deployment may allow fewer than the contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import grpc
from msgspec.structs import replace
from turnwright.store.v1 import agents_pb2, ledger_pb2, store_service_pb2_grpc
from turnwright_values.store import (
    Durability,
    EndTurnRequest,
    EndTurnResponse,
    EntryWrite,
    StartAgentRequest,
    StartAgentResponse,
    TitleCall,
    WaitAgentsResponse,
    WriteEntriesRequest,
    WriteEntriesResponse,
)
from turnwright_values.types import Model, ViewFilter

from turnwright_core.backoff import Backoff
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import WRITES_MAX
from turnwright_core.packet_values import TurnPacket
from turnwright_core.wire.runs import (
    model_from_pb,
    start_agent_to_pb,
    started_from_pb,
    title_call_to_pb,
    waited_from_pb,
)
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.packets import turn_packet
from turnwright_executor.peers.schemes import KnownSchemes
from turnwright_executor.ports.packets import Packet
from turnwright_kit.identity.caller import Caller
from turnwright_kit.peer import Peer

BUSY_BACKOFF: Final = Backoff(0.05, 1.0)
"""Backoff for an overloaded store."""

BUSY_RETRIES_MAX: Final = 5
"""Retries for an overloaded store; then the caller has to wait or start over."""

StoreRequest = TypeVar("StoreRequest")
StoreResponse = TypeVar("StoreResponse")


class StoreWrites:
    """The writing half of ports.Ledger."""

    def __init__(self, peer: Peer, schemes: KnownSchemes) -> None:
        """Use this peer. `schemes` is updated from answers."""
        self._peer = peer
        self._schemes = schemes
        self._writes_max = WRITES_MAX
        self.stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)
        self._by_value: Any = self.stub
        """The same for calls that take values (turnwright_core.owner_calls)."""
        self.deliveries_due = asyncio.Event()
        """Set once the store says that webhooks are to be told something."""

    async def _call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[StoreRequest, StoreResponse],
        request: StoreRequest,
        caller: Caller | None = None,
    ) -> StoreResponse:
        """Call the store, with retries if it is overloaded: it has done nothing then, and no result is lost."""
        for retry in range(1, BUSY_RETRIES_MAX + 1):
            try:
                return await self._peer.call(method, request, caller=caller)
            except TurnwrightError as error:
                if error.reason is not Reason.QUEUE_FULL:
                    raise
            await asyncio.sleep(BUSY_BACKOFF.pause_s(retry))
        return await self._peer.call(method, request, caller=caller)

    async def _in_parts(
        self,
        method: Any,
        request: Any,
        writes: Sequence[EntryWrite],
        durability: Durability = Durability.NORMAL,
        with_writes: Callable[[Any, Sequence[EntryWrite]], Any] = lambda request, last: replace(request, writes=last),
        caller: Caller | None = None,
    ) -> tuple[Any, tuple[str, ...]]:
        """The answer to the request with these writes, and the paths of those that were written before it.

        `with_writes` makes the request with the last ones.
        """
        paths: tuple[str, ...] = ()
        while True:
            try:
                while len(writes) > self._writes_max and request.epoch is not None:
                    part = writes[: self._writes_max]
                    before = WriteEntriesRequest(
                        request.project, request.run, request.epoch, writes=part, durability=durability
                    )
                    paths += (await self._call(self._by_value.WriteEntries, before)).paths
                    writes = writes[len(part) :]
                    # What was written before, its answer does not tell.
                    request = replace(request, view_filter=ViewFilter.UNSPECIFIED)
                return await self._call(method, with_writes(request, writes), caller), paths
            except TurnwrightError as error:
                if request.epoch is None or not self._lowers_limit(error):
                    raise

    def _lowers_limit(self, error: TurnwrightError) -> bool:
        """Whether a refusal reports a lower limit for writes than was known."""
        metadata = error.metadata
        if error.reason is not Reason.LIMIT_EXCEEDED or (metadata.get("field"), metadata.get("unit")) != (
            "writes",
            "items",
        ):
            return False
        before, self._writes_max = self._writes_max, int(metadata["limit"])
        return self._writes_max < before

    async def adopt_files(self, address: RunAddress, epoch: int, like_run: str) -> dict[str, str]:
        """Adopt the files of another run; returns the files that the run sees. Raises SERVICE_UNAVAILABLE."""
        request = ledger_pb2.AdoptFilesRequest(project=address.project, run=address.run, epoch=epoch, like_run=like_run)
        seen: dict[str, str] = {}
        is_whole = False
        async with self._peer.stream(self.stub.AdoptFiles, request, self._peer.timeout_s) as parts:
            async for part in parts:
                seen.update(zip(part.paths, part.hashes, strict=True))
                is_whole = part.last
        if not is_whole:
            raise self._peer.cut_short("its last part")
        return seen

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
        durability = Durability.FULL if full else Durability.NORMAL
        request = WriteEntriesRequest(
            project=address.project,
            run=address.run,
            epoch=epoch,
            durability=durability,
            run_status=run_status,
            view_filter=view_filter,
        )
        done: WriteEntriesResponse
        done, before = await self._in_parts(self._by_value.WriteEntries, request, writes, durability, caller=caller)
        return replace(done, paths=(*before, *done.paths))

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
        """Commit the effects of an assembly with the packet, delta-encoded against that of `base_turn`; 0: whole."""
        request = WriteEntriesRequest(
            project=address.project,
            run=address.run,
            epoch=epoch,
            packet=_reserving(turn_packet(turn, packet, base_turn), reserved),
            view_filter=view_filter,
        )
        done: WriteEntriesResponse
        try:
            done, _ = await self._in_parts(self._by_value.WriteEntries, request, packet.report.effects)
        except TurnwrightError as error:
            if error.reason is not Reason.PACKET_BASE_MISSING:
                raise
            # Effects that were written before are the same again.
            return await self.write_packet(address, epoch, turn, packet, 0, view_filter, reserved)
        return done

    async def call_again(self, address: RunAddress, epoch: int, turn: int, reserved: tuple[int, float]) -> None:
        again = _reserving(TurnPacket(turn, (), again=True), reserved)
        call = WriteEntriesRequest(project=address.project, run=address.run, epoch=epoch, writes=(), packet=again)
        await self._call(self._by_value.WriteEntries, call)

    async def end_turn(
        self, address: RunAddress, epoch: int, end: EndTurnRequest, view_filter: ViewFilter = ViewFilter.UNSPECIFIED
    ) -> EndTurnResponse:
        """End a turn, or open the next one where none is open.

        After the end of a turn, one with more writes than the store accepts at once is not opened.
        """
        new = end.next
        opens = new if new and not end.turn else None

        def with_writes(request: EndTurnRequest, last: Sequence[EntryWrite]) -> EndTurnRequest:
            if opens:
                return replace(request, next=replace(opens, writes=last))
            is_small = new is not None and len(new.writes) <= self._writes_max
            return replace(request, writes=last, next=new if is_small else None)

        request = replace(
            end,
            project=address.project,
            run=address.run,
            epoch=epoch,
            schemes_version=self._schemes.version,
            view_filter=view_filter,
        )
        writes = opens.writes if opens else end.writes
        done: EndTurnResponse
        done, _ = await self._in_parts(self._by_value.EndTurn, request, writes, with_writes=with_writes)
        self._schemes.update_registry(done.schemes)
        if done.deliveries_due:
            self.deliveries_due.set()
        return done

    async def write_title(self, address: RunAddress, call: TitleCall) -> Model | None:
        request = ledger_pb2.WriteTitleRequest(project=address.project, run=address.run, call=title_call_to_pb(call))
        answer = await self._call(self.stub.WriteTitle, request)
        return model_from_pb(answer.model) if answer.HasField("model") else None

    async def start_agent(self, address: RunAddress, wanted: StartAgentRequest) -> StartAgentResponse:
        request = start_agent_to_pb(replace(wanted, project=address.project, run=address.run))
        return started_from_pb(await self._call(self.stub.StartAgent, request))

    async def wait_agents(
        self, address: RunAddress, epoch: int, record: str, names: Sequence[str]
    ) -> WaitAgentsResponse:
        request = agents_pb2.WaitAgentsRequest(
            project=address.project, run=address.run, epoch=epoch, path=record, names=names
        )
        return waited_from_pb(await self._call(self.stub.WaitAgents, request))

    async def settle_agents(self, address: RunAddress) -> Sequence[str]:
        request = agents_pb2.SettleAgentsRequest(project=address.project, run=address.run)
        return (await self._call(self.stub.SettleAgents, request)).runs


def _reserving(packet: TurnPacket, reserved: tuple[int, float]) -> TurnPacket:
    """The packet of a call that may take so many tokens, and cost so much."""
    tokens, cost_usd = reserved
    return replace(packet, reserve_tokens=tokens, reserve_cost_usd=cost_usd)
