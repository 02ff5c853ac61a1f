"""Reads a run's view from the store: one rpc, in parts. The assembler's only way out."""

from __future__ import annotations

from collections.abc import AsyncIterator

from turnwright.store.v1 import read_pb2, store_service_pb2_grpc

from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.system import SYSTEM_PATH
from turnwright_core.entries import Cursor
from turnwright_core.kit.peer import Peer
from turnwright_core.wire.entries import cursor_from_pb, cursor_to_pb, entry_from_pb


class StoreReader:
    """A RunReader over a connection to the store."""

    def __init__(self, peer: Peer, timeout_s: float) -> None:
        """Read over this peer; `timeout_s` bounds one whole read, in seconds."""
        self._peer = peer
        self._stub = store_service_pb2_grpc.StoreServiceStub(peer.channel)
        self._timeout_s = timeout_s

    async def read(self, project: str, run: str, after: Cursor | None) -> AsyncIterator[ViewPart]:
        """The parts of the view, as they come."""
        request = read_pb2.ReadViewRequest(
            project=project,
            run=run,
            after=cursor_to_pb(after) if after else None,
            filter=read_pb2.VIEW_FILTER_PACKET,
            include_paths=[SYSTEM_PATH],
        )
        async for part in self._peer.stream(self._stub.ReadView, request, self._timeout_s):
            yield ViewPart(
                entries=tuple(entry_from_pb(entry) for entry in part.entries),
                removed=tuple(part.removed_paths),
                cursor=cursor_from_pb(part.cursor) if part.HasField("cursor") else None,
            )
