"""Where the tests of tools work: a real project on disk, a real shell, and a run in a real store over a channel."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import pytest
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.store.v1 import queue_pb2, store_service_pb2_grpc
from turnwright.types.v1 import settings_pb2
from turnwright.types.v1.command_record_pb2 import Effect
from turnwright_values.store import EndTurnRequest, EntryWrite, NextTurn, SetEntry
from turnwright_values.types import Entry, Mode, TurnRequest, Visibility

from turnwright_core.constraints import Constraints
from turnwright_core.rpc.transport import PLAINTEXT
from turnwright_core.schemes import BUILT_IN
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.records import record_path, target_of
from turnwright_executor.domain.tool_servers import AllowedHosts, RegisteredServer
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.peers.mcp_bridge import BridgePlace, McpBridge
from turnwright_executor.peers.sandboxes import GrpcSandboxHosts, HostSettings
from turnwright_executor.peers.server_starts import ServerStarts
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.peers.tool_channels import ServerChannels
from turnwright_executor.peers.tool_registrations import Callbacks
from turnwright_executor.peers.tool_servers import GrpcToolServers
from turnwright_executor.ports.workspaces import HostedPlace, SandboxHosts
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_executor.tools.contract import Context, Proposed, Tool, result_of
from turnwright_executor.tools.registry import build_tools
from turnwright_executor.turn.commands import RunPlans
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_executor.web.web import HttpWeb
from turnwright_executor.wire.command_records import effect_from_pb, effect_to_pb
from turnwright_grammar.reply import Command
from turnwright_kit.identity.policy import Policy
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_sandbox.config import SandboxSettings
from turnwright_sandbox.wiring import build as build_sandbox
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build

from .commands import command

both = pytest.mark.parametrize("where", ["here", "on_a_host"], indirect=True)
"""Marks what holds for a project on this host and for one on a sandbox host."""

TOOLS = build_tools(ExecutorSettings(), HttpWeb(ExecutorSettings()))
SECRET = "secret of the bench"
TURN = 1


@asynccontextmanager
async def served_store(folder: Path) -> AsyncIterator[Peer]:
    """A store of its own in a folder."""
    address = f"unix:{folder}/store.sock"
    server = RunningServer(build(StoreSettings(home=folder, token=SECRET), SECRET), address, SECRET, drain_s=0.1)
    await server.start()
    peer = Peer("store", address, SECRET, 10.0, codecs=OWNER_CALLS)
    try:
        await peer.call(
            model_service_pb2_grpc.ModelServiceStub(peer.channel).SetModel,
            model_service_pb2.SetModelRequest(model={"alias": "m", "vendor_model": "scripted/m"}),
        )
        yield peer
    finally:
        await peer.close()
        await server.stop()


@asynccontextmanager
async def sandbox_hosts(home: Path, root: Path) -> AsyncIterator[SandboxHosts]:
    """A sandbox host for what is below a folder, as an executor calls it."""
    given = {"sh_sandbox": "limits", "file_bytes_max": 100_000, "sh_grace_s": 0.2, "log_level": "error"}
    settings = SandboxSettings(home=home, token=SECRET, sandbox_root=str(root), **given)
    server = RunningServer(build_sandbox(settings, SECRET), f"unix:{home}/box.sock", SECRET, drain_s=0.1)
    await server.start()
    try:
        async with hosts_at(home, HostSettings(0.0, 100_000, 20_000, 1024 * 1024)) as hosts:
            yield hosts
    finally:
        await server.stop()


@asynccontextmanager
async def hosts_at(
    home: Path,
    settings: HostSettings,
    now_s: Callable[[], float] = time.monotonic,
    ends_s: Callable[[RunAddress], float] = lambda _: time.monotonic() + 60,
) -> AsyncIterator[SandboxHosts]:
    """The host `box`, which listens in a folder, as an executor calls it. See ServerStarts."""
    headers = (("authorization", f"Bearer {SECRET}"),)
    box = RegisteredServer("box", f"unix:{home}/box.sock", headers=headers, workspaces=True)

    async def registered(_project: str) -> list[RegisteredServer]:
        return [box]

    bridge = McpBridge(BridgePlace("", home, "", SECRET))
    callbacks = Callbacks(None, Policy(lambda: 0))
    starts = ServerStarts(ends_s, now_s)
    channels = ServerChannels(lambda *_: "", AllowedHosts(), PLAINTEXT, bridge)
    servers = GrpcToolServers(registered, channels, callbacks.lasting, starts)
    try:
        yield GrpcSandboxHosts(servers, lambda: [box], settings)
    finally:
        await servers.close()


async def run_entries(store: Peer, root: Path) -> WriteBuffer:
    """The entries of a new run in a new project."""
    stub = store_service_pb2_grpc.StoreServiceStub(store.channel)
    wanted = project_service_pb2.InitProjectRequest(root=str(root), workspace_id=str(uuid4()))
    projects = project_service_pb2_grpc.ProjectServiceStub(store.channel)
    project = (await store.call(projects.InitProject, wanted)).project.name
    loop = queue_pb2.EnqueueLoopRequest(
        project=project,
        run="bench",
        prompt="go",
        settings=settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="m"),
        run_settings=settings_pb2.RunSettings(model="m"),
    )
    await store.call(stub.EnqueueLoop, loop)
    ledger, run = StoreLedger(store, "bench", store.address), RunAddress(project, "bench")
    claim = await ledger.claim(run)
    first = NextTurn(TurnRequest("m", "scripted/m", 1000, 0.1, ()), [])
    await ledger.end_turn(run, claim.epoch, EndTurnRequest(turn=0, next=first))
    return WriteBuffer(ledger, run, claim.epoch, TURN, 1)


@dataclass
class Bench:
    """A project with a run. `there` are the paths that the run began with."""

    root: Path
    entries: WriteBuffer
    mode: Mode = Mode.ACT
    yolo: bool = False
    there: frozenset[str] = field(default_factory=frozenset)
    constraints: Constraints = field(default_factory=Constraints)
    tools: Mapping[str, Tool] = field(default_factory=lambda: TOOLS)
    hosted: HostedPlace | None = None
    """The project as a sandbox host has it; None: it is on this host."""

    async def put(
        self, path: str, body: str = "", *, visibility: Visibility = Visibility.VISIBLE, **attributes
    ) -> None:
        """An entry as if it had been written earlier."""
        tier = next(iter(BUILT_IN.rules(scheme_of(path) or "").writable_by))
        change = SetEntry(body, to_attributes_json(attributes), visibility=visibility)
        await self.entries.write([EntryWrite(path, change, tier)])

    async def file(
        self, path: str, text: str = "", *, known: bool = True, visibility: Visibility = Visibility.ARCHIVED
    ) -> None:
        """A file on the disk, and unless it is too new in the store."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_bytes(text.encode())
        if known:
            await self.put(path, text, visibility=visibility, bytes=len(text.encode()))

    def text(self, path: str) -> str:
        """A file on the disk as it is now."""
        return (self.root / path).read_bytes().decode()

    async def entry(self, path: str) -> Entry:
        (found,) = await self.entries.get([path])
        return found

    async def rows(self) -> list[Entry]:
        """What was written since the start, in path order."""
        found = await self.entries.find("")
        return sorted((entry for entry in found if entry.path not in self.there), key=lambda entry: entry.path)

    async def view(self) -> dict[str, Visibility]:
        return {entry.path: entry.visibility for entry in await self.rows()}

    async def attributes(self, path: str) -> dict:
        return (await self.entry(path)).attributes

    def context(self, sent: Command) -> Context:
        buffer = self.entries
        return Context(
            turn=TURN,
            loop=1,
            mode=self.mode,
            yolo=self.yolo,
            record_path=record_path(TURN, sent.name, target_of(sent, {}), 0, ()),
            entries=self.entries,
            workspace=self.hosted.workspace if self.hosted else DiskWorkspace(self.root, 100_000, self.constraints),
            shell=self.hosted.shell
            if self.hosted
            else LocalShell(self.root, ShellLimits(term_grace_s=0.2, close_grace_s=0.2)),
            plans=RunPlans(buffer),
        )

    async def prepare(self, text: str) -> Done | Proposed:
        """What a command comes to; what it wrote is written."""
        sent = command(text)
        prepared = await result_of(self.tools[sent.name].prepare(sent, self.context(sent)))
        if isinstance(prepared, Done):
            await self.entries.write(prepared.writes)
        return prepared

    async def perform(self, text: str, proposal: Done | Proposed) -> Done:
        """Carry out an accepted proposal, as another process would: from what its record holds."""
        assert isinstance(proposal, Proposed), proposal
        sent = command(text)
        effect = effect_from_pb(Effect.FromString(effect_to_pb(proposal.effect).SerializeToString()))
        assert effect
        done = await result_of(self.tools[sent.name].perform(effect, sent, self.context(sent)))
        await self.entries.write(done.writes)
        return done

    async def run(self, text: str) -> Done:
        """A command whose proposal, if it makes one, is accepted."""
        prepared = await self.prepare(text)
        return prepared if isinstance(prepared, Done) else await self.perform(text, prepared)
