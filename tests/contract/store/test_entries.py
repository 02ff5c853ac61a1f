"""Entries: what a write does to an entry and to the run's view of it."""

import hashlib
import json

import pytest

from cases import params
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
    append,
    new_project,
    new_run,
    remove,
    set_,
)
from turnwright_core.entries import State, Tier, Visibility
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


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
    assert (entry.hash, entry.body_bytes) == (hashlib.sha256(b"body").hexdigest(), 4)


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
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "outcome"})


STATUSES = [(RECORDED, 100), (STREAMING, 102), (RESOLVED, 200), (PROPOSED, 202), (CANCELLED, 499), (FAILED, 500)]


@pytest.mark.parametrize(("state", "status"), STATUSES)
async def test_the_status_is_derived_from_the_state(run, state, status):
    """RU056, C10."""
    await run.write(set_("known://a", "x", state=state))
    assert (await run.entry("known://a")).status == status


@pytest.mark.parametrize("case", params("rummy/known_store.jsonl", "rummy/streaming.jsonl"))
async def test_the_known_store(client, run, case):
    """RU065, RU090-RU095 by the cases; the ones about other parts of the system are named below."""
    elsewhere = {
        "store-014": "slugs are the grammar's",
        "store-016": "slugs are the grammar's",
        "store-017": "there is no status to write: it is derived from the state (C10)",
    }
    if case["id"] in elsewhere:
        assert {op["op"] for op in case["input"]["ops"]} & {"slug_path"} or "status" in case["input"]["ops"][0]
        return
    runs = {"A": run, "B": await new_run(client, run.project, "B"), None: run}
    error, returns = None, []
    for op in case["input"]["ops"]:
        try:
            returns.append(await perform(runs[op.get("run")], op, case))
        except TurnwrightError as raised:
            error = raised
    expected = case["expected"]
    assert bool(expected.get("error")) == (error is not None), error
    if "returns" in expected:
        assert returns == expected["returns"]
    if "absent" in expected:
        assert await run.entry(expected["absent"]) is None
    if "entry" in expected:
        await check_entry(run, expected["entry"])
    if "count" in expected:
        assert (await run.view()).paths.count(expected["entry"]["path"]) == expected["count"]
    for name, body in expected.get("bodies", {}).items():
        assert (await runs[name].entry(case["input"]["ops"][0]["path"])).body == body
    if expected.get("scopes_differ"):
        scopes = {(await runs[name].entry(case["input"]["ops"][0]["path"])).scope for name in "AB"}
        assert len(scopes) == 2


async def perform(run, op, case):
    match op["op"]:
        case "set":
            attributes = json.dumps(op["attributes"]) if "attributes" in op else None
            state = State[op.get("state", "resolved").upper()]
            visibility = Visibility[op.get("visibility", "visible").upper()]
            await run.write(set_(op["path"], op["body"], attributes, state=state, visibility=visibility))
        case "rm":
            await run.write(remove(op["path"]))
        case "append":
            await run.write(append(op["path"], op["body"]))
        case "stream_completed":
            path = case["input"]["ops"][0]["path"]
            await run.write(set_(path, state=RESOLVED if op["exit_code"] == 0 else FAILED))
        case "resolve":
            await run.client.call("ResolveProposal", **run.address, path=op["path"], decision=2)
        case "next_turn":
            number = (await run.begin()).turn.number
            await run.end(number)
            return number
        case other:
            raise AssertionError(other)
    return None


async def check_entry(run, expected):
    entry = await run.entry(expected["path"])
    words = {"state": State(entry.state).name.lower, "scheme": lambda: entry.scheme or None}
    words["attributes"] = lambda: json.loads(entry.attributes_json)
    for key, value in expected.items():
        assert words.get(key, lambda key=key: getattr(entry, key))() == value, key


async def test_a_write_without_body_and_attributes_makes_no_version(run):
    """RU093: the view changes, the content does not."""
    await run.write(set_("src/a.py", "x", '{"n":1}'))
    first = await run.entry("src/a.py")
    written = await run.write(set_("src/a.py", visibility=ARCHIVED))
    second = await run.entry("src/a.py")
    assert (second.update_time, second.hash, second.attributes_json) == (first.update_time, first.hash, '{"n":1}')
    assert written.cursor.project == 1
    assert second.write_count == 2


async def test_writing_the_same_content_again_makes_no_version(run):
    first = await run.write(set_("src/a.py", "x", "{}"))
    again = await run.write(set_("src/a.py", "x", "{}"))
    assert (first.cursor.project, again.cursor.project) == (1, 1)
    assert again.cursor.run == first.cursor.run + 1


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
    assert (begun.turn.number, entry.turn, entry.loop) == (1, 1, 1)
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


async def test_a_streaming_body_grows_and_is_folded_at_its_close(run):
    await run.write(set_("sh://turn_1/x_1", "a", state=STREAMING))
    for text in ("é", "", "z"):
        await run.write(append("sh://turn_1/x_1", text), append("sh://turn_1/x_1", text))
    growing = await run.entry("sh://turn_1/x_1")
    assert (growing.body, growing.body_bytes, growing.hash) == ("aéézz", 7, "")
    await run.write(set_("sh://turn_1/x_1", state=RESOLVED))
    closed = await run.entry("sh://turn_1/x_1")
    assert (closed.body, closed.state) == ("aéézz", RESOLVED)
    assert closed.hash == hashlib.sha256("aéézz".encode()).hexdigest()


async def test_a_streaming_body_survives_every_order_of_writes(run):
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "a", state=STREAMING), append(path, "b"))
    await run.write(append(path, "c"), set_(path, visibility=SUMMARIZED), append(path, "d"))
    await run.write(set_(path, attributes='{"n":1}'), append(path, "e"))
    await run.write(append(path, "f"))
    await run.write(remove(path))
    await run.write(set_(path, state=STREAMING))
    await run.write(append(path, "g"))
    entry = await run.entry(path)
    assert (entry.body, entry.attributes_json) == ("abcdefg", '{"n":1}')
    await run.write(set_(path, "new"), append(path, "er"))
    assert (await run.entry(path)).body == "newer"


async def test_a_shared_body_that_grows_is_seen_by_every_run(client, project, run):
    other = await new_run(client, project, "other")
    await run.write(set_("http://e.org/", "a", state=STREAMING))
    await client.call("WriteEntries", **other.address, writes=[set_("http://e.org/", state=STREAMING)])
    await run.write(append("http://e.org/", "b"))
    await client.call("WriteEntries", **other.address, writes=[append("http://e.org/", "c")])
    assert ((await run.entry("http://e.org/")).body, (await other.entry("http://e.org/")).body) == ("abc", "abc")


async def test_only_a_streaming_entry_can_be_appended_to(run):
    await run.write(set_("known://a", "x"))
    assert (await refused(run.write(append("known://a", "y")))).reason is Reason.TRANSITION_FORBIDDEN
    assert (await refused(run.write(append("known://b", "y")))).reason is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("write", "field", "reason"),
    [
        (set_("known://" + "x" * 2041, "x"), "path", Reason.LIMIT_EXCEEDED),
        (set_("", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a\nb", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a\x00b", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a", "é" * (8 * 1024 * 1024 + 1)), "body", Reason.LIMIT_EXCEEDED),
        (set_("known://a", "x", "[1]"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", "{"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":NaN}'), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":' * 200 + "1" + "}" * 200), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":' + "[" * 5000 + "]" * 5000 + "}"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":"' + "x" * 1024 * 1024 + '"}'), "attributes_json", Reason.LIMIT_EXCEEDED),
        (append("known://a", "x" * (1024 * 1024 + 1)), "text", Reason.LIMIT_EXCEEDED),
    ],
    ids=[
        "path-too-long", "path-empty", "path-newline", "path-nul", "body-too-long", "attributes-list",
        "attributes-broken", "attributes-nan", "attributes-deep", "attributes-deeper", "attributes-too-long",
        "append-too-long",
    ],
)  # fmt: skip
async def test_a_write_over_a_limit_is_refused(run, write, field, reason):
    """RU049, RU051."""
    error = await refused(run.write(set_("known://first", "x"), write))
    assert (error.reason, error.metadata["field"]) == (reason, field)
    assert await run.entry("known://first") is None


async def test_a_path_of_2048_characters_is_stored(run):
    """RU049."""
    path = "known://" + "é" * 2040
    await run.write(set_(path, "x"))
    assert (await run.entry(path)).body == "x"


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


@pytest.mark.parametrize("case", params("rummy/demotion.jsonl"))
async def test_a_demotion_changes_the_visibility_only(run, case):
    """RU064 by the cases: states, stamps and statuses stay as they are."""
    for row in case["input"]["rows"]:
        state = {200: RESOLVED, 102: STREAMING}[row["status"]]
        visibility = Visibility[row["visibility"].upper()]
        await run.write(set_(row["path"], "x", state=state, visibility=visibility, turn=row["turn"]))
    await run.write(*(set_(row["path"], visibility=SUMMARIZED) for row in case["input"]["rows"]))
    for row in case["input"]["rows"]:
        entry = await run.entry(row["path"])
        assert Visibility(entry.visibility).name.lower() == case["expected"]["visibility"][row["path"]]
        assert entry.status == case["expected"]["status"][row["path"]]
        assert entry.turn == row["turn"]
