"""What clients call at an executor, as the store's audit names it."""

from __future__ import annotations

import pytest
from turnwright.executor.v1 import task_pb2
from turnwright.types.v1 import access_pb2, grant_pb2, model_pb2, settings_pb2

from services import running, token_for
from turnwright_client import Client

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
ANN = token_for("ann")
FORK = settings_pb2.RunSettings(model="m")


async def calls_of_ann(services) -> None:
    """A task, a fork of it, a command, and a decision."""
    services.script("<sh>true</sh>", DONE)
    settings = settings_pb2.LoopSettings(model="m")
    async with Client.connect(services.addresses["executor"], ANN) as ann:
        await ann.set_model(model_pb2.Model(alias="x", vendor_model="scripted/x"))
        queued = await ann.act(services.project, "Do it.", run="r", settings=settings)
        await services.until(queued, 202)
        await ann.resolve(services.project, "r", "log://turn_1/sh/true", accept=True)
        await services.until(queued)
        await ann.call_tool(services.project, "r", "think", {}, "Hm.")
        await ann.create_run(services.project, "other", FORK)


@pytest.mark.parametrize("as_neighbours", [True, False], ids=["in one process", "by sockets"])
async def test_a_row_names_the_rpc_and_the_address_of_the_client(tmp_path, monkeypatch, as_neighbours) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, as_neighbours=as_neighbours) as services:
        await services.client.set_grant("", "user:ann", grant_pb2.GRANT_ROLE_OPERATOR)
        await calls_of_ann(services)
        rows = [*await services.client.list_audit(services.project), *await services.client.list_audit("")]
    of_ann = [row for row in rows if row.principal == "ann"]
    assert [(row.method, row.run, row.right) for row in of_ann] == [
        ("CreateRun", "other", access_pb2.RIGHT_RUN),
        ("CallTool", "r", access_pb2.RIGHT_FILES),
        ("ResolveProposal", "r", access_pb2.RIGHT_DECIDE),
        ("Act", "r", access_pb2.RIGHT_RUN),
        ("SetModel", "", access_pb2.RIGHT_ADMIN),
    ]
    assert {(row.by, row.peer, row.proof) for row in of_ann} == {("executor", "unix:", "token")}


async def test_who_opens_a_project_without_changing_it_leaves_no_row(services) -> None:
    before = await services.client.list_audit(services.project)
    assert [row.method for row in before] == ["SetGrant", "InitProject"]
    await services.client.init_project(str(services.files))
    assert await services.client.list_audit(services.project) == before
    await services.client.init_project(str(services.files), config_path="elsewhere.toml")
    (row, *_) = await services.client.list_audit(services.project)
    assert (row.method, row.principal) == ("InitProject", "operator")


async def test_a_fork_and_its_task_are_rows_of_the_one_call(services) -> None:
    services.script(DONE)
    await services.until(await services.act())
    async with Client.connect(services.addresses["executor"], ANN) as ann:
        settings = settings_pb2.LoopSettings(model="m")
        await services.until(
            await ann.act(services.project, "Again.", run="r", settings=settings, fork=task_pb2.TaskFork(run="f"))
        )
    rows = await services.client.list_audit(services.project)
    assert [(row.method, row.run, row.detail_json) for row in rows if row.principal == "ann"] == [
        ("Act", "f", ""),
        ("Act", "r", '{"new_run":"f"}'),
    ]
