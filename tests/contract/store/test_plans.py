"""Plans: set, added to, removed and read in every version."""

import asyncio
import contextlib
import json
from functools import partial

import pytest
import pytest_asyncio
from msgspec.structs import replace
from turnwright.types.v1 import entry_pb2, model_pb2, plan_pb2, settings_pb2, view_pb2
from turnwright_values.store import AppendEntry, CopyEntry, EntryWrite, MoveEntry, RemoveEntry, SetEntry
from turnwright_values.types import State, Tier, Visibility

from contract.store.harness import ARCHIVED, VISIBLE, Run, as_tier, remove, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from contract.store.watcher import Watcher, is_heartbeat
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb
from turnwright_store.domain.write_rules import written_paths

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

BODY_MAX, DELTA_MAX, DELTAS_MAX, DELTAS_BYTES_MAX = 98_304, 16_384, 100, 262_144
MARKDOWN, ITEMS, FILE = plan_pb2.PLAN_KIND_MARKDOWN, plan_pb2.PLAN_KIND_ITEMS, plan_pb2.PLAN_KIND_FILE
ITEM = '{"content":"do it","priority":"high","status":"pending"}'
PLUGIN = {"tier": entry_pb2.TIER_PLUGIN}
WRITER = {"written_by": {**PLUGIN, "window": 1_000_000}}
"""A plugin with a window for every plan."""


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def set_plan(run, body, plan_id="", **more):
    plan = plan_pb2.Plan(plan_id=plan_id, body=body, **more)
    return (await run.client.call("SetPlan", **run.address, plan=plan, **WRITER)).plan


async def update_plan(run, delta, plan_id=""):
    return (await run.client.call("UpdatePlan", **run.address, plan_id=plan_id, delta=delta, **WRITER)).plan


async def delete_plan(run, plan_id=""):
    return await run.client.call("DeletePlan", **run.address, plan_id=plan_id)


async def get_plan(run, plan_id="", version=0):
    return (await run.client.call("GetPlan", **run.address, plan_id=plan_id, version=version)).plan


def told(plan):
    """What a plan says, without its times."""
    deltas = [(delta.sequence, delta.text) for delta in plan.deltas]
    return (plan.plan_id, plan.kind, plan.version, plan.mode, plan.body, deltas)


async def test_a_plan_is_set_added_to_and_read(run):
    """RP01, RP04: each answer has the plan as the next read does."""
    made = await set_plan(run, "# Do it", mode="agent")
    assert told(made) == ("main", MARKDOWN, 1, "agent", "# Do it", [])
    assert made.update_time.seconds
    assert await get_plan(run) == made
    await update_plan(run, "first")
    grown = await update_plan(run, "second")
    assert told(grown) == ("main", MARKDOWN, 1, "agent", "# Do it", [(1, "first"), (2, "second")])
    assert await get_plan(run, "main") == grown
    assert all(delta.create_time.seconds for delta in grown.deltas)


async def test_a_plan_and_its_deltas_are_entries(run):
    """Architecture 9: views, the feed and history hold for them without more."""
    await set_plan(run, "x", mode="agent")
    before = (await run.view()).cursor
    await update_plan(run, "more")
    changed = await run.view(after=before)
    assert changed.bodies == {
        "plan://main/v1/1": "more",
        "event://turn_0/plan_delta/main-v1-1": "Something was added to the plan main, version 1: its delta 1.",
    }
    entry = await run.entry("plan://main")
    assert (entry.body, entry.visibility, json.loads(entry.attributes_json)) == (
        "x",
        VISIBLE,
        {"kind": "markdown", "version": 1, "mode": "agent"},
    )


async def test_a_replaced_plan_starts_a_version_without_deltas_and_earlier_ones_stay_readable(run):
    """RP03."""
    await set_plan(run, "one", mode="explore")
    first = await update_plan(run, "added")
    items = '[{"content":"two","priority":"low","status":"blocked"}]'
    second = await set_plan(run, items, kind=ITEMS, mode="agent")
    assert told(second) == ("main", ITEMS, 2, "agent", items, [])
    assert told(await update_plan(run, "again"))[5] == [(1, "again")]
    assert told(await get_plan(run, version=1)) == told(first)
    assert told(await get_plan(run, version=2)) == told(await get_plan(run))
    seen = {entry.path: entry.visibility for entry in (await run.view()).entries if entry.path.startswith("plan:")}
    assert seen == {
        "plan://main": VISIBLE,
        "plan://main/v1": ARCHIVED,
        "plan://main/v1/1": ARCHIVED,
        "plan://main/v2/1": VISIBLE,
    }


async def test_items_say_the_body_where_it_is_empty_and_are_read_with_it(run):
    """AP08, AP09: what an item does not say is settled; a plan without items is one."""
    await run.write(set_("src/a.py", "x"))
    items = [
        {"content": "Größe prüfen", "priority": 1, "status": 3, "evidence_paths": ["src/a.py"]},
        {"content": "second"},
    ]
    made = await set_plan(run, "", kind=ITEMS, items=items)
    assert json.loads(made.body) == [
        {"content": "Größe prüfen", "priority": "high", "status": "completed", "evidence_paths": ["src/a.py"]},
        {"content": "second", "priority": "medium", "status": "pending"},
    ]
    assert await get_plan(run) == made
    assert [(one.content, one.priority, one.status, [*one.evidence_paths]) for one in made.items] == [
        ("Größe prüfen", 1, 3, ["src/a.py"]),
        ("second", 2, 1, []),
    ]
    # The body counts where both are given.
    assert [one.content for one in (await set_plan(run, f"[{ITEM}]", kind=ITEMS, items=items)).items] == ["do it"]
    none = await set_plan(run, "", kind=ITEMS)
    assert (none.body, [*none.items]) == ("[]", [])
    assert await get_plan(run) == none


async def test_three_versions_are_numbered_and_all_readable(run):
    for body in ("one", "two", "three"):
        await set_plan(run, body)
    assert [(await get_plan(run, version=version)).body for version in (1, 2, 3, 0)] == ["one", "two", "three", "three"]
    error = await refused(get_plan(run, version=4))
    assert (error.reason, error.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": "plan://main"})


async def test_what_needs_a_plan_is_refused_without_one(run):
    """RP03: the error says what to do."""
    for call in (update_plan(run, "x"), delete_plan(run), get_plan(run), get_plan(run, version=1)):
        error = await refused(call)
        assert (error.reason, error.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": "plan://main"})
    assert "set it first" in (await refused(update_plan(run, "x"))).message
    assert (await refused(get_plan(run, "other"))).metadata == {"path": "plan://other"}


async def test_a_removed_plan_leaves_the_view_and_its_number_is_not_used_again(run):
    await set_plan(run, "one")
    await update_plan(run, "added")
    await delete_plan(run)
    assert await run.entry("plan://main") is None
    assert (await refused(get_plan(run))).reason is Reason.ENTRY_NOT_FOUND
    assert told(await get_plan(run, version=1))[4:] == ("one", [(1, "added")])
    assert (await set_plan(run, "two")).version == 2
    assert told(await get_plan(run))[4:] == ("two", [])


async def test_a_plan_cannot_be_taken_away_as_an_entry_and_counts_on(run):
    await set_plan(run, "one")
    await set_plan(run, "two")
    for path in ("plan://main", "plan://main/v1"):
        assert (await refused(run.write(remove(path)))).reason is Reason.PLAN_ENTRY
    assert (await set_plan(run, "three")).version == 3


def _set(path, **more):
    return EntryWrite(path, SetEntry(**more))


@pytest.mark.parametrize(
    "write",
    [
        *(_set(path, body="x") for path in ("plan://main", "plan://new", "plan://main/v1", "plan://main/v2/7")),
        _set("plan://main", visibility=Visibility.ARCHIVED),
        _set("plan://main/v1", visibility=Visibility.VISIBLE),
        _set("plan://main", attributes_json='{"version":7}'),
        _set("plan://main", merge_attributes_json='{"version":7}'),
        _set("plan://main", state=State.RESOLVED),
        EntryWrite("plan://main", AppendEntry("x")),
        EntryWrite("plan://main", RemoveEntry()),
        EntryWrite("plan://main/v2/1", RemoveEntry()),
        EntryWrite("plan://main", MoveEntry("known://a")),
        EntryWrite("known://a", MoveEntry("plan://main")),
        EntryWrite("known://a", CopyEntry("plan://new")),
        EntryWrite("plan://main", CopyEntry("plan://new")),
    ],
)
@pytest.mark.parametrize("writer", [Tier.MODEL, Tier.PLUGIN])
async def test_a_plan_is_written_by_its_rpcs_alone(run, write, writer):
    """C45: whoever writes, in whichever way, with a fence or without."""
    await run.write(set_("known://a", "x"))
    await set_plan(run, "one")
    await set_plan(run, "two")
    await update_plan(run, "more")
    before = await run.view()
    asked = {**run.address, "writes": [write_to_pb(replace(write, writer=writer))]}
    for more in ({}, {"epoch": run.epoch}):
        error = await refused(run.client.call("WriteEntries", **asked, **more))
        assert (error.reason, error.metadata) == (
            Reason.PLAN_ENTRY,
            {"path": next(path for path in written_paths(write) if "plan" in path), "outcome": "plan_tool:409"},
        )
        assert all(name in error.message for name in ("set_plan", "update_plan", "plan rm"))
    assert await run.view() == before


async def test_a_plan_may_be_copied_from(run):
    await set_plan(run, "one")
    await run.write(write_to_pb(EntryWrite("plan://main", CopyEntry("known://a"), Tier.PLUGIN)))
    assert (await run.entry("known://a")).body == "one"


async def test_no_turn_begins_or_ends_with_the_write_of_a_plan(run):
    """C45."""
    await set_plan(run, "one")
    plan = set_("plan://main", "two")
    assert (await refused(run.begin(plan))).reason is Reason.PLAN_ENTRY
    await run.begin()
    assert (await refused(run.end(1, plan))).reason is Reason.PLAN_ENTRY
    assert told(await get_plan(run))[2:5] == (1, "", "one")


async def test_the_plans_of_a_run_have_a_limit_together(run):
    for number in range(10):
        await set_plan(run, "x" * BODY_MAX, f"p{number}")
    left = 1_048_576 - 10 * BODY_MAX
    await set_plan(run, "x" * (left - 4), "last")
    await update_plan(run, "y" * 4, "last")
    for call in (update_plan(run, "d", "p0"), update_plan(run, "d", "last"), set_plan(run, "z" * (left + 1), "last")):
        error = await refused(call)
        assert (error.reason, error.metadata) == (
            Reason.LIMIT_EXCEEDED,
            {"field": "plans", "limit": "1048576", "actual": "1048577", "unit": "bytes"},
        )
    # Versions that were replaced or removed do not count.
    await set_plan(run, "x" * left, "last")
    await delete_plan(run, "last")
    await set_plan(run, "x" * left, "last")


@pytest_asyncio.fixture(loop_scope="module")
async def small(run):
    """A run whose packets have 2,048 tokens, by its own limit."""
    patch = settings_pb2.RunSettingsPatch(context_limit=2048)
    await run.client.call("ConfigureRun", **run.address, patch=patch)
    return run


def over(actual, limit=2048):
    return {"field": "plans", "limit": str(limit), "actual": str(actual), "unit": "tokens"}


async def test_plans_that_no_packet_can_show_are_refused_with_both_figures(small):
    """C46: together, with their latest deltas; replaced ones do not count."""
    known = {**small.address, "written_by": PLUGIN}
    plan = partial(plan_pb2.Plan, plan_id="main")
    error = await refused(small.client.call("SetPlan", **known, plan=plan(body="x" * 4095)))
    assert (error.reason, error.metadata) == (Reason.LIMIT_EXCEEDED, over(2048))
    assert "2048 tokens together; a packet of this run has 2048 for everything" in error.message
    await small.client.call("SetPlan", **known, plan=plan(body="x" * 2000))
    await small.client.call("SetPlan", **known, plan=plan(body="x" * 4000))
    await small.client.call("UpdatePlan", **known, delta="d" * 94)
    before = await small.view()
    calls = [
        small.client.call("UpdatePlan", **known, delta="dd"),
        small.client.call("SetPlan", **known, plan=plan(plan_id="beside", body="dd")),
    ]
    assert [(await refused(call)).metadata for call in calls] == [over(2048)] * 2
    assert await small.view() == before
    assert (await small.client.call("SetPlan", **known, plan=plan(body="x" * 4094))).plan.version == 3


async def test_plans_that_are_too_long_already_can_be_made_shorter_one_by_one(small):
    for plan_id in "ab":
        await set_plan(small, "x" * 9000, plan_id)
    known = {**small.address, "written_by": PLUGIN}
    assert (await refused(small.client.call("UpdatePlan", **known, plan_id="a", delta="d"))).metadata == over(9001)
    for plan_id, body in (("a", "x" * 5000), ("b", "x" * 3000), ("a", "x")):
        plan = plan_pb2.Plan(plan_id=plan_id, body=body)
        await small.client.call("SetPlan", **known, plan=plan)
    assert (await get_plan(small, "a")).version == 3


async def test_code_points_are_what_plans_are_held_against_a_window_by(small):
    known = {**small.address, "written_by": PLUGIN}
    for length in (3000, 4000):
        await small.client.call("SetPlan", **known, plan=plan_pb2.Plan(body="語" * length))
    await small.client.call("UpdatePlan", **known, delta="語" * 94)
    assert (await refused(small.client.call("UpdatePlan", **known, delta="語"))).metadata == over(2048)


async def test_the_window_is_the_smaller_of_what_is_known(run):
    """Of an alias, of a run, or what an owner says."""
    for window, body, limit in ((0, "x" * 16_384, 8192), (3000, "x" * 6000, 3000)):
        asked = {**run.address, "written_by": {**PLUGIN, "window": window}}
        error = await refused(run.client.call("SetPlan", **asked, plan=plan_pb2.Plan(body=body)))
        assert error.metadata == over(len(body) // 2, limit)
    await run.client.call("SetPlan", **WRITER, **run.address, plan=plan_pb2.Plan(body="x" * BODY_MAX))
    await run.client.call("SetModel", model=model_pb2.Model(alias="fast", vendor_model="scripted/a"))
    await run.client.call("SetPlan", **run.address, plan=plan_pb2.Plan(body="x" * BODY_MAX))


async def test_a_run_has_a_hundred_plans_at_most(run):
    for number in range(100):
        await set_plan(run, "x", f"p{number}")
    error = await refused(set_plan(run, "x", "more"))
    assert (error.metadata["field"], error.metadata["limit"], error.metadata["actual"]) == ("plans", "100", "101")
    await set_plan(run, "y", "p7")
    await delete_plan(run, "p7")
    await set_plan(run, "x", "more")


@pytest.mark.parametrize("character", ["a", "é", "😀"])
async def test_a_plan_has_at_most_98304_bytes(run, character):
    """RP02: bytes of UTF-8, not characters."""
    size = len(character.encode())
    longest = character * (BODY_MAX // size)
    assert (await set_plan(run, longest)).body == longest
    before = await run.view()
    error = await refused(set_plan(run, longest + character))
    actual = len(longest.encode()) + size
    assert (error.reason, error.metadata) == (
        Reason.LIMIT_EXCEEDED,
        {"field": "body", "limit": str(BODY_MAX), "actual": str(actual), "unit": "bytes"},
    )
    assert str(BODY_MAX) in error.message
    assert str(actual) in error.message
    assert await run.view() == before


async def test_a_delta_has_at_most_16384_bytes(run):
    """RP02."""
    await set_plan(run, "x")
    await update_plan(run, "é" * (DELTA_MAX // 2))
    before = await run.view()
    error = await refused(update_plan(run, "é" * (DELTA_MAX // 2) + "!"))
    assert (error.reason, error.metadata) == (
        Reason.LIMIT_EXCEEDED,
        {"field": "delta", "limit": str(DELTA_MAX), "actual": str(DELTA_MAX + 1), "unit": "bytes"},
    )
    assert (await refused(update_plan(run, ""))).metadata == {"field": "delta"}
    assert await run.view() == before


async def test_a_version_has_at_most_100_deltas(run):
    """RP08: the error advises to set the plan anew."""
    await set_plan(run, "x")
    await asyncio.gather(*(update_plan(run, str(number)) for number in range(DELTAS_MAX)))
    error = await refused(update_plan(run, "one more"))
    assert (error.reason, error.metadata["limit"], "Set the whole plan again" in error.message) == (
        Reason.LIMIT_EXCEEDED,
        str(DELTAS_MAX),
        True,
    )
    plan = await get_plan(run)
    assert [delta.sequence for delta in plan.deltas] == list(range(1, DELTAS_MAX + 1))
    await set_plan(run, "all of it")
    assert told(await update_plan(run, "one more"))[5] == [(1, "one more")]


async def test_the_deltas_of_a_version_have_at_most_262144_bytes(run):
    """RP08."""
    await set_plan(run, "x")
    for _ in range(DELTAS_BYTES_MAX // DELTA_MAX):
        await update_plan(run, "d" * DELTA_MAX)
    error = await refused(update_plan(run, "d"))
    assert (error.reason, error.metadata) == (
        Reason.LIMIT_EXCEEDED,
        {"field": "deltas", "limit": str(DELTAS_BYTES_MAX), "actual": str(DELTAS_BYTES_MAX + 1), "unit": "bytes"},
    )
    assert "Set the whole plan again" in error.message
    assert len((await get_plan(run)).deltas) == DELTAS_BYTES_MAX // DELTA_MAX


async def test_concurrent_deltas_have_sequences_of_their_own(run):
    await set_plan(run, "x")
    texts = [f"delta {number}" for number in range(20)]
    answers = await asyncio.gather(*(update_plan(run, text) for text in texts))
    plan = await get_plan(run)
    assert [delta.sequence for delta in plan.deltas] == list(range(1, 21))
    assert {delta.text for delta in plan.deltas} == set(texts)
    assert sorted(len(answer.deltas) for answer in answers) == list(range(1, 21))


async def test_plans_live_side_by_side_and_are_listed_by_identity(run):
    wanted = ["a", "a-b", "b", "main", "x1"]
    for plan_id in reversed(wanted):
        await set_plan(run, "old", plan_id)
        await set_plan(run, f"of {plan_id}", plan_id)
        await update_plan(run, "more", plan_id)
    listed = await run.client.call("ListPlans", **run.address)
    assert [told(plan) for plan in listed.plans] == [
        (plan_id, MARKDOWN, 2, "", f"of {plan_id}", [(1, "more")]) for plan_id in wanted
    ]
    pages, token = [], ""
    while not pages or token:
        page = await run.client.call("ListPlans", **run.address, page_size=2, page_token=token)
        pages.append([plan.plan_id for plan in page.plans])
        token = page.next_page_token
    assert pages == [["a", "a-b"], ["b", "main"], ["x1"]]
    await delete_plan(run, "b")
    left = (await run.client.call("ListPlans", **run.address)).plans
    assert [plan.plan_id for plan in left] == ["a", "a-b", "main", "x1"]


async def shown(messages):
    """The next message that is no heartbeat, in short."""
    async for message in messages:
        match message.WhichOneof("event"):
            case "snapshot":
                part = message.snapshot
                return part.part, part.last, [plan.plan_id for plan in part.plans]
            case "updated":
                return told(message.updated)
            case "removed_plan_id":
                return message.removed_plan_id
    return None


async def test_plans_are_watched_from_a_snapshot_on(run):
    for plan_id in "ba":
        await set_plan(run, "x" * BODY_MAX, plan_id)
    for _ in range(16):
        await update_plan(run, "x" * DELTA_MAX, "a")
    async with contextlib.aclosing(run.client.stream("WatchPlans", **run.address)) as messages:
        assert [await shown(messages), await shown(messages)] == [(0, False, ["b"]), (1, True, ["a"])]
        await run.write(set_("known://a", "no plan"))
        await update_plan(run, "more", "b")
        assert await shown(messages) == ("b", MARKDOWN, 1, "", "x" * BODY_MAX, [(1, "more")])
        await delete_plan(run, "b")
        assert await shown(messages) == "b"
        await set_plan(run, "again", "b")
        assert await shown(messages) == ("b", MARKDOWN, 2, "", "again", [])


async def test_a_watch_of_plans_begins_with_none_where_there_are_none(run):
    async with contextlib.aclosing(run.client.stream("WatchPlans", **run.address)) as messages:
        assert await shown(messages) == (0, True, [])
        assert (await anext(messages)).HasField("heartbeat")
    error = await refused(anext(run.client.stream("WatchPlans", project=run.project, run="nobody")))
    assert error.reason is Reason.RUN_NOT_FOUND


async def fork(run):
    made = await run.client.call("ForkRun", **run.address)
    return Run(run.client, run.project, made.run.run)


async def test_a_fork_has_the_plan_in_every_version_and_goes_its_own_way(run):
    """RP07."""
    await set_plan(run, "one")
    await update_plan(run, "to one")
    await set_plan(run, "two")
    await update_plan(run, "to two")
    child = await fork(run)
    assert [told(await get_plan(child, version=version)) for version in (1, 2)] == [
        told(await get_plan(run, version=version)) for version in (1, 2)
    ]
    await update_plan(child, "by the child")
    await update_plan(run, "by the parent")
    assert told(await get_plan(child))[5] == [(1, "to two"), (2, "by the child")]
    assert told(await get_plan(run))[5] == [(1, "to two"), (2, "by the parent")]
    assert (await set_plan(child, "three")).version == 3
    assert told(await get_plan(run))[2:5] == (2, "", "two")


async def test_a_fork_uses_no_number_again_of_a_plan_that_was_removed_before(run):
    await set_plan(run, "one")
    await set_plan(run, "two")
    await delete_plan(run)
    child = await fork(run)
    assert [(await get_plan(child, version=version)).body for version in (1, 2)] == ["one", "two"]
    assert (await set_plan(child, "three")).version == 3


async def test_a_fork_cannot_take_an_inherited_plan_away_as_an_entry_and_counts_on(run):
    await set_plan(run, "one")
    child = await fork(run)
    error = await refused(child.client.call("WriteEntries", **child.address, writes=[remove("plan://main")]))
    assert error.reason is Reason.PLAN_ENTRY
    assert (await set_plan(child, "two")).version == 2


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"plan_id": "a b"}, "plan_id"),
        ({"plan_id": "a/v1"}, "plan_id"),
        ({"plan_id": "a" * 129}, "plan_id"),
        ({"mode": "two words"}, "mode"),
        ({"mode": "m" * 129}, "mode"),
        ({"kind": 9}, "plan.kind"),
        ({"kind": ITEMS, "body": "{}"}, "body"),
        ({"kind": ITEMS, "body": "no json"}, "body"),
        ({"kind": ITEMS, "body": '["two"]'}, "items[0]"),
        ({"kind": ITEMS, "body": f'[{ITEM},{{"content":"x","priority":"high","status":"done"}}]'}, "items[1].status"),
        ({"kind": ITEMS, "body": f"[{ITEM}" + f",{ITEM}" * 500 + "]"}, "items"),
        ({"kind": ITEMS, "items": [{"content": "x" * 4097}]}, "items[0].content"),
        ({"kind": ITEMS, "items": [{"content": "x", "evidence_paths": ["src/gone.py"]}]}, "items[0].evidence_paths[0]"),
        ({"items": [{"content": "x"}]}, "items"),
        ({"kind": FILE, "body": ""}, "body"),
        ({"kind": FILE, "body": "x" * 2049}, "body"),
    ],
)
async def test_a_malformed_plan_is_refused(run, plan, field):
    before = await run.view()
    error = await refused(run.client.call("SetPlan", **run.address, plan=plan_pb2.Plan(**plan), **WRITER))
    assert error.metadata["field"] == field
    assert await run.view() == before


async def test_a_repeated_request_is_answered_as_the_first(run):
    fields = {**run.address, **WRITER, "request_id": "once"}
    await set_plan(run, "x")
    first = await run.client.call("UpdatePlan", **fields, delta="one")
    assert await run.client.call("UpdatePlan", **fields, delta="one") == first
    assert (await refused(run.client.call("UpdatePlan", **fields, delta="two"))).reason is Reason.REQUEST_ID_REUSED
    assert told(await get_plan(run))[5] == [(1, "one")]


async def test_a_request_that_a_later_owner_repeats_is_answered_as_the_first(run):
    """RP01: who goes on with a run sets nothing twice."""
    asked = {**run.address, "request_id": "once", "written_by": {"epoch": run.epoch}}
    await run.enqueue()
    first = await run.client.call("SetPlan", **asked, plan=plan_pb2.Plan(body="x"))
    added = await run.client.call("UpdatePlan", **asked, delta="more")
    await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)
    epoch = run.epoch
    run.epoch = (await run.claim("another")).epoch
    assert run.epoch > epoch
    # What a later owner knows of the window may be another thing too.
    later = {**asked, "written_by": {"epoch": run.epoch, "window": 7000}}
    assert await run.client.call("SetPlan", **later, plan=plan_pb2.Plan(body="x")) == first
    assert await run.client.call("UpdatePlan", **later, delta="more") == added
    assert told(await get_plan(run))[2:] == (1, "", "x", [(1, "more")])


@pytest.mark.parametrize("tier", [Tier.MODEL, Tier.CLIENT, Tier.PLUGIN])
async def test_a_plan_is_written_by_the_tiers_of_its_scheme(run, tier):
    """C32."""
    plan = plan_pb2.Plan(body="x")
    by = {"tier": int(tier), "epoch": run.epoch}
    made = await run.client.call("SetPlan", **run.address, plan=plan, written_by=by)
    assert (made.plan.version, (await run.entry("plan://main")).writer) == (1, tier)
    by = {"tier": int(Tier.SYSTEM), "epoch": run.epoch}
    error = await refused(run.client.call("SetPlan", **run.address, plan=plan, written_by=by))
    assert error.reason is Reason.WRITER_FORBIDDEN
    assert (await get_plan(run)).version == 1


async def test_who_writes_as_a_client_cannot_say_by_whom(run):
    plan, client = plan_pb2.Plan(body="x"), as_tier(run.client.peer.address, Tier.CLIENT)
    for writer in ({"tier": entry_pb2.TIER_MODEL}, {"epoch": run.epoch}, {"window": 1_000_000}):
        error = await refused(client.call("SetPlan", **run.address, plan=plan, written_by=writer))
        assert error.reason is Reason.TIER_FORBIDDEN
    await client.call("SetPlan", **run.address, plan=plan)
    assert (await run.entry("plan://main")).writer == Tier.CLIENT
    await client.close()


async def test_a_model_writes_no_plans_of_its_own(run):
    model = as_tier(run.client.peer.address, Tier.MODEL)
    calls = {"SetPlan": {"plan": plan_pb2.Plan(body="x")}, "UpdatePlan": {"delta": "y"}, "DeletePlan": {}}
    for rpc, fields in calls.items():
        assert (await refused(model.call(rpc, **run.address, **fields))).reason is Reason.RIGHT_MISSING
    assert not (await model.call("ListPlans", **run.address)).plans
    await model.close()


async def test_a_stale_fence_is_refused(run):
    await set_plan(run, "x")
    stale = {**run.address, "written_by": {**PLUGIN, "epoch": run.epoch + 7}}
    calls = [
        run.client.call("SetPlan", **stale, plan=plan_pb2.Plan(body="y")),
        run.client.call("UpdatePlan", **stale, delta="y"),
    ]
    assert [(await refused(call)).reason for call in calls] == [Reason.LEASE_LOST] * 2
    assert told(await get_plan(run))[2:] == (1, "", "x", [])


async def test_a_feed_carries_the_plans_that_changed_whole_to_who_asks(run):
    await set_plan(run, "old", "kept")
    body = "é" * (BODY_MAX // 2)
    asked = Watcher(run, filter=view_pb2.VIEW_FILTER_TIMELINE, body_bytes_max=10, with_plans=True)
    plain = Watcher(run, filter=view_pb2.VIEW_FILTER_TIMELINE, body_bytes_max=10)
    for watcher in (asked, plain):
        assert is_heartbeat(await watcher.next())

    async def carried(call):
        """What each watcher is told of plans until it is where a call has brought the run."""
        await call
        moment = (await run.view(without_bodies=True)).cursor
        found = []
        for watcher in (asked, plain):
            before = len(watcher.messages)
            await watcher.until(moment)
            found.append([told(plan) for message in watcher.messages[before:] for plan in message.plans])
        assert found[1] == []
        return found[0]

    whole = ("main", MARKDOWN, 1, "", body, [])
    assert await carried(set_plan(run, body)) == [whole]
    assert len(asked.known["plan://main"].body) == 5
    assert await carried(update_plan(run, "more")) == [(*whole[:5], [(1, "more")])]
    assert await carried(run.write(set_("known://x", "x"))) == []
    assert await carried(set_plan(run, "two")) == [("main", MARKDOWN, 2, "", "two", [])]
    assert await carried(delete_plan(run)) == []
    assert "plan://main" in asked.messages[-1].removed_paths
    for watcher in (asked, plain):
        await watcher.close()
