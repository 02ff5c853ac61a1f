"""Who may call and who may write."""

import asyncio

import pytest
from turnwright.types.v1 import plan_pb2
from turnwright_values.types import Tier

from contract.store.harness import POSTGRESQL_IN_SOAK, SECRET, Client, as_tier, set_
from services import token_for
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.schemes import scheme_from_pb

pytestmark = [pytest.mark.asyncio, POSTGRESQL_IN_SOAK]


async def reason_of(call):
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_call_without_a_valid_token_is_refused(server):
    stranger = Client(server.address, token="guess")
    error = await reason_of(stranger.call("ListModels"))
    assert error.reason is Reason.UNAUTHENTICATED
    await stranger.close()


async def test_a_derived_token_cannot_ask_for_a_higher_tier(server):
    forged = Client(server.address, token_for("alice", audience="store", secret=SECRET), tier=Tier.SYSTEM)
    error = await reason_of(forged.call("ListModels"))
    assert (error.reason, error.metadata) == (Reason.TIER_FORBIDDEN, {"tier": "system", "ceiling": "client"})
    await forged.close()


async def test_a_token_for_another_service_is_refused(server):
    other = Client(server.address, token_for("alice", audience="executor", secret=SECRET))
    error = await reason_of(other.call("ListModels"))
    assert (error.reason, error.metadata) == (Reason.UNAUTHENTICATED, {"cause": "audience"})
    await other.close()


async def test_a_writer_above_the_tier_of_the_call_is_refused(server, run):
    """RU032: the tier of the call bounds the writer."""
    alice = as_tier(server.address, Tier.CLIENT)
    write = set_("known://a", "x", writer=Tier.PLUGIN)
    error = await reason_of(alice.call("WriteEntries", **run.address, writes=[write]))
    assert (error.reason, error.metadata) == (Reason.TIER_FORBIDDEN, {"tier": "plugin", "ceiling": "client"})
    assert await run.entry("known://a") is None
    await alice.close()


OF_NO_RUN = {
    "ClaimDeliveries": {},
    "EndDelivery": {},
    "FindPlaces": {},
    "ListWork": {},
    "ClaimWork": {"owner": "me"},
    "RenewLeases": {"owner": "me"},
}


@pytest.mark.parametrize("rpc", ["ClaimRun", "ReleaseRun", "EndTurn", "WriteTitle", *OF_NO_RUN])
async def test_the_ledger_is_moved_by_the_runtime_only(server, run, rpc):
    alice = as_tier(server.address, Tier.PLUGIN)
    fields = OF_NO_RUN.get(rpc, run.address)
    fields = {**fields, "owner": "me"} if rpc == "ClaimRun" else fields
    error = await reason_of(alice.call(rpc, **fields))
    assert error.reason is Reason.RIGHT_MISSING
    assert (await run.write(set_("known://a", "still mine"))).revisions
    await alice.close()


@pytest.mark.parametrize("rpc", ["EnqueueLoop", "AbortRun", "SetModel", "InitProject"])
async def test_the_model_gives_no_commands(server, project, rpc):
    model = as_tier(server.address, Tier.MODEL)
    fields = {} if rpc == "SetModel" else {"project": project, "run": "x", "prompt": "hi"}
    fields = {"root": "/a", "workspace_id": "w"} if rpc == "InitProject" else fields
    fields.pop("prompt", None) if rpc == "AbortRun" else None
    refused = Reason.TIER_FORBIDDEN if rpc == "InitProject" else Reason.RIGHT_MISSING
    assert (await reason_of(model.call(rpc, **fields))).reason is refused
    await model.close()


async def test_one_forbidden_write_refuses_the_whole_request(run):
    """RU034: the outcome is permission:403, and nothing of the request is stored."""
    before = await run.view()
    error = await reason_of(run.write(set_("known://a", "x"), set_("prompt://9", "x", writer=Tier.MODEL)))
    assert error.metadata == {
        "path": "prompt://9",
        "scheme": "prompt",
        "writer": "model",
        "outcome": "permission:403",
    }
    assert (await run.view()) == before


async def test_an_unregistered_scheme_is_run_scoped_logging_of_model_and_plugin(server, run):
    """RU067, RU085."""
    await run.write(set_("wiki://a", "x", writer=Tier.MODEL))
    entry = await run.entry("wiki://a")
    assert (entry.scheme, entry.scope.partition(":")[0]) == ("wiki", "run")
    error = await reason_of(run.write(set_("wiki://a", "y", writer=Tier.CLIENT)))
    assert error.reason is Reason.WRITER_FORBIDDEN


MODEL, CLIENT, PLUGIN, SYSTEM = Tier.MODEL, Tier.CLIENT, Tier.PLUGIN, Tier.SYSTEM
SCHEMES = [
    # Row, path, category, shown to the model, scope, writers.
    ("RU068", "src/a.py", "data", True, "project", {MODEL, PLUGIN}),
    ("RU069", "known://a", "data", True, "run", {MODEL, PLUGIN}),
    ("RU070", "skill://a", "data", True, "project", {MODEL, PLUGIN}),
    ("RU071", "http://e.org/", "data", True, "project", {MODEL, PLUGIN}),
    ("RU071", "https://e.org/", "data", True, "project", {MODEL, PLUGIN}),
    ("RU072", "sh://turn_1/a_1", "data", True, "run", {MODEL, PLUGIN}),
    ("RU072", "env://turn_1/a_1", "data", True, "run", {MODEL, PLUGIN}),
    ("RU073", "unknown://a", "unknown", True, "run", {MODEL, PLUGIN}),
    ("RU074", "prompt://0", "prompt", True, "run", {PLUGIN}),
    ("RU075", "log://turn_1/get/a", "logging", True, "run", {MODEL, PLUGIN, SYSTEM}),
    ("RU076", "update://a", "logging", True, "run", {MODEL, PLUGIN}),
    ("RU077", "error://a", "logging", True, "run", {MODEL, PLUGIN}),
    ("RU078", "tool://a", "audit", False, "run", {SYSTEM}),
    *(
        ("RU079", f"{name}://a", "audit", False, "run", {SYSTEM})
        for name in ("instructions", "system", "reasoning", "model", "user", "assistant", "content")
    ),
    ("C32", "run://a", "audit", False, "run", {CLIENT, PLUGIN, SYSTEM}),
    ("C32", "plan://a", "plan", True, "run", {MODEL, CLIENT, PLUGIN}),
    ("C32", "event://turn_1/tick/a", "hidden", True, "run", {PLUGIN, SYSTEM}),
]


async def _put(run, path, attributes, writer):
    if path.startswith("plan:"):
        # Plans are written by rpcs of their own (C45).
        plan = plan_pb2.Plan(plan_id=path.removeprefix("plan://"), body="x")
        return await run.client.call("SetPlan", **run.address, plan=plan, written_by={"tier": int(writer)})
    return await run.write(set_(path, "x", attributes, writer=writer))


@pytest.mark.parametrize(
    ("path", "category", "shown", "scope", "writers"),
    [row[1:] for row in SCHEMES],
    ids=[f"{row[0]}-{row[1].partition(':')[0]}" for row in SCHEMES],
)
async def test_a_registered_scheme(run, path, category, shown, scope, writers):
    """RU068-RU079, C32: who may write it, where it lives, which category it has, whether a packet shows it."""
    attributes = '{"event":{"subkind":"tick","source":"test","payload":null}}' if path.startswith("event:") else None
    allowed = set()
    for writer in (MODEL, CLIENT, PLUGIN, SYSTEM):
        (error,) = await asyncio.gather(_put(run, path, attributes, writer), return_exceptions=True)
        if isinstance(error, TurnwrightError):
            assert error.reason is Reason.WRITER_FORBIDDEN
        else:
            allowed.add(writer)
    assert allowed == writers
    assert (await run.entry(path)).scope.partition(":")[0] == scope
    assert (path in (await run.view(filter=2)).paths) is shown
    schemes = {scheme.name: scheme for scheme in (await run.client.call("ListSchemes")).schemes}
    found = schemes[path.partition("://")[0] if "://" in path else ""]
    assert scheme_from_pb(found).category == category
