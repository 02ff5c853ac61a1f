"""Private runs: there for whoever has created them, and for who administrates the project, and for nobody else. ADR 66."""

import asyncio
import contextlib

import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from turnwright.store.v1 import store_service_pb2
from turnwright.types.v1 import access_pb2, grant_pb2, plan_pb2, rule_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import PROPOSED, Client, Run, act, set_
from services import token_for
from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.resources import RESOURCES
from turnwright_kit.access import access_of

pytestmark = pytest.mark.asyncio

PRIVATE = settings_pb2.RunSettings(model="fast", private=True)
SERVICES = [store_service_pb2.DESCRIPTOR.services_by_name["StoreService"], *(one.service for one in RESOURCES)]
WORD = "zanzibar"


class People(dict):
    """Clients by name."""

    __getattr__ = dict.__getitem__


@pytest_asyncio.fixture
async def people(server, client, project):
    """Alice and bob are members, olga is an owner; alice has a private run in which a proposal waits."""
    await client.call("DeleteGrant", project=project, subject="*")
    for name, role in (("alice", "MEMBER"), ("bob", "MEMBER"), ("olga", "OWNER")):
        given = grant_pb2.Grant(subject=f"user:{name}", role=getattr(grant_pb2, f"GRANT_ROLE_{role}"))
        await client.call("SetGrant", project=project, grant=given)
    made = People(
        {
            name: Client(server.address, token_for(name, audience="store", secret="s3cret"))
            for name in ("alice", "bob", "olga")
        }
    )
    await made.alice.call("EnqueueLoop", project=project, run="hers", prompt=WORD, settings=act(), run_settings=PRIVATE)
    await made.bob.call("EnqueueLoop", project=project, run="open", prompt="Hello.", settings=act())
    run = Run(client, project, "hers")
    await run.claim()
    await run.begin()
    await run.write(
        set_("known://a", WORD),
        set_("https://example.org/", f"{WORD} there"),
        set_("log://turn_1/set/a", f"{WORD} a", '{"tool":"set"}', state=PROPOSED, turn=1),
        run_status=202,
    )
    yield made
    for one in made.values():
        await one.close()


async def reason_of(call) -> str:
    try:
        await call
    except TurnwrightError as error:
        return error.reason.name
    return "answered"


async def answer(client, method, **fields) -> str:
    request = GetMessageClass(method.input_type)(**fields)
    rpc = client.rpc(method.name)
    if method.client_streaming:

        async def sent():
            yield request

        return await reason_of(client.peer.upload(rpc, sent(), 20.0))
    if method.server_streaming:
        async with client.peer.stream(rpc, request, 20.0) as answers:
            return await reason_of(anext(answers, None))
    return await reason_of(client.peer.call(rpc, request))


ACTS = '{"mode":"act","model":"fast"}'
FIELDS = {
    "AppendStream": {"path": "sh://turn_1/a", "channel": 1, "text": "x"},
    "CancelCommand": {"loop": 9},
    "CreateRun": {"settings": settings_pb2.RunSettings(model="fast")},
    "DeletePlan": {"plan_id": "p"},
    "DeleteRule": {"id": 1},
    "DeleteSchedule": {"schedule_id": "s"},
    "PauseSchedule": {"schedule_id": "s"},
    "ResumeSchedule": {"schedule_id": "s"},
    "TestRules": {"effects": [{"tool": "sh", "line": "true"}]},
    "EndStream": {"path": "sh://turn_1/a", "end": 1},
    "EnqueueLoop": {"prompt": "Hi.", "settings": act()},
    "ForkRun": {"new_run": "fork"},
    "GetEntries": {"paths": ["known://a"]},
    "GetEntry": {"path": "known://a"},
    "GetPlan": {"plan_id": "p"},
    "GetProposal": {"path": "log://turn_1/set/a"},
    "InjectMessage": {"message": "Hi."},
    "ListEntryHistory": {"path": "known://a"},
    "OpenStream": {"tool": "sh", "target": "a", "channels": [1]},
    "ReadPacket": {"turn": 1},
    "RenameRun": {"new_run": "else"},
    "ResolveProposal": {"path": "log://turn_1/set/a", "reject": {}},
    "SetPlan": {"plan": plan_pb2.Plan(plan_id="p", body="x")},
    "SetRule": {"rule": rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="set")},
    "SubmitCommand": {"command_id": "c", "command": {"abort": {}}},
    "UpdatePlan": {"plan_id": "p"},
    "WriteEntries": {"writes": [set_("run://hers", "x", ACTS, writer=Tier.CLIENT)]},
}
"""What a request says besides the run, so that it gets as far as looking for it."""

TAKEN = dict.fromkeys(("CreateRun", "EnqueueLoop", "ImportRun", "WriteEntries"), "RUN_EXISTS")
"""Calls that make a run: an alias is taken, whose ever the run is."""

OF_RUNS = [
    method
    for service in SERVICES
    for method in service.methods
    if "run" in method.input_type.fields_by_name and access_of(method).right != access_pb2.RIGHT_SERVICE
]


async def test_no_call_of_another_finds_a_private_run(people, project):
    found, missing = {}, {}
    for method in OF_RUNS:
        fields = {"project": project, **FIELDS.get(method.name, {})}
        if method.name not in TAKEN:
            missing[method.name] = await answer(people.bob, method, run="none", **fields)
        found[method.name] = await answer(people.bob, method, run="hers", **fields)
    wanted = {method.name: TAKEN.get(method.name, "RUN_NOT_FOUND") for method in OF_RUNS}
    wanted |= dict.fromkeys(
        ("DeleteSchedule", "PauseSchedule", "RenameRun", "ResumeSchedule", "SetSchedule"), "RIGHT_MISSING"
    )
    assert found == wanted
    assert missing == {name: reason for name, reason in wanted.items() if name not in TAKEN}


@pytest.mark.parametrize("who", ["alice", "olga"])
async def test_it_is_there_for_its_creator_and_for_who_administrates_the_project(people, project, who):
    client = people[who]
    assert (await client.call("GetRun", project=project, run="hers")).run.settings.private
    assert [one.run for one in (await client.call("ListRuns", project=project)).runs] == ["hers", "open"]
    assert (await client.call("GetEntry", project=project, run="hers", path="known://a")).entry.body == WORD


async def first(client, rpc, **fields):
    async with contextlib.aclosing(client.stream(rpc, **fields)) as messages:
        return await anext(messages)


async def test_no_list_watch_search_or_count_of_another_has_it(people, project):
    bob, alice = people.bob, people.alice
    listed = await bob.call("ListRuns", project=project)
    assert [one.run for one in listed.runs] == ["open"]
    overview = await first(bob, "WatchRuns", project=project)
    assert [one.run.run for one in overview.snapshot.runs] == ["open"]
    assert {one.run.run for one in (await first(alice, "WatchRuns", project=project)).snapshot.runs} == {"open", "hers"}
    for page in range(3):
        assert len((await bob.call("ListRuns", project=project, page_size=page)).runs) == 1
    assert WORD not in str(await bob.call("SearchEntries", project=project, query=WORD))
    # Its alias is not told by a watch that goes on, either.
    await people.alice.call("CreateRun", project=project, run="hers2", settings=PRIVATE)
    await people.alice.call("DeleteRun", project=project, run="hers2")
    after = await first(bob, "WatchRuns", project=project, after=listed.cursor)
    assert "hers" not in str(after)


async def test_the_inbox_of_another_leaves_out_what_waits_there(people, project, client):
    for of in ({}, {"project": project}):
        for who, there in (("alice", True), ("olga", True), ("bob", False)):
            waiting = (await people[who].call("ListProposals", **of)).proposals
            assert bool(waiting) is there, (who, of)
            shown = await first(people[who], "WatchProposals", **of)
            assert bool(shown.pending) is there, (who, of)


async def test_a_fork_of_a_private_run_is_private_too(people, project, client):
    await people.alice.call("AbortRun", project=project, run="hers")
    await people.alice.call("ForkRun", project=project, run="hers", new_run="fork")
    assert await reason_of(people.bob.call("GetRun", project=project, run="fork")) == "RUN_NOT_FOUND"
    assert (await people.alice.call("GetRun", project=project, run="fork")).run.settings.private


async def test_who_has_created_a_run_may_delete_it_and_others_need_the_right_to_manage(people, project):
    for name, client in (("hers2", people.alice), ("his", people.bob)):
        await client.call("CreateRun", project=project, run=name, settings=settings_pb2.RunSettings(model="fast"))
    assert await reason_of(people.alice.call("DeleteRun", project=project, run="his")) == "RIGHT_MISSING"
    await people.alice.call("DeleteRun", project=project, run="hers2")
    await people.olga.call("DeleteRun", project=project, run="his")
    assert [one.run for one in (await people.olga.call("ListRuns", project=project)).runs] == ["hers", "open"]


async def test_an_owner_of_before_finds_it_no_longer(people, project, client):
    await client.call("SetGrant", project=project, grant={"subject": "user:olga", "role": grant_pb2.GRANT_ROLE_MEMBER})
    assert await reason_of(people.olga.call("GetRun", project=project, run="hers")) == "RUN_NOT_FOUND"


async def test_a_watch_of_an_owner_of_before_tells_nothing_more(people, project, client):
    run = Run(client, project, "hers")
    await run.claim()
    begun = (await run.write(set_("known://b", WORD), run_status=202)).cursor
    await run.write(set_("known://c", WORD), run_status=202)
    async with contextlib.aclosing(
        people.olga.stream("WatchChanges", project=project, run="hers", after=begun)
    ) as changes:
        while not (await anext(changes)).entries:
            pass
        member = {"subject": "user:olga", "role": grant_pb2.GRANT_ROLE_MEMBER}
        await client.call("SetGrant", project=project, grant=member)
        await run.end(1, set_("known://d", WORD), loop=(200, "", ""))

        async def told() -> None:
            async for change in changes:
                assert not change.entries

        async with asyncio.timeout(60):
            assert await reason_of(told()) == "RUN_NOT_FOUND"


async def test_stays_private_when_it_is_configured(people, project):
    warmer = settings_pb2.RunSettingsPatch(temperature=0.7, title=f"About {WORD}")
    changed = await people.alice.call("ConfigureRun", project=project, run="hers", patch=warmer)
    assert changed.run.settings.private
    assert (await people.alice.call("GetRun", project=project, run="hers")).run.settings.private
    assert await reason_of(people.bob.call("GetRun", project=project, run="hers")) == "RUN_NOT_FOUND"
