"""The store over gRPC: what is written from outside of loops."""

from __future__ import annotations

from collections.abc import Sequence

from turnwright.store.v1 import ledger_pb2, write_pb2

from turnwright_core.entries import EntryWrite
from turnwright_core.wire.entries import cursor_from_pb, write_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.edge.store import StoreLedger
from turnwright_executor.ports.ledger import WriteAck


class OutsideLedger(StoreLedger):
    """The ledger for writes from outside of loops: without a fence, so that no record of an open turn is touched."""

    async def write(
        self,
        address: RunAddress,
        epoch: int,  # noqa: ARG002 - nobody holds the run for these writes
        writes: Sequence[EntryWrite],
        *,
        full: bool = False,
        run_status: int = 0,
        read_paths: Sequence[str] = (),
        tell_view: bool = False,
    ) -> WriteAck:
        """Write entries; `full` survives the loss of power."""
        assert not run_status, "only the owner moves a run"
        assert not read_paths, "only the owner reads with what it writes"
        assert not tell_view, "only the owner assembles packets"
        request = ledger_pb2.WriteEntriesRequest(
            project=address.project,
            run=address.run,
            writes=[write_to_pb(write) for write in writes],
            durability=write_pb2.DURABILITY_FULL if full else write_pb2.DURABILITY_NORMAL,
        )
        answer = await self._peer.call(self.stub.WriteEntries, request)
        return WriteAck(tuple(answer.paths), cursor_from_pb(answer.cursor), revisions=tuple(answer.revisions))
