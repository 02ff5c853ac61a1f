"""A run in a real store, moved forward as its owner would: turns begin, entries are written, turns end."""

from collections.abc import AsyncIterator, Iterable

import grpc
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2_grpc
from turnwright.store.v1 import lease_pb2, ledger_pb2, queue_pb2, store_service_pb2_grpc
from turnwright.types.v1 import model_pb2, settings_pb2, turn_pb2, view_pb2
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Cursor, State, Tier, Visibility

from turnwright_core.rpc.headers import call_metadata
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.entries import cursor_from_pb, write_to_pb

INSTRUCTIONS = "instructions://system"
TOOLS = {"persona": None, "tools": ["get", "set"], "tool_docs": {"get": "## get", "set": "## set"}}


def put(
    path: str,
    body: str | None = None,
    *,
    writer: Tier = Tier.PLUGIN,
    visibility: Visibility = Visibility.UNSPECIFIED,
    state: State = State.UNSPECIFIED,
    outcome: str | None = None,
    turn: int | None = None,
    **attributes: object,
) -> EntryWrite:
    text = to_attributes_json(attributes) if attributes else None
    change = SetEntry(body=body, attributes_json=text, visibility=visibility, state=state, outcome=outcome)
    return EntryWrite(path, change, writer, turn=turn)


class Ledger:
    """The owner of one run."""

    def __init__(self, address: str, secret: str, project: str = "p", run: str = "r") -> None:
        self.channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub = store_service_pb2_grpc.StoreServiceStub(self.channel)
        self.runs = run_service_pb2_grpc.RunServiceStub(self.channel)
        self.call = {"metadata": call_metadata(secret), "timeout": 30}
        self.project, self.run = project, run
        self.key = {"project": project, "run": run}
        self.loop = self.turn = 0
        self.epoch = 0
        self.cursor = Cursor("", 0, 0, 0)
        self.told = []
        """What the store told of its view since this was emptied, as far as it told it."""

    async def open(self, root: str) -> None:
        """Register the project and a model."""
        request = project_service_pb2.InitProjectRequest(
            root=root, workspace_id=f"workspace-{self.project}", name=self.project
        )
        await project_service_pb2_grpc.ProjectServiceStub(self.channel).InitProject(request, **self.call)
        model = model_pb2.Model(alias="m", vendor_model="scripted/m", context_length=100_000)
        models = model_service_pb2_grpc.ModelServiceStub(self.channel)
        await models.SetModel(model_service_pb2.SetModelRequest(model=model), **self.call)

    async def begin_loop(self, prompt: str, mode: int = 2) -> None:
        """Enqueue a loop, claim the run, and begin its first turn with the prompt and the instructions."""
        await self.stub.EnqueueLoop(
            queue_pb2.EnqueueLoopRequest(
                **self.key,
                prompt=prompt,
                settings=settings_pb2.LoopSettings(mode=mode, model="m"),
                run_settings=settings_pb2.RunSettings(model="m"),
            ),
            **self.call,
        )
        claim = await self.stub.ClaimRun(
            lease_pb2.ClaimRunRequest(**self.key, owner="test", address="unix:test"), **self.call
        )
        self.epoch, self.loop = claim.epoch, claim.loop.sequence
        await self.begin_turn(
            put(INSTRUCTIONS, "", writer=Tier.SYSTEM, **TOOLS),
            put("prompt://{turn}", prompt, mode="act", loop=self.loop),
        )

    async def begin_turn(self, *writes: EntryWrite) -> None:
        """Open the next turn of the active loop."""
        request = turn_pb2.TurnRequest(
            model="m", vendor_model="scripted/m", context_length=100_000, temperature=0.1, tools=["get", "set"]
        )
        opened = ledger_pb2.NextTurn(request=request, writes=[write_to_pb(write) for write in writes])
        answer = await self.stub.EndTurn(
            ledger_pb2.EndTurnRequest(**self.key, epoch=self.epoch, next=opened), **self.call
        )
        self.turn, self.cursor = answer.next.number, cursor_from_pb(answer.cursor)

    async def write(self, *writes: EntryWrite) -> None:
        """Write entries of the turn."""
        answer = await self.stub.WriteEntries(
            ledger_pb2.WriteEntriesRequest(
                **self.key,
                epoch=self.epoch,
                writes=[write_to_pb(write) for write in writes],
                view_filter=view_pb2.VIEW_FILTER_PACKET,
            ),
            **self.call,
        )
        self.cursor = cursor_from_pb(answer.cursor)
        self.told += [answer.view_change] if answer.HasField("view_change") else []

    async def go_on(self, *writes: EntryWrite) -> None:
        """End the turn with these writes; the next one is opened with its end."""
        request = turn_pb2.TurnRequest(model="m", vendor_model="scripted/m", context_length=100_000, temperature=0.1)
        answer = await self.stub.EndTurn(
            ledger_pb2.EndTurnRequest(
                **self.key,
                epoch=self.epoch,
                turn=self.turn,
                result=turn_pb2.TurnResult(finish="stop", status=102),
                writes=[write_to_pb(write) for write in writes],
                next=ledger_pb2.NextTurn(request=request),
                view_filter=view_pb2.VIEW_FILTER_PACKET,
            ),
            **self.call,
        )
        self.turn, self.cursor = answer.next.number, cursor_from_pb(answer.cursor)
        self.told += [answer.view_change] if answer.HasField("view_change") else []

    async def end_turn(self, *writes: EntryWrite, loop_status: int = 0) -> None:
        """End the turn, and the loop where a status is given."""
        await self.stub.EndTurn(
            ledger_pb2.EndTurnRequest(
                **self.key,
                epoch=self.epoch,
                turn=self.turn,
                result=turn_pb2.TurnResult(finish="stop", status=loop_status or 102),
                writes=[write_to_pb(write) for write in writes],
                loop_end=ledger_pb2.LoopEnd(status=loop_status, reason="done") if loop_status else None,
            ),
            **self.call,
        )

    async def next_turn(self, *writes: EntryWrite) -> None:
        """End the turn with these writes and begin the next."""
        await self.end_turn(*writes)
        await self.begin_turn()


class CountingProxy(grpc.GenericRpcHandler):
    """Stands before the store, passes every call on, and notes which rpcs were called."""

    def __init__(self, address: str) -> None:
        self.methods: list[str] = []
        self._channel = grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers((self,))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        method = handler_call_details.method

        async def forward(request: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            if not method.startswith("/grpc.health."):  # the assembler's look at whether its store is ready
                name = method.rpartition("/")[2]
                # A look whether the store takes the token comes at any time.
                self.methods += [name] if name != "GetSettings" else []
            metadata = _own(context.invocation_metadata())
            try:
                async for message in self._channel.unary_stream(method)(request, metadata=metadata, timeout=30):
                    yield message
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata()))

        return grpc.unary_stream_rpc_method_handler(forward)

    async def start(self, address: str) -> None:
        self._server.add_insecure_port(address)
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(0.1)
        await self._channel.close()


def _own(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((key, value) for key, value in metadata if key in {"authorization", "turnwright-tier"})
