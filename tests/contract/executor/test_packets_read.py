"""What the executor makes of the assembler's answers, in front of an assembler that says what a test wrote down."""

from __future__ import annotations

import pytest
import pytest_asyncio
from turnwright.assembler.v1 import assembler_service_pb2 as pb
from turnwright.assembler.v1 import assembler_service_pb2_grpc
from turnwright.types.v1 import packet_pb2
from turnwright_values.types import Turn, TurnRequest

from turnwright_core.delta_encoding import Copied
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.packet_values import PacketMessage
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_core.wire.packets import piece_to_pb
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.tokens import TokenRate
from turnwright_executor.peers.assembler import AssemblerPackets
from turnwright_executor.ports.packets import AssembledMessage, StoredPacket
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

pytestmark = pytest.mark.asyncio

SECRET = "s3cret"
ADDRESS = RunAddress("p", "r")
TURN = Turn(7, 2, TurnRequest("m", "vendor-m", 1000, 0.0, ()))
BASE = StoredPacket(6, "0" * 64, ("one", "two"))


def report(chars: int) -> pb.AssembleResponse:
    return pb.AssembleResponse(report=pb.PacketReport(digest="1" * 64, tokens=3, chars=chars))


class Scripted(assembler_service_pb2_grpc.AssemblerServiceServicer):
    """Answers each Assemble with the next row of parts, and remembers which base it was asked with."""

    def __init__(self) -> None:
        self.answers: list[list[pb.AssembleResponse]] = []
        self.bases: list[str] = []

    async def Assemble(self, request, context):
        self.bases.append(request.base_digest)
        for part in self.answers.pop(0):
            yield part


def said(*pieces: Copied | str) -> pb.AssembleResponse:
    return pb.AssembleResponse(
        messages=[packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=map(piece_to_pb, pieces))]
    )


def read(pieces: tuple[str, ...], *changes: Copied | str) -> tuple[AssembledMessage]:
    return (AssembledMessage("user", pieces, PacketMessage("user", changes)),)


@pytest_asyncio.fixture
async def scripted(tmp_path):
    script = Scripted()

    def register(server) -> None:
        assembler_service_pb2_grpc.add_AssemblerServiceServicer_to_server(script, server)

    service = Service("assembler", "turnwright.assembler.v1.AssemblerService", register)
    server = RunningServer(service, f"unix:{tmp_path}/a.sock", SECRET, 0.1)
    await server.start()
    script.peer = Peer("assembler", server.address, SECRET, 10.0, codecs=OWNER_CALLS)
    yield script
    await script.peer.close()
    await server.stop()


async def assembled(scripted, base: StoredPacket | None, *answers: list[pb.AssembleResponse]):
    scripted.answers = list(answers)
    return await AssemblerPackets(scripted.peer).assemble(ADDRESS, TURN, None, TokenRate(), base)


async def test_copied_pieces_are_those_of_the_packet_before(scripted):
    packet = await assembled(scripted, BASE, [said("zero"), said(Copied(1, 1)), report(7)])
    assert packet.messages == read(("zero", "two"), "zero", Copied(1, 1))


async def test_the_last_pieces_come_with_the_report(scripted):
    last = report(10)
    last.messages.extend([*said(Copied(1, 1)).messages, *said("four").messages])
    packet = await assembled(scripted, BASE, [said("one"), last])
    assert packet.messages == read(("one", "two", "four"), "one", Copied(1, 1), "four")


@pytest.mark.parametrize("copied", [Copied(1, 2), Copied(2**32 - 1, 2**32 - 1), Copied(0, 2)])
async def test_a_packet_that_is_based_on_another_one_is_asked_for_whole(scripted, copied):
    """Beyond the end of the packet before, or inside of it but not as long as the one that was meant."""
    answers = [said("zero", copied), report(99)], [said("zero", "two"), report(7)]
    packet = await assembled(scripted, BASE, *answers)
    assert packet.messages == read(("zero", "two"), "zero", "two")
    assert scripted.bases == [BASE.digest, ""]


async def test_pieces_that_do_not_make_the_packet_are_a_fault_that_says_so(scripted):
    answers = [[said("zero", Copied(0, 1)), report(7)], [said("zero"), report(7)]]
    with pytest.raises(TurnwrightError, match="do not make the packet") as caught:
        await assembled(scripted, None, *answers)
    assert caught.value.reason is Reason.INTERNAL


async def test_an_answer_that_ends_before_its_report_is_one_that_may_come_in_a_moment(scripted):
    with pytest.raises(TurnwrightError, match="without a report") as caught:
        await assembled(scripted, BASE, [said("zero")])
    assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
