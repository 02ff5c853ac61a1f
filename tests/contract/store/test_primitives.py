"""The primitives beyond set and rm: cp, mv, merges of attributes, and all of them by pattern."""

import asyncio
import json

import pytest
from turnwright.store.v1 import change_pb2
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


# ---- By pattern

PROMOTE, RM = {"operation": change_pb2.ENTRY_OPERATION_PROMOTE}, {"operation": change_pb2.ENTRY_OPERATION_REMOVE}
SEED = {"src/a.py": "a", "src/sub/b.py": "b", "src/c.txt": "c", "known://x_1": "stale", "known://x_2": "fresh"}


def cp(to, visibility=KEEP):
    return {"operation": change_pb2.ENTRY_OPERATION_COPY, "to": to, "visibility": int(visibility)}


def mv(to, visibility=KEEP):
    return {"operation": change_pb2.ENTRY_OPERATION_MOVE, "to": to, "visibility": int(visibility)}


async def change(run, pattern, what, body="", **more):
    fields = {"writer": Tier.PLUGIN, "epoch": run.epoch, **more}
    return await run.client.call("ChangeEntries", **run.address, pattern=pattern, body_pattern=body, **what, **fields)


def told(answer):
    return [(one.path, one.to, one.body_size_bytes) for one in answer.changed]


@pytest.fixture
def seeded(run):
    async def seed():
        await run.write(*(set_(path, body, visibility=ARCHIVED) for path, body in SEED.items()))
        return run

    return seed


async def paths(run):
    return sorted(path for path in (await run.view()).paths if not path.startswith("run://"))


async def test_get_makes_what_fits_visible_and_stamps_the_turn(seeded):
    """RU024."""
    run = await seeded()
    for turn in (1, 2, 3):
        await run.begin()
        if turn < 3:
            await run.end(turn)
    answer = await change(run, "src/**", PROMOTE)
    assert told(answer) == [("src/a.py", "", 1), ("src/c.txt", "", 1), ("src/sub/b.py", "", 1)]
    entries = {path: await run.entry(path) for path in SEED}
    seen = {path: (entry.visibility, entry.turn, entry.loop) for path, entry in entries.items()}
    assert seen == {path: (VISIBLE, 3, 1) if path.startswith("src") else (ARCHIVED, 0, 1) for path in SEED}
    assert answer.cursor == (await run.view()).cursor


async def test_rm_takes_what_fits_out_of_the_view(seeded):
    """RU025."""
    run = await seeded()
    answer = await change(run, "known://x_*", RM, body="stale")
    assert told(answer) == [("known://x_1", "", 5)]
    assert await paths(run) == sorted(set(SEED) - {"known://x_1"})


@pytest.mark.parametrize(
    ("pattern", "to", "targets"),
    [
        ("src/**/*.py", "lib/", ["lib/a.py", "lib/sub/b.py"]),
        ("src/**/*.py", "lib", ["lib/a.py", "lib/sub/b.py"]),
        ("known://x_*", "known://old/", ["known://old/x_1", "known://old/x_2"]),
        ("src/*.txt", "known://c", ["known://c"]),
        ("src/*.txt", "known://c/", ["known://c/c.txt"]),
        ("src/a.py", "src/b.py", ["src/b.py"]),
        ("src/a.py", "lib/", ["lib/a.py"]),
        ("/.*x_[12]/", "known://old/", ["known://old/x_1", "known://old/x_2"]),
    ],
)
async def test_cp_and_mv_keep_the_path_below_the_fixed_part(seeded, pattern, to, targets):
    """RU026, RU027, RU259."""
    run = await seeded()
    answer = await change(run, pattern, cp(to))
    assert [one.to for one in answer.changed] == targets
    copies = {one.to: await run.entry(one.to) for one in answer.changed}
    assert {to: (entry.body, entry.visibility) for to, entry in copies.items()} == {
        one.to: (SEED[one.path], ARCHIVED) for one in answer.changed
    }
    await run.write(*(remove(target) for target in targets))
    again = await change(run, pattern, mv(to, VISIBLE))
    assert told(again) == told(answer)
    assert await paths(run) == sorted({*SEED, *targets} - {one.path for one in answer.changed})
    assert {(await run.entry(target)).visibility for target in targets} == {VISIBLE}


async def test_a_manifest_only_lists(seeded):
    run = await seeded()
    before = await run.view()
    answer = await change(run, "src/*", mv("lib/"), manifest=True)
    assert told(answer) == [("src/a.py", "lib/a.py", 1), ("src/c.txt", "lib/c.txt", 1)]
    assert await run.view() == before
    assert answer.cursor == before.cursor


@pytest.mark.parametrize(
    ("pattern", "what", "field"),
    [
        ("src/*", mv("src/"), "to"),
        ("src/{a.py,c.txt}", cp("src"), "to"),
        ("src/a.py", cp("src/a.py"), "to"),
        ("src/a.py", cp(""), "to"),
        ("", RM, "pattern"),
        ("x" * 2049, RM, "pattern"),
        ("src/a.py", {}, "operation"),
    ],
)
async def test_a_change_that_cannot_be_is_refused_before_anything_happens(seeded, pattern, what, field):
    run = await seeded()
    before = await run.view()
    error = await refused(change(run, pattern, what))
    assert (error.metadata["field"], error.reason in (Reason.INVALID_FIELD, Reason.LIMIT_EXCEEDED)) == (field, True)
    assert await run.view() == before


async def test_two_sources_never_go_to_one_destination(seeded):
    """A regex has no fixed part, so that only the last part of each path is kept."""
    run = await seeded()
    await run.write(set_("lib/a.py", "other"))
    error = await refused(change(run, "/.*a[.]py/", cp("known://all/")))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "to"})
    assert "known://all/a.py" in error.message


async def test_a_pattern_that_fits_nothing_is_not_found(seeded):
    run = await seeded()
    error = await refused(change(run, "known://y_*", RM))
    assert (error.reason, error.metadata) == (Reason.ENTRY_NOT_FOUND, {"path": "known://y_*"})


async def test_a_change_is_all_or_nothing(seeded):
    """RU034: one entry that the writer may not write refuses all."""
    run = await seeded()
    await run.write(set_("prompt://x_1", "x"))
    before = await run.view()
    error = await refused(change(run, "/.*x_1/", RM, writer=Tier.MODEL))
    assert (error.reason, error.metadata["outcome"]) == (Reason.WRITER_FORBIDDEN, "permission:403")
    assert await run.view() == before


async def test_a_repeated_change_gets_the_first_answer(seeded):
    """Though nothing fits any more."""
    run = await seeded()
    first = await change(run, "known://*", RM, request_id="once")
    assert await change(run, "known://*", RM, request_id="once") == first
    assert (await refused(change(run, "known://*", RM))).reason is Reason.ENTRY_NOT_FOUND
    error = await refused(change(run, "src/*", RM, request_id="once"))
    assert error.reason is Reason.REQUEST_ID_REUSED


async def test_a_stale_owner_changes_nothing(seeded):
    run = await seeded()
    error = await refused(change(run, "known://*", RM, epoch=run.epoch + 1))
    assert error.reason is Reason.LEASE_LOST


async def test_records_of_the_open_turn_are_left_to_their_owner(seeded):
    run = await seeded()
    await run.begin()
    await run.write(set_("log://turn_1/get/a", "", "{}", state=RECORDED))
    error = await refused(change(run, "log://**", RM, epoch=None))
    assert error.reason is Reason.TRANSITION_FORBIDDEN


async def test_a_change_loses_no_write_that_comes_between(seeded):
    """Each entry is changed as it was matched, or matched again: no writer's work is lost."""
    run = await seeded()

    async def write(number):
        await run.write(set_(f"known://x_{number % 3}", f"{number}"), set_("src/a.py", f"{number}"))

    async def copy_all(number):
        answer = await change(run, "known://x_*", cp(f"unknown://{number}/"))
        copied = {one.path: await run.entry(one.to) for one in answer.changed}
        assert {path: entry.body_size_bytes for path, entry in copied.items()} == {
            one.path: one.body_size_bytes for one in answer.changed
        }

    calls = [call for number in range(10) for call in (write(number), copy_all(number))]
    results = await asyncio.gather(*calls, return_exceptions=True)
    lost = [one for one in results if isinstance(one, Exception)]
    assert {one.reason for one in lost} <= {Reason.REVISION_CONFLICT}
    assert len(lost) < 10
