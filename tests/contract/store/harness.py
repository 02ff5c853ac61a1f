"""A store over a real channel, and a driver of one run as its owner uses it."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from turnwright.runs.v1 import watch_runs_pb2
from turnwright.store.v1 import (
    delivery_pb2,
    lease_pb2,
    ledger_pb2,
    policy_pb2,
    queue_pb2,
    read_pb2,
    store_service_pb2_grpc,
    write_pb2,
)
from turnwright.types.v1 import entry_pb2, grant_pb2, model_pb2, scheme_pb2, settings_pb2, turn_pb2, view_pb2
from turnwright_values.store import AppendEntry, EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import State, Tier, Visibility

from services import token_for
from turnwright_core.wire.entries import write_to_pb
from turnwright_core.wire.resources import RESOURCES
from turnwright_kit.identity.caller import KINDS, Caller
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build

SECRET = "s3cret"
MESSAGES = (
    *(resource.messages for resource in RESOURCES),
    queue_pb2,
    lease_pb2,
    ledger_pb2,
    read_pb2,
    policy_pb2,
    delivery_pb2,
    watch_runs_pb2,
)


SQLITE_ONLY = pytest.mark.parametrize("db", ["sqlite"], indirect=True)
"""For tests of files; say why."""
POSTGRESQL_ONLY = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
"""For tests of replicas; say why."""
POSTGRESQL_IN_SOAK = pytest.mark.parametrize(
    "db", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)], indirect=True
)
"""For tests of rules that no statement decides."""


LEASE_S = 600
"""So long that no slow machine costs an owner its lease before a test is given up."""


async def start_store(home: Path, name: str = "store", **settings: Any) -> RunningServer:
    """A running store on a unix socket in its home, on the test's database unless `db` names another.

    On PostgreSQL, stores of different names in one home are replicas.
    """
    address = f"unix:{home}/{name}.sock"
    made = StoreSettings(home=home, **{"lease_s": LEASE_S, **settings})
    server = RunningServer(build(made, SECRET), address, SECRET, 1.0)
    await server.start()
    return server


class Client:
    """Calls rpcs by name; fields of the request are keywords. Errors are TurnwrightErrors."""

    def __init__(
        self, address: str, token: str = SECRET, tier: Tier | None = None, caller: Caller | None = None
    ) -> None:
        """With a token; or as an executor that calls for somebody."""
        self.peer = Peer("store", address, token, 20.0, tier, service="executor" if caller else "")
        self._caller = caller
        self.stub = store_service_pb2_grpc.StoreServiceStub(self.peer.channel)
        self._stubs = (self.stub, *(resource.stub(self.peer.channel) for resource in RESOURCES))

    def rpc(self, name: str) -> Any:
        return next(getattr(stub, name) for stub in self._stubs if hasattr(stub, name))

    async def call(self, rpc: str, **fields: Any) -> Any:
        return await self.peer.call(self.rpc(rpc), request_of(rpc, fields), caller=self._caller)

    async def stream(self, rpc: str, **fields: Any) -> AsyncGenerator[Any, None]:
        async with self.peer.stream(self.rpc(rpc), request_of(rpc, fields), None, self._caller) as messages:
            async for message in messages:
                yield message

    async def close(self) -> None:
        await self.peer.close()


def scheme_of(name: str, **fields: Any) -> scheme_pb2.Scheme:
    """A scheme that packets show; its category and its scope in words."""
    for key, enum in (("category", "SCHEME_CATEGORY"), ("default_scope", "SCHEME_SCOPE")):
        if word := fields.pop(key, ""):
            fields[key] = f"{enum}_{word.upper()}"
    return scheme_pb2.Scheme(name=name, **{"model_visible": True, **fields})


def request_of(rpc: str, fields: dict[str, Any]) -> Any:
    kind = next(getattr(module, f"{rpc}Request") for module in MESSAGES if hasattr(module, f"{rpc}Request"))
    return kind(**fields)


def as_tier(address: str, tier: Tier, principal: str = "alice") -> Client:
    """A client whose token allows this tier at most."""
    return Client(address, token_for(principal, KINDS[tier], audience="store", secret=SECRET))


def for_tier(address: str, tier: Tier, principal: str = "alice") -> Client:
    """An executor that calls for somebody of this tier."""
    return Client(address, caller=Caller(principal, KINDS[tier], tier))


def set_(path: str, body: str | None = None, attributes: str | None = None, **more: Any) -> write_pb2.EntryWrite:
    """A SetEntry write; `writer`, `turn`, `loop`, `expected_revision` belong to the write, the rest to the change."""
    outer = {key: more.pop(key) for key in ("writer", "turn", "loop", "expected_revision") if key in more}
    return write_to_pb(EntryWrite(path, SetEntry(body, attributes, **more), **{"writer": _writer(path), **outer}))


def append(path: str, text: str) -> write_pb2.EntryWrite:
    return write_to_pb(EntryWrite(path, AppendEntry(text), _writer(path)))


def remove(path: str) -> write_pb2.EntryWrite:
    return write_to_pb(EntryWrite(path, RemoveEntry(), _writer(path)))


def write_of(drawn: tuple[str, str, str, int, int]) -> write_pb2.EntryWrite:
    """The write of a random kind (`append`, `remove`, `see` or `set`), path, text, visibility and state."""
    kind, path, text, visibility, state = drawn
    if kind == "append":
        return append(path, text)
    if kind == "remove":
        return remove(path)
    return set_(path, None if kind == "see" else text, visibility=visibility, state=state)


def _writer(path: str) -> Tier:
    """A tier that may write the path."""
    audit = ("tool", "instructions", "system", "reasoning", "model", "user", "assistant", "content")
    return Tier.SYSTEM if path.partition("://")[0] in audit else Tier.PLUGIN


def request(**fields: Any) -> turn_pb2.TurnRequest:
    """What a turn runs with."""
    return turn_pb2.TurnRequest(**{"model": "fast", "vendor_model": "scripted/a", "temperature": 0.1, **fields})


def next_turn(*writes: write_pb2.EntryWrite, **fields: Any) -> ledger_pb2.NextTurn:
    """A turn that is opened with the end of the one before."""
    return ledger_pb2.NextTurn(request=request(**fields), writes=writes)


def act(**fields: Any) -> settings_pb2.LoopSettings:
    """Settings of a loop that may act."""
    return settings_pb2.LoopSettings(**{"mode": settings_pb2.MODE_ACT, "model": "fast", **fields})


@dataclass
class Run:
    """One run, driven as its owner drives it."""

    client: Client
    project: str
    alias: str
    epoch: int = 0
    address: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.address = {"project": self.project, "run": self.alias}

    async def enqueue(self, prompt: str = "do it", **settings: Any) -> queue_pb2.EnqueueLoopResponse:
        return await self.client.call("EnqueueLoop", **self.address, prompt=prompt, settings=act(**settings))

    async def claim(self, owner: str = "owner", **more: Any) -> lease_pb2.ClaimRunResponse:
        claimed = await self.client.call("ClaimRun", **self.address, owner=owner, address="here:1", **more)
        self.epoch = claimed.epoch
        return claimed

    async def begin(self, *writes: write_pb2.EntryWrite) -> ledger_pb2.EndTurnResponse:
        return await self.end(0, follows=ledger_pb2.NextTurn(request=request(), writes=writes))

    async def write(self, *writes: write_pb2.EntryWrite, **more: Any) -> ledger_pb2.WriteEntriesResponse:
        return await self.client.call("WriteEntries", **self.address, epoch=self.epoch, writes=writes, **more)

    async def end(
        self,
        turn: int,
        *writes: write_pb2.EntryWrite,
        loop: tuple[int, str, str] | None = None,
        follows: ledger_pb2.NextTurn | None = None,
        view_filter: view_pb2.ViewFilter.ValueType = view_pb2.VIEW_FILTER_UNSPECIFIED,
        release: bool = False,
        **result: Any,
    ) -> ledger_pb2.EndTurnResponse:
        end = ledger_pb2.LoopEnd(status=loop[0], reason=loop[1], summary=loop[2]) if loop else None
        return await self.client.call(
            "EndTurn",
            **self.address,
            epoch=self.epoch,
            turn=turn,
            result=turn_pb2.TurnResult(**result) if turn else None,
            writes=writes,
            loop_end=end,
            next=follows,
            view_filter=view_filter,
            release=release,
        )

    async def get(self) -> Any:
        """The run, without what only those answers tell that are asked for a run."""
        run = (await self.client.call("GetRun", **self.address)).run
        run.ClearField("state")
        return run

    async def entry(self, path: str) -> entry_pb2.Entry | None:
        found = (await self.client.call("GetEntries", **self.address, paths=[path])).entries
        return found[0] if found else None

    async def view(self, after: Any = None, **options: Any) -> "View":
        view = View()
        async for part in self.client.stream("ReadView", **self.address, after=after, **options):
            view.parts += 1
            view.entries += part.entries
            view.removed += part.removed_paths
            if part.HasField("cursor"):
                view.cursor = part.cursor
        return view


@dataclass
class View:
    """What ReadView answered, joined."""

    entries: list[entry_pb2.Entry] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    cursor: Any = None
    parts: int = 0

    @property
    def paths(self) -> list[str]:
        return [entry.path for entry in self.entries]

    @property
    def kept(self) -> list[entry_pb2.Entry]:
        """The entries without their hashes: the store adds those of bodies that grew while it compacts them."""
        copies = [entry_pb2.Entry.FromString(entry.SerializeToString()) for entry in self.entries]
        for copy in copies:
            copy.ClearField("hash")
        return copies

    @property
    def bodies(self) -> dict[str, str]:
        return {entry.path: entry.body for entry in self.entries}


async def new_project(client: Client, name: str = "demo") -> str:
    """A project that everybody with an identity owns, and the model `fast`."""
    await client.call("SetModel", model=model_pb2.Model(alias="fast", vendor_model="scripted/a", context_length=8192))
    project = (await client.call("InitProject", root=f"/srv/{name}", workspace_id=f"ws-{name}")).project.name
    # Rights are the matter of tests that say so.
    member = grant_pb2.Grant(subject="*", role=grant_pb2.GRANT_ROLE_OWNER)
    await client.call("SetGrant", project=project, grant=member)
    return project


async def new_run(client: Client, project: str, alias: str = "") -> Run:
    """A run without work."""
    settings = settings_pb2.RunSettings(model="fast")
    created = await client.call("CreateRun", project=project, run=alias, settings=settings)
    return Run(client, project, created.run.run)


async def working_run(client: Client, project: str, alias: str = "") -> Run:
    """A run with a running loop, held by its owner."""
    run = await new_run(client, project, alias)
    await run.enqueue()
    await run.claim()
    return run


VISIBLE, SUMMARIZED, ARCHIVED = Visibility.VISIBLE, Visibility.SUMMARIZED, Visibility.ARCHIVED
RECORDED, PROPOSED, STREAMING = State.RECORDED, State.PROPOSED, State.STREAMING
RESOLVED, FAILED, CANCELLED = State.RESOLVED, State.FAILED, State.CANCELLED
