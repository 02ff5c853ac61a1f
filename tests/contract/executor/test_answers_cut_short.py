"""What the executor makes of a store's answer that ends well before its last part, as a proxy may end it."""

import pytest
import pytest_asyncio
from turnwright.store.v1 import ledger_pb2, read_pb2, store_service_pb2_grpc
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.store import StoreLedger
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"
ADDRESS = RunAddress("p", "r")

CALLS = {
    "AdoptFiles": lambda ledger: ledger.adopt_files(ADDRESS, 1, ""),
    "ReadPacket": lambda ledger: ledger.read_packet(ADDRESS, 1),
    "ReadView": lambda ledger: ledger.read_timeline(ADDRESS, 100, ()),
}


class CutShort(store_service_pb2_grpc.StoreServiceServicer, turn_service_pb2_grpc.TurnServiceServicer):
    """Answers with the first parts, as many as a test says."""

    parts = 0

    async def AdoptFiles(self, request, context):
        for _ in range(self.parts):
            yield ledger_pb2.AdoptFilesResponse(paths=["a.txt"], hashes=["0"])

    async def ReadPacket(self, request, context):
        for _ in range(self.parts):
            yield turn_service_pb2.ReadPacketResponse(role="PACKET_ROLE_USER", text="Do")

    async def ReadView(self, request, context):
        for _ in range(self.parts):
            yield read_pb2.ReadViewResponse(removed_paths=["known://a"])


@pytest_asyncio.fixture
async def store(tmp_path):
    store = CutShort()

    def register(server) -> None:
        store_service_pb2_grpc.add_StoreServiceServicer_to_server(store, server)
        turn_service_pb2_grpc.add_TurnServiceServicer_to_server(store, server)

    server = RunningServer(
        Service("store", "turnwright.store.v1.StoreService", register), f"unix:{tmp_path}/s.sock", SECRET, 0.1
    )
    await server.start()
    store.peer = Peer("store", server.address, SECRET, 10.0, codecs=OWNER_CALLS)
    yield store
    await store.peer.close()
    await server.stop()


@pytest.mark.parametrize("parts", [0, 1])
@pytest.mark.parametrize("rpc", CALLS)
async def test_an_answer_without_its_end_is_none(store, rpc, parts):
    store.parts = parts
    with pytest.raises(TurnwrightError, match="ended without") as caught:
        await CALLS[rpc](StoreLedger(store.peer, "owner", ""))
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
    assert caught.value.metadata["service"] == "store"
