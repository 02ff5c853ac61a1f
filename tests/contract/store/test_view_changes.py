"""What a write tells of the view that packets are made of: what a reader of that view would have been told."""

import random

import pytest
from turnwright.store.v1 import lease_pb2, ledger_pb2, queue_pb2
from turnwright.types.v1 import view_pb2

from contract.store.harness import (
    ARCHIVED,
    PROPOSED,
    RECORDED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Run,
    act,
    append,
    next_turn,
    remove,
    request,
    set_,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import CHUNK_BYTES

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

PACKET, MESSAGES, TIMELINE = view_pb2.VIEW_FILTER_PACKET, view_pb2.VIEW_FILTER_MESSAGES, view_pb2.VIEW_FILTER_TIMELINE
INSTRUCTIONS = ["instructions://system"]
PATHS = [
    "known://a", "known://b", "unknown://a", "log://turn_1/set/a", "instructions://system", "tool://get",
    "assistant://1", "reasoning://1",
]  # fmt: skip


async def told_by(run, *writes, view_filter=PACKET):
    answer = await run.write(*writes, view_filter=view_filter)
    return answer.view_change if answer.HasField("view_change") else None


async def check(run, change):
    """It is what reading from the moment before it to now tells."""
    view = await run.view(after=change.before, filter=change.filter, include_paths=INSTRUCTIONS)
    assert change.after == view.cursor
    assert sorted(change.removed_paths) == sorted(view.removed)
    by_path = {entry.path: entry for entry in view.entries}
    assert {entry.path: entry for entry in change.entries} == by_path


def random_write(dice):
    path = dice.choice(PATHS)
    if dice.random() < 0.2:
        return remove(path)
    return set_(
        path,
        dice.choice(["short", "line\n" * dice.randrange(400), ""]),
        dice.choice([None, '{"summary":"x"}']),
        visibility=dice.choice([VISIBLE, SUMMARIZED, ARCHIVED]),
        state=dice.choice([STREAMING, PROPOSED, 0]),
    )


@pytest.mark.parametrize("view_filter", [PACKET, MESSAGES, TIMELINE], ids=["packet", "messages", "timeline"])
@pytest.mark.parametrize("seed", range(4))
async def test_a_write_tells_what_a_reader_would_be_told(run, seed, view_filter):
    dice = random.Random(seed)
    await run.begin()
    told = 0
    for turn in range(1, 12):
        writes = [random_write(dice) for _ in range(dice.randrange(1, 6))]
        change = await told_by(run, *writes, view_filter=view_filter)
        if change:
            assert change.filter == view_filter
            await check(run, change)
            told += 1
        writes = [random_write(dice) for _ in range(dice.randrange(3))]
        follows = next_turn(*(random_write(dice) for _ in range(dice.randrange(2))))
        ended = await run.end(turn, *writes, follows=follows, view_filter=view_filter)
        assert ended.HasField("view_change")
        await check(run, ended.view_change)
        told += 1
    assert told > 11


async def test_a_text_that_is_stored_already_is_reported_where_it_is_given(run):
    """A file that is only looked at: its view changes, and the project's content does not."""
    await run.begin(set_("a.txt", "text", '{"bytes":4,"summary":"s"}', visibility=ARCHIVED))
    told = set_("a.txt", "text", merge_attributes_json='{"bytes":4,"binary":null}', visibility=VISIBLE)
    change = await told_by(run, told)
    await check(run, change)
    [entry] = change.entries
    assert (entry.body, entry.attributes_json, change.after.project_revision) == (
        "text", '{"bytes":4,"summary":"s"}', change.before.project_revision,
    )  # fmt: skip


async def test_what_only_the_database_knows_is_not_reported(run):
    await run.begin(set_("known://a", "text"), set_("sh://turn_1/x_1", "", state=STREAMING))
    assert not (await run.write(set_("known://a", "asked for nothing"))).HasField("view_change")
    assert await told_by(run) is None
    assert await told_by(run, set_("a.txt", "of the project")) is None
    assert await told_by(run, set_("known://a", visibility=SUMMARIZED)) is None
    assert await told_by(run, append("sh://turn_1/x_1", "more")) is None
    assert await told_by(run, set_("known://b", "x" * (CHUNK_BYTES + 1))) is None
    assert await told_by(run, set_("known://b", "x")) is not None


async def test_the_end_of_a_loop_is_reported_too(run):
    await run.begin()
    ended = await run.end(1, set_("known://a", "text"), loop=(200, "update", "done"), view_filter=PACKET)
    assert [entry.path for entry in ended.view_change.entries] == ["known://a"]
    await check(run, ended.view_change)


async def test_only_the_owner_is_told(run):
    await run.begin()
    for fields in ({"epoch": run.epoch, "request_id": "r1"}, {}):
        with pytest.raises(TurnwrightError) as refused:
            await run.client.call(
                "WriteEntries",
                **run.address,
                writes=[set_("known://a", "x")],
                view_filter=PACKET,
                **fields,
            )
        assert (refused.value.reason, refused.value.metadata["field"]) == (Reason.INVALID_FIELD, "view_filter")


async def test_a_change_names_the_registry_it_was_told_by(run):
    await run.begin()
    before = await told_by(run, set_("known://a", "x"))
    await run.client.call(
        "SetScheme", scheme={"name": "note", "model_visible": False, "category": "SCHEME_CATEGORY_DATA"}
    )
    after = await told_by(run, set_("note://a", "x"))
    assert [entry.path for entry in before.entries] == ["known://a"]
    assert (list(after.entries), before.schemes_version) == ([], "")
    assert after.schemes_version


async def test_a_record_is_reported_with_what_its_command_has_come_through(run):
    await run.begin()
    change = await told_by(run, set_("log://turn_1/get/a", "", state=RECORDED))
    await check(run, change)
    assert [entry.path for entry in change.entries] == ["log://turn_1/get/a"]


@pytest.mark.parametrize("view_filter", [PACKET, MESSAGES])
async def test_the_first_turn_of_a_new_run_tells_all_there_is(client, project, view_filter):
    def claimed(alias):
        claim = lease_pb2.ClaimRunRequest(owner="me", address="here:1")
        new = queue_pb2.NewRun(claim=claim)
        return client.call("EnqueueLoop", project=project, run=alias, prompt="do it", settings=act(), new=new)

    async def begin(run):
        writes = [set_("instructions://system", "", "{}"), set_("prompt://{turn}", "do it", visibility=VISIBLE)]
        opened = ledger_pb2.NextTurn(request=request(), writes=writes)
        return (
            await client.call("EndTurn", **run.address, epoch=run.epoch, next=opened, view_filter=view_filter)
        ).view_change

    run = Run(client, project, "new", (await claimed("new")).claim.epoch)
    change = await begin(run)
    view = await run.view(filter=view_filter, include_paths=INSTRUCTIONS)
    assert (change.before.run_revision, change.after, change.filter) == (0, view.cursor, view_filter)
    assert sorted(change.entries, key=lambda entry: entry.path) == sorted(view.entries, key=lambda entry: entry.path)
    assert {entry.path for entry in change.entries} >= {"instructions://system", "prompt://1"}
    # What others wrote before it, it does not tell: then it begins where it was written.
    other = Run(client, project, "other", (await claimed("other")).claim.epoch)
    await client.call("WriteEntries", **other.address, writes=[set_("known://mine", "m")])
    change = await begin(other)
    assert change.before.run_revision == 2
    await check(other, change)
