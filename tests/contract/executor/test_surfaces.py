"""Who may do what, over which surface: model text, clients' calls, plugins' calls; the catalogue of all methods.

Rows RU022, RU024-RU027, RU029, RU030, RU032, RU034, RU036, RU119, RU125-RU127, RU225, RU226; decisions C9, C32.
"""

from __future__ import annotations

import contextlib
import json

import grpc
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.entries.v1 import entry_service_pb2
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.schemes.v1 import scheme_service_pb2, scheme_service_pb2_grpc
from turnwright.store.v1 import (
    lease_pb2,
    ledger_pb2,
    store_service_pb2_grpc,
)
from turnwright.types.v1 import entry_pb2, grant_pb2, scheme_pb2
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Tier

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import SECRET, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_kit.identity.caller import KINDS
from turnwright_kit.peer import Peer, rpc_of

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
METHODS = [method for service in (SERVICE, *MOUNTED) for method in service.methods]
STORE = store_service_pb2_grpc.StoreServiceStub
TIERS = (Tier.MODEL, Tier.CLIENT, Tier.PLUGIN, Tier.SYSTEM)

COMMANDS = {
    "think": ({}, "Hm."),
    "get": ({"path": "a.txt"}, ""),
    "set": ({"path": "known://fact"}, "It is so."),
    "env": ({"command": "echo seen"}, ""),
    "sh": ({"command": "echo done"}, ""),
    "rm": ({"path": "known://old"}, ""),
    "cp": ({"path": "known://old", "to": "known://new"}, ""),
    "mv": ({"path": "known://old", "to": "known://new"}, ""),
    "ask_user": ({"question": "Which one?"}, ""),
    "set_plan": ({"plan_id": "main"}, "Find it, then mend it."),
    "update_plan": ({"plan_id": "main"}, "Found."),
    "get_plan": ({"plan_id": "main"}, ""),
    "update": ({"status": "102"}, "On it."),
}
"""A command for each tool."""


@pytest.fixture(scope="module")
def shared_settings(shared_root):
    """Everybody may register projects: who may do what in them is another file's."""
    return {"client_roots": str(shared_root)}


@contextlib.asynccontextmanager
async def calling(services, tier: Tier, server: str = "executor", stub=executor_service_pb2_grpc.ExecutorServiceStub):
    """A service as a caller with a token of a tier calls it."""
    token = SECRET if tier is Tier.SYSTEM else token_for("someone", KINDS[tier], audience=server)
    peer = Peer(server, services.addresses[server], token, 10.0)
    try:
        yield peer, stub(peer.channel)
    finally:
        await peer.close()


async def reason_of(call) -> Reason | None:
    """Why a call was refused; None where it was answered."""
    try:
        await call
    except TurnwrightError as error:
        return error.reason
    return None


async def begun(services, run: str = "r") -> None:
    """A run with an entry and a file."""
    services.script('<set path="known://old">Old.</set>' + DONE)
    (services.files / "a.txt").write_text("old\n")
    await services.until(await services.act(run=run))


def tag(tool: str) -> str:
    """A command as a model writes it."""
    attributes, body = COMMANDS[tool]
    given = "".join(f' {name}="{value}"' for name, value in attributes.items())
    return f"<{tool}{given}>{body}</{tool}>"


async def by_model(services, tool: str, run: str) -> entry_pb2.Entry:
    """The record of a command that a model wrote."""
    services.script(tag(tool) + ("" if tool == "update" else GO_ON), DONE)
    queued = await services.act("Again.", run, yolo=tool != "env")
    loop = await services.until(queued, 200, 202)
    if loop.status == 202:
        (waiting,) = (await services.client.get_run(services.project, run)).proposals
        await services.client.resolve(services.project, run, waiting, accept=True)
        await services.client.wait_loop(services.project, run, queued.sequence)
    return await only(services, f"log://turn_2/{tool}/*", run)


async def only(services, pattern: str, run: str = "r") -> entry_pb2.Entry:
    """The one entry that a pattern stands for."""
    (found,) = [entry async for entry in services.client.list_entries(services.project, run, pattern)]
    return found


async def by_call(services, tool: str, tier: Tier) -> entry_pb2.Entry:
    """The record of a command that a client or a plugin called."""
    token = token_for("someone", KINDS[tier])
    async with Client.connect(services.addresses["executor"], token) as client:
        return await client.call_tool(services.project, "r", tool, *COMMANDS[tool])


async def known(services, run: str = "r") -> dict[str, tuple]:
    """What there is beside records and their channels."""
    found = {}
    async for entry in services.client.list_entries(services.project, run):
        if entry.scheme in ("", "known", "unknown"):
            found[entry.path] = (entry.body, entry.visibility, entry.state, entry.attributes_json)
    return found


# One vocabulary for three callers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", [Tier.CLIENT, Tier.PLUGIN])
@pytest.mark.parametrize("tool", ["think", "get", "set", "env", "sh", "rm", "cp", "mv", "update"])
async def test_a_command_is_the_same_event_whoever_says_it(services, tool, tier):
    """RU030, RU119: the same record, and the same entries afterwards. A question is asked of people only."""
    await begun(services)
    called = await by_call(services, tool, tier)
    await begun(services, "other")
    written = await by_model(services, tool, "other")
    told = [
        (one.status, one.outcome, one.state, json.loads(one.attributes_json)["target"]) for one in (called, written)
    ]
    assert told[0] == told[1]
    assert await known(services) == await known(services, "other")


@pytest.mark.parametrize("tier", [Tier.CLIENT, Tier.PLUGIN])
async def test_a_question_of_a_client_or_plugin_has_its_record(services, tier):
    """RU119."""
    await begun(services)
    record = await by_call(services, "ask_user", tier)
    assert (record.status, record.path.split("/")[3]) == (200, "ask_user")


async def test_five_verbs_change_entries_and_update_says_how_it_goes_on(services):
    """RU022: what other tools do shows in their records and channels only."""
    await begun(services)
    await services.client.call_tool(services.project, "r", "set", {"path": "known://old", "visibility": "summarized"})
    changing = []
    for tool, (attributes, body) in COMMANDS.items():
        before = await known(services)
        record = await services.client.call_tool(services.project, "r", tool, attributes, body)
        if await known(services) != before:
            changing.append(tool)
        if tool == "update":
            assert json.loads(record.attributes_json)["status"] == 102
        for path in ("known://new", "known://fact"):
            await services.client.call_tool(services.project, "r", "rm", {"path": path})
        await services.client.call_tool(services.project, "r", "set", {"path": "known://old"}, "Old.")
    assert changing == ["get", "set", "rm", "cp", "mv"]


async def test_get_cp_mv_and_rm_take_all_that_match(services):
    """RU024-RU027: what a turn gets is of that turn."""
    facts = "".join(f'<set path="known://x_{n}" visibility="archived">{n}</set>' for n in (1, 2))
    services.script(facts + GO_ON, '<get path="known://x_*"/>' + DONE)
    await services.until(await services.act())
    got = [await services.entry(f"known://x_{n}") for n in (1, 2)]
    seen = [{entry.path for entry in got}]
    for tool, attributes in (
        ("cp", {"path": "known://x_*", "to": "known://c/"}),
        ("mv", {"path": "known://x_*", "to": "known://m/"}),
        ("rm", {"path": "known://c/*"}),
    ):
        await services.client.call_tool(services.project, "r", tool, attributes)
        found = services.client.list_entries(services.project, "r", "known://**")
        seen.append({entry.path async for entry in found if entry.body == entry.path[-1]})
    assert {(entry.visibility, entry.turn) for entry in got} == {(entry_pb2.VISIBILITY_VISIBLE, 2)}
    sources, copied, moved = ({f"known://{at}x_1", f"known://{at}x_2"} for at in ("", "c/", "m/"))
    assert seen == [sources, sources | copied, copied | moved, moved]


async def test_a_plugin_writes_to_the_store_without_a_handler_and_leaves_no_record(services):
    """RU127: a model's text and a client's call have records, a plugin's write to the store has none."""
    await begun(services)
    write = write_to_pb(EntryWrite("known://direct", SetEntry("By a plugin."), Tier.PLUGIN))
    before = [entry.path async for entry in services.client.list_entries(services.project, "r", "log://**")]
    async with calling(services, Tier.PLUGIN, "store", STORE) as (peer, store):
        request = ledger_pb2.WriteEntriesRequest(project=services.project, run="r", writes=[write])
        await peer.call(store.WriteEntries, request)
    after = [entry.path async for entry in services.client.list_entries(services.project, "r", "log://**")]
    assert ((await services.entry("known://direct")).body, after) == ("By a plugin.", before)


async def test_a_shell_command_is_entries_that_are_set_one_state_after_the_other(services):
    """RU029: nothing of a tool is anywhere else than in its entries, and each step is a write to one of them."""
    services.script("<sh>echo one; sleep 0.3; echo two</sh>" + GO_ON, DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    (waiting,) = (await services.client.get_run(services.project, "r")).proposals
    await services.client.resolve(services.project, "r", waiting, accept=True)
    await services.client.wait_loop(services.project, "r", queued.sequence)
    paths = [(await only(services, pattern)).path for pattern in ("log://turn_1/sh/*", "sh://turn_1/*_1")]
    told = {}
    for path in paths:
        request = entry_service_pb2.ListEntryHistoryRequest(project=services.project, run="r", path=path)
        history = (await services.client._peer.call(services.client._entries.ListEntryHistory, request)).intervals
        states = [interval.entry.state for interval in reversed(history)]
        told[path.partition(":")[0]] = list(dict.fromkeys(states)), history[0].entry.body
    recorded, proposed = entry_pb2.STATE_RECORDED, entry_pb2.STATE_PROPOSED
    assert told["log"][0] == [recorded, proposed, entry_pb2.STATE_RESOLVED]
    assert told["sh"] == ([entry_pb2.STATE_STREAMING, entry_pb2.STATE_RESOLVED], "one\ntwo\n")


# Tiers --------------------------------------------------------------------------------------------------------------------

OTHERS = ["prompt://9", "run://other", "tool://x", "instructions://x", "system://9", "reasoning://9", "event://x"]


@pytest.mark.parametrize("path", OTHERS)
async def test_a_model_that_writes_what_is_not_its_own_has_failed_with_403(services, path):
    """RU034, RU074: the record says so, and there is no such entry."""
    services.script(f'<set path="{path}">x</set>' + GO_ON, DONE)
    loop = await services.until(await services.act())
    record = await only(services, "log://turn_1/set/*")
    with pytest.raises(TurnwrightError) as missing:
        await services.entry(path)
    assert (record.state, record.outcome, record.status) == (entry_pb2.STATE_FAILED, "permission:403", 403)
    assert (missing.value.reason, loop.status) == (Reason.ENTRY_NOT_FOUND, 200)


@pytest.mark.parametrize("path", ["known://a", "unknown://a", "update://a", "error://a", "skill://a", "madeup://a"])
async def test_a_model_writes_the_schemes_that_are_its_own(services, path):
    """RU036."""
    services.script(f'<set path="{path}">x</set>' + GO_ON, DONE)
    await services.until(await services.act())
    assert (await services.entry(path)).body == "x"


@pytest.mark.parametrize(("flag", "tool"), [("no_proposals", "sh"), ("no_interaction", "ask_user")])
async def test_a_model_acts_within_the_tools_of_its_loop(services, flag, tool):
    """RU036."""
    services.script(tag(tool) + GO_ON, DONE)
    await services.until(await services.act(**{flag: True}))
    assert (await only(services, f"log://turn_1/{tool}/*")).status in (403, 404)


MODELS, SCHEMES = model_service_pb2_grpc.ModelServiceStub, scheme_service_pb2_grpc.SchemeServiceStub
FLOORS = [
    ("store", SCHEMES, "ListSchemes", scheme_service_pb2.ListSchemesRequest(), Tier.MODEL),
    ("executor", MODELS, "ListModels", model_service_pb2.ListModelsRequest(), Tier.CLIENT),
    ("store", MODELS, "SetModel", model_service_pb2.SetModelRequest(), Tier.CLIENT),
    (
        "store",
        SCHEMES,
        "SetScheme",
        scheme_service_pb2.SetSchemeRequest(scheme=scheme_pb2.Scheme(name="wiki", model_visible=True)),
        Tier.PLUGIN,
    ),
    ("store", STORE, "RenewLeases", lease_pb2.RenewLeasesRequest(owner="o", address="there:1"), Tier.SYSTEM),
]


@pytest.mark.parametrize(
    ("server", "service", "method", "request_", "floor"), FLOORS, ids=[method for _, _, method, *_ in FLOORS]
)
async def test_what_a_tier_may_call_every_higher_tier_may_call_too(services, server, service, method, request_, floor):
    """RU032, RU121: registering schemes is for plugins; RU126: nothing of a client's is closed to them.

    Of those who have the same grant.
    """
    allowed = []
    await services.client.set_grant("", "user:someone", grant_pb2.GRANT_ROLE_OPERATOR)
    for tier in TIERS:
        async with calling(services, tier, server, service) as (peer, stub):
            reason = await reason_of(peer.call(getattr(stub, method), request_))
            if reason not in (Reason.TIER_FORBIDDEN, Reason.RIGHT_MISSING):
                allowed.append(tier)
    await services.client.delete_grant("", "user:someone")
    assert allowed == list(TIERS[TIERS.index(floor) :])


# Every method -------------------------------------------------------------------------------------------------------------


def request_for(method, **fields) -> Message:
    """A request with some text where a text is wanted, and the given fields where it has them."""
    request = GetMessageClass(method.input_type)()
    texts = {
        "prompt": "Do it.", "run": "r", "path": "log://turn_1/set/a", "new_run": "n", "tool": "sh", "target": "t",
        "message": "m", "query": "q", "channel": 1, "command_id": "c", "end": 1,
    }  # fmt: skip
    for name, value in {**texts, **fields}.items():
        field = method.input_type.fields_by_name.get(name)
        if field and field.message_type is None:
            setattr(request, name, value)
    if method.name == "SubmitCommand":
        request.command.abort.SetInParent()
    if method.name in ("Ask", "Act"):
        request.task.project, request.task.run, request.task.prompt = fields.get("project", ""), "r", "Do it."
    return request


async def called(services, method, tier: Tier, **fields) -> Reason | None:
    """Why a method refuses a request; what a stream says before that does not count."""
    async with calling(services, tier) as (peer, _):
        request = request_for(method, **fields)
        if method.client_streaming:
            return await reason_of(peer.upload(rpc_of(peer.channel, method), sent(request), 5.0))
        if not method.server_streaming:
            return await reason_of(peer.call(rpc_of(peer.channel, method), request))
        async with peer.stream(rpc_of(peer.channel, method), request, 5.0) as messages:
            while not (reason := await reason_of(anext(messages))):
                pass
            return reason


async def sent(request):
    """A stream of one message."""
    yield request


PROJECTLESS = {
    "InitProject", "ListProjects", "ListModels", "SetModel", "DeleteModel", "Discover", "GetStatus", "GetIdentity",
    "CreateToken", "ListTokens", "RevokeToken",
}  # fmt: skip
"""Methods that are not about a project; the inbox is about all where none is named."""


@pytest.mark.parametrize("method", METHODS, ids=[method.name for method in METHODS])
async def test_a_method_of_a_project_needs_the_project(services, method):
    """RU125: for a client and for a plugin (RU126); a model has none of these methods."""
    names = {field.name for field in method.input_type.fields}
    assert bool(names & {"project", "task"}) is (method.name not in PROJECTLESS)
    reasons = [await called(services, method, tier, project="none") for tier in TIERS[:3]]
    assert reasons[0] is Reason.TIER_FORBIDDEN
    assert Reason.TIER_FORBIDDEN not in reasons[1:]
    if method.name not in PROJECTLESS:
        assert reasons[1:] == [Reason.PROJECT_NOT_FOUND] * 2


async def test_the_catalogue_is_what_the_executor_answers(services):
    """RU225: no method is missing, and none is told that is not there."""
    found = await services.client.discover()
    assert [method.name for method in found.methods] == [
        f"{method.containing_service.full_name}/{method.name}" for method in METHODS
    ]
    async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
        for method in found.methods:
            answer = channel.unary_unary(f"/{method.name}")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await answer(b"", timeout=60)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await channel.unary_unary("/turnwright.executor.v1.ExecutorService/Fly")(b"", timeout=60)
    assert unknown.value.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED)


async def test_a_ping_is_answered_without_a_token(services):
    """RU226: who only wants to know whether the executor serves asks the health service."""
    async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answers = [
            (await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=60)).status
            for name in ("", SERVICE.full_name)
        ]
    assert answers == [health_pb2.HealthCheckResponse.SERVING] * 2


@pytest.mark.parametrize(
    ("method", "rpc"),
    [
        ("discover", "Discover"), ("init", "InitProject"), ("getModels", "ListModels"), ("addModel", "SetModel"),
        ("removeModel", "DeleteModel"), ("get, set, rm, mv, cp", "CallTool"), ("store", "SetFileConstraints"),
        ("getEntries", "ListEntries"), ("startRun", "CreateRun"), ("ask", "Ask"), ("act", "Act"),
        ("run/resolve", "ResolveProposal"), ("run/abort", "AbortRun"), ("run/rename", "RenameRun"),
        ("run/inject", "InjectMessage"), ("run/config", "ConfigureRun"), ("stream", "AppendStream"),
        ("stream/completed", "EndStream"), ("stream/aborted", "EndStream"), ("stream/cancel", "EndStream"),
        ("getRuns", "ListRuns"), ("getRun", "GetRun"),
    ],
)  # fmt: skip
async def test_every_method_has_its_rpc(method, rpc):
    """RU225: the surface as a table."""
    assert rpc in {one.name for one in METHODS}, method
