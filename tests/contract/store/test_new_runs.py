"""A run that an executor creates for a task: claimed in the same transaction, with the files of another run."""

import pytest
from turnwright.store.v1 import lease_pb2, queue_pb2
from turnwright.types.v1 import entry_pb2, project_pb2, view_pb2
from turnwright_values.types import Tier

from contract.store.harness import Run, act, as_tier, for_tier, new_project, new_run, set_
from contract.store.test_repeats import refused
from contract.store.watcher import Watcher
from turnwright_core.errors import Reason

pytestmark = pytest.mark.asyncio


def new(owner="me", like_run=""):
    claim = lease_pb2.ClaimRunRequest(owner=owner, address="here:1") if owner else None
    return queue_pb2.NewRun(claim=claim, like_run=like_run)


async def create(client, project, **fields):
    fields = {"run": "r", "prompt": "do it", "settings": act(), "new": new(), **fields}
    return await client.call("EnqueueLoop", project=project, **fields)


async def test_a_run_is_created_and_claimed_by_one_call(client):
    project = await new_project(client)
    answer = await create(client, project)
    assert (answer.created, answer.run.status, answer.loop.status) == (True, 100, 100)
    claim, run = answer.claim, Run(client, project, "r", answer.claim.epoch)
    assert (claim.run.status, claim.loop.status, claim.loop.prompt, claim.model.alias) == (102, 102, "do it", "fast")
    assert (claim.project_root, claim.workspace_id) == ("/srv/demo", "ws-demo")
    # As if it had been claimed by a call of its own: another one gets it neither by name nor by a look for work.
    other = client.call("ClaimRun", **run.address, owner="other", address="there:1")
    assert (await refused(other)).reason is Reason.LEASE_HELD
    assert not (await client.call("ClaimWork", owner="other", address="there:1")).claims
    assert (await run.begin()).next.number == 1
    assert (await run.claim("me")).open_turn.number == 1


@pytest.mark.parametrize("owner", ["me", ""])
async def test_a_watch_from_before_it_tells_all_of_a_new_run(client, owner):
    project = await new_project(client)
    answer = await create(client, project, new=new(owner))
    assert answer.HasField("claim") is bool(owner)
    watcher = Watcher(Run(client, project, "r"), after=answer.cursor, filter=view_pb2.VIEW_FILTER_TIMELINE)
    first = await watcher.next()
    assert [(entry.path, entry.body) for entry in first.entries] == [("run://r", "do it")]
    assert (first.run.status, [loop.sequence for loop in first.loops]) == (102 if owner else 100, [1])
    await watcher.close()


async def test_a_run_that_exists_is_refused_and_nothing_is_stored(client, run):
    before = await run.get()
    error = await refused(create(client, run.project, run=run.alias, request_id="id"))
    assert error.reason is Reason.RUN_EXISTS
    assert await run.get() == before
    # The id stands for the task, however it is sent.
    queued = {**run.address, "prompt": "do it", "settings": act(), "request_id": "id"}
    alice = as_tier(client.peer.address, Tier.CLIENT)
    answer = await alice.call("EnqueueLoop", **queued)
    executor = for_tier(client.peer.address, Tier.CLIENT)
    repeated = await executor.call("EnqueueLoop", **queued, new=new())
    assert repeated == answer
    assert repeated.loop.sequence == 2
    await alice.close()
    await executor.close()


async def test_a_repeated_call_gets_no_claim(client):
    project = await new_project(client)
    first = await create(client, project, request_id="id")
    again = await create(client, project, new=new("other"), request_id="id")
    assert first.HasField("claim")
    assert not again.HasField("claim")
    assert again.run == first.run


async def test_only_services_claim_what_they_create_in_the_name_of_others(client):
    project = await new_project(client)
    plugin = as_tier(client.peer.address, Tier.PLUGIN)
    assert (await refused(create(plugin, project))).reason is Reason.RIGHT_MISSING
    await plugin.close()
    for_model, for_client = (for_tier(client.peer.address, tier) for tier in (Tier.MODEL, Tier.CLIENT))
    assert (await refused(create(for_model, project))).reason is Reason.RIGHT_MISSING
    await create(for_client, project)
    entry = await Run(client, project, "r").entry("run://r")
    assert entry.writer == entry_pb2.TIER_CLIENT
    for executor in (for_model, for_client):
        await executor.close()


async def files_of(run):
    return {entry.path: entry.hash for entry in (await run.view(filter=view_pb2.VIEW_FILTER_FILES)).entries}


async def test_a_run_adopts_files_with_its_claim(client, project):
    first = await new_run(client, project, "first")
    await first.enqueue()
    await first.claim()
    await first.write(set_("a.py", "a"), set_("b.py", "b"))
    second = await create(client, project, run="r2", new=new(like_run="first"))
    run = Run(client, project, "r2", second.claim.epoch)
    assert dict(zip(second.claim.files.paths, second.claim.files.hashes, strict=True)) == await files_of(run)
    assert list(second.claim.files.paths) == ["a.py", "b.py"]
    assert second.claim.files.last
    assert (await run.begin()).next.number == 1
    unclaimed = await create(client, project, run="r3", new=new("", like_run="first"))
    assert not unclaimed.HasField("claim")
    ignored = project_pb2.FileConstraint(pattern="b.py", kind=project_pb2.FILE_CONSTRAINT_KIND_IGNORE)
    await client.call("SetFileConstraints", project=project, constraints=[ignored])
    fourth = await create(client, project, run="r4", new=new(like_run="first"))
    assert not fourth.claim.HasField("files")
    assert not await files_of(Run(client, project, "r4"))
