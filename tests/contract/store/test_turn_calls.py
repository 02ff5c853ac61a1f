"""What the calls of a turn do beside their own work: EndTurn opens the next turn."""

import pytest
from turnwright.types.v1 import view_pb2

from contract.store.harness import Run, next_turn, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from contract.store.watcher import Watcher
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

UPDATE = (200, "update", "done")


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_the_end_of_a_turn_opens_the_next_one(run):
    await run.begin()
    ended = await run.end(1, set_("known://a", "x"), follows=next_turn(set_("prompt://{turn}", "go on")))
    opened = ended.next
    assert (opened.number, opened.loop, opened.request.model) == (2, ended.run.loop.sequence, "fast")
    run_now = await run.get()
    assert run_now.held  # which only those answers tell that are asked for a run
    run_now.ClearField("held")
    run_now.ClearField("title")
    assert (ended.run, ended.run.turn, ended.run.loop.turns) == (run_now, 2, 1)
    prompt = await run.entry("prompt://2")
    assert (prompt.body, prompt.turn, prompt.revision) == ("go on", 2, ended.cursor.run_revision)
    listed = (await run.client.call("ListTurns", **run.address)).turns
    assert [(turn.number, bool(turn.end_time.seconds)) for turn in listed] == [(2, False), (1, True)]
    assert (await run.claim()).open_turn == opened


async def test_what_a_turn_began_with_is_not_of_the_end_before_it(run):
    await run.begin()
    await run.end(1, set_("known://a", "old"), follows=next_turn(set_("known://a", "new"), set_("known://b", "x")))
    earlier = await run.view(at={"turn": 1})
    child = (await run.client.call("ForkRun", **run.address, new_run="child", turn=1)).run
    assert earlier.bodies["known://a"] == "old"
    assert "known://b" not in earlier.bodies
    assert (await Run(run.client, run.project, child.run).view()).bodies == earlier.bodies
    assert (await run.entry("known://a")).body == "new"


async def test_the_history_of_a_shared_entry_tells_the_end_and_the_begin_apart(run):
    await run.begin(set_("a.txt", "first"))
    await run.end(1, set_("a.txt", "by the turn"), follows=next_turn(set_("a.txt", "before the next")))
    told = await run.client.call("ListEntryHistory", **run.address, path="a.txt")
    assert [one.entry.body for one in told.intervals] == ["before the next", "by the turn", "first"]


async def test_a_watcher_hears_of_both_turns(run):
    await run.begin()
    watcher = Watcher(run)
    await watcher.next()
    ended = await run.end(1, follows=next_turn(set_("prompt://{turn}", "x")))
    # A busy machine is sent a heartbeat first, which has a cursor only.
    while not (message := await watcher.next()).turns:
        pass
    assert message.cursor == ended.cursor
    assert [turn.number for turn in message.turns] == [1, 2]
    assert [entry.path for entry in message.entries] == ["prompt://2"]
    await watcher.close()


@pytest.mark.parametrize(
    ("turn", "fields", "field"),
    [
        (1, {"loop": UPDATE, "follows": next_turn()}, "next"),
        (0, {"loop": UPDATE, "follows": next_turn()}, "next"),
        (1, {"follows": next_turn(temperature=3)}, "temperature"),
    ],
)
async def test_a_turn_that_cannot_follow_leaves_the_open_one_open(run, turn, fields, field):
    await run.begin()
    error = await refused(run.end(turn, set_("known://a", "x"), **fields))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)
    assert await run.entry("known://a") is None
    assert (await run.end(1, loop=UPDATE)).run.turn == 1


async def test_only_the_owner_opens_the_next_turn(run):
    await run.begin()
    stale = Run(run.client, run.project, run.alias, run.epoch + 1)
    assert (await refused(stale.end(1, follows=next_turn()))).reason is Reason.LEASE_LOST
    assert (await run.end(1, follows=next_turn())).next.number == 2


@pytest.mark.parametrize("is_owners", [False, True])
async def test_only_a_write_of_the_owner_tells_of_the_view_and_once(run, is_owners):
    await run.begin()
    fields = {"epoch": run.epoch, "request_id": "one"} if is_owners else {}
    error = await refused(
        run.client.call(
            "WriteEntries",
            **run.address,
            writes=[set_("known://a", "x")],
            view_filter=view_pb2.VIEW_FILTER_PACKET,
            **fields,
        )
    )
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, "view_filter")
    assert await run.entry("known://a") is None
