"""The store over gRPC: what the owner of a run writes.

A request carries a limited number of writes; more of them go in parts, the request itself with the last one. How many
the store takes it says when it refuses: a deployment may allow fewer than the contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final, TypeVar

import grpc
from turnwright.store.v1 import ledger_pb2, store_service_pb2_grpc, write_pb2
from turnwright.types.v1 import view_pb2

from turnwright_core.backoff import Backoff
from turnwright_core.entries import EntryWrite
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.peer import Peer
from turnwright_core.limits import WRITES_MAX
from turnwright_core.runs import LoopEnd, Turn, TurnResult
from turnwright_core.wire.entries import cursor_from_pb, write_to_pb
from turnwright_core.wire.runs import turn_from_pb, turn_request_to_pb, turn_result_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.edge.packets import packet_to_pb
from turnwright_executor.edge.schemes import KnownSchemes
from turnwright_executor.ports.ledger import NewTurn, WriteAck
from turnwright_executor.ports.packets import Packet

BUSY_BACKOFF: Final = Backoff(0.05, 1.0)
"""Before a store that has too much to do is asked again."""

BUSY_RETRIES_MAX: Final = 5
"""Times that it is; then whoever asked has to wait, or to begin again."""

StoreRequest = TypeVar("StoreRequest")
StoreResponse = TypeVar("StoreResponse")
T = TypeVar("T")


class StoreWrites:
    """The writing half of ports.Ledger."""

    def __init__(self, peer: Peer, schemes: KnownSchemes) -> None:
        """Speak through this peer. `schemes` learns of registered schemes."""
        self._peer = peer
        self._schemes = schemes
        self._writes_max = WRITES_MAX
        self.stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def _call(
        self, method: grpc.aio.UnaryUnaryMultiCallable[StoreRequest, StoreResponse], request: StoreRequest
    ) -> StoreResponse:
        """The store's answer. Where it is too busy it has done nothing: what a command brought is not lost for that."""
        for pause_s in islice(BUSY_BACKOFF.pauses(), BUSY_RETRIES_MAX):
            try:
                return await self._peer.call(method, request)
            except TurnwrightError as error:
                if error.reason is not Reason.QUEUE_FULL:
                    raise
            await asyncio.sleep(pause_s)
        return await self._peer.call(method, request)

    async def _in_parts(
        self,
        address: RunAddress,
        epoch: int,
        writes: Sequence[EntryWrite],
        send: Callable[[Sequence[EntryWrite], tuple[str, ...]], Awaitable[T]],
        durability: write_pb2.Durability.ValueType = write_pb2.DURABILITY_NORMAL,
    ) -> T:
        """What `send` makes of the writes, or of the last of them, and of the paths of those before."""
        paths: tuple[str, ...] = ()
        while True:
            try:
                while len(writes) > self._writes_max:
                    part = writes[: self._writes_max]
                    request = _entries(address, epoch, part, durability)
                    paths += tuple((await self._call(self.stub.WriteEntries, request)).paths)
                    writes = writes[len(part) :]
                return await send(writes, paths)
            except TurnwrightError as error:
                if not self._learns(error):
                    raise

    def _learns(self, error: TurnwrightError) -> bool:
        """Whether a refusal says that the store takes fewer writes at once than was known."""
        told = error.metadata
        if error.reason is not Reason.LIMIT_EXCEEDED or (told.get("field"), told.get("unit")) != ("writes", "items"):
            return False
        before, self._writes_max = self._writes_max, int(told["limit"])
        return self._writes_max < before

    async def begin_turn(self, address: RunAddress, epoch: int, new: NewTurn) -> tuple[Turn, WriteAck]:
        """Open the next turn."""

        async def send(writes: Sequence[EntryWrite], _: tuple[str, ...]) -> ledger_pb2.BeginTurnResponse:
            message = ledger_pb2.BeginTurnRequest(
                project=address.project,
                run=address.run,
                fence=write_pb2.Fence(epoch=epoch),
                request=turn_request_to_pb(new.request),
                writes=map(write_to_pb, writes),
                schemes_version=self._schemes.version,
            )
            return await self._call(self.stub.BeginTurn, message)

        answer = await self._in_parts(address, epoch, new.writes, send)
        self._schemes.learn(answer)
        return turn_from_pb(answer.turn), WriteAck((), cursor_from_pb(answer.cursor))

    async def adopt_files(self, address: RunAddress, epoch: int, like_run: str) -> dict[str, str]:
        """The files that a run sees, after it was shown those of another one. Raises SERVICE_UNAVAILABLE."""
        request = ledger_pb2.AdoptFilesRequest(
            project=address.project, run=address.run, fence=write_pb2.Fence(epoch=epoch), like_run=like_run
        )
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
        tell_view: bool = False,
    ) -> WriteAck:
        """Write entries; `full` survives the loss of power."""
        durability = write_pb2.DURABILITY_FULL if full else write_pb2.DURABILITY_NORMAL

        async def send(last: Sequence[EntryWrite], before: tuple[str, ...]) -> WriteAck:
            message = _entries(address, epoch, last, durability)
            message.run_status = run_status
            message.tell_view = tell_view and not before
            answer = await self._call(self.stub.WriteEntries, message)
            paths, cursor = (*before, *answer.paths), cursor_from_pb(answer.cursor)
            return WriteAck(paths, cursor, tuple(answer.revisions), _told(answer))

        if epoch is None:
            return await send(writes, ())
        return await self._in_parts(address, epoch, writes, send, durability)

    async def write_packet(
        self, address: RunAddress, epoch: int, turn: int, packet: Packet, base_turn: int
    ) -> WriteAck:
        """Commit the effects of an assembly with the packet, by what differs from that of `base_turn`; 0: whole."""

        async def send(last: Sequence[EntryWrite], _: tuple[str, ...]) -> WriteAck:
            request = _entries(address, epoch, last)
            request.packet.CopyFrom(packet_to_pb(turn, packet, base_turn))
            request.tell_view = bool(last)
            try:
                answer = await self._call(self.stub.WriteEntries, request)
            except TurnwrightError as error:
                if error.reason is not Reason.PACKET_BASE_MISSING:
                    raise
                request.packet.CopyFrom(packet_to_pb(turn, packet, 0))
                answer = await self._call(self.stub.WriteEntries, request)
            return WriteAck((), cursor_from_pb(answer.cursor), view_change=_told(answer))

        return await self._in_parts(address, epoch, packet.effects, send)

    async def call_again(self, address: RunAddress, epoch: int, turn: int) -> None:
        """The stored packet of the open turn is about to be sent once more: count it."""
        request = _entries(address, epoch, ())
        request.packet.CopyFrom(write_pb2.PacketRecord(turn=turn, again=True))
        await self._call(self.stub.WriteEntries, request)

    async def end_turn(
        self,
        address: RunAddress,
        epoch: int,
        turn: int,
        result: TurnResult,
        writes: Sequence[EntryWrite],
        loop_end: LoopEnd | None,
        next_turn: NewTurn | None = None,
        *,
        tell_view: bool = False,
        release: bool = False,
    ) -> tuple[Turn | None, WriteAck]:
        """End a turn, and the loop with it where `loop_end` says so; or open the next turn.

        A next turn that begins with more writes than the store takes at once is not opened.
        """

        async def send(last: Sequence[EntryWrite], before: tuple[str, ...]) -> ledger_pb2.EndTurnResponse:
            message = ledger_pb2.EndTurnRequest(
                project=address.project,
                run=address.run,
                fence=write_pb2.Fence(epoch=epoch),
                turn=turn,
                result=turn_result_to_pb(result),
                writes=map(write_to_pb, last),
                schemes_version=self._schemes.version,
                tell_view=tell_view and not before,
                release=release,
            )
            if loop_end:
                message.loop_end.CopyFrom(
                    ledger_pb2.LoopEnd(status=loop_end.status, reason=loop_end.reason, summary=loop_end.summary)
                )
            if next_turn and len(next_turn.writes) <= self._writes_max:
                message.next.request.CopyFrom(turn_request_to_pb(next_turn.request))
                message.next.writes.extend(map(write_to_pb, next_turn.writes))
            return await self._call(self.stub.EndTurn, message)

        answer = await self._in_parts(address, epoch, writes, send)
        self._schemes.learn(answer)
        opened = turn_from_pb(answer.next) if answer.HasField("next") else None
        ack = WriteAck((), cursor_from_pb(answer.cursor), view_change=_told(answer), released=answer.released)
        return opened, ack


def _told(answer: ledger_pb2.WriteEntriesResponse | ledger_pb2.EndTurnResponse) -> view_pb2.ViewChange | None:
    return answer.view_change if answer.HasField("view_change") else None


def _entries(
    address: RunAddress,
    epoch: int | None,
    writes: Sequence[EntryWrite],
    durability: write_pb2.Durability.ValueType = write_pb2.DURABILITY_NORMAL,
) -> ledger_pb2.WriteEntriesRequest:
    return ledger_pb2.WriteEntriesRequest(
        project=address.project,
        run=address.run,
        fence=None if epoch is None else write_pb2.Fence(epoch=epoch),
        writes=map(write_to_pb, writes),
        durability=durability,
    )
