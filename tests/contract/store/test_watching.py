"""Following a run: order, no loss, heartbeats, ends."""

import asyncio

import pytest
from turnwright.types.v1 import cursor_pb2

from contract.store.harness import (
    ARCHIVED,
    PROPOSED,
    STREAMING,
    Client,
    append,
    new_project,
    new_run,
    remove,
    set_,
    start_store,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from contract.store.watcher import Watcher, is_heartbeat
from turnwright_core.errors import MissingError, RangeError, Reason, TurnwrightError
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def test_a_watch_without_a_cursor_begins_now(run):
    watcher = Watcher(run)
    first = await watcher.next()
    assert is_heartbeat(first)
    assert first.cursor == (await run.view()).cursor
    await run.write(set_("known://a", "x"))
    await watcher.until((await run.view()).cursor)
    assert list(watcher.known) == ["known://a"]
    await watcher.close()


async def test_a_watch_with_the_cursor_of_a_command_sees_all_that_it_caused(client, project):
    run = await new_run(client, project, "r")
    queued = await run.enqueue()
    await run.claim()
    await run.begin(set_("prompt://{turn}", "x"))
    await run.end(1, loop=(200, "update", "done"))
    watcher = Watcher(run, after=queued.cursor)
    message = await watcher.next()
    assert [entry.path for entry in message.entries] == ["run://r", "prompt://1"]
    found = await run.get()
    # Titles come with answers about runs, and not with events.
    found.ClearField("title")
    assert (message.run, message.loops[0].status, message.turns[0].number) == (found, 200, 1)
    await watcher.close()


async def test_heartbeats_hold_the_cursor_only(run):
    watcher = Watcher(run)
    messages = [await watcher.next() for _ in range(3)]
    assert all(is_heartbeat(message) for message in messages)
    assert len({message.cursor.run_revision for message in messages}) == 1
    await watcher.close()


async def test_rows_of_the_ledger_come_as_they_change(client, run):
    watcher = Watcher(run)
    await watcher.next()
    await run.begin()
    await watcher.until((await run.view()).cursor)
    assert (watcher.turns[-1].number, watcher.turns[-1].HasField("result")) == (1, False)
    await run.write(run_status=202)
    await watcher.until((await run.view()).cursor)
    assert (watcher.runs[-1].status, watcher.loops[-1].status) == (202, 202)
    await client.call("AbortRun", **run.address)
    await watcher.until((await run.view()).cursor)
    await run.end(1, loop=(499, "aborted", ""))
    await watcher.until((await run.view()).cursor)
    assert (watcher.runs[-1].status, watcher.loops[-1].status) == (499, 499)
    assert watcher.turns[-1].HasField("result")
    await watcher.close()


async def test_entries_alone_do_not_repeat_the_run(run):
    watcher = Watcher(run)
    await watcher.next()
    await run.write(set_("known://a", "x"))
    await watcher.until((await run.view()).cursor)
    assert (watcher.runs, watcher.loops, watcher.turns) == ([], [], [])
    await watcher.close()


async def test_an_entry_written_twice_stands_there_once(run):
    start = (await run.view()).cursor
    await run.write(set_("known://a", "1"), set_("known://b", "1"))
    await run.write(set_("known://a", "2"))
    watcher = Watcher(run, after=start)
    message = await watcher.next()
    assert [(entry.path, entry.body) for entry in message.entries] == [("known://b", "1"), ("known://a", "2")]
    await watcher.close()


async def test_a_filtered_watch_tells_what_leaves_the_filter(run):
    await run.write(set_("known://a", "x" * 100), set_("known://b", "y"))
    watcher = Watcher(run, filter=2, body_bytes_max=10)
    await watcher.next()
    await run.write(set_("known://a", "z" * 100), set_("known://b", visibility=ARCHIVED), set_("user://1", "z"))
    await watcher.until((await run.view()).cursor)
    assert {path: entry.body for path, entry in watcher.known.items()} == {"known://a": "z" * 10}
    assert [path for message in watcher.messages for path in message.removed_paths] == ["known://b"]
    await watcher.close()


async def test_another_runs_write_to_a_shared_file_is_seen(client, project, run):
    other = await new_run(client, project, "other")
    await run.write(set_("src/a.py", "mine"))
    watcher = Watcher(run)
    await watcher.next()
    await client.call("WriteEntries", **other.address, writes=[set_("src/a.py", "theirs"), set_("src/b.py", "no view")])
    await watcher.until((await run.view()).cursor)
    assert {path: entry.body for path, entry in watcher.known.items()} == {"src/a.py": "theirs"}
    await watcher.close()


async def test_nothing_is_lost_and_order_is_kept_under_concurrent_writers(client, project, run):
    """Cursors never go back, entries come in revision order, and what was seen is in the end what is there."""
    other = await new_run(client, project, "other")
    watchers = [Watcher(run), Watcher(run)]
    for watcher in watchers:
        await watcher.next()

    async def write(writer, number):
        for step in range(10):
            writes = [set_(f"known://{number}", f"{step}"), set_("src/shared.py", f"{number}.{step}")]
            writes += [set_(f"known://{number}/{step}", "x")] if step % 2 else [remove(f"known://{number}/{step - 1}")]
            await client.call("WriteEntries", **writer.address, writes=writes)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(write(run if number < 5 else other, number))
        for watcher in watchers:
            group.create_task(follow(watcher))
    final = await run.view()
    for watcher in watchers:
        await watcher.until(final.cursor)
        expected = {entry.path: entry for entry in final.entries if entry.path != "run://r1"}
        assert watcher.known == expected
        runs = [message.cursor.run_revision for message in watcher.messages]
        assert runs == sorted(runs)
        for message in watcher.messages:
            own = [entry.revision for entry in message.entries if entry.scope.startswith("run")]
            assert own == sorted(own)
        await watcher.close()


async def follow(watcher):
    """Read while the writers write."""
    for _ in range(3):
        await watcher.next()


async def test_every_revision_is_seen_by_a_reader_that_keeps_up(run):
    watcher = Watcher(run)
    first = (await watcher.next()).cursor.run_revision
    for number in range(5):
        await run.write(set_("known://a", str(number)))
        await watcher.until((await run.view()).cursor)
    bodies = [entry.body for message in watcher.messages for entry in message.entries]
    assert bodies == ["0", "1", "2", "3", "4"]
    assert watcher.messages[-1].cursor.run_revision == first + 5
    await watcher.close()


async def test_a_large_change_comes_in_parts_with_the_cursor_at_the_end(run):
    start = (await run.view()).cursor
    await run.write(*(set_(f"known://{number:02}", "x" * 60_000) for number in range(12)))
    watcher = Watcher(run, after=start)
    await watcher.until((await run.view()).cursor)
    assert len(watcher.messages) >= 3
    assert {message.cursor.run_revision for message in watcher.messages[:-1]} == {start.run_revision}
    assert list(watcher.known) == [f"known://{number:02}" for number in range(12)]
    await watcher.close()


async def test_a_growing_body_is_followed(run):
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "", state=STREAMING))
    watcher = Watcher(run)
    await watcher.next()
    for text in ("a", "b"):
        await run.write(append(path, text))
        await watcher.until((await run.view()).cursor)
    assert [entry.body for message in watcher.messages for entry in message.entries] == ["a", "ab"]
    await watcher.close()


async def test_a_cursor_of_another_history_or_of_the_future_is_refused(run):
    now = (await run.view()).cursor
    for changed in (
        {"incarnation": "other"},
        {"run_revision": now.run_revision + 1},
        {"project_revision": now.project_revision + 1},
        {"run_revision": -1},
    ):
        cursor = cursor_pb2.Cursor()
        cursor.CopyFrom(now)
        for name, value in changed.items():
            setattr(cursor, name, value)
        watcher = Watcher(run, after=cursor)
        with pytest.raises(RangeError) as caught:
            await watcher.next()
        assert caught.value.reason is Reason.CURSOR_FOREIGN


async def test_a_watch_ends_when_the_store_drains(tmp_path, own_db):
    server = await start_store(tmp_path, heartbeat_s=600)
    client = Client(server.address)
    run = await new_run(client, await new_project(client), "r")
    watcher = Watcher(run)
    await watcher.next()
    pending = asyncio.ensure_future(watcher.next())
    await asyncio.sleep(0.05)
    await server.stop()
    with pytest.raises(TurnwrightError) as caught:
        await pending
    assert caught.value.reason is Reason.DRAINING
    await client.close()


async def test_a_proposal_wakes_its_watcher(run):
    await run.begin()
    watcher = Watcher(run, filter=3)
    await watcher.next()
    await run.write(set_("log://turn_1/sh/x", "", "{}", state=PROPOSED), run_status=202)
    await watcher.until((await run.view()).cursor)
    assert [entry.status for entry in watcher.known.values()] == [202]
    await watcher.close()


async def test_a_watch_ends_with_its_run(client, project):
    """A feed lives as long as the run; another run that takes the alias has a feed of its own."""
    run = await new_run(client, project, "r")
    watcher = Watcher(run)
    await watcher.next()
    await client.call("DeleteRun", **run.address)
    await new_run(client, project, "r")
    with pytest.raises(MissingError) as caught:
        await until_end(watcher)
    assert caught.value.reason is Reason.RUN_NOT_FOUND


async def until_end(watcher):
    while True:
        await watcher.next()


async def test_many_large_loops_come_in_parts(client, project):
    """A reader from the beginning is told of 40 prompts of 1 MiB of UTF-8, more than one message holds."""
    run = await new_run(client, project, "r")
    start = (await run.view()).cursor
    for _ in range(40):
        await run.enqueue("話" * (1024 * 1024 // 3))
    watcher = Watcher(run, after=start, body_bytes_max=1)
    await watcher.until((await run.view(without_bodies=True)).cursor)
    assert [loop.sequence for loop in watcher.loops] == list(range(1, 41))
    assert watcher.runs[-1].loops_queued == 40
    await watcher.close()
    sequences, token = [], ""
    while True:
        page = await client.call("ListLoops", **run.address, page_token=token)
        assert page.ByteSize() < STOCK_MESSAGE_BYTES_MAX
        sequences += [loop.sequence for loop in page.loops]
        token = page.next_page_token
        if not token:
            break
    assert sequences == list(range(40, 0, -1))
