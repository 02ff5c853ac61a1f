"""What the tests of proposals share: loops that wait, people who decide, and other executors."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.store.v1 import (
    lease_pb2,
    ledger_pb2,
    read_pb2,
    store_service_pb2_grpc,
)
from turnwright.types.v1 import command_record_pb2
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Tier

from services import SECRET, token_for
from turnwright_client import Client
from turnwright_core.errors import PreconditionError
from turnwright_core.wire.entries import write_to_pb
from turnwright_kit.peer import Peer

SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
PROPOSAL = "log://turn_1/set/a.txt"
ASK = '<ask_user question="Which database?">PostgreSQL, SQLite</ask_user>'
QUESTION = "log://turn_1/ask_user/Which_database%3F"


@contextlib.asynccontextmanager
async def person(services, name: str, **claims):
    """A client with a token of its own."""
    async with Client.connect(services.addresses["executor"], token_for(name, **claims)) as client:
        yield client


async def waiting(services, *replies: str, run: str = "r", **settings):
    """A loop that waits for its first decision."""
    services.script(*replies)
    queued = await services.act(run=run, yolo=False, **settings)
    assert (await services.until(queued, 202)).status == 202
    return queued


async def listed(client, *of):
    return [(item.run, item.proposal.path, item.proposal.tool) async for item in client.list_proposals(*of)]


async def until_change(changes, what: str):
    async with asyncio.timeout(60):
        async for change in changes:
            if getattr(change, what):
                return change
    raise AssertionError("the watch ended")


class Another:
    """The store, as another executor and as a client without any executor use it."""

    def __init__(self, services) -> None:
        self.key = {"project": services.project, "run": "r"}
        self.peer = Peer("store", services.addresses["store"], SECRET, 10.0)
        self.stub = store_service_pb2_grpc.StoreServiceStub(self.peer.channel)
        self.epoch = 0

    async def accept(self, path: str = PROPOSAL) -> None:
        request = proposal_service_pb2.ResolveProposalRequest(**self.key, path=path, accept={})
        await self.peer.call(proposal_service_pb2_grpc.ProposalServiceStub(self.peer.channel).ResolveProposal, request)

    async def claim(self) -> None:
        """Take the run as soon as its owner has let go of it."""
        request = lease_pb2.ClaimRunRequest(
            **self.key, owner="another", address="there:1", lease_duration=timedelta(minutes=1)
        )
        for _ in range(1200):
            with contextlib.suppress(PreconditionError):
                self.epoch = (await self.peer.call(self.stub.ClaimRun, request)).epoch
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the run was never free")

    async def mark(self, path: str = PROPOSAL) -> None:
        """What an owner writes just before the effect."""
        record = (await self.peer.call(self.stub.GetEntries, _get(self.key, path))).entries[0]
        accepted = record.record.accepted
        mark = command_record_pb2.DispatchedStage(effect=accepted.effect, decision=accepted.decision)
        record.record.dispatched.CopyFrom(mark)
        write = EntryWrite(path, SetEntry(record=record.record.SerializeToString()), Tier.SYSTEM)
        request = ledger_pb2.WriteEntriesRequest(
            **self.key, epoch=self.epoch, writes=[write_to_pb(write)], run_status=102
        )
        await self.peer.call(self.stub.WriteEntries, request)

    async def run_status(self, status: int) -> None:
        """Set the status of the loop alone."""
        await self.peer.call(
            self.stub.WriteEntries,
            ledger_pb2.WriteEntriesRequest(**self.key, epoch=self.epoch, run_status=status),
        )

    async def die(self) -> None:
        """Nothing more is heard of it; its lease passes."""
        await self.peer.call(self.stub.ReleaseRun, lease_pb2.ReleaseRunRequest(**self.key, epoch=self.epoch))


def _get(key, path):
    return read_pb2.GetEntriesRequest(**key, paths=[path])
