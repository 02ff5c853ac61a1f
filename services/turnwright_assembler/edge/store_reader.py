"""Reads a run's view from the store: one rpc, in parts. The assembler's only outbound call."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from turnwright.store.v1 import read_pb2, store_service_pb2_grpc
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright.types.v1 import cursor_pb2, scheme_pb2, view_pb2
from turnwright_values.types import Cursor

from turnwright_assembler.ports import ViewPart
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.instructions import INSTRUCTION_PATHS
from turnwright_core.schemes import BUILT_IN, Schemes
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, entry_from_pb
from turnwright_core.wire.packets import PacketParts
from turnwright_core.wire.schemes import registry_from_pb
from turnwright_kit.peer import Peer

READ_TIMEOUT_S: Final = 60.0
"""Timeout for reading a run's view, in seconds: the first packet of a long run reads all of it."""


class StoreReader:
    """A RunReader over a connection to the store."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)
        self._turns = turn_service_pb2_grpc.TurnServiceStub(peer.channel)
        self._schemes = BUILT_IN

    def read(self, project: str, run: str, after: Cursor | None, schemes: str) -> AsyncGenerator[ViewPart, None]:
        since = cursor_to_pb(after) if after else None
        return self._read(project, run, messages=False, after=since, schemes_version=schemes)

    def read_messages(self, project: str, run: str, after: Cursor | None) -> AsyncGenerator[ViewPart, None]:
        return self._read(project, run, messages=True, after=cursor_to_pb(after) if after else None)

    def read_at(
        self, project: str, run: str, at: cursor_pb2.Moment | None, *, messages: bool
    ) -> AsyncGenerator[ViewPart, None]:
        return self._read(project, run, messages=messages, at=at)

    async def read_packet(self, project: str, run: str, turn: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
        request = turn_service_pb2.ReadPacketRequest(project=project, run=run, turn=turn)
        packet = PacketParts()
        try:
            async with self._peer.stream(self._turns.ReadPacket, request, READ_TIMEOUT_S) as parts:
                async for part in parts:
                    packet.add(part)
        except TurnwrightError as error:
            if error.reason is Reason.TURN_NOT_FOUND:
                return ()
            raise
        if not packet.is_whole:
            raise self._peer.cut_short("its last part")
        return packet.messages()

    async def _read(self, project: str, run: str, *, messages: bool, **more: Any) -> AsyncGenerator[ViewPart, None]:
        request = read_pb2.ReadViewRequest(
            project=project,
            run=run,
            filter=view_pb2.VIEW_FILTER_MESSAGES if messages else view_pb2.VIEW_FILTER_PACKET,
            include_paths=INSTRUCTION_PATHS,
            **more,
        )
        async with self._peer.stream(self._stub.ReadView, request, READ_TIMEOUT_S) as parts:
            async for part in parts:
                yield ViewPart(
                    entries=tuple(entry_from_pb(entry) for entry in part.entries),
                    removed=tuple(part.removed_paths),
                    cursor=cursor_from_pb(part.cursor) if part.HasField("cursor") else None,
                    schemes=self._registered(part.schemes) if part.HasField("schemes") else None,
                )

    def _registered(self, registry: scheme_pb2.SchemeRegistry) -> Schemes:
        """The scheme registry, shared by all runs with the same version."""
        if registry.version != self._schemes.version:
            self._schemes = registry_from_pb(registry)
        return self._schemes
