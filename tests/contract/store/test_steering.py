"""Runs are entries: a write starts one, cancels it, decides its proposals."""

import pytest
from turnwright.types.v1 import settings_pb2

from contract.store.harness import PROPOSED, Client, Run, new_project, set_, start_store, working_run
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def put(client, project: str, *writes, run="r", **more):
    return await client.call("WriteEntries", project=project, run=run, writes=writes, **more)


def started(body="do it", attributes='{"mode":"act","model":"fast"}', **more):
    return set_("run://r", body, attributes, **more)


async def test_a_write_to_its_path_starts_a_run(client, project):
    """RU035, RU037, RU038, C14."""
    answer = await put(client, project, started("fix it", '{"mode":"ask","model":"fast","no_web":true}'))
    run = Run(client, project, "r")
    loop = (await run.get()).loop
    assert (loop.prompt, loop.status, loop.settings) == (
        "fix it",
        100,
        settings_pb2.LoopSettings(
            mode=settings_pb2.MODE_ASK, model="fast", no_web=True, assembly=settings_pb2.ASSEMBLY_PACKET
        ),
    )
    entry = await run.entry("run://r")
    assert (list(answer.paths), list(answer.revisions)) == (["run://r"], [entry.revision])
    assert (entry.body, answer.cursor.run_revision) == ("fix it", entry.revision)
    assert [one.run for one in (await client.call("ListWork")).runs] == ["r"]


async def test_a_second_write_queues_a_loop_behind(client, project):
    await put(client, project, started("one"))
    await put(client, project, started("two", '{"mode":"act"}'))
    run = Run(client, project, "r")
    assert [loop.prompt for loop in (await client.call("ListLoops", **run.address)).loops] == ["two", "one"]
    assert (await run.claim()).loop.prompt == "one"


async def test_what_is_written_with_a_start_is_stored_with_it(client, project):
    answer = await put(client, project, started(), set_("known://a", "x"))
    run = Run(client, project, "r")
    assert list(answer.paths) == ["run://r", "known://a"]
    assert (
        (await run.entry("known://a")).revision == (await run.entry("run://r")).revision == answer.cursor.run_revision
    )


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (started(attributes='{"model":"fast"}'), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"think","model":"fast"}'), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"act","model":"fast","colour":"red"}'), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"act","model":"fast","yolo":"yes"}'), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"act","model":"fast","images":true}'), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"act","model":"fast","edits":true}'), Reason.INVALID_FIELD),
        (started(attributes="[]"), Reason.INVALID_FIELD),
        (started(attributes='{"mode":"act"}'), Reason.MODEL_REQUIRED),
        (started(attributes='{"mode":"act","model":"none"}'), Reason.MODEL_NOT_FOUND),
        (started(""), Reason.INVALID_FIELD),
        (started(outcome="x"), Reason.INVALID_FIELD),
        (started(expected_revision=3), Reason.REVISION_CONFLICT),
        (set_("run://other", "x", '{"mode":"act","model":"fast"}'), Reason.INVALID_FIELD),
    ],
)
async def test_a_malformed_start_starts_nothing(client, project, write, reason):
    error = await refused(put(client, project, set_("known://a", "x"), write))
    assert error.reason in (reason, Reason.RUN_NOT_FOUND)
    assert (await refused(put(client, project, write))).reason is reason
    assert not (await client.call("ListRuns", project=project)).runs


async def test_a_start_passes_the_checks_of_its_rpc(tmp_path, own_db):
    server = await start_store(tmp_path, loops_queued_max=1)
    client = Client(server.address)
    project = await new_project(client)
    await put(client, project, started())
    error = await refused(put(client, project, started()))
    assert (error.reason, error.metadata["queue"]) == (Reason.QUEUE_FULL, "loops")
    await client.close()
    await server.stop()


async def test_a_repeated_start_queues_once(client, project):
    answers = [await put(client, project, started(), request_id="same") for _ in range(2)]
    assert answers[0] == answers[1]
    assert len((await client.call("ListLoops", project=project, run="r")).loops) == 1


async def test_cancelling_the_path_asks_for_the_abort(client, run):
    """RU039, C14, C36: the loops behind it stay."""
    await run.enqueue("next")
    await client.call("WriteEntries", **run.address, writes=[set_("run://r1", state=6)])
    assert (await run.claim()).abort_requested
    await run.end(0, loop=(499, "aborted", ""))
    assert ((await run.claim()).loop.prompt, (await run.entry("run://r1")).state) == ("next", 4)


@pytest.mark.parametrize(
    ("state", "comment", "left_at"),
    [(4, None, (1, 100, "")), (5, None, (5, 403, "Rejected.")), (6, "not so", (5, 403, "not so"))],
    ids=["resolved", "failed", "cancelled"],
)
async def test_a_state_on_a_proposal_decides_it(client, run, state, comment, left_at):
    """RU040, C14, C20: the same as its rpc, with the same record of who decided."""
    path = "log://turn_1/sh/x"
    await run.begin()
    await run.write(set_(path, "", "{}", state=PROPOSED), run_status=202)
    answer = await client.call("WriteEntries", **run.address, writes=[set_(path, comment, state=state, writer=2)])
    entry = await run.entry(path)
    assert (entry.state, entry.status, entry.body) == left_at
    assert getattr(entry.record, entry.record.WhichOneof("stage")).decision.principal
    assert list(answer.revisions) == [entry.revision]
    again = await refused(client.call("WriteEntries", **run.address, writes=[set_(path, state=state, writer=2)]))
    assert again.reason in (Reason.NOT_PROPOSED, Reason.WRITER_FORBIDDEN, Reason.TRANSITION_FORBIDDEN)


async def test_an_owner_writes_these_paths_as_they_are(client, run):
    """Only writes from outside the loop steer."""
    await run.write(set_("run://r1", "note"))
    assert (await run.get()).loops_queued == 0
    assert (await run.entry("run://r1")).body == "note"


async def test_a_held_run_is_steered_without_its_owner(client, project):
    run = await working_run(client, project, "r")
    await put(client, project, started("more", '{"mode":"act"}'))
    assert (await run.get()).loops_queued == 1


async def test_a_request_that_steers_writes_each_path_once(client, project):
    """What stands around the steering write is applied by itself, at the same revision."""
    run = await working_run(client, project, "r")
    writes = (set_("known://a", "1"), started("more", '{"mode":"act"}'), set_("known://a", "2"))
    assert (await refused(put(client, project, *writes))).reason is Reason.INVALID_FIELD
    assert (await run.entry("known://a"), (await run.get()).loops_queued) == (None, 0)
