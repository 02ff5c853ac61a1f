"""Two teams on one deployment: what a member of one project tries in another's finds nothing. Architecture 10; ADR 66."""

from __future__ import annotations

import contextlib

import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from turnwright.executor.v1 import executor_service_pb2
from turnwright.projects.v1 import project_service_pb2
from turnwright.store.v1 import ledger_pb2, store_service_pb2, write_pb2
from turnwright.types.v1 import access_pb2, grant_pb2, message_pb2, model_pb2, session_command_pb2, settings_pb2
from turnwright.types.v1.entry_pb2 import TIER_CLIENT

from services import running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.resources import RESOURCES
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_kit.access import access_of
from turnwright_kit.peer import Peer, rpc_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

OWNER, MEMBER = grant_pb2.GRANT_ROLE_OWNER, grant_pb2.GRANT_ROLE_MEMBER
SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
AT_EXECUTORS = [method for service in (SERVICE, *MOUNTED) for method in service.methods]
STORE = store_service_pb2.DESCRIPTOR.services_by_name["StoreService"]
AT_STORES = [method for service in (STORE, *(one.service for one in RESOURCES)) for method in service.methods]
GO_ON = '<update status="102">Going on.</update>'


def names_a_project(method) -> bool:
    return bool({"project", "task"} & set(method.input_type.fields_by_name))


def request_for(method, project: str):
    request = GetMessageClass(method.input_type)()
    (request.task if "task" in method.input_type.fields_by_name else request).project = project
    return request


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def teams(tmp_path_factory):
    """A stack with alice's project, in which a command waits for a decision, and one of mallory's."""
    root = tmp_path_factory.mktemp("teams")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        async with running(root) as services:
            await services.client.delete_grant(services.project, "*")
            await services.client.set_grant(services.project, "user:alice", OWNER)
            (root / "hers").mkdir()
            hers = (await services.client.init_project(str(root / "hers"))).name
            await services.client.set_grant(hers, "user:mallory", MEMBER)
            services.script(f"<sh>touch ran</sh>{GO_ON}")
            await services.until(await services.act(yolo=False), 202)
            yield services, hers


@contextlib.asynccontextmanager
async def as_mallory(services, audience: str):
    peer = Peer(audience, services.addresses[audience], token_for("mallory", audience=audience), 10.0)
    try:
        yield peer
    finally:
        await peer.close()


async def sent(request):
    yield request


async def refusal(peer, method, request) -> Reason | None:
    rpc = rpc_of(peer.channel, method)
    try:
        if method.client_streaming:
            await peer.upload(rpc, sent(request), 10.0)
        elif method.server_streaming:
            async with peer.stream(rpc, request, 10.0) as answers:
                await anext(answers)
        else:
            await peer.call(rpc, request)
    except TurnwrightError as error:
        return error.reason
    return None


@pytest.mark.parametrize(("audience", "methods"), [("executor", AT_EXECUTORS), ("store", AT_STORES)])
async def test_no_call_finds_the_project_of_another_team(teams, audience, methods):
    services, _ = teams
    found, missing = {}, {}
    async with as_mallory(services, audience) as peer:
        for method in filter(names_a_project, methods):
            found[method.name] = await refusal(peer, method, request_for(method, services.project))
            missing[method.name] = await refusal(peer, method, request_for(method, "none"))
    for method in filter(names_a_project, methods):
        is_for_services = access_of(method).right == access_pb2.RIGHT_SERVICE
        assert found[method.name] is (Reason.RIGHT_MISSING if is_for_services else Reason.PROJECT_NOT_FOUND), (
            method.name
        )
    assert found == missing
    assert not (services.files / "ran").exists()


async def test_lists_and_the_inbox_leave_it_out(teams):
    services, hers = teams
    async with Client.connect(services.addresses["executor"], token_for("mallory")) as mallory:
        assert [one.name async for one in mallory.list_projects()] == [hers]
        assert [one async for one in mallory.list_proposals()] == []
        async with contextlib.aclosing(mallory.watch_proposals()) as changes:
            assert not (await anext(changes)).pending
        assert await mallory.find_project(str(services.files)) is None
        assert [one.project for one in (await mallory.identity()).projects] == [hers]
        with pytest.raises(TurnwrightError) as refused:
            await mallory.init_project(str(services.files))
        assert refused.value.reason is Reason.RIGHT_MISSING
    async with as_mallory(services, "store") as peer:
        projects = next(one for one in RESOURCES if one.name == "project")
        listed = await peer.call(projects.stub(peer.channel).ListProjects, project_service_pb2.ListProjectsRequest())
    assert [one.name for one in listed.projects] == [hers]


async def test_who_owns_it_sees_all_of_it(teams):
    services, hers = teams
    async with Client.connect(services.addresses["executor"], token_for("alice")) as alice:
        assert [one.name async for one in alice.list_projects()] == [services.project]
        assert [one.project async for one in alice.list_proposals()] == [services.project]
        with pytest.raises(TurnwrightError) as refused:
            await alice.get_run(hers, "r")
        assert refused.value.reason is Reason.PROJECT_NOT_FOUND


async def test_a_member_gives_no_rights_and_changes_nothing_that_all_share(teams):
    services, hers = teams
    async with Client.connect(services.addresses["executor"], token_for("mallory")) as mallory:
        for call in (
            mallory.set_grant(hers, "user:mallory", OWNER),
            mallory.delete_grant(hers, "user:mallory"),
            mallory.set_grant("", "user:mallory", grant_pb2.GRANT_ROLE_OPERATOR),
            mallory.set_model(model_pb2.Model(alias="m", vendor_model="openai/expensive")),
            mallory.delete_model("m"),
        ):
            with pytest.raises(TurnwrightError) as refused:
                await call
            assert refused.value.reason is Reason.RIGHT_MISSING


async def test_a_grant_holds_once_it_is_set_and_no_longer_than_until_it_is_deleted(teams):
    services, _ = teams
    async with Client.connect(services.addresses["executor"], token_for("bob")) as bob:
        for _ in range(5):
            await services.client.set_grant(services.project, "user:bob", grant_pb2.GRANT_ROLE_VIEWER)
            assert (await bob.get_run(services.project, "r")).run.run == "r"
            with pytest.raises(TurnwrightError) as lacking:
                await bob.create_run(services.project, run="b", settings=settings_pb2.RunSettings(model="m"))
            assert lacking.value.reason is Reason.RIGHT_MISSING
            await services.client.delete_grant(services.project, "user:bob")
            with pytest.raises(TurnwrightError) as refused:
                await bob.get_run(services.project, "r")
            assert refused.value.reason is Reason.PROJECT_NOT_FOUND


async def test_who_may_run_no_commands_neither_accepts_one_nor_lets_one_run_without_asking(teams):
    services, _ = teams
    project, yolo = services.project, settings_pb2.LoopSettings(model="m", yolo=True)
    await services.client.set_grant(project, "user:carol", MEMBER, [access_pb2.RIGHT_COMMAND])
    async with Client.connect(services.addresses["executor"], token_for("carol")) as carol:
        waiting = [one async for one in carol.list_proposals(project)]
        message = session_command_pb2.UserMessage(parts=[message_pb2.Part(text="Go")], settings=yolo)
        for call in (
            carol.resolve(project, waiting[0].run, waiting[0].proposal.path, accept=True),
            carol.act(project, "Go.", run="carols", settings=yolo),
            carol.configure_run(project, "r", settings_pb2.RunSettingsPatch(yolo=True)),
            carol.create_run(project, run="carols", settings=settings_pb2.RunSettings(model="m", yolo=True)),
            carol.submit(project, "r", user_message=message),
            carol.submit(
                project, "r", approve_tools=session_command_pb2.ApproveTools(calls=[waiting[0].proposal.path])
            ),
        ):
            with pytest.raises(TurnwrightError) as refused:
                await call
            assert (refused.value.reason, refused.value.metadata["right"]) == (Reason.RIGHT_MISSING, "command")
    await services.client.delete_grant(project, "user:carol")
    assert not (services.files / "ran").exists()


async def test_who_may_only_read_gives_a_session_no_command(teams):
    services, _ = teams
    await services.client.set_grant(services.project, "user:vera", grant_pb2.GRANT_ROLE_VIEWER)
    async with Client.connect(services.addresses["executor"], token_for("vera")) as vera:
        for kind in session_command_pb2.SessionCommand.DESCRIPTOR.oneofs_by_name["kind"].fields:
            with pytest.raises(TurnwrightError) as refused:
                await vera.submit(services.project, "r", **{kind.name: GetMessageClass(kind.message_type)()})
            assert refused.value.reason is Reason.RIGHT_MISSING, kind.name
    await services.client.delete_grant(services.project, "user:vera")


async def test_who_may_only_write_files_steers_no_run_and_is_no_owner_of_one(teams):
    services, _ = teams
    left_out = [access_pb2.RIGHT_RUN, access_pb2.RIGHT_DECIDE, access_pb2.RIGHT_COMMAND]
    await services.client.set_grant(services.project, "user:fred", MEMBER, left_out)
    fields = {"project": services.project, "run": "r"}
    begun = write_pb2.EntryWrite(
        path="run://r",
        writer=TIER_CLIENT,
        set=write_pb2.SetEntry(body="Go.", attributes_json='{"mode":"act","model":"m"}'),
    )
    as_owner = write_pb2.EntryWrite(path="known://x", writer=TIER_CLIENT, set=write_pb2.SetEntry(body="x"))
    peer = Peer("store", services.addresses["store"], token_for("fred", audience="store"), 10.0)
    try:
        rpc = rpc_of(peer.channel, STORE.methods_by_name["WriteEntries"])
        for request in (
            ledger_pb2.WriteEntriesRequest(**fields, writes=[begun]),
            ledger_pb2.WriteEntriesRequest(**fields, writes=[as_owner], epoch=1),
        ):
            with pytest.raises(TurnwrightError) as refused:
                await peer.call(rpc, request)
            assert refused.value.reason is Reason.RIGHT_MISSING
    finally:
        await peer.close()
    await services.client.delete_grant(services.project, "user:fred")
