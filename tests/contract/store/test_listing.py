"""Listing entries: filters, pages of one moment, and what a glob's beginning may leave out."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnwright.types.v1 import cursor_pb2

from contract.store.harness import (
    ARCHIVED,
    FAILED,
    PROPOSED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    new_project,
    new_run,
    remove,
    set_,
    write_of,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.patterns.matching import match
from turnwright_store.domain.pages import BOUND_CHARS

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def page_of(run, **query):
    return await run.client.call("ListEntries", **run.address, **query)


async def rest_of(run, page, **query):
    """The paths of the pages behind one."""
    paths = []
    while page.next_page_token:
        page = await page_of(run, page_token=page.next_page_token, **query)
        paths += [entry.path for entry in page.entries]
    return paths


async def listed(run, **query):
    page = await page_of(run, **query)
    return [entry.path for entry in page.entries] + await rest_of(run, page, **query)


# ---- Filters


@pytest.mark.parametrize(
    ("query", "paths"),
    [
        ({"schemes": ["known"]}, "known://a known://b"),
        ({"schemes": ["", "sh"]}, "sh://turn_1/x_1 src/a.py"),
        ({"categories": ["SCHEME_CATEGORY_DATA"]}, "known://a known://b sh://turn_1/x_1 src/a.py"),
        ({"categories": ["SCHEME_CATEGORY_AUDIT", "SCHEME_CATEGORY_UNKNOWN"]}, "assistant://0 run://r1 unknown://q"),
        ({"visibilities": [ARCHIVED, SUMMARIZED]}, "known://b src/a.py"),
        ({"states": [STREAMING, FAILED]}, "sh://turn_1/x_1 unknown://q"),
        ({"categories": ["SCHEME_CATEGORY_DATA"], "visibilities": [VISIBLE], "states": [RESOLVED]}, "known://a"),
        ({"pattern": "known://*", "visibilities": [ARCHIVED]}, "known://b"),
        ({"body_pattern": "needle", "schemes": ["known"]}, "known://a"),
        ({"schemes": ["never"]}, ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [0, 1], ids=["whole", "paged"])
async def test_a_filter_keeps_what_it_names(run, query, paths, size):
    """Scheme, category, visibility and state are independent of each other."""
    await run.write(
        set_("known://a", "needle"),
        set_("known://b", "x", visibility=ARCHIVED),
        set_("src/a.py", "needle", visibility=SUMMARIZED),
        set_("sh://turn_1/x_1", "", state=STREAMING),
        set_("assistant://0", "x"),
        set_("unknown://q", "x", state=FAILED),
    )
    assert await listed(run, **query, page_size=size) == paths.split()


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"states": [0]}, "states"),
        ({"states": [77]}, "states"),
        ({"visibilities": [0]}, "visibilities"),
        ({"schemes": [f"s{number}" for number in range(101)]}, "schemes"),
        ({"categories": [0]}, "categories"),
    ],
    ids=["state-0", "state-77", "visibility-0", "schemes", "categories"],
)
async def test_a_filter_that_cannot_be_used_is_refused(run, query, field):
    assert (await refused(page_of(run, **query))).metadata["field"] == field


# ---- Patterns


@pytest.mark.parametrize("pattern", ["src/**", "./src/**", "src/{**,x}", "s*", "src/**/a", "src", "/^src/", "!src/a"])
async def test_a_pattern_finds_all_that_fits_it(run, pattern):
    """`src/**` fits a file that is named `src`, though nothing of it comes behind the slash."""
    everything = ["run://r1", "src", "src/a", "src/b/a", "src2/a", "x"]
    await run.write(*(set_(path, "x") for path in everything[1:]))
    assert await listed(run, pattern=pattern) == [path for path in everything if match(pattern, path)]
    assert "src" in await listed(run, pattern="src/**")


async def test_a_pattern_that_no_path_can_have_finds_nothing(run):
    for pattern in ("known://\0", "known://\0*"):
        assert await listed(run, pattern=pattern) == []


# ---- Pages


async def test_all_pages_show_the_moment_of_the_first(client, run):
    """A changed store in between neither repeats nor misses nor changes an entry."""
    other = await new_run(client, run.project, "other")
    await run.write(*(set_(f"known://{number}", "old") for number in range(6)), set_("src/a.py", "old"))
    first = await page_of(run, page_size=3)
    await run.write(
        remove("known://4"),
        set_("known://00", "before what comes"),
        set_("known://35", "among what comes"),
        set_("known://5", "new", visibility=ARCHIVED),
    )
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs")])
    second = await page_of(run, page_size=3, page_token=first.next_page_token)
    third = await page_of(run, page_size=3, page_token=second.next_page_token)
    entries = [entry for page in (first, second, third) for entry in page.entries]
    assert [(entry.path, entry.body, entry.visibility) for entry in entries] == [
        *((f"known://{number}", "old", VISIBLE) for number in range(6)),
        ("run://r1", "do it", VISIBLE),
        ("src/a.py", "old", VISIBLE),
    ]
    assert third.next_page_token == ""


async def test_a_list_of_an_earlier_moment_is_paged_there(run):
    await run.write(*(set_(f"known://{number}", "old") for number in range(4)))
    number = (await run.begin()).next.number
    await run.end(number)
    cursor = (await run.view()).cursor
    await run.write(*(set_(f"known://{number}", "new") for number in range(2, 6)), remove("known://0"))
    for at in (cursor_pb2.Moment(cursor=cursor), cursor_pb2.Moment(turn=number)):
        first = await page_of(run, pattern="known://*", at=at, page_size=2)
        second = await page_of(run, pattern="known://*", at=at, page_size=2, page_token=first.next_page_token)
        entries = [*first.entries, *second.entries]
        assert [(entry.path, entry.body) for entry in entries] == [(f"known://{n}", "old") for n in range(4)]
        found = await page_of(run, pattern="known://5", at=at)
        assert list(found.entries) == []


async def test_a_token_of_another_history_is_refused(run):
    await run.write(set_("known://a", "x"))
    token = (await page_of(run, page_size=1)).next_page_token
    other = token_with(token, incarnation="other")
    assert (await refused(page_of(run, page_token=other))).reason is Reason.CURSOR_FOREIGN
    for bad in (token_with(token, turn=2**40), token_with(token, turn=-1), token_with(token, path="a\0b")):
        assert (await refused(page_of(run, page_token=bad))).metadata == {"field": "page_token"}
    assert (await refused(page_of(run, page_token=token_with(token, turn=7)))).reason is Reason.TURN_NOT_FOUND
    assert (
        await refused(page_of(run, page_token=token_with(token, run_revision=2**80)))
    ).reason is Reason.CURSOR_FOREIGN


async def test_pages_go_on_behind_the_longest_path(run):
    """Characters of four bytes, so that nothing that names the path could be longer."""
    paths = ["known://" + character * 2040 for character in "\U0001f600\U0001f601"]
    await run.write(*(set_(path, "x") for path in paths))
    first = await page_of(run, schemes=["known"], page_size=1)
    second = await page_of(run, schemes=["known"], page_size=1, page_token=first.next_page_token)
    assert [entry.path for entry in (*first.entries, *second.entries)] == paths


@pytest.mark.parametrize("name", ["path", "run"])
@pytest.mark.parametrize("value", ["a\0b", "\ud800"])
async def test_a_token_that_names_no_path_or_run_is_refused(run, name, value):
    await run.write(set_("known://a", "x"))
    token = (await page_of(run, page_size=1)).next_page_token
    assert (await refused(page_of(run, page_token=token_with(token, **{name: value})))).metadata == {
        "field": "page_token"
    }


def token_with(token, **changed):
    """A token that somebody wrote by hand."""
    import base64
    import json

    names = ("incarnation", "run_revision", "project_revision", "global_revision", "turn", "run", "path")
    made, request = token[:-BOUND_CHARS], token[-BOUND_CHARS:]
    place = dict(zip(names, json.loads(base64.urlsafe_b64decode(made)), strict=True)) | changed
    return base64.urlsafe_b64encode(json.dumps(list(place.values())).encode()).decode() + request


PATHS = ["known://a", "known://b", "known://c", "src/a.py", "src/b.py", "sh://turn_1/x_1", "sh://turn_1/x_2"]
OPS = st.tuples(
    st.sampled_from(["set", "see", "append", "remove"]),
    st.sampled_from(PATHS),
    st.sampled_from(["", "a", "bé"]),
    st.sampled_from([VISIBLE, ARCHIVED]),
    st.sampled_from([PROPOSED, STREAMING, RESOLVED]),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(OPS, min_size=3, max_size=8),
    between=st.lists(OPS, min_size=3, max_size=12),
    size=st.integers(1, 3),
    query=st.sampled_from([{}, {"pattern": "known://*"}, {"states": [STREAMING]}, {"body_pattern": "a"}]),
)
async def test_pages_join_to_the_list_of_the_first_moment(client, before, between, size, query):
    run = await new_run(client, await new_project(client, "paged"))
    await write_all(run, before)
    whole = await page_of(run, **query)
    page = await page_of(run, page_size=size, **query)
    seen = list(page.entries)
    while page.next_page_token:
        await write_all(run, between[:2])
        between = between[2:]
        page = await page_of(run, page_size=size, page_token=page.next_page_token, **query)
        seen += page.entries
    assert without_hash(seen) == without_hash(whole.entries)


async def write_all(run, ops):
    for op in ops:
        try:
            await run.client.call("WriteEntries", **run.address, writes=[write_of(op)])
        except TurnwrightError:
            # Appending to what does not stream, or is not there.
            continue


def without_hash(entries):
    """The digest of a streamed body comes with its folding, whenever that is."""
    for entry in entries:
        entry.ClearField("hash")
    return list(entries)


# ---- The run that was written last, and long bodies


async def test_without_a_run_all_pages_are_of_the_one_that_was_written_last_at_the_first(client, run):
    # RU229
    for name in "abc":
        await run.write(set_(f"known://{name}", f"{name} of r1"))
    query = {"project": run.project, "pattern": "known://*", "page_size": 2}
    first = await client.call("ListEntries", **query)
    later = await new_run(client, run.project, "later")
    await later.write(set_("known://d", "d of later"))
    second = await client.call("ListEntries", **query, page_token=first.next_page_token)
    assert [entry.body for page in (first, second) for entry in page.entries] == ["a of r1", "b of r1", "c of r1"]
    assert [entry.body for entry in (await client.call("ListEntries", **query)).entries] == ["d of later"]
    error = await refused(client.call("ListEntries", project=await new_project(client, "empty")))
    assert error.reason is Reason.RUN_NOT_FOUND


async def test_a_body_that_fills_a_page_is_cut_and_read_on_by_itself(run):
    body = "ü" * (3 * 512 * 1024)
    await run.write(set_("known://a", body))
    await run.write(set_("known://b", "b"))
    page = await page_of(run, pattern="known://*")
    assert [(entry.body, entry.body_size_bytes) for entry in page.entries] == [
        (body[: 1024 * 1024], len(body.encode()))
    ]
    assert await rest_of(run, page, pattern="known://*") == ["known://b"]
    read = await run.client.call("GetEntry", **run.address, path="known://a", body_offset=2 * 1024 * 1024)
    assert (read.body_offset, page.entries[0].body + read.entry.body) == (2 * 1024 * 1024, body)
