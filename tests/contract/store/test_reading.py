"""Reading a run's view: filters, snapshots, what changed since a cursor, patterns."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnwright.types.v1 import cursor_pb2
from turnwright_values.types import State, Visibility

from cases import params
from contract.store.harness import (
    ARCHIVED,
    FAILED,
    PROPOSED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Client,
    append,
    new_project,
    new_run,
    remove,
    set_,
    start_store,
    working_run,
    write_of,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.schemes import scheme_from_pb
from turnwright_store.domain.pages import BOUND_CHARS

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

ALL, PACKET, TIMELINE, FILES = 1, 2, 3, 4


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def seed(run):
    await run.write(
        set_("known://a", "a"),
        set_("known://hidden", "b", visibility=ARCHIVED),
        set_("log://turn_1/sh/x", "c", state=PROPOSED),
        set_("assistant://0", "d"),
        set_("system://1", "e"),
        set_("user://1", "f"),
        set_("src/a.py", "g"),
        set_("src/b.py", "h", visibility=ARCHIVED),
        set_("http://e.org/", "i", visibility=SUMMARIZED),
    )


@pytest.mark.parametrize(
    ("wanted", "paths"),
    [
        (0, "run://r1 known://a known://hidden log://turn_1/sh/x assistant://0 system://1 user://1 src/a.py src/b.py http://e.org/"),
        (ALL, "run://r1 known://a known://hidden log://turn_1/sh/x assistant://0 system://1 user://1 src/a.py src/b.py http://e.org/"),
        (PACKET, "known://a src/a.py http://e.org/"),
        (TIMELINE, "run://r1 known://a known://hidden log://turn_1/sh/x assistant://0"),
        (FILES, "src/a.py src/b.py"),
    ],
    ids=["unspecified", "all", "packet", "timeline", "files"],
)  # fmt: skip
async def test_a_filter_keeps_its_entries_in_the_order_of_position(run, wanted, paths):
    """RU086: what no packet shows, the packet filter leaves out."""
    await seed(run)
    assert (await run.view(filter=wanted)).paths == paths.split()


async def test_an_unknown_filter_is_refused(run):
    assert (await refused(run.view(filter=9))).metadata == {"field": "filter"}


async def test_included_paths_come_whatever_the_filter_says(run):
    await seed(run)
    start = (await run.view(filter=FILES, include_paths=["known://hidden", "none://x"])).cursor
    await run.write(set_("known://hidden", "new"), set_("known://a", "new"))
    assert (await run.view(after=start, filter=FILES, include_paths=["known://hidden"])).paths == ["known://hidden"]
    many = [f"known://{number}" for number in range(101)]
    assert (await refused(run.view(include_paths=many))).metadata["field"] == "include_paths"


@pytest.mark.parametrize("case", params("rummy/visibility_rules.jsonl"))
async def test_what_stands_in_a_packet(run, case):
    """RU063, RU078, RU079, RU086 by the cases."""
    given_ = case["input"]
    visibility, state = Visibility[given_["visibility"].upper()], State[given_["state"].upper()]
    await run.write(set_(given_["path"], given_["body"], visibility=visibility, state=state))
    assert (given_["path"] in (await run.view(filter=PACKET)).paths) == case["expected"]["in_context"]
    schemes = {scheme.name: scheme for scheme in (await run.client.call("ListSchemes")).schemes}
    name = given_["path"].partition("://")[0] if "://" in given_["path"] else ""
    if "category" in case["expected"]:
        assert scheme_from_pb(schemes[name]).category == case["expected"]["category"]


async def test_bodies_can_be_left_out_or_cut_at_a_character(run):
    await run.write(set_("known://a", "aé" * 4), set_("sh://turn_1/x_1", "é", state=STREAMING))
    await run.write(append("sh://turn_1/x_1", "éaé"))
    await run.write(append("sh://turn_1/x_1", "zz"))
    without = (await run.view(without_bodies=True)).entries
    assert {(entry.path, entry.body, entry.body_size_bytes) for entry in without} == {
        ("run://r1", "", 5), ("known://a", "", 12), ("sh://turn_1/x_1", "", 9),
    }  # fmt: skip
    for limit, known, streamed in [(2, "a", "é"), (3, "aé", "é"), (5, "aéa", "ééa"), (8, "aéaéa", "ééaéz")]:
        bodies = (await run.view(body_bytes_max=limit)).bodies
        assert (bodies["known://a"], bodies["sh://turn_1/x_1"]) == (known, streamed)


async def test_a_view_comes_in_parts_of_one_moment(run):
    """Architecture 12.4: parts of about 256 KiB; the last one has the cursor."""
    await run.write(*(set_(f"known://{number:02}", str(number) * 40_000) for number in range(20)))
    parts = [part async for part in run.client.stream("ReadView", **run.address)]
    assert len(parts) >= 4
    assert [part.HasField("cursor") for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all(part.ByteSize() < 300_000 for part in parts)
    assert [entry.path for part in parts for entry in part.entries][1:] == [f"known://{n:02}" for n in range(20)]


async def test_a_view_in_parts_does_not_see_later_writes(run):
    """Versions never change: bodies that are loaded later are still those of the first moment."""
    paths = [f"known://{number:02}" for number in range(20)]
    await run.write(*(set_(path, "old" * 20_000) for path in paths))
    seen = []
    async for part in run.client.stream("ReadView", **run.address):
        if not seen:
            await run.write(*(set_(path, "new") for path in paths), remove("known://19"))
        seen += [entry.body[:3] for entry in part.entries if entry.path in paths]
    assert seen == ["old"] * 20


async def test_a_read_since_a_cursor_has_what_changed_and_nothing_else(client, project, run):
    """Architecture 3: rows whose view or shown version changed, and what left."""
    other = await new_run(client, project, "other")
    await seed(run)
    start = (await run.view()).cursor
    assert (await run.view(after=start)) == (await run.view(after=start))
    assert (await run.view(after=start)).entries == []
    await run.write(
        set_("known://a", "changed"), remove("known://hidden"), set_("known://new", "x"), remove("user://1")
    )
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs"), set_("src/c.py", "unseen")])
    changed = await run.view(after=start)
    assert changed.bodies == {"known://a": "changed", "known://new": "x", "src/a.py": "theirs"}
    assert sorted(changed.removed) == ["known://hidden", "user://1"]
    assert (await run.view(after=changed.cursor)).entries == []


async def test_what_no_longer_passes_a_filter_is_removed(run):
    await seed(run)
    start = (await run.view(filter=PACKET)).cursor
    await run.write(set_("known://a", visibility=ARCHIVED), set_("known://hidden", "still archived"))
    await run.write(set_("known://brief", "x"), set_("known://brief", state=PROPOSED))
    changed = await run.view(after=start, filter=PACKET)
    assert (changed.paths, changed.removed) == ([], ["known://a"])


async def test_a_cursor_of_another_history_is_refused(run):
    now = (await run.view()).cursor
    foreign = cursor_pb2.Cursor()
    foreign.CopyFrom(now)
    foreign.incarnation = "other"
    ahead = cursor_pb2.Cursor()
    ahead.CopyFrom(now)
    ahead.run_revision += 1
    for cursor in (foreign, ahead, cursor_pb2.Cursor()):
        assert (await refused(run.view(after=cursor))).reason is Reason.CURSOR_FOREIGN


async def test_paths_are_read_in_the_order_of_the_request(run):
    await seed(run)
    got = await run.client.call("GetEntries", **run.address, paths=["src/a.py", "none", "known://a", "src/a.py"])
    assert [(entry.path, entry.body) for entry in got.entries] == [
        ("src/a.py", "g"), ("known://a", "a"), ("src/a.py", "g"),
    ]  # fmt: skip
    many = [f"known://{number}" for number in range(1001)]
    assert (await refused(run.client.call("GetEntries", **run.address, paths=many))).metadata["field"] == "paths"


async def test_an_answer_that_would_be_too_large_is_refused_or_cut(run):
    big = "x" * (12 * 1024 * 1024)
    paths = [f"known://{number}" for number in range(3)]
    for path in paths:
        await run.write(set_(path, big))
    error = await refused(run.client.call("GetEntries", **run.address, paths=paths))
    assert (error.reason, error.metadata["unit"]) == (Reason.LIMIT_EXCEEDED, "bytes")
    pages, token = [], ""
    while not pages or token:
        page = await run.client.call("ListEntries", **run.address, pattern="known://*", page_token=token)
        pages.append([entry.path for entry in page.entries])
        token = page.next_page_token
    assert pages == [[path] for path in paths]


# ---- Patterns


async def listed(run, **query):
    paths, token = [], ""
    while True:
        page = await run.client.call("ListEntries", **run.address, page_token=token, **query)
        paths += [entry.path for entry in page.entries]
        token = page.next_page_token
        if not token:
            return paths


@pytest.mark.parametrize("case", params("rummy/pattern_ops.jsonl"))
async def test_operations_by_pattern(run, case):
    """RU022, RU063 and the pattern rows: what a pattern selects, archived entries included."""
    await run.write(*(set_(path, body) for path, body in case["input"]["seed"]))
    everything = [path for path, _ in case["input"]["seed"]]
    for op in case["input"].get("ops", []):
        found = await listed(run, pattern=op["path"], body_pattern=op.get("body") or "")
        match op["op"]:
            case "get":
                await run.write(*(set_(path, visibility=VISIBLE, turn=op["turn"]) for path in found))
            case "set_visibility":
                await run.write(*(set_(path, visibility=Visibility[op["visibility"].upper()]) for path in found))
            case "rm":
                await run.write(*(remove(path) for path in found))
    query = case["input"].get("query", {})
    expected = case["expected"]
    if "paths" in expected:
        assert await listed(run, pattern=query["path"], body_pattern=query["body"] or "") == expected["paths"]
    if "paths_left" in expected:
        left = await run.client.call("GetEntries", **run.address, paths=everything)
        assert [entry.path for entry in left.entries] == expected["paths_left"]
    for path, turn in expected.get("turns", {}).items():
        assert (await run.entry(path)).turn == turn
    for path, visibility in expected.get("visibility", {}).items():
        assert (await run.entry(path)).visibility == Visibility[visibility.upper()]
        assert path in await listed(run, pattern="src/**")


@pytest.mark.parametrize(
    ("pattern", "body", "paths"),
    [
        ("", "", ["a", "a/b.py", "a/c/d.py", "a[1].py", "known://x/y", "known://z", "run://r1"]),
        ("a/*.py", "", ["a/b.py"]),
        ("a/**/*.py", "", ["a/b.py", "a/c/d.py"]),
        ("known://*", "", ["known://x/y", "known://z"]),
        ("a[1].py", "", ["a[1].py"]),
        ("/^a.*py$/", "", ["a/b.py", "a/c/d.py", "a[1].py"]),
        ("", "needle", ["a/b.py", "known://z"]),
        ("a/**", "needle", ["a/b.py"]),
        ("nothing", "", []),
    ],
)
async def test_a_pattern_is_a_glob_a_regex_or_a_path(run, pattern, body, paths):
    await run.write(*(set_(path, "x") for path in ("a", "a/c/d.py", "a[1].py", "known://x/y")))
    await run.write(set_("a/b.py", "a needle"), set_("known://z", "", state=STREAMING), append("known://z", "needles"))
    assert await listed(run, pattern=pattern, body_pattern=body) == paths
    assert await listed(run, pattern=pattern, body_pattern=body, page_size=2) == paths


async def test_a_pattern_that_cannot_be_used_is_refused(run):
    for query in ({"pattern": "/(/"}, {"body_pattern": "/(/"}, {"pattern": "x" * 2049}):
        error = await refused(run.client.call("ListEntries", **run.address, **query))
        assert error.metadata["field"] in ("pattern", "body_pattern")


async def test_matching_has_a_limit_of_time(tmp_path, own_db):
    server = await start_store(tmp_path, pattern_s_max=0.000001)
    client = Client(server.address)
    run = await working_run(client, await new_project(client))
    error = await refused(client.call("ListEntries", **run.address, pattern="r*"))
    assert error.metadata == {"field": "pattern"}
    await client.close()
    await server.stop()


async def test_a_path_that_is_asked_for_often_counts_as_often(run):
    await run.write(set_("known://a", "x" * 60_000))
    error = await refused(run.client.call("GetEntries", **run.address, paths=["known://a"] * 1000))
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, "paths")
    twice = await run.client.call("GetEntries", **run.address, paths=["known://a"] * 2)
    assert [entry.path for entry in twice.entries] == ["known://a", "known://a"]


# ---- Pages


async def test_pages_join_to_the_whole_list(client, run):
    for number in range(7):
        await new_run(client, run.project, f"x{number}")
    await run.write(set_("known://a", "x"), run_status=202)
    names, token = [], ""
    while True:
        page = await client.call("ListRuns", project=run.project, page_size=3, page_token=token)
        names += [one.run for one in page.runs]
        token = page.next_page_token
        if not token:
            break
    assert names[0] == "r1"
    assert sorted(names) == ["r1", *(f"x{number}" for number in range(7))]


@pytest.mark.parametrize("token", ["x", "e30=", "WzFd", "WyJhIiwiYiJd", "\u00e9", "x" * 20_000])
async def test_a_token_that_no_page_gave_is_refused(run, token):
    error = await refused(run.client.call("ListEntries", **run.address, page_token=token))
    assert error.metadata["field"] == "page_token"


@pytest.mark.parametrize("rpc", ["ListModels", "ListProjects"])
@pytest.mark.parametrize("token", ["WyJhXHUwMDAwIl0=", "WyJcdWQ4MDAiXQ=="], ids=["nul", "surrogate"])
async def test_a_token_with_a_name_that_nothing_has_is_refused(client, rpc, token):
    assert (await refused(client.call(rpc, page_token=token))).metadata == {"field": "page_token"}


@pytest.mark.parametrize("rpc", ["ListLoops", "ListTurns"])
async def test_a_token_may_name_any_number(run, rpc):
    """2**80 and its negative: numbers that no database has."""
    for _ in range(2):
        await run.end((await run.begin()).next.number, status=102)
        await run.enqueue()
    made = (await run.client.call(rpc, **run.address, page_size=1)).next_page_token[-BOUND_CHARS:]
    pages = [
        await run.client.call(rpc, **run.address, page_token=token + made)
        for token in ("WzEyMDg5MjU4MTk2MTQ2MjkxNzQ3MDYxNzZd", "Wy0xMjA4OTI1ODE5NjE0NjI5MTc0NzA2MTc2XQ==")
    ]
    assert [page.next_page_token for page in pages] == ["", ""]


async def test_a_page_has_a_largest_size(client):
    error = await refused(client.call("ListModels", page_size=1001))
    assert error.metadata == {"field": "page_size", "limit": "1000", "actual": "1001", "unit": "items"}


# ---- Whatever happens: a snapshot and what changed since give the snapshot of now

PATHS = ["known://a", "known://b", "src/a.py", "src/b.py", "sh://turn_1/x_1", "user://1", "http://e.org/"]
OPS = st.tuples(
    st.sampled_from(["set", "set", "see", "append", "remove", "other"]),
    st.sampled_from(PATHS),
    st.sampled_from(["", "a", "bé"]),
    st.sampled_from([VISIBLE, SUMMARIZED, ARCHIVED]),
    st.sampled_from([PROPOSED, STREAMING, RESOLVED, FAILED]),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.lists(OPS, min_size=1, max_size=3), min_size=1, max_size=10),
    wanted=st.sampled_from([ALL, PACKET, TIMELINE, FILES]),
    include=st.sampled_from([[], ["known://a", "src/b.py"]]),
    stride=st.integers(1, 3),
)
async def test_changes_applied_to_a_snapshot_give_the_next_snapshot(client, project, steps, wanted, include, stride):
    run, other = await new_run(client, project), await new_run(client, project)
    options = {"filter": wanted, "include_paths": include}
    view = await run.view(**options)
    known = {entry.path: entry for entry in view.entries}
    cursor = view.cursor
    for number, ops in enumerate(steps):
        writer = other if ops[0][0] == "other" else run
        with contextlib.suppress(TurnwrightError):
            # Appending to what does not stream, or is not there, is refused; most requests are not.
            await client.call("WriteEntries", **writer.address, writes=[write_of(op) for op in ops])
        if number % stride:
            continue
        changed = await run.view(after=cursor, **options)
        assert set(changed.removed) <= set(known)
        assert not set(changed.removed) & set(changed.paths)
        for path in changed.removed:
            del known[path]
        known |= {entry.path: entry for entry in changed.entries}
        cursor = changed.cursor
        assert known == {entry.path: entry for entry in (await run.view(**options)).entries}
