"""The audit: one row for each call that changes something, in its transaction."""

import json

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError
from turnwright.store.v1 import store_service_pb2
from turnwright.types.v1 import (
    access_pb2,
    command_record_pb2,
    error_pb2,
    model_pb2,
    plan_pb2,
    schedule_pb2,
    settings_pb2,
)
from turnwright_values.types import Tier

from contract.store.counting import connected
from contract.store.harness import PROPOSED, Client, act, as_tier, new_run, scheme_of, set_
from contract.store.test_documents import imported
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.resources import RESOURCES
from turnwright_kit.access import access_of

pytestmark = pytest.mark.asyncio

SERVICES = (store_service_pb2.DESCRIPTOR.services_by_name["StoreService"], *(one.service for one in RESOURCES))
RIGHTS = {
    method.name: access_of(method).right
    for service in SERVICES
    for method in service.methods
    if method.GetOptions().idempotency_level != method.GetOptions().NO_SIDE_EFFECTS
    and access_of(method).right != access_pb2.RIGHT_SERVICE
}
"""The rpcs by which somebody changes something, with the right that each needs."""

RECORD = "log://turn_1/set/x"
DELIVERY = "what a webhook is told"
STREAM = "what OpenStream has opened"
DOCUMENT = json.dumps({"schema_version": 1, "run": {"run": "copy"}, "complete": True}).encode()


def proposed():
    record = command_record_pb2.CommandRecord(tool="set")
    record.proposed.effect.command.command = "hidden words"
    return set_(RECORD, "x", "{}", state=PROPOSED, record=record.SerializeToString(), writer=Tier.SYSTEM)


def calls(project):
    """A call of each such rpc, in an order in which all of them have something to do."""
    here = {"project": project, "run": "r1"}
    model, scheme = model_pb2.Model(alias="m2", vendor_model="scripted/a"), scheme_of("memo", category="data")
    return [
        ("SetModel", {"model": model}),
        ("DeleteModel", {"alias": "m2"}),
        ("SetScheme", {"scheme": scheme}),
        ("SetQuota", {"project": project, "quota": {"metric": 1, "limit": 5}}),
        ("DeleteQuota", {"project": project, "metric": 1}),
        ("SetWebhook", {"project": project, "webhook": {"name": "ci", "url": "https://example.com/hidden-words"}}),
        ("DeleteWebhook", {"project": project, "name": "ci"}),
        ("RetryDelivery", {"project": project, "delivery_id": DELIVERY}),
        (
            "AddToolServer",
            {"project": project, "server": {"name": "ci", "address": "h:1", "headers": {"x": "hidden-words"}}},
        ),
        ("RecordToolLogin", {"project": project, "server": "ci"}),
        ("RemoveToolServer", {"project": project, "name": "ci"}),
        ("InitProject", {"root": f"/srv/{project}/moved", "workspace_id": f"ws-{project}"}),
        ("SetGrant", {"project": project, "grant": {"subject": "user:bob", "role": 2, "without": [7]}}),
        ("DeleteGrant", {"project": project, "subject": "user:bob"}),
        ("CreateToken", {"principal": "bob", "projects": [project]}),
        ("RevokeToken", {"token_id": "t1"}),
        ("SetFileConstraints", {"project": project, "constraints": [{"pattern": "*.md", "kind": 1}]}),
        ("CreateRun", {**here, "run": "", "settings": settings_pb2.RunSettings(model="fast")}),
        ("ResolveProposal", {**here, "path": RECORD, "accept": {"comment": "hidden words"}}),
        ("ConfigureRun", {**here, "patch": {"title": "A title"}}),
        ("EnqueueLoop", {**here, "prompt": "hidden words", "settings": act()}),
        ("SubmitCommand", {**here, "command_id": "c1", "command": {"set_draft": {"text": "hidden words"}}}),
        ("CancelCommand", {**here, "loop": 2}),
        ("InjectMessage", {**here, "message": "hidden words"}),
        ("WriteEntries", {**here, "writes": [set_("known://a", "hidden words")]}),
        ("SetPlan", {**here, "plan": plan_pb2.Plan(body="hidden words")}),
        ("UpdatePlan", {**here, "delta": "hidden words"}),
        ("DeletePlan", here),
        ("SetSchedule", {**here, "schedule": schedule_pb2.Schedule(schedule_id="s", every={"seconds": 3600})}),
        ("PauseSchedule", {**here, "schedule_id": "s"}),
        ("ResumeSchedule", {**here, "schedule_id": "s"}),
        ("DeleteSchedule", {**here, "schedule_id": "s"}),
        ("SetRule", {**here, "rule": {"verdict": 1, "tool": "sh", "target": "git *"}}),
        ("DeleteRule", here),
        ("OpenStream", {**here, "tool": "sh", "target": "x"}),
        ("AppendStream", {**here, "path": STREAM, "channel": 1, "text": "hidden words"}),
        ("EndStream", {**here, "path": STREAM, "end": 1}),
        ("AbortRun", here),
        ("ForkRun", {**here, "new_run": "fork"}),
        ("RenameRun", {"project": project, "run": "fork", "new_run": "named"}),
        ("DeleteRun", {"project": project, "run": "named"}),
        ("ImportRun", {"project": project, "data": DOCUMENT}),
    ]


async def rows_of(client, project="", **fields):
    return (await client.call("ListAudit", project=project, page_size=1000, **fields)).rows


async def test_each_rpc_that_changes_something_leaves_one_row(client, run, project):
    wanted = calls(project)
    assert {rpc for rpc, _ in wanted} == RIGHTS.keys()
    await run.begin()
    told = {"name": "told", "url": "https://example.com/", "events": [2]}
    await client.call("SetWebhook", project=project, webhook=told)
    await run.write(proposed(), run_status=202)
    (delivery,) = (await client.call("ListDeliveries", project=project)).deliveries
    found, stream, rule = {}, "", 0
    for rpc, given in wanted:
        fields = {**given, "path": stream} if given.get("path") == STREAM else given
        fields = {**fields, "id": rule} if rpc == "DeleteRule" else fields
        fields = {**fields, "delivery_id": delivery.delivery_id} if rpc == "RetryDelivery" else fields
        before = [await rows_of(client), await rows_of(client, project)]
        call = imported(client, project, DOCUMENT) if rpc == "ImportRun" else client.call(rpc, **fields)
        try:
            answer = await call
        except TurnwrightError as error:
            raise AssertionError(f"{rpc}: {error}") from error
        stream = answer.path if rpc == "OpenStream" else stream
        rule = answer.rule.id if rpc == "SetRule" else rule
        after = [await rows_of(client), await rows_of(client, project)]
        (found[rpc],) = [row for now, then in zip(after, before, strict=True) for row in now[: len(now) - len(then)]]
        assert found[rpc].run == (fields.get("run") or getattr(getattr(answer, "run", None), "run", "")), rpc
    assert {rpc: row.right for rpc, row in found.items()} == RIGHTS
    assert {(row.principal, row.refusal, row.count) for row in found.values()} == {("operator", 0, 1)}
    assert {rpc for rpc, row in found.items() if not row.project} == {
        "SetModel",
        "DeleteModel",
        "SetScheme",
        "CreateToken",
        "RevokeToken",
    }
    assert "hidden words" not in str(found)
    assert "hidden-words" not in str(found)
    details = {rpc: json.loads(row.detail_json) for rpc, row in found.items() if row.detail_json}
    assert details["CreateToken"].pop("token_id")
    assert details == {
        "CreateToken": {"principal": "bob", "kind": "person", "projects": [project]},
        "SetGrant": {"subject": "user:bob", "role": "member", "without": ["command"]},
        "DeleteGrant": {"subject": "user:bob"},
        "RevokeToken": {"token_id": "t1"},
        "ResolveProposal": {"path": RECORD, "decision": "accept"},
        "SubmitCommand": {"command": "set_draft"},
        "SetRule": {"rule": "allow sh: git *"},
        "DeleteRule": {"rule": "allow sh: git *"},
        "ForkRun": {"new_run": "fork"},
        "RenameRun": {"new_run": "named"},
        "SetQuota": {"subject": "", "metric": "tokens a day", "after": 5.0},
        "DeleteQuota": {"subject": "", "metric": "tokens a day", "before": 5.0},
        "SetWebhook": {"webhook": "ci"},
        "DeleteWebhook": {"webhook": "ci"},
        "RetryDelivery": {"webhook": "told", "delivery": delivery.delivery_id},
        "AddToolServer": {"server": "ci", "address": "h:1"},
        "RecordToolLogin": {"server": "ci"},
        "RemoveToolServer": {"server": "ci"},
    }


async def test_what_an_owner_does_of_its_own_leaves_none(client, run, project):
    before = await rows_of(client, project)
    await run.begin(set_("prompt://{turn}", "x"))
    await run.write(set_("known://a", "x"), request_id="w")
    await run.end(1, loop=(200, "update", "Done."), release=True)
    assert await rows_of(client, project) == before


async def test_a_repeat_and_a_failure_leave_none(client, run, project):
    fields = {**run.address, "message": "x", "request_id": "id"}
    await client.call("InjectMessage", **fields)
    before = await rows_of(client, project)
    assert (before[0].method, before[0].request_id) == ("InjectMessage", "id")
    await client.call("InjectMessage", **fields)
    with pytest.raises(TurnwrightError):
        await client.call("RenameRun", **run.address, new_run="not an alias")
    with pytest.raises(TurnwrightError):
        await client.call("DeleteRun", **run.address)
    assert await rows_of(client, project) == before


async def test_rows_name_who_called(server, client, run, project):
    alice = as_tier(server.address, Tier.CLIENT, "alice")
    await alice.call("InjectMessage", **run.address, message="x")
    assert [row.principal for row in await rows_of(client, project)][:2] == ["alice", "operator"]
    await alice.close()


async def test_a_list_is_paged_and_begins_at_a_time(client, project):
    for number in range(5):
        await new_run(client, project, f"r{number}")
    whole = await rows_of(client, project)
    paged, token = [], ""
    while True:
        page = await client.call("ListAudit", project=project, page_size=2, page_token=token)
        paged += page.rows
        if not (token := page.next_page_token):
            break
    assert (paged, [row.run for row in whole[:5]]) == (list(whole), [f"r{number}" for number in (4, 3, 2, 1, 0)])
    since = whole[2].time
    found = await rows_of(client, project, since=since)
    assert list(found) == [row for row in whole if row.time.ToNanoseconds() >= since.ToNanoseconds()]
    with pytest.raises(TurnwrightError) as caught:
        await rows_of(client, "none")
    assert caught.value.reason is Reason.PROJECT_NOT_FOUND


async def test_no_statement_changes_a_row(client, project, db, tmp_path):
    with pytest.raises(DatabaseError, match="never changed"), connected(db, tmp_path) as connection:
        connection.execute(text("UPDATE audit SET principal = 'nobody'"))
    assert {row.principal for row in await rows_of(client, project)} == {"operator"}


async def test_what_was_refused_is_counted_by_who_what_where_and_why(server, client, run, project):
    alice, stranger = as_tier(server.address, Tier.CLIENT, "alice"), Client(server.address, token="guess")
    for _ in range(3):
        with pytest.raises(TurnwrightError):
            await alice.call("ClaimRun", **run.address, owner="alice")
    with pytest.raises(TurnwrightError):
        await stranger.call("ListModels")
    with pytest.raises(TurnwrightError):
        await client.call("GetRun", project=project, run="nowhere")
    found = [
        (one.principal, one.method, one.project, one.refusal, one.count) for one in await rows_of(client, refused=True)
    ]
    assert found == [
        ("", "ListModels", "", error_pb2.ERROR_REASON_UNAUTHENTICATED, 1),
        ("alice", "ClaimRun", project, error_pb2.ERROR_REASON_RIGHT_MISSING, 3),
    ]
    assert [one.principal for one in await rows_of(client, project, refused=True)] == ["alice"]
    for one in (alice, stranger):
        await one.close()


async def test_a_row_has_the_address_that_the_call_came_from(client, project):
    assert {row.peer for row in await rows_of(client, project)} == {"unix:"}


async def test_who_may_not_read_a_project_sees_no_runs_and_no_details_of_it(server, client, project):
    await client.call("DeleteGrant", project=project, subject="*")
    await client.call("RenameRun", **(await new_run(client, project)).address, new_run="named")
    await client.call("SetGrant", grant={"subject": "user:olga", "role": "GRANT_ROLE_OPERATOR"})
    olga = as_tier(server.address, Tier.CLIENT, "olga")
    row, *_ = await rows_of(olga, project)
    assert (row.method, row.project, row.run, row.detail_json) == ("RenameRun", project, "", "")
    assert json.loads((await rows_of(client, project))[0].detail_json) == {"new_run": "named"}
    await olga.close()
