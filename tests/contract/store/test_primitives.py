"""The primitives beyond set and rm: cp, mv, and merges of attributes."""

import asyncio
import json

import pytest
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry
from turnwright_values.types import Tier, Visibility

from contract.store.harness import (
    ARCHIVED,
    FAILED,
    RECORDED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    append,
    new_run,
    remove,
    set_,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

KEEP = Visibility.UNSPECIFIED


async def refused(call):
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def copy(path, to, visibility=KEEP, writer=Tier.PLUGIN, expected=None):
    return write_to_pb(EntryWrite(path, CopyEntry(to, visibility), writer, expected))


def move(path, to, visibility=KEEP, writer=Tier.PLUGIN, expected=None):
    return write_to_pb(EntryWrite(path, MoveEntry(to, visibility), writer, expected))


def content(entry):
    return entry.body, entry.attributes_json


# ---- cp and mv


async def test_a_copy_has_the_content_and_the_visibility_of_its_source(run):
    """RU026."""
    await run.write(set_("known://a", "x", '{"n":1}', visibility=SUMMARIZED, state=FAILED, outcome="no:500"))
    await run.write(copy("known://a", "known://b"))
    source, target = await run.entry("known://a"), await run.entry("known://b")
    assert content(target) == content(source) == ("x", '{"n":1}')
    assert (target.visibility, target.state, target.outcome, target.write_count) == (SUMMARIZED, RESOLVED, "", 1)
    assert (source.state, source.write_count) == (FAILED, 1)
    assert target.hash == source.hash


async def test_a_copy_replaces_what_was_there(run):
    await run.write(set_("known://a", "x", '{"n":1}'), set_("known://b", "old", '{"old":1}', visibility=ARCHIVED))
    await run.write(copy("known://a", "known://b", SUMMARIZED))
    entry = await run.entry("known://b")
    assert (content(entry), entry.visibility, entry.write_count) == (("x", '{"n":1}'), SUMMARIZED, 2)


async def test_a_move_takes_the_source_out_of_the_view(client, project, run):
    """RU027: one path is left, another comes; whoever sees the first one still does."""
    other = await new_run(client, project, "other")
    await run.write(set_("src/a.py", "x", '{"n":1}'))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", visibility=VISIBLE)])
    position = (await run.entry("src/a.py")).position
    await run.write(move("src/a.py", "src/b.py"))
    assert await run.entry("src/a.py") is None
    moved = await run.entry("src/b.py")
    assert content(moved) == ("x", '{"n":1}')
    assert moved.position > position
    assert (await other.entry("src/a.py")).body == "x"
    assert await other.entry("src/b.py") is None


@pytest.mark.parametrize("make", [copy, move])
async def test_the_scheme_of_the_destination_decides_its_scope(client, project, run, make):
    """RU058, RU087."""
    other = await new_run(client, project, "other")
    await run.write(set_("known://a", "x"))
    await run.write(make("known://a", "src/a.py"))
    assert (await run.entry("src/a.py")).scope.startswith("project:")
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", visibility=VISIBLE)])
    assert (await other.entry("src/a.py")).body == "x"


@pytest.mark.parametrize("make", [copy, move])
async def test_a_source_must_be_seen(run, make):
    await run.write(set_("known://gone", "x"))
    await run.write(remove("known://gone"))
    for path in ("known://gone", "known://never"):
        error = await refused(run.write(make(path, "known://b")))
        assert (error.reason, error.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": path})
    assert await run.entry("known://b") is None


FORBIDDEN = [
    ("the destination", copy("known://a", "prompt://0", writer=Tier.MODEL), "prompt://0"),
    ("the destination of a move", move("known://a", "tool://9"), "tool://9"),
    ("the source of a move", move("prompt://0", "known://b", writer=Tier.MODEL), "prompt://0"),
]


@pytest.mark.parametrize(("write", "path"), [row[1:] for row in FORBIDDEN], ids=[row[0] for row in FORBIDDEN])
async def test_whoever_may_not_write_a_path_may_not_copy_there(run, write, path):
    """RU034, RU089: a move also writes its source."""
    await run.write(set_("known://a", "x"), set_("prompt://0", "x"))
    error = await refused(run.write(write))
    assert (error.reason, error.metadata["path"], error.metadata["outcome"]) == (
        Reason.WRITER_FORBIDDEN,
        path,
        "permission:403",
    )


async def test_a_copy_needs_no_right_to_write_its_source(run):
    await run.write(set_("prompt://0", "x"))
    await run.write(copy("prompt://0", "known://b", writer=Tier.MODEL))
    assert (await run.entry("known://b")).body == "x"


@pytest.mark.parametrize("make", [copy, move])
async def test_a_streaming_body_is_copied_whole(run, make):
    """What has arrived by then; the copy is finished."""
    await run.write(set_("sh://turn_1/x_1", "a", '{"n":1}', state=STREAMING))
    await run.write(append("sh://turn_1/x_1", "b"))
    await run.write(append("sh://turn_1/x_1", "é"), make("sh://turn_1/x_1", "known://b"))
    entry = await run.entry("known://b")
    assert (content(entry), entry.state) == (("abé", '{"n":1}'), RESOLVED)


async def test_writes_of_one_request_see_each_other(run):
    written = await run.write(
        set_("known://a", "x"),
        copy("known://a", "known://b"),
        set_("known://a", "y"),
        move("known://b", "known://c"),
        copy("known://a", "known://b"),
    )
    bodies = (await run.view()).bodies
    assert {path: bodies[path] for path in bodies if path.startswith("known")} == {
        "known://a": "y",
        "known://b": "y",
        "known://c": "x",
    }
    assert list(written.paths) == ["known://a", "known://a", "known://a", "known://b", "known://a"]
    assert set(written.revisions) == {written.cursor.run_revision}


async def test_a_copy_onto_itself_is_refused(run):
    await run.write(set_("known://a", "x"))
    for write in (copy("known://a", "known://a"), move("known://a", "known://a")):
        error = await refused(run.write(write))
        assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "to", "path": "known://a"})


@pytest.mark.parametrize(
    ("to", "reason"),
    [("", Reason.INVALID_FIELD), ("a\nb", Reason.INVALID_FIELD), ("known://" + "x" * 2041, Reason.LIMIT_EXCEEDED)],
    ids=["empty", "control", "long"],
)
async def test_a_destination_is_a_path(run, to, reason):
    await run.write(set_("known://a", "x"))
    error = await refused(run.write(copy("known://a", to)))
    assert (error.reason, error.metadata["field"]) == (reason, "to")


async def test_a_copy_expects_the_revision_of_its_source(run):
    revision = (await run.write(set_("known://a", "x"))).revisions[0]
    await run.write(copy("known://a", "known://b", expected=revision))
    await run.write(set_("known://a", "y"))
    error = await refused(run.write(move("known://a", "known://c", expected=revision)))
    assert error.reason is Reason.REVISION_CONFLICT


@pytest.mark.parametrize("write", [move("log://turn_1/get/a", "known://b"), copy("known://a", "log://turn_1/get/b")])
async def test_records_of_the_open_turn_are_moved_by_their_owner_only(client, run, write):
    await run.begin()
    await run.write(set_("log://turn_1/get/a", "", "{}", state=RECORDED), set_("known://a", "x"))
    error = await refused(client.call("WriteEntries", **run.address, writes=[write]))
    assert error.reason is Reason.TRANSITION_FORBIDDEN
    await client.call("WriteEntries", **run.address, writes=[copy("log://turn_1/get/a", "known://c")])
    await run.write(write)


# ---- Merges


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ('{"a":1}', '{"b":2}', '{"a":1,"b":2}'),
        ('{"a":1,"b":2}', '{"a":null}', '{"b":2}'),
        ('{"a":{"b":1,"c":2}}', '{"a":{"b":null,"d":[null]}}', '{"a":{"c":2,"d":[null]}}'),
        (None, '{"a":{"b":null}}', '{"a":{}}'),
    ],
)
async def test_attributes_are_merged(run, before, patch, after):
    """RU023: RFC 7386."""
    await run.write(set_("known://a", "x", before))
    await run.write(set_("known://a", merge_attributes_json=patch, writer=Tier.MODEL))
    entry = await run.entry("known://a")
    assert (content(entry), entry.writer) == (("x", after), Tier.MODEL)


async def test_a_merge_comes_after_given_attributes(run):
    await run.write(set_("known://a", "x", '{"old":1}'))
    await run.write(set_("known://a", attributes='{"a":1,"b":1}', merge_attributes_json='{"a":null,"c":3}'))
    assert (await run.entry("known://a")).attributes_json == '{"b":1,"c":3}'


async def test_a_merge_that_changes_nothing_makes_no_version(run):
    await run.write(set_("src/a.py", "x", '{ "n" : 1 }'))
    written = await run.write(set_("src/a.py", merge_attributes_json='{"n":1,"m":null}'))
    assert (await run.entry("src/a.py")).attributes_json == '{ "n" : 1 }'
    assert written.cursor.project_revision == 1


async def test_a_merge_keeps_what_others_wrote(run):
    """Two writers that merge lose nothing, whoever is first."""
    await run.write(set_("known://a", "x"))
    await asyncio.gather(*(run.write(set_("known://a", merge_attributes_json=f'{{"k{n}":{n}}}')) for n in range(8)))
    merged = json.loads((await run.entry("known://a")).attributes_json)
    assert merged == {f"k{n}": n for n in range(8)}


@pytest.mark.parametrize("patch", ["[1]", "{", '{"n":NaN}', '{"n":1e999}'])
async def test_a_merge_patch_is_one_object(run, patch):
    await run.write(set_("known://a", "x"))
    error = await refused(run.write(set_("known://a", merge_attributes_json=patch)))
    metadata = {"field": "merge_attributes_json", "path": "known://a"}
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, metadata)
