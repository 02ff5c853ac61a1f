"""Entries: what a write does to an entry and to the run's view of it."""

import hashlib

import pytest
from turnwright_values.types import Tier

from contract.store.harness import (
    ARCHIVED,
    CANCELLED,
    FAILED,
    PROPOSED,
    RECORDED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    new_project,
    new_run,
    remove,
    set_,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_an_entry_carries_the_eight_fields(run):
    """RU015, RU019, RU020, RU052."""
    await run.write(set_("known://a", "body", '{"k":1}', writer=Tier.MODEL, visibility=SUMMARIZED))
    entry = await run.entry("known://a")
    assert (entry.path, entry.body, entry.attributes_json) == ("known://a", "body", '{"k":1}')
    assert (entry.visibility, entry.state, entry.outcome) == (SUMMARIZED, RESOLVED, "")
    assert (entry.writer, entry.scheme, entry.scope.partition(":")[0]) == (Tier.MODEL, "known", "run")
    assert (entry.hash, entry.body_size_bytes) == (hashlib.sha256(b"body").hexdigest(), 4)


async def test_the_last_writer_of_the_content_is_kept(run):
    """RU019: a change of the view alone is not a change of the content."""
    await run.write(set_("known://a", "x", writer=Tier.MODEL))
    await run.write(set_("known://a", "y", writer=Tier.PLUGIN))
    assert (await run.entry("known://a")).writer == Tier.PLUGIN
    await run.write(set_("known://a", visibility=ARCHIVED, writer=Tier.MODEL))
    assert (await run.entry("known://a")).writer == Tier.PLUGIN


@pytest.mark.parametrize("visibility", [VISIBLE, SUMMARIZED, ARCHIVED])
@pytest.mark.parametrize("state", [RECORDED, PROPOSED, STREAMING, RESOLVED, FAILED, CANCELLED])
async def test_visibility_and_state_are_independent(run, visibility, state):
    """RU016, RU017, RU021: every pair is legal, and neither moves the other."""
    await run.write(set_("known://a", "x", visibility=visibility, state=state))
    other = ARCHIVED if visibility is VISIBLE else VISIBLE
    await run.write(set_("known://a", visibility=other))
    entry = await run.entry("known://a")
    assert (entry.visibility, entry.state) == (other, state)
    await run.write(set_("known://a", state=RESOLVED))
    assert (await run.entry("known://a")).visibility == other


@pytest.mark.parametrize("state", [FAILED, CANCELLED])
async def test_an_outcome_stands_with_failed_and_cancelled_only(run, state):
    """RU018, C10: the status is derived from it; another state clears it."""
    await run.write(set_("known://a", "x", state=state, outcome="not_found:404"))
    entry = await run.entry("known://a")
    assert (entry.outcome, entry.status) == ("not_found:404", 404)
    await run.write(set_("known://a", body="y"))
    assert (await run.entry("known://a")).outcome == "not_found:404"
    await run.write(set_("known://a", state=RESOLVED))
    assert ((await run.entry("known://a")).outcome, (await run.entry("known://a")).status) == ("", 200)
    error = await refused(run.write(set_("known://a", state=RESOLVED, outcome="well:200")))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "outcome", "path": "known://a"})


STATUSES = [(RECORDED, 100), (STREAMING, 102), (RESOLVED, 200), (PROPOSED, 202), (CANCELLED, 499), (FAILED, 500)]


@pytest.mark.parametrize(("state", "status"), STATUSES)
async def test_the_status_is_derived_from_the_state(run, state, status):
    """RU056, C10."""
    await run.write(set_("known://a", "x", state=state))
    assert (await run.entry("known://a")).status == status


async def test_a_write_without_body_and_attributes_makes_no_version(run):
    """RU093: the view changes, the content does not."""
    await run.write(set_("src/a.py", "x", '{"n":1}'))
    first = await run.entry("src/a.py")
    written = await run.write(set_("src/a.py", visibility=ARCHIVED))
    second = await run.entry("src/a.py")
    assert (second.update_time, second.hash, second.attributes_json) == (first.update_time, first.hash, '{"n":1}')
    assert written.cursor.project_revision == 1
    assert second.write_count == 2


async def test_writing_the_same_content_again_makes_no_version(run):
    first = await run.write(set_("src/a.py", "x", "{}"))
    again = await run.write(set_("src/a.py", "x", "{}"))
    assert (first.cursor.project_revision, again.cursor.project_revision) == (1, 1)
    assert again.cursor.run_revision == first.cursor.run_revision + 1


async def test_body_and_attributes_are_kept_apart(run):
    """RU093."""
    await run.write(set_("known://a", "x", '{"n":1}'))
    await run.write(set_("known://a", attributes='{"n":2}'))
    assert ((await run.entry("known://a")).body, (await run.entry("known://a")).attributes_json) == ("x", '{"n":2}')
    await run.write(set_("known://a", ""))
    assert ((await run.entry("known://a")).body, (await run.entry("known://a")).attributes_json) == ("", '{"n":2}')


async def test_changing_what_is_not_there_is_refused(run):
    error = await refused(run.write(set_("known://a", visibility=VISIBLE)))
    assert (error.reason, error.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": "known://a"})


async def test_the_initial_visibility_counts_for_a_new_view_only(run):
    """RU115: files are ingested archived; a later ingestion leaves them as they are."""
    await run.write(set_("src/a.py", "x", initial_visibility=ARCHIVED))
    assert (await run.entry("src/a.py")).visibility == ARCHIVED
    await run.write(set_("src/a.py", visibility=VISIBLE))
    await run.write(set_("src/a.py", "y", initial_visibility=ARCHIVED))
    assert (await run.entry("src/a.py")).visibility == VISIBLE


async def test_a_removed_entry_keeps_its_content(client, project, run):
    """RU025, RU095: the view goes, the content stays for those who see it, and comes back with its view."""
    other = await new_run(client, project, "other")
    await run.write(set_("src/a.py", "x"))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", visibility=VISIBLE)])
    await run.write(remove("src/a.py"))
    assert await run.entry("src/a.py") is None
    assert (await other.entry("src/a.py")).body == "x"
    await run.write(set_("src/a.py", visibility=SUMMARIZED))
    entry = await run.entry("src/a.py")
    assert (entry.body, entry.write_count, entry.visibility) == ("x", 1, SUMMARIZED)


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_a_run_took_away_of_its_own_begins_anew(run, at_once):
    """RU025: nobody else sees it, so that a new body does not get the attributes of the old one."""
    await run.write(set_("known://a", "old", '{"summary":"of the old one"}'))
    writes = [remove("known://a"), set_("known://a", "new")]
    for some in [writes] if at_once else [[write] for write in writes]:
        await run.write(*some)
    entry = await run.entry("known://a")
    assert (entry.body, entry.attributes_json, entry.write_count) == ("new", "{}", 1)


@pytest.mark.parametrize(
    ("change", "after"),
    [
        ({"visibility": VISIBLE}, ("old", '{"a":1}')),
        ({"merge_attributes_json": '{"b":2}'}, ("old", '{"a":1,"b":2}')),
        ({"body": "old", "merge_attributes_json": '{"b":2}'}, ("old", '{"b":2}')),
        ({"body": "old", "attributes": '{"a":1}'}, ("old", '{"a":1}')),
    ],
)
async def test_attributes_come_back_with_the_body_that_they_belong_to_alone(run, change, after):
    await run.write(set_("known://a", "old", '{"a":1}'))
    await run.write(remove("known://a"))
    await run.write(set_("known://a", **change))
    entry = await run.entry("known://a")
    assert (entry.body, entry.attributes_json) == after


async def test_removing_what_is_not_there_changes_nothing(run):
    before = await run.view()
    assert list((await run.write(remove("known://a"))).revisions) == [0]
    assert await run.view() == before


async def test_two_runs_of_a_project_share_its_files(client, project, run):
    """RU046, RU058, RU059, RU087, C32: content is the project's, the view is each run's own."""
    other = await new_run(client, project, "other")
    await run.write(set_("src/a.py", "from r1"))
    assert await other.entry("src/a.py") is None
    view = [set_("src/a.py", visibility=ARCHIVED)]
    await client.call("WriteEntries", **other.address, writes=view)
    await run.write(set_("src/a.py", "newer", visibility=VISIBLE))
    mine, theirs = await run.entry("src/a.py"), await other.entry("src/a.py")
    assert (mine.body, theirs.body) == ("newer", "newer")
    assert (mine.visibility, theirs.visibility) == (VISIBLE, ARCHIVED)
    assert mine.scope == theirs.scope
    assert mine.scope.startswith("project:")


async def test_projects_do_not_share_files(client, run):
    elsewhere = await new_run(client, await new_project(client, "elsewhere"), "r1")
    await run.write(set_("src/a.py", "x"))
    await client.call("WriteEntries", **elsewhere.address, writes=[set_("src/a.py", "y")])
    assert ((await run.entry("src/a.py")).body, (await elsewhere.entry("src/a.py")).body) == ("x", "y")


async def test_a_view_is_stamped_with_turn_and_loop(run):
    """RU055."""
    begun = await run.begin(set_("prompt://{turn}", "do it"))
    entry = await run.entry("prompt://1")
    assert (begun.next.number, entry.turn, entry.loop) == (1, 1, 1)
    await run.write(set_("known://a", "x", turn=7, loop=3))
    await run.write(set_("known://a", "y"))
    assert ((await run.entry("known://a")).turn, (await run.entry("known://a")).loop) == (7, 3)


async def test_positions_follow_the_order_of_the_writes_and_stay(run):
    await run.write(set_("known://b", "1"), set_("known://a", "2"), set_("known://c", "3"))
    await run.write(set_("known://b", "again"))
    known = [path for path in (await run.view()).paths if path.startswith("known://")]
    assert known == ["known://b", "known://a", "known://c"]


async def test_a_new_record_never_takes_the_path_of_another(run):
    """RU075: one entry for each action; the suffix is answered."""
    await run.begin()
    record = set_("log://turn_1/get/a", "", "{}", state=RECORDED)
    written = await run.write(record, record, set_("log://turn_1/get/b", "", "{}", state=RECORDED))
    assert list(written.paths) == ["log://turn_1/get/a", "log://turn_1/get/a+2", "log://turn_1/get/b"]
    assert list((await run.write(record)).paths) == ["log://turn_1/get/a+3"]
    assert list((await run.write(set_("log://turn_1/get/a", "done", state=RESOLVED))).paths) == ["log://turn_1/get/a"]
    await run.write(remove("log://turn_1/get/a+2"))
    assert list((await run.write(record)).paths) == ["log://turn_1/get/a+4"]


async def test_bodies_hold_any_character(run):
    body = "\x00\r\n\u2028\U0001f600 </x>'\""
    await run.write(set_("known://a", body))
    assert (await run.entry("known://a")).body == body


async def test_a_stale_expectation_is_a_conflict(run):
    written = await run.write(set_("known://a", "x", expected_revision=0))
    await run.write(set_("known://a", "y", expected_revision=written.revisions[0]))
    error = await refused(run.write(set_("known://a", "z", expected_revision=written.revisions[0])))
    now = (await run.entry("known://a")).revision
    assert (error.reason, error.metadata) == (
        Reason.REVISION_CONFLICT,
        {"path": "known://a", "expected": str(written.revisions[0]), "actual": str(now)},
    )
    assert (await refused(run.write(set_("known://a", "z", expected_revision=0)))).reason is Reason.REVISION_CONFLICT


async def test_a_write_from_outside_leaves_records_of_the_open_turn_alone(client, run):
    await run.begin()
    await run.write(set_("log://turn_1/get/a", "", "{}", state=RECORDED))
    outside = [set_("log://turn_1/get/a", "hijacked")]
    error = await refused(client.call("WriteEntries", **run.address, writes=outside))
    assert error.reason is Reason.TRANSITION_FORBIDDEN
    assert (await run.entry("log://turn_1/get/a")).body == ""
    await client.call("WriteEntries", **run.address, writes=[set_("log://turn_0/repo/manifest", "x")])
    assert (await run.entry("log://turn_0/repo/manifest")).body == "x"
