"""What stands behind the contract: content once, a view for each run, and rows that nobody writes by name.

Rows that name tables hold by what is seen of them, on both databases (C34): RU045, RU047, RU062, RU090, RU091, RU096.
"""

import asyncio
import json

import pytest
from sqlalchemy import func, select
from turnwright.types.v1 import model_pb2, project_pb2
from turnwright_values.types import Tier

from contract.store.counting import connected, row_counts
from contract.store.harness import (
    ARCHIVED,
    CANCELLED,
    FAILED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    new_project,
    new_run,
    set_,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.sql.tables import metadata, views

pytestmark = pytest.mark.asyncio

CONTENT = ("entries", "versions", "views")


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def content(db, home) -> dict[str, int]:
    """Rows of the tables of content and views."""
    rows = row_counts(db, home)
    return {name: rows[name] for name in CONTENT}


def grown(before: dict[str, int], after: dict[str, int]) -> tuple[int, ...]:
    """How many rows were added to each."""
    return tuple(after[name] - before[name] for name in CONTENT)


# Content and views


async def test_content_is_kept_once_and_each_run_has_its_own_view_of_it(db, tmp_path, client, project, run):
    """RU045, RU057."""
    other = await new_run(client, project, "other")
    before = content(db, tmp_path)
    await run.write(set_("src/a.py", "body", '{"k":1}', visibility=VISIBLE))
    seen_too = [set_("src/a.py", visibility=SUMMARIZED, state=FAILED, outcome="conflict:409")]
    await client.call("WriteEntries", **other.address, writes=seen_too)
    mine, theirs = await run.entry("src/a.py"), await other.entry("src/a.py")
    assert grown(before, content(db, tmp_path)) == (1, 1, 2)
    assert (mine.body, mine.attributes_json, mine.hash) == (theirs.body, theirs.attributes_json, theirs.hash)
    assert (mine.visibility, mine.state, mine.outcome) == (VISIBLE, RESOLVED, "")
    assert (theirs.visibility, theirs.state, theirs.outcome) == (SUMMARIZED, FAILED, "conflict:409")
    await run.write(set_("src/a.py", "newer"))
    assert [(await one.entry("src/a.py")).write_count for one in (run, other)] == [2, 1]


async def test_reading_both_together_writes_neither(db, tmp_path, run):
    """RU045: what joins content and view is read-only."""
    await run.write(set_("src/a.py", "body", visibility=ARCHIVED), set_("known://a", "fact"))
    before, rows = await run.view(), row_counts(db, tmp_path)
    await run.entry("src/a.py")
    await run.client.call("ListEntries", **run.address, pattern="**")
    await run.client.call("ListEntryHistory", **run.address, path="src/a.py")
    after = await run.view()
    assert (after.entries, after.cursor) == (before.entries, before.cursor)
    assert row_counts(db, tmp_path) == rows


async def test_a_write_makes_the_entry_and_then_its_view_once_for_each_pair(db, tmp_path, run):
    """RU091: unique on scope and path, and on run and entry."""
    before = content(db, tmp_path)
    for number in range(3):
        await run.write(set_("known://a", f"body {number}"))
    with connected(db, tmp_path) as connection:
        current = select(func.count()).where(views.c.path == "known://a", views.c.to_rev.is_(None))
        assert connection.execute(current).scalar_one() == 1
    assert grown(before, content(db, tmp_path))[0] == 1
    assert ((await run.entry("known://a")).body, (await run.entry("known://a")).write_count) == ("body 2", 3)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (set_("known://b", "x", expected_revision=7), Reason.REVISION_CONFLICT),
        (set_("prompt://9", "x", writer=Tier.MODEL), Reason.WRITER_FORBIDDEN),
        (set_("known://b", "x", state=RESOLVED, outcome="well:200"), Reason.INVALID_FIELD),
        (set_("known://b", "x", "[1]"), Reason.INVALID_FIELD),
    ],
    ids=["revision", "writer", "outcome", "attributes"],
)
async def test_of_a_write_that_is_refused_neither_entry_nor_view_stays(db, tmp_path, run, wrong, reason):
    """RU091: both are one transaction, and so are the writes of a request."""
    before, view = row_counts(db, tmp_path), await run.view()
    error = await refused(run.write(set_("known://a", "x"), wrong))
    after = await run.view()
    assert error.reason is reason
    assert (after.entries, after.cursor) == (view.entries, view.cursor)
    assert row_counts(db, tmp_path) == before


# Every parameter of a set


SET = {
    "body": ({"body": "other"}, "body", "other"),
    "state": ({"state": STREAMING}, "state", STREAMING),
    "visibility": ({"visibility": SUMMARIZED}, "visibility", SUMMARIZED),
    "attributes": ({"attributes": '{"n":2}'}, "attributes_json", '{"n":2}'),
    "outcome": ({"state": CANCELLED, "outcome": "aborted:499"}, "outcome", "aborted:499"),
    "turn": ({"turn": 5}, "turn", 5),
    "loopId": ({"loop": 4}, "loop", 4),
    "writer": ({"body": "other", "writer": Tier.MODEL}, "writer", Tier.MODEL),
}
"""Parameter of the specification -> fields of a write, and what an entry shows of it."""


@pytest.mark.parametrize("parameter", SET)
async def test_each_parameter_of_a_set_has_its_field_and_its_effect(run, parameter):
    """RU090: those that are not given stay as they are; `runId` and `projectId` are the address."""
    fields, name, expected = SET[parameter]
    await run.write(set_("known://a", "body", '{"n":1}'))
    before = await run.entry("known://a")
    await run.write(set_("known://a", **fields))
    after = await run.entry("known://a")
    assert getattr(before, name) != expected
    assert getattr(after, name) == expected
    follows = {
        "state": {"state", "status"},
        "outcome": {"state", "outcome", "status"},
        "writer": {"body", "hash", "writer"},
    }
    own = {"body": {"body", "hash"}} | follows
    moved = {
        field.name for field in after.DESCRIPTOR.fields if getattr(after, field.name) != getattr(before, field.name)
    }
    counted = {"revision", "write_count", "update_time", "body_size_bytes"}
    assert moved - counted == own.get(parameter, {name})


async def test_a_set_names_its_run_and_its_project(client, project, run):
    """RU090."""
    elsewhere = await new_run(client, await new_project(client, "elsewhere"), run.alias)
    other = await new_run(client, project, "other")
    await run.write(set_("known://a", "mine"), set_("src/a.py", "ours"))
    assert [await one.entry("known://a") for one in (other, elsewhere)] == [None, None]
    assert (await run.entry("known://a")).scope.startswith("run:")
    assert (await run.entry("src/a.py")).scope.startswith("project:")
    error = await refused(client.call("WriteEntries", project="nowhere", run="r1", writes=[set_("known://a", "x")]))
    assert error.reason is Reason.PROJECT_NOT_FOUND


# Statuses


@pytest.mark.parametrize("state", [FAILED, CANCELLED])
@pytest.mark.parametrize("code", ["099", "000", "600", "999", "\u0664\u0660\u0664", "1000", "-50"])
async def test_no_entry_has_a_status_outside_of_100_to_599(run, state, code):
    """RU062: a code that is none counts as no code."""
    await run.write(set_("known://a", "x", state=state, outcome=f"odd:{code}"))
    assert (await run.entry("known://a")).status == (500 if state is FAILED else 499)


@pytest.mark.parametrize("status", [0, 99, 600, 700, -1])
async def test_no_loop_ends_with_a_status_outside_of_100_to_599(run, status):
    """RU062."""
    begun = await run.begin()
    error = await refused(run.end(begun.next.number, loop=(status, "odd", ""), status=200))
    assert (error.reason, (await run.get()).status) == (Reason.INVALID_FIELD, 102)


# Bookkeeping


async def test_an_entry_with_the_name_of_a_table_is_an_entry(db, tmp_path, run):
    """RU047."""
    names = [name for name in metadata.tables if name not in (*CONTENT, "scopes", "idempotency")]
    before = {name: count for name, count in row_counts(db, tmp_path).items() if name in names}
    paths = [path for name in names for path in (name, f"known://{name}")]
    await run.write(*(set_(path, json.dumps({"id": 1})) for path in paths))
    found = (await run.client.call("GetEntries", **run.address, paths=paths)).entries
    assert len(found) == len(paths)
    assert {name: count for name, count in row_counts(db, tmp_path).items() if name in names} == before


async def test_of_many_that_want_a_name_at_once_one_has_it(client):
    """RU096: names of projects; C13: aliases in a project."""

    async def tried(rpc, **fields):
        try:
            await client.call(rpc, **fields)
        except TurnwrightError as error:
            return error.reason
        return None

    projects = await asyncio.gather(
        *(tried("InitProject", root=f"/srv/{n}", workspace_id=f"ws-{n}", name="same") for n in range(6))
    )
    await new_project(client)
    settings = (await (await new_run(client, "demo", "first")).get()).settings
    runs = await asyncio.gather(*(tried("CreateRun", project="demo", run="same", settings=settings) for _ in range(6)))
    assert sorted(projects, key=str) == sorted([None, *[Reason.INVALID_FIELD] * 5], key=str)
    assert sorted(runs, key=str) == sorted([None, *[Reason.RUN_EXISTS] * 5], key=str)
    assert [one.name for one in (await client.call("ListProjects")).projects] == ["demo", "same"]


async def test_an_alias_of_a_model_is_one_model(client):
    """RU096: alias, what it stands for, context length."""
    for number in (1, 2):
        model = model_pb2.Model(alias="a", vendor_model=f"v/{number}", context_length=number)
        await client.call("SetModel", model=model)
    assert list((await client.call("ListModels")).models) == [model]


async def test_each_table_of_the_specification_keeps_what_it_lists(client):
    """RU096: of a project root and settings, of a run its loops and turns, what a turn was sent, and constraints."""
    answer = await client.call("InitProject", root="/srv/x", workspace_id="w", name="x", config_path="c.toml")
    await client.call("SetModel", model=model_pb2.Model(alias="fast", vendor_model="scripted/a"))
    run = await working_run(client, "x", "r")
    begun = await run.begin()
    await run.end(begun.next.number, status=102)
    constraint = project_pb2.FileConstraint(pattern="a.py", kind=project_pb2.FILE_CONSTRAINT_KIND_READONLY)
    await client.call("SetFileConstraints", project="x", constraints=[constraint])
    (loop,) = (await client.call("ListLoops", **run.address)).loops
    (turn,) = (await client.call("ListTurns", **run.address)).turns
    (kept,) = (await client.call("ListFileConstraints", project="x")).constraints
    assert (answer.project.name, answer.project.root, answer.project.config_path) == ("x", "/srv/x", "c.toml")
    assert (loop.sequence, loop.prompt, turn.number, turn.loop) == (1, "do it", 1, 1)
    assert (kept.pattern, kept.kind) == (constraint.pattern, constraint.kind)
