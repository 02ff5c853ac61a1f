"""Schemes that plugins register while the store runs."""

import asyncio
import time

import pytest
from turnwright.types.v1 import entry_pb2, grant_pb2, scheme_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    POSTGRESQL_ONLY,
    Client,
    Run,
    as_tier,
    new_project,
    new_run,
    request,
    scheme_of,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.schemes import BUILTIN

pytestmark = pytest.mark.asyncio

PACKET = 2
MODEL, CLIENT, PLUGIN, SYSTEM = Tier.MODEL, Tier.CLIENT, Tier.PLUGIN, Tier.SYSTEM


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def scheme(name="wiki", **fields):
    tiers = [int(tier) for tier in fields.pop("writable_by", ())]
    return scheme_of(name, writable_by=tiers, **fields)


async def put(client, name="wiki", **fields):
    return (await client.call("SetScheme", scheme=scheme(name, **fields))).scheme


async def listed(client):
    return {one.name: one for one in (await client.call("ListSchemes")).schemes}


async def test_a_scheme_is_registered_with_all_it_says(client):
    """RU084."""
    wanted = scheme(category="data", default_scope="project", writable_by=[CLIENT, PLUGIN], model_visible=False)
    stored = (await client.call("SetScheme", scheme=wanted)).scheme
    assert stored == wanted
    assert (await listed(client))["wiki"] == wanted


async def test_what_is_not_said_is_run_scoped_logging_of_model_and_plugin(client):
    """RU085."""
    stored = await put(client)
    assert (stored.category, stored.default_scope) == (scheme_pb2.SCHEME_CATEGORY_LOGGING, scheme_pb2.SCHEME_SCOPE_RUN)
    assert list(stored.writable_by) == [entry_pb2.TIER_MODEL, entry_pb2.TIER_PLUGIN]
    assert (await listed(client))["wiki"] == stored


@pytest.mark.parametrize(("scope", "key"), [("", "run"), ("run", "run"), ("project", "project"), ("global", "global")])
async def test_a_registered_scope_is_resolved_at_the_write(client, run, scope, key):
    """RU087: the scheme counts for the next write already, and names the scope with its number."""
    await put(client, default_scope=scope)
    await run.write(set_("wiki://a", "x"))
    kind, _, number = (await run.entry("wiki://a")).scope.partition(":")
    assert (kind, number.isdecimal()) == (key, key != "global")


async def test_a_global_scheme_is_shared_by_runs_of_all_projects(client, run):
    """RU087."""
    await put(client, default_scope="global")
    await run.write(set_("wiki://a", "x"))
    stranger = await new_run(client, await new_project(client, "other"))
    await client.call("WriteEntries", **stranger.address, writes=[set_("wiki://a", visibility=1)])
    assert (await stranger.entry("wiki://a")).body == "x"


async def test_a_registered_scheme_says_who_may_write(client, run):
    await put(client, writable_by=[CLIENT])
    error = await refused(run.write(set_("wiki://a", "x", writer=PLUGIN)))
    assert error.reason is Reason.WRITER_FORBIDDEN
    await run.write(set_("wiki://a", "x", writer=CLIENT))
    assert (await run.entry("wiki://a")).writer == CLIENT


async def test_an_invisible_scheme_stays_out_of_packets(client, run):
    """RU086."""
    await put(client, model_visible=False)
    await run.write(set_("wiki://a", "x"))
    assert "wiki://a" not in (await run.view(filter=PACKET)).paths
    await put(client, model_visible=True)
    assert "wiki://a" in (await run.view(filter=PACKET)).paths


@pytest.mark.parametrize("name", [one.name for one in BUILTIN])
async def test_a_built_in_scheme_is_fixed(client, name):
    before = await listed(client)
    error = await refused(put(client, name, category="data"))
    assert (error.reason, error.metadata) == (Reason.SCHEME_FIXED, {"scheme": name})
    assert await listed(client) == before


@pytest.mark.parametrize("fields", [{"default_scope": "project"}, {"category": "data"}])
async def test_scope_and_category_are_fixed_while_entries_exist(client, run, fields):
    """Also for a scheme that nobody had registered before: its entries were run-scoped logging."""
    await run.write(set_("wiki://a", "x"), set_("wikis://a", "x"))
    for _ in range(2):
        error = await refused(put(client, **fields))
        assert (error.reason, error.metadata) == (Reason.SCHEME_FIXED, {"scheme": "wiki"})
        await put(client, writable_by=[CLIENT])
    assert (await put(client, "wik", **fields)).name == "wik"
    assert (await listed(client))["wiki"].default_scope == scheme_pb2.SCHEME_SCOPE_RUN


async def test_scope_and_category_change_while_there_is_no_entry(client):
    await put(client, default_scope="project", category="data")
    stored = await put(client, default_scope="global", category="unknown")
    assert (stored.default_scope, stored.category) == (
        scheme_pb2.SCHEME_SCOPE_GLOBAL,
        scheme_pb2.SCHEME_CATEGORY_UNKNOWN,
    )


OPERATOR = {"subject": "user:alice", "role": grant_pb2.GRANT_ROLE_OPERATOR}


@pytest.mark.parametrize("tier", [MODEL, CLIENT])
async def test_registering_needs_the_tier_plugin(server, client, tier):
    await client.call("SetGrant", grant=OPERATOR)
    low = as_tier(server.address, tier)
    error = await refused(put(low))
    await low.close()
    assert error.reason is Reason.TIER_FORBIDDEN
    assert "wiki" not in await listed(client)


async def test_a_plugin_registers_with_a_grant(server, client):
    plugin = as_tier(server.address, PLUGIN)
    assert (await refused(put(plugin))).reason is Reason.RIGHT_MISSING
    await client.call("SetGrant", grant=OPERATOR)
    stored = await put(plugin)
    await plugin.close()
    assert stored.name == "wiki"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Wiki"}, "name"),
        ({"name": "1wiki"}, "name"),
        ({"name": "w" * 33}, "name"),
        ({"name": "w/x"}, "name"),
        ({"writable_by": [0]}, "writable_by"),
        ({"writable_by": [9]}, "scheme.writable_by"),
    ],
)
async def test_a_malformed_scheme_is_refused(client, fields, field):
    before = await listed(client)
    error = await refused(put(client, **fields))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)
    assert await listed(client) == before


async def test_a_registered_scheme_survives_a_restart(tmp_path, server, client):
    """What is built in is put anew at each opening, and nothing else is touched."""
    await put(client, default_scope="project", category="data")
    before = await listed(client)
    await server.stop()
    again = await start_store(tmp_path)
    other = Client(again.address)
    after = await listed(other)
    run = await working_run(other, await new_project(other), "r")
    await run.write(set_("wiki://a", "x"))
    scope = (await run.entry("wiki://a")).scope
    await other.close()
    await again.stop()
    assert after == before
    assert scope.startswith("project:")


async def test_a_registration_raises_the_revision_of_the_global_scope(client, run):
    before = (await run.view()).cursor
    await put(client)
    after = (await run.view()).cursor
    assert after.global_revision == before.global_revision + 1
    assert (after.run_revision, after.project_revision) == (before.run_revision, before.project_revision)


async def test_schemes_that_are_registered_at_once_are_all_known(client, run):
    names = [f"wiki{number}" for number in range(20)]
    await asyncio.gather(*(put(client, name, default_scope="project") for name in names))
    await run.write(*(set_(f"{name}://a", "x") for name in names))
    assert set(names) <= set(await listed(client))
    assert {(await run.entry(f"{name}://a")).scope.partition(":")[0] for name in names} == {"project"}


@POSTGRESQL_ONLY
async def test_another_replica_goes_by_a_scheme_soon(tmp_path, client, run):
    """Two replicas need a database that both reach."""
    second = await start_store(tmp_path, name="second", schemes_refresh_s=0.05)
    other = Client(second.address)
    same = Run(other, run.project, run.alias, run.epoch)
    await put(client, "known2", writable_by=[CLIENT])
    end_s = time.monotonic() + 60
    while not isinstance(await tried(same.write(set_("known2://a", "x", writer=PLUGIN))), TurnwrightError):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)
    await same.write(set_("known2://a", "y", writer=CLIENT))
    written = await run.entry("known2://a")
    await other.close()
    await second.stop()
    assert written.writer == CLIENT


async def tried(call):
    """What a call answers or raises."""
    (answer,) = await asyncio.gather(call, return_exceptions=True)
    return answer


async def test_a_project_scoped_write_always_has_its_project(client, run):
    """RU088: a write is addressed by its project, so that one without it reaches nothing."""
    for project in ("", "elsewhere"):
        same = Run(client, project, run.alias, run.epoch)
        assert (await refused(same.write(set_("src/a.py", "x")))).reason is Reason.PROJECT_NOT_FOUND
    await run.write(set_("src/a.py", "x"))
    other = await new_run(client, await new_project(client, "other"))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "y")])
    here, there = await run.entry("src/a.py"), await other.entry("src/a.py")
    assert (here.body, there.body) == ("x", "y")
    assert here.scope != there.scope
    assert here.scope.startswith("project:")


async def registry_told(run, rpc: str, version: str):
    """What an answer to whoever knows a version tells of registered schemes; None where it tells nothing."""
    other = await working_run(run.client, run.project)
    more = {"EndTurn": {"epoch": other.epoch, "next": {"request": request()}}, "ClaimRun": {"owner": "o"}}.get(rpc, {})
    if rpc == "ClaimRun":
        await run.client.call("ReleaseRun", **other.address, epoch=other.epoch)
    if rpc == "ReadView":
        parts = [part async for part in run.client.stream(rpc, **other.address, schemes_version=version)]
        answer = parts[0]
    else:
        answer = await run.client.call(rpc, **other.address, **more, schemes_version=version)
    return answer.schemes if answer.HasField("schemes") else None


@pytest.mark.parametrize("rpc", ["GetRun", "ReadView", "ClaimRun", "EndTurn"])
async def test_an_answer_tells_what_is_registered_to_whoever_does_not_know_it(client, run, rpc):
    """Readers learn of schemes with what they read anyway; once they know them, an answer does not repeat it."""
    before = await registry_told(run, rpc, "")
    stored = await put(client, "wiki", category="data", writable_by=[MODEL])
    told = await registry_told(run, rpc, "")
    again = await registry_told(run, rpc, told.version)
    assert (before, again) == (None, None)
    assert (list(told.schemes), bool(told.version)) == ([stored], True)


async def test_a_registry_is_named_by_what_is_in_it(client, run):
    """The order of registration does not matter, and a change back is the registry that was."""
    await put(client, "b")
    await put(client, "a", category="data")
    both = await registry_told(run, "GetRun", "")
    await put(client, "a", category="unknown")
    other = await registry_told(run, "GetRun", both.version)
    await put(client, "a", category="data")
    again = await registry_told(run, "GetRun", other.version)
    assert ([one.name for one in both.schemes], again) == (["a", "b"], both)
    assert other.version != both.version
