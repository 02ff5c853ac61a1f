"""An assembler over real channels, in front of a store that answers what a test wrote down for it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import grpc
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc, budget_pb2
from turnwright.store.v1 import read_pb2, store_service_pb2_grpc
from turnwright_values.types import Cursor, Entry

from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build
from turnwright_core.delta_encoding import Copied
from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.headers import call_metadata
from turnwright_core.wire.entries import cursor_to_pb, entry_to_pb, write_from_pb
from turnwright_core.wire.packets import piece_from_pb
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service

SECRET = "s3cret"


def at(run: int, incarnation: str = "one", project: int = 0) -> Cursor:
    return Cursor(incarnation, run, project, 0)


def part(*entries: Entry, removed: Sequence[str] = (), cursor: Cursor | None = None) -> read_pb2.ReadViewResponse:
    return read_pb2.ReadViewResponse(
        entries=[entry_to_pb(entry) for entry in entries],
        removed_paths=list(removed),
        cursor=cursor_to_pb(cursor) if cursor else None,
    )


class ScriptedStore(store_service_pb2_grpc.StoreServiceServicer):
    """Answers ReadView from a script, one line a call; an error in a line is raised where it stands.

    Every other rpc of the store is left unimplemented, so that an assembler that wrote anything would fail.
    """

    def __init__(self) -> None:
        self.script: list[list[read_pb2.ReadViewResponse | TurnwrightError]] = []
        self.requests: list[read_pb2.ReadViewRequest] = []

    async def ReadView(self, request, context) -> AsyncIterator[read_pb2.ReadViewResponse]:
        self.requests.append(request)
        for answer in self.script.pop(0):
            if isinstance(answer, TurnwrightError):
                raise answer
            yield answer

    def says(self, *answers: read_pb2.ReadViewResponse | TurnwrightError) -> None:
        self.script.append(list(answers))

    def service(self) -> Service:
        def register(server: grpc.aio.Server) -> None:
            store_service_pb2_grpc.add_StoreServiceServicer_to_server(self, server)

        return Service("store", "turnwright.store.v1.StoreService", register)


@dataclass
class Answer:
    """One answer of Assemble, joined."""

    parts: list[assembler_service_pb2.AssembleResponse] = field(default_factory=list)

    @property
    def report(self) -> assembler_service_pb2.PacketReport:
        assert [part.HasField("report") for part in self.parts].index(True) == len(self.parts) - 1
        return self.parts[-1].report

    def text(self, index: int) -> str:
        return "".join(self.pieces(index))

    def pieces(self, index: int) -> list[Copied | str]:
        return self.messages[index][1]

    @property
    def messages(self) -> list[tuple[str, list[Copied | str]]]:
        """Roles, each with the pieces of all parts."""
        parts = (message for part in self.parts for message in part.messages)
        return [
            (role, [piece_from_pb(piece) for message in messages for piece in message.pieces])
            for role, messages in groupby(parts, key=lambda message: message.role)
        ]

    @property
    def system(self) -> str:
        return self.text(0)

    @property
    def user(self) -> str:
        return self.text(1)

    @property
    def effects(self):
        return [write_from_pb(write) for write in self.report.effects]


class Client:
    """A caller of one assembler."""

    def __init__(self, address: str, token: str | None = SECRET) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = assembler_service_pb2_grpc.AssemblerServiceStub(self.channel)
        self.metadata = call_metadata(token) if token else ()

    async def assemble(self, **changes) -> Answer:
        request = {"project": "p", "run": "r", "turn": 1, "loop": 1, "context_length": 100_000} | changes
        if "at_least" in request:
            request["at_least"] = cursor_to_pb(request["at_least"])
        call = self.stub.Assemble(assembler_service_pb2.AssembleRequest(**request), metadata=self.metadata, timeout=30)
        return Answer([message async for message in call])

    async def check_budget(self, **changes) -> budget_pb2.CheckBudgetResponse:
        """Whether what a turn brought fits."""
        request = {"project": "p", "run": "r", "turn": 1, "loop": 1, "context_length": 100_000} | changes
        if "at_least" in request:
            request["at_least"] = cursor_to_pb(request["at_least"])
        call = budget_pb2.CheckBudgetRequest(**request)
        return await self.stub.CheckBudget(call, metadata=self.metadata, timeout=30)


async def start_assembler(tmp_path, **settings) -> RunningServer:
    built = build(AssemblerSettings(home=tmp_path, store=f"unix:{tmp_path}/store.sock", **settings), SECRET)
    server = RunningServer(built, f"unix:{tmp_path}/assembler.sock", SECRET, 0.1)
    await server.start()
    return server
