"""A new run is shown the files of its project that another run sees. Rows RU115, RU165."""

import pytest
from turnwright.types.v1 import entry_pb2, view_pb2

from contract.store.harness import Run, new_project, new_run, remove, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from contract.store.test_access import reason_of
from contract.store.watcher import Watcher
from turnwright_core.errors import Reason

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def working(client, project: str, alias: str) -> Run:
    run = await new_run(client, project, alias)
    await run.enqueue()
    await run.claim()
    return run


async def adopted(run: Run, like: str, **more) -> dict[str, str]:
    request = {**run.address, "epoch": run.epoch, "like_run": like, **more}
    parts = [part async for part in run.client.stream("AdoptFiles", **request)]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    return {path: digest for part in parts for path, digest in zip(part.paths, part.hashes, strict=True)}


async def files_of(run: Run, **more):
    return (await run.view(filter=view_pb2.VIEW_FILTER_FILES, **more)).entries


async def test_a_run_adopts_what_the_project_has_now_archived_and_in_path_order(client, project):
    first, second = await working(client, project, "first"), await working(client, project, "second")
    await first.write(set_("src/b.py", "b"), set_("a.py", "a"), set_("gone.py", "x"), set_("known://a", "its own"))
    await first.write(remove("gone.py"))
    await client.call("WriteEntries", **second.address, writes=[set_("known://mine", "m")])
    before = (await second.view()).cursor
    told = await adopted(second, "first")
    shown = await files_of(second)
    assert told == {entry.path: entry.hash for entry in await files_of(first)} == {e.path: e.hash for e in shown}
    assert [(entry.path, entry.body, entry.visibility, entry.turn, entry.loop) for entry in shown] == [
        ("a.py", "a", entry_pb2.VISIBILITY_ARCHIVED, 1, 1),
        ("src/b.py", "b", entry_pb2.VISIBILITY_ARCHIVED, 1, 1),
    ]
    assert [entry.position for entry in shown] == [shown[0].position, shown[0].position + 1]
    assert {entry.path for entry in (await second.view(after=before)).entries} == {"a.py", "src/b.py"}
    # What comes later has a place behind them.
    await second.write(set_("c.py", "c"))
    assert (await files_of(second))[-1].path == "c.py"


async def test_what_was_adopted_follows_the_project_and_is_each_runs_own(client, project):
    first, second = await working(client, project, "first"), await working(client, project, "second")
    await first.write(set_("a.py", "a"), set_("b.py", "b"))
    await adopted(second, "first")
    await first.write(set_("a.py", "other"), remove("b.py"))
    assert [(entry.path, entry.body) for entry in await files_of(second)] == [("a.py", "other"), ("b.py", "b")]
    await second.write(remove("a.py"))
    assert [entry.path for entry in await files_of(first)] == ["a.py"]


async def test_a_run_that_sees_files_adopts_none_and_nothing_comes_from_elsewhere(client, project):
    first, second = await working(client, project, "first"), await working(client, project, "second")
    other = await working(client, await new_project(client, "other"), "elsewhere")
    await first.write(set_("a.py", "a"))
    await other.write(set_("b.py", "b"))
    assert await adopted(second, "") == await adopted(second, "elsewhere") == await adopted(second, "nobody") == {}
    await second.write(set_("mine.py", "m"))
    before = (await second.view()).cursor
    assert list(await adopted(second, "first")) == ["mine.py"]
    assert (await second.view()).cursor == before


async def test_only_the_owner_adopts(client, project):
    first, second = await working(client, project, "first"), await working(client, project, "second")
    await first.write(set_("a.py", "a"))
    stale = adopted(second, "first", epoch=second.epoch + 1)
    assert (await reason_of(stale)).reason is Reason.LEASE_LOST
    assert await files_of(second) == []


@pytest.mark.parametrize("wanted", view_pb2.ViewFilter.values()[1:])
async def test_a_follower_is_told_of_adopted_files_where_it_would_be_shown_them(client, project, wanted):
    first, second = await working(client, project, "first"), await working(client, project, "second")
    await first.write(set_("a.py", "a"), set_("b.py", "b"))
    watcher = Watcher(second, filter=wanted)
    before = (await watcher.next()).cursor
    await adopted(second, "first")
    view = await second.view(filter=wanted, after=before)
    await watcher.until(view.cursor)
    told = watcher.messages[-1]
    await watcher.close()
    assert [entry.path for entry in told.entries] == [entry.path for entry in view.entries]
    assert told.cursor == view.cursor
    assert not told.HasField("run")
