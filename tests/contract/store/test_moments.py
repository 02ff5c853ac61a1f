"""Earlier moments: a run as it was at a cursor or at the end of a turn, and what became of one path."""

import asyncio
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnwright.types.v1 import cursor_pb2

from contract.store.harness import (
    ARCHIVED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Run,
    append,
    new_project,
    new_run,
    remove,
    set_,
    working_run,
    write_of,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

PACKET, TIMELINE, FILES = 2, 3, 4


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def at_turn(number):
    return cursor_pb2.Moment(turn=number)


def at_cursor(cursor):
    return cursor_pb2.Moment(cursor=cursor)


async def turn(run, *writes):
    """A turn with these writes, from its begin to its end."""
    number = (await run.begin()).next.number
    await run.write(*writes)
    await run.end(number)
    return number


async def fork(parent: Run, alias: str, number: int = 0) -> Run:
    forked = await parent.client.call("ForkRun", **parent.address, new_run=alias, turn=number)
    return Run(parent.client, parent.project, forked.run.run)


async def history(run, path, **options):
    found, token = [], ""
    while True:
        page = await run.client.call("ListEntryHistory", **run.address, path=path, page_token=token, **options)
        found += page.intervals
        token = page.next_page_token
        if not token:
            return found


# ---- By cursor


async def test_a_view_is_read_as_it_was(client, run):
    """Architecture 3: any earlier moment of a run can be read."""
    other = await new_run(client, run.project, "other")
    await run.write(set_("known://a", "one"), set_("known://b", "x"), set_("src/a.py", "mine"))
    before = await run.view()
    await run.write(set_("known://a", "two", visibility=SUMMARIZED), remove("known://b"), set_("known://c", "new"))
    between = await run.view()
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs")])
    after = await run.view()
    for then in (before, between, after):
        assert await run.view(at=at_cursor(then.cursor)) == then


@pytest.mark.parametrize("wanted", [PACKET, TIMELINE, FILES])
async def test_an_earlier_view_is_filtered_like_the_present_one(run, wanted):
    await run.write(set_("known://a", "a"), set_("user://1", "u"), set_("src/a.py", "f"), set_("known://b", "b"))
    before = await run.view(filter=wanted, include_paths=["known://b"])
    await run.write(*(set_(path, visibility=ARCHIVED) for path in ("known://a", "user://1", "src/a.py")))
    assert await run.view(filter=wanted, include_paths=["known://b"], at=at_cursor(before.cursor)) == before


async def test_a_growing_body_is_read_as_far_as_it_had_come(run):
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "é", state=STREAMING))
    views = []
    for text in ("a", "bé", "c"):
        await run.write(append(path, text))
        views.append(await run.view())
    await run.write(set_(path, state=RESOLVED))
    await run.write(set_(path, "new"))
    bodies = ["éa", "éabé", "éabéc"]
    assert [(await run.view(at=at_cursor(view.cursor))).bodies[path] for view in views] == bodies


async def test_folding_changes_no_earlier_moment(run):
    """Bytes that were folded into the body are shown as far as each moment had them; the digest is of the whole."""
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "é", state=STREAMING))
    cursors = [(await run.write(append(path, text))).cursor for text in ("a", "bé", "c")]
    closed = await run.write(set_(path, state=RESOLVED))
    async with asyncio.timeout(60):
        while not (entry := await run.entry(path)).hash:  # noqa: ASYNC110 - the fold wakes nobody
            await asyncio.sleep(0.05)
    assert entry.body == "éabéc"
    entries = [await entry_at(run, path, cursor) for cursor in (*cursors, closed.cursor)]
    whole = hashlib.sha256("éabéc".encode()).hexdigest()
    assert [(entry.body, entry.body_size_bytes, entry.hash) for entry in entries] == [
        ("éa", 3, ""),
        ("éabé", 6, ""),
        ("éabéc", 7, whole),
        ("éabéc", 7, whole),
    ]
    cuts = [(await run.view(at=at_cursor(cursors[-1]), body_bytes_max=limit)).bodies[path] for limit in (1, 2, 5, 9)]
    assert cuts == ["", "é", "éab", "éabéc"]


async def entry_at(run, path, cursor):
    return (await run.client.call("GetEntries", **run.address, paths=[path], at=at_cursor(cursor))).entries[0]


async def test_entries_are_got_as_they_were(client, run):
    other = await new_run(client, run.project, "other")
    await run.write(set_("known://a", "one"), set_("src/a.py", "mine"))
    cursor = (await run.view()).cursor
    await run.write(set_("known://a", "two"), set_("known://b", "later"))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs")])
    paths = ["known://b", "src/a.py", "known://a"]
    got = await client.call("GetEntries", **run.address, paths=paths, at=at_cursor(cursor))
    assert [(entry.path, entry.body) for entry in got.entries] == [("src/a.py", "mine"), ("known://a", "one")]


async def test_a_moment_of_another_history_is_refused(client, run):
    ahead = cursor_pb2.Cursor()
    ahead.CopyFrom((await run.view()).cursor)
    ahead.run_revision += 1
    for cursor in (ahead, cursor_pb2.Cursor(incarnation="other")):
        for call in (
            run.view(at=at_cursor(cursor)),
            client.call("GetEntries", **run.address, paths=["known://a"], at=at_cursor(cursor)),
            client.call("ListEntries", **run.address, at=at_cursor(cursor)),
        ):
            assert (await refused(call)).reason is Reason.CURSOR_FOREIGN


async def test_one_read_has_one_moment(run):
    cursor = (await run.view()).cursor
    assert (await refused(run.view(after=cursor, at=at_cursor(cursor)))).metadata == {"field": "at"}
    assert (await refused(run.view(at=cursor_pb2.Moment()))).metadata == {"field": "at"}


# ---- By turn


async def test_the_end_of_a_turn_has_all_that_was_written_in_it(run):
    """What a turn wrote to a shared file belongs to its end, though its packet knew nothing of it."""
    first = await turn(run, set_("known://a", "one"), set_("src/a.py", "one"))
    seen = await run.view()
    second = await turn(run, set_("known://a", "two"), set_("src/a.py", "two"), remove("prompt://1"))
    assert await views_of(run, first, second) == [
        {"run://r1": seen.bodies["run://r1"], "known://a": "one", "src/a.py": "one"},
        {"run://r1": seen.bodies["run://r1"], "known://a": "two", "src/a.py": "two"},
    ]


async def views_of(run, *numbers):
    return [(await run.view(at=at_turn(number))).bodies for number in numbers]


async def test_what_changed_since_a_turn_is_read_with_the_cursor_of_its_view(run):
    number = await turn(run, set_("known://a", "one"), set_("known://b", "x"))
    then = await run.view(at=at_turn(number))
    await run.write(set_("known://a", "two"), remove("known://b"))
    changed = await run.view(after=then.cursor)
    assert (changed.bodies, changed.removed) == ({"known://a": "two"}, ["known://b"])


async def test_a_turn_that_has_not_ended_is_no_moment(run):
    number = (await run.begin()).next.number
    for wanted in (0, number, number + 1, 2**32 - 1):
        error = await refused(run.view(at=at_turn(wanted)))
        assert (error.reason, error.metadata) == (Reason.TURN_NOT_FOUND, {"run": "r1", "turn": str(wanted)})


async def test_an_inherited_turn_is_read_from_the_run_that_had_it(client, project):
    """RU060: turns are not copied by forks; a grandchild is led to where they are."""
    elder = await working_run(client, project, "elder")
    first = await turn(elder, set_("known://a", "one"))
    second = await turn(elder, set_("known://a", "two"))
    child = await fork(elder, "child", second)
    await elder.write(set_("known://a", "later"))
    grandchild = await fork(child, "grandchild")
    await grandchild.client.call("WriteEntries", **grandchild.address, writes=[set_("known://a", "own")])
    for run in (child, grandchild):
        bodies = await views_of(run, first, second)
        assert [each["known://a"] for each in bodies] == ["one", "two"]
        got = await client.call("GetEntries", **run.address, paths=["known://a"], at=at_turn(first))
        assert got.entries[0].body == "one"
    everything = await grandchild.view(after=(await grandchild.view(at=at_turn(first))).cursor)
    assert everything.bodies["known://a"] == "own"


async def test_what_the_parent_did_after_the_fork_is_no_moment_of_the_child(client, project):
    elder = await working_run(client, project, "elder")
    first = await turn(elder, set_("known://a", "one"))
    child = await fork(elder, "child", first)
    second = await turn(elder, set_("known://a", "two"))
    assert (await refused(child.view(at=at_turn(second)))).reason is Reason.TURN_NOT_FOUND


# ---- History


async def test_the_history_of_an_entry_has_every_state_latest_first(run):
    await run.write(set_("known://a", "one"))
    await run.write(set_("known://b", "x"))
    await run.write(set_("known://a", visibility=ARCHIVED))
    await run.write(remove("known://a"))
    await run.write(set_("known://a", "two"))
    found = await history(run, "known://a")
    assert [(one.entry.body, one.entry.visibility) for one in found] == [
        ("two", VISIBLE),
        ("one", ARCHIVED),
        ("one", VISIBLE),
    ]
    begins = [one.entry.revision for one in found]
    assert [one.end_revision for one in found] == [0, begins[0] - 1, begins[1]]
    times = [one.create_time.ToMilliseconds() for one in found]
    assert times == sorted(times, reverse=True)
    assert times[-1] > 0
    assert found[0].entry == await run.entry("known://a")


async def test_pages_of_a_history_join_to_the_whole(run):
    for number in range(7):
        await run.write(set_("known://a", str(number)))
    assert [one.entry.body for one in await history(run, "known://a", page_size=3)] == list("6543210")
    bare = await history(run, "known://a", page_size=3, without_bodies=True)
    assert [one.entry.body for one in bare] == [""] * 7


async def test_intervals_of_a_shared_entry_have_the_content_of_their_end(client, run):
    other = await new_run(client, run.project, "other")
    await run.write(set_("src/a.py", "mine"))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs")])
    await run.write(set_("src/a.py", "mine again"))
    await run.write(set_("src/a.py", visibility=ARCHIVED))
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs again")])
    found = await history(run, "src/a.py")
    assert [one.entry.body for one in found] == ["theirs again", "mine again", "theirs"]
    paged = await history(run, "src/a.py", page_size=1)
    assert paged == found


async def test_a_path_without_history_has_none(run):
    assert await history(run, "known://never") == []
    assert await history(run, "known://nu\0l") == []


# ---- Whatever happens: every moment stays as it was

PATHS = ["known://a", "known://b", "src/a.py", "src/b.py", "sh://turn_1/x_1"]
OPS = st.tuples(
    st.sampled_from(["set", "set", "see", "append", "remove", "other"]),
    st.sampled_from(PATHS),
    st.sampled_from(["", "a", "bé"]),
    st.sampled_from([VISIBLE, SUMMARIZED, ARCHIVED]),
    st.sampled_from([STREAMING, RESOLVED]),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.lists(OPS, min_size=1, max_size=3), min_size=1, max_size=8))
async def test_every_moment_stays_as_it_was(client, steps):
    project = await new_project(client, "moments")
    run, other = await new_run(client, project), await new_run(client, project)
    seen = [await run.view()]
    for ops in steps:
        writer = other if ops[0][0] == "other" else run
        try:
            await client.call("WriteEntries", **writer.address, writes=[write_of(op) for op in ops])
        except TurnwrightError:
            continue
        seen.append(await run.view())
    for view in seen:
        then = await run.view(at=at_cursor(view.cursor))
        assert (without_hash(then.entries), then.cursor) == (without_hash(view.entries), view.cursor)
        got = await client.call("GetEntries", **run.address, paths=PATHS, at=at_cursor(view.cursor))
        present = {entry.path: entry for entry in view.entries}
        assert without_hash(got.entries) == [present[path] for path in PATHS if path in present]


def without_hash(entries):
    """The digest of a streamed body comes with its folding, whenever that is."""
    for entry in entries:
        entry.ClearField("hash")
    return list(entries)
