"""The plans of a run over the executor, with the Python client. Architecture 9."""

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2

from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def test_a_client_sets_adds_to_reads_lists_and_removes_plans(services):
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m"))
    first = await client.set_plan(*run, plan_pb2.Plan(body="# Do it", mode="agent"))
    assert (first.plan_id, first.version, first.mode) == ("main", 1, "agent")
    grown = await client.update_plan(*run, "and test it")
    assert [delta.text for delta in grown.deltas] == ["and test it"]
    await client.set_plan(*run, plan_pb2.Plan(body="# Do it well"))
    await client.set_plan(*run, plan_pb2.Plan(plan_id="next", body="# Rest"))
    assert [(plan.plan_id, plan.version) async for plan in client.list_plans(*run)] == [("main", 2), ("next", 1)]
    assert (await client.get_plan(*run)).body == "# Do it well"
    kept = await client.get_plan(*run, plan_id="main", version=1)
    assert (kept.body, [delta.text for delta in kept.deltas]) == ("# Do it", ["and test it"])
    await client.delete_plan(*run, plan_id="next")
    assert [plan.plan_id async for plan in client.list_plans(*run)] == ["main"]
    with pytest.raises(TurnwrightError) as caught:
        await client.get_plan(*run, plan_id="next")
    assert caught.value.reason is Reason.ENTRY_NOT_FOUND


async def test_a_request_id_makes_a_change_of_a_plan_once(services):
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m"))
    again = [await client.set_plan(*run, plan_pb2.Plan(body="# Do it"), "once") for _ in range(2)]
    added = [await client.update_plan(*run, "more", request_id="added") for _ in range(2)]
    assert [plan.version for plan in again] == [1, 1]
    assert [len(plan.deltas) for plan in added] == [1, 1]
