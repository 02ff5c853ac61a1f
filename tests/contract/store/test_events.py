"""Events: what happened around a run, told as entries of their own scheme."""

import asyncio
import json

import pytest
from turnwright.types.v1 import command_record_pb2, plan_pb2
from turnwright_values.types import Tier

from contract.store.harness import ARCHIVED, PROPOSED, Client, Run, remove, set_, start_store
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.events import EVENT_SUBKINDS
from turnwright_core.wire.schemes import scheme_from_pb
from turnwright_store.domain.limits import WriteLimits

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

PAYLOAD_MAX = 64 * 1024
SUBKINDS = [
    "cancellation_note", "cron_fire", "ide_callback", "mode_switch", "plan_delta", "process_completed",
    "summarization_marker", "system_notice", "tick", "tool_decision", "verifier_report",
]  # fmt: skip
"""Those of the specification, by name: RH02."""


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def attributes(**event):
    event = {"subkind": "tick", "source": "test", "payload": None, **event}
    return json.dumps({"event": {key: value for key, value in event.items() if value is not ...}})


async def test_the_subkinds_are_those_of_the_specification():
    assert sorted(EVENT_SUBKINDS) == SUBKINDS


@pytest.mark.parametrize("subkind", SUBKINDS)
@pytest.mark.parametrize("writer", [Tier.PLUGIN, Tier.SYSTEM])
async def test_an_event_of_each_subkind_is_stored(run, subkind, writer):
    """RH01, RH02."""
    path = f"event://turn_1/{subkind}/a"
    payload = {"from": "explore", "to": ["agent", 1, None]}
    said = attributes(subkind=subkind, source="chat.session", payload=payload)
    await run.write(set_(path, "Mode switched", said, writer=writer))
    entry = await run.entry(path)
    assert (entry.scheme, entry.body, entry.writer) == ("event", "Mode switched", writer)
    assert json.loads(entry.attributes_json) == {
        "event": {"subkind": subkind, "source": "chat.session", "payload": payload}
    }


@pytest.mark.parametrize("payload", [None, True, 1.5, "text", [], {"deep": [{"er": 1}]}])
async def test_a_payload_is_any_json(run, payload):
    """RH01."""
    await run.write(set_("event://turn_1/tick/a", "x", attributes(payload=payload)))
    entry = await run.entry("event://turn_1/tick/a")
    assert json.loads(entry.attributes_json)["event"]["payload"] == payload


async def test_events_are_of_the_hidden_category_and_no_role(run):
    """RH01: what is stored is an entry; no message of its role is ever made of it."""
    await run.write(set_("event://turn_1/tick/a", "x", attributes()))
    schemes = {one.name: one for one in (await run.client.call("ListSchemes")).schemes}
    assert scheme_from_pb(schemes["event"]).category == "hidden"
    entry = await run.entry("event://turn_1/tick/a")
    assert (entry.scope.partition(":")[0], entry.outcome) == ("run", "")


async def test_an_event_can_be_archived_and_removed(run):
    await run.write(set_("event://turn_1/tick/a", "x", attributes()))
    await run.write(set_("event://turn_1/tick/a", visibility=ARCHIVED))
    assert (await run.entry("event://turn_1/tick/a")).visibility == ARCHIVED
    await run.write(remove("event://turn_1/tick/a"))
    assert await run.entry("event://turn_1/tick/a") is None


async def test_events_survive_a_restart(tmp_path, own_server, own_run):
    await own_run.write(set_("event://turn_1/tick/a", "x", attributes(payload={"n": 1})))
    before = await own_run.entry("event://turn_1/tick/a")
    await own_server.stop()
    again = await start_store(tmp_path)
    client = Client(again.address)
    after = await Run(client, own_run.project, own_run.alias).entry("event://turn_1/tick/a")
    await client.close()
    await again.stop()
    assert after == before


@pytest.mark.parametrize(
    ("path", "said", "field"),
    [
        ("event://turn_1/tick/a", None, "attributes_json"),
        ("event://turn_1/tick/a", "{}", "attributes_json"),
        ("event://turn_1/tick/a", '{"event":[]}', "attributes_json"),
        ("event://turn_1/tick/a", attributes(payload=...), "attributes_json"),
        ("event://turn_1/tick/a", attributes(subkind=...), "subkind"),
        ("event://turn_1/tick/a", attributes(subkind="user"), "subkind"),
        ("event://turn_1/tick/a", attributes(subkind=["tick"]), "subkind"),
        ("event://turn_1/tick/a", attributes(source=...), "source"),
        ("event://turn_1/tick/a", attributes(source=""), "source"),
        ("event://turn_1/tick/a", attributes(source=7), "source"),
        ("event://turn_1/tick/a", attributes(source="s" * 129), "source"),
        ("event://turn_1/cron_fire/a", attributes(), "path"),
        ("event://turn_1/tick", attributes(), "path"),
        ("event://tick/a", attributes(), "path"),
    ],
)
async def test_a_malformed_event_is_refused(run, path, said, field):
    """RH01, RH02."""
    error = await refused(run.write(set_(path, "x", said)))
    assert (error.metadata["field"], await run.entry(path)) == (field, None)


async def test_an_event_is_written_whole(run):
    """A merge or a state of its own could leave half of an event behind."""
    path = "event://turn_1/tick/a"
    for change in ({"merge_attributes_json": '{"event":null}'}, {"state": 4}):
        assert (await refused(run.write(set_(path, **change)))).reason is Reason.INVALID_FIELD
    assert await run.entry(path) is None


@pytest.mark.parametrize("character", ["a", "é"])
async def test_a_payload_has_at_most_65536_bytes(run, character):
    longest = character * ((PAYLOAD_MAX - 2) // len(character.encode()))
    await run.write(set_("event://turn_1/tick/a", "x", attributes(payload=longest)))
    error = await refused(run.write(set_("event://turn_1/tick/b", "x", attributes(payload=longest + character))))
    assert (error.reason, error.metadata["field"], error.metadata["limit"]) == (
        Reason.LIMIT_EXCEEDED,
        "payload",
        str(PAYLOAD_MAX),
    )
    assert await run.entry("event://turn_1/tick/b") is None


@pytest.mark.parametrize("writer", [Tier.MODEL, Tier.CLIENT])
async def test_models_and_clients_write_no_events(run, writer):
    """C32."""
    error = await refused(run.write(set_("event://turn_1/tick/a", "x", attributes(), writer=writer)))
    assert error.reason is Reason.WRITER_FORBIDDEN
    assert await run.entry("event://turn_1/tick/a") is None


# ---- Producers: an event is written with its cause


async def events(run) -> dict:
    """The run's events by path: source, payload and what the model reads."""
    found = [entry for entry in (await run.view()).entries if entry.scheme == "event"]
    said = {entry.path: (json.loads(entry.attributes_json)["event"], entry) for entry in found}
    assert all(event["subkind"] == path.split("/")[3] for path, (event, _) in said.items())
    assert all(entry.writer == Tier.SYSTEM for _, entry in said.values())
    return {path: (event["source"], event["payload"], entry.body) for path, (event, entry) in said.items()}


async def change_plan(run, rpc, **more):
    return await run.client.call(rpc, **run.address, **more)


async def test_each_operation_on_a_plan_writes_one_event(run):
    """RH04: system_notice, plan_delta."""
    await change_plan(run, "SetPlan", plan=plan_pb2.Plan(body="x"))
    await change_plan(run, "UpdatePlan", delta="y")
    await change_plan(run, "SetPlan", plan=plan_pb2.Plan(body="[]", kind=plan_pb2.PLAN_KIND_ITEMS))
    await change_plan(run, "DeletePlan")
    notice = {"plan_id": "main", "version": 1, "kind": "markdown", "change": "set"}
    assert await events(run) == {
        "event://turn_0/system_notice/main-v1": ("plan", notice, "The plan main is now version 1."),
        "event://turn_0/plan_delta/main-v1-1": (
            "plan",
            {"plan_id": "main", "version": 1, "sequence": 1},
            "Something was added to the plan main, version 1: its delta 1.",
        ),
        "event://turn_0/system_notice/main-v2": (
            "plan",
            {**notice, "version": 2, "kind": "items"},
            "The plan main is now version 2.",
        ),
        "event://turn_0/system_notice/main-v2-removed": (
            "plan",
            {**notice, "version": 2, "kind": "items", "change": "removed"},
            "The plan main was removed; version 2 was the latest.",
        ),
    }


async def test_an_owners_event_is_of_its_open_turn_and_anybody_elses_of_the_latest_that_ended(run):
    await run.begin()
    await run.end(1)
    await run.begin()
    await change_plan(run, "SetPlan", plan=plan_pb2.Plan(body="x"), written_by={"epoch": run.epoch})
    await change_plan(run, "SetPlan", plan=plan_pb2.Plan(body="y"))
    await run.end(2)
    await change_plan(run, "SetPlan", plan=plan_pb2.Plan(body="z"))
    assert list(await events(run)) == [
        "event://turn_2/system_notice/main-v1",
        "event://turn_1/system_notice/main-v2",
        "event://turn_2/system_notice/main-v3",
    ]


async def test_an_operation_that_is_repeated_or_refused_writes_no_event(run):
    """Nothing is told twice, and nothing that did not happen."""
    plan = plan_pb2.Plan(body="x")
    for _ in range(2):
        await change_plan(run, "SetPlan", plan=plan, request_id="once")
        await change_plan(run, "UpdatePlan", delta="y", request_id="again")
    lost = {"epoch": run.epoch + 1}
    assert (await refused(change_plan(run, "SetPlan", plan=plan, written_by=lost))).reason is Reason.LEASE_LOST
    assert (await refused(change_plan(run, "UpdatePlan", delta=""))).reason is Reason.INVALID_FIELD
    assert (await refused(change_plan(run, "DeletePlan", plan_id="other"))).reason is Reason.ENTRY_NOT_FOUND
    assert list(await events(run)) == ["event://turn_0/system_notice/main-v1", "event://turn_0/plan_delta/main-v1-1"]


RECORD = "log://turn_1/set/a.py"


def proposal(path: str = RECORD):
    record = command_record_pb2.CommandRecord(tool="set", ordinal=0)
    record.proposed.effect.command.command = "x"
    return set_(path, "x", state=PROPOSED, record=record.SerializeToString(), writer=Tier.SYSTEM)


async def resolve(run, **fields):
    return await run.client.call("ResolveProposal", **run.address, path=RECORD, **fields)


@pytest.mark.parametrize(
    ("decision", "told", "sentence"),
    [
        ({"accept": {}}, {"decision": "accepted", "comment": ""}, f"operator accepted {RECORD}."),
        (
            {"accept": {"comment": "fine", "contents": [{"path": "a.py", "content": "y"}]}},
            {"decision": "accepted", "comment": "fine", "edited_paths": ["a.py"]},
            f"operator accepted {RECORD} with edits.",
        ),
        (
            {"accept": {"client_runs": True}},
            {"decision": "accepted", "comment": "", "client_runs": True},
            f"operator accepted {RECORD}.",
        ),
        ({"reject": {"comment": "no"}}, {"decision": "rejected", "comment": "no"}, f"operator rejected {RECORD}."),
    ],
    ids=["accepted", "accepted with edits", "accepted by who runs it", "rejected"],
)
async def test_a_decision_writes_one_event(run, decision, told, sentence):
    """RH04: tool_decision, in the transaction of the decision, however often it is asked for."""
    await run.begin()
    await run.write(proposal(), run_status=202)
    before = (await run.view()).cursor
    for _ in range(2):
        await resolve(run, **decision, request_id="once")
    assert (await refused(resolve(run, **decision))).reason is Reason.NOT_PROPOSED
    payload = {"path": RECORD, "tool": "set", "principal": "operator", **told}
    assert await events(run) == {"event://turn_1/tool_decision/set/a.py": ("proposal", payload, sentence)}
    revisions = {entry.revision for entry in (await run.view(after=before)).entries}
    assert revisions == {before.run_revision + 1}


async def test_a_record_that_is_proposed_again_gets_an_event_for_each_decision(run):
    await run.begin()
    for _ in range(2):
        await run.write(proposal(), run_status=202)
        await resolve(run, accept={})
    path = "event://turn_1/tool_decision/set/a.py"
    assert list(await events(run)) == [path, f"{path}+2"]


async def test_a_comment_that_is_too_long_for_a_payload_is_cut_and_the_decision_stands(run):
    await run.begin()
    await run.write(proposal(), run_status=202)
    comment = "\x01" * (60 * 1024)
    assert (await resolve(run, reject={"comment": comment})).entry.body == comment
    ((_, payload, _),) = (await events(run)).values()
    assert (payload["comment"].startswith("\x01"), payload["comment"].endswith("[cut]")) == (True, True)


async def test_a_decision_is_taken_and_told_however_many_entries_the_run_has(tmp_path, own_server, own_run):
    """A run that is full could never go on otherwise."""
    await own_run.begin()
    await own_run.write(proposal(), run_status=202)
    await own_server.stop()
    store = await start_store(tmp_path, write_limits=WriteLimits(run_entries_max=2))
    run = Run(Client(store.address), own_run.project, own_run.alias)
    await run.claim()
    assert (await refused(run.write(set_("known://a", "x")))).metadata["field"] == "run_entries"
    assert (await resolve(run, reject={})).entry.outcome == "rejected:403"
    assert len(await events(run)) == 1
    await run.client.close()
    await store.stop()


async def test_a_proposal_that_expires_writes_one_event(tmp_path, own_server, own_run):
    await own_server.stop()
    store = await start_store(tmp_path, proposal_expire_s=0.4)
    run = Run(Client(store.address), own_run.project, own_run.alias)
    await run.claim()
    await run.begin()
    await run.write(proposal(), run_status=202)
    found = {}
    for _ in range(1200):
        if found := await events(run):
            break
        await asyncio.sleep(0.05)
    payload = {"path": RECORD, "tool": "set", "decision": "expired", "principal": "", "comment": ""}
    assert found == {
        "event://turn_1/tool_decision/set/a.py": ("proposal", payload, f"Nobody decided on {RECORD} in time.")
    }
    await run.client.close()
    await store.stop()
