"""Output as it grows: of commands that run here, and of clients that produce it themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os

import pytest
from turnwright.executor.v1 import query_pb2
from turnwright.types.v1 import entry_pb2
from turnwright.types.v1.stream_pb2 import STREAM_END_ABORTED, STREAM_END_CANCELLED

from living import is_alive
from services import running, token_for
from turnwright_client import Client, RunView
from turnwright_core.errors import InvalidError, PreconditionError, Reason

pytestmark = pytest.mark.asyncio

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
STREAMING, RESOLVED, CANCELLED = entry_pb2.STATE_STREAMING, entry_pb2.STATE_RESOLVED, entry_pb2.STATE_CANCELLED


async def until_grown(services, queued, path: str, text: str) -> None:
    """Until watchers have seen a text in the output that grows at this path."""
    seen = ""
    async with contextlib.aclosing(services.client.watch(queued.project, queued.run, queued.cursor)) as events:
        async for event in events:
            if event.output_appended.path == path:
                seen += event.output_appended.text
            if event.message_added.entry.path == path:
                seen += event.message_added.entry.body
            if text in seen:
                return


async def gone(pid: int) -> bool:
    async with asyncio.timeout(60):
        while is_alive(pid):  # noqa: ASYNC110 - a process of somebody else tells nobody of its end
            await asyncio.sleep(0.01)
    return True


# ---- Commands that run here


async def test_output_is_seen_while_its_command_runs_and_no_piece_comes_twice(services) -> None:
    # RU163, RU174, RU176
    (services.files / "slow.sh").write_text(
        "for n in 1 2 3; do echo line $n; until [ -e seen$n ]; do sleep 0.02; done; done"
    )
    services.script(f"<sh>sh slow.sh</sh>{GO_ON}", DONE)
    queued = await services.act()
    path = "sh://turn_1/sh_slow.sh_1"
    for number in range(1, 4):
        await until_grown(services, queued, path, f"line {number}\n")
        (services.files / f"seen{number}").touch()
    await services.until(queued)
    [told] = [event.message_added.entry.body for event in services.events if event.message_added.entry.path == path]
    for event in services.events:
        if event.output_appended.path == path:
            assert event.output_appended.offset == len(told)
            told += event.output_appended.text
    assert told == "line 1\nline 2\nline 3\n"
    updated = [event.message_updated.entry for event in services.events if event.message_updated.entry.path == path]
    assert [(entry.state, entry.body) for entry in updated] == [(RESOLVED, "line 1\nline 2\nline 3\n")]
    record = await services.entry("log://turn_1/sh/sh_slow.sh")
    assert json.loads(record.attributes_json)["exit_code"] == 0
    assert "exit=0" in record.body


async def test_the_pieces_of_a_long_output_follow_each_other_and_a_snapshot_agrees(services) -> None:
    services.script(f"<sh>seq 100000</sh>{GO_ON}", DONE)
    await services.until(await services.act())
    path = "sh://turn_1/seq_100000_1"
    body = "".join(f"{number}\n" for number in range(1, 100001))
    added = next(event.message_added.entry for event in services.events if event.message_added.entry.path == path)
    told = added.body
    for event in services.events:
        if event.output_appended.path == path:
            assert event.output_appended.offset == len(told)
            assert len(event.output_appended.text) <= 256 * 1024
            told += event.output_appended.text
    assert told == body
    # No event carried the body again: what was sent of it in all is little more than the body.
    sent = sum(event.ByteSize() for event in services.events if path in str(event)[:4000])
    assert sent < len(body) + 200_000
    folded, shown = services.view(), RunView()
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            shown.apply(event)
            if event.snapshot.last:
                break
    assert folded.entries[path] == shown.entries[path]
    assert (await services.entry(path)).body == body


async def test_a_watcher_that_comes_in_the_middle_knows_what_came_before(services) -> None:
    (services.files / "slow.sh").write_text("echo early; until [ -e go ]; do sleep 0.02; done; echo late")
    services.script(f"<sh>sh slow.sh</sh>{GO_ON}", DONE)
    queued = await services.act()
    path = "sh://turn_1/sh_slow.sh_1"
    await until_grown(services, queued, path, "early\n")
    view = RunView()
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            view.apply(event)
            if event.snapshot.last:
                assert (view.entries[path].body, view.entries[path].state) == ("early\n", STREAMING)
                (services.files / "go").touch()
            if event.output_appended.path == path:
                break
    assert (view.entries[path].body, view.entries[path].body_size_bytes) == ("early\nlate\n", 11)
    await services.until(queued)


async def test_of_a_very_long_output_the_middle_is_left_out(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_output_bytes_max=4096) as services:
        services.script(f"<sh>seq -w 5000</sh>{GO_ON}", DONE)
        await services.until(await services.act())
        entry = await services.entry("sh://turn_1/seq_-w_5000_1")
        every = "".join(f"{number:04}\n" for number in range(1, 5001))
        assert entry.body == f"{every[:2048]}\n[{len(every) - 4096} bytes were left out here]\n{every[-2048:]}"
        record = await services.entry("log://turn_1/sh/seq_-w_5000")
        assert json.loads(record.attributes_json)["output_cut"] is True


async def test_a_command_whose_stream_is_cancelled_is_stopped_and_its_loop_goes_on(services) -> None:
    # RU237
    (services.files / "slow.sh").write_text("echo $$; sleep 60; touch over")
    services.script(f"<sh>sh slow.sh</sh>{GO_ON}", DONE)
    queued = await services.act()
    path = "sh://turn_1/sh_slow.sh_1"
    await until_grown(services, queued, path, "\n")
    pid = int((await services.entry(path)).body)
    record = "log://turn_1/sh/sh_slow.sh"

    ended = await services.client.end_stream(
        services.project, "r", record, STREAM_END_CANCELLED, reason="It takes too long."
    )

    assert [(one.number, one.state) for one in ended] == [(1, CANCELLED), (2, CANCELLED)]
    assert await gone(pid)
    loop = await services.until(queued)
    assert (loop.status, loop.turns) == (200, 2)
    told = await services.entry(record)
    assert (told.state, told.outcome) == (entry_pb2.STATE_FAILED, "stopped:499")
    assert "it may have had effects" in told.body
    assert (await services.entry(path)).body == f"{pid}\n"
    told = [event.output_cancelled for event in services.events if event.output_cancelled.path]
    assert [(one.path, one.channel, one.reason) for one in told] == [
        (record, 1, "cancelled:499"),
        (record, 2, "cancelled:499"),
    ]


# ---- Streams of clients


async def ready_run(services) -> None:
    services.script(DONE)
    await services.until(await services.act())


async def test_a_client_produces_a_stream_that_the_model_reads(services) -> None:
    # RU170, RU234, RU235
    await ready_run(services)
    client, where = services.client, (services.project, "r")
    stream = await client.open_stream(*where, "sh", "make all")
    assert stream.path == "log://turn_1/sh/make_all"
    assert (await services.status(stream.path), await services.status(stream.channels[0].path)) == (200, 102)
    channel = await client.append_stream(*where, stream.path, 1, "compiled\n", offset=0)
    channel = await client.append_stream(*where, stream.path, 1, "compiled\n", offset=0)
    channel = await client.append_stream(*where, stream.path, 1, "linked\n", offset=channel.body_size_bytes)
    await client.append_stream(*where, stream.path, 2, "a warning\n")
    ended = await client.end_stream(*where, stream.path, exit_code=0, duration_s=2.5)
    assert [(one.number, one.body_size_bytes, one.state) for one in ended] == [(1, 16, RESOLVED), (2, 10, RESOLVED)]
    record = await services.entry(stream.path)
    assert record.body == f"ran 'make all', exit=0, Output: {ended[0].path} (16 bytes), {ended[1].path} (10 bytes)"

    services.script(f'<get path="{channel.path}" line="-1"/>{GO_ON}', DONE)
    await services.until(await services.act("Read it."))
    assert "linked" in (await services.entry(f"log://turn_2/get/{channel.path.replace('://', '%3A/')}")).body


async def test_a_client_runs_the_command_that_it_accepts_and_the_loop_goes_on_meanwhile(services) -> None:
    # RU170, RU176, RU235, RU250
    services.script(f"<sh>make all</sh>{GO_ON}", DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    record, where = "log://turn_1/sh/make_all", (services.project, "r")
    await services.client.resolve(*where, record, accept=True, client_runs=True)
    assert (await services.until(queued)).status == 200
    paths = ["sh://turn_1/make_all_1", "sh://turn_1/make_all_2"]
    assert [await services.status(path) for path in (record, *paths)] == [200, 102, 102]
    assert (await services.entry(record)).body == f"started 'make all', Output: {', '.join(paths)}"

    await services.client.append_stream(*where, record, 1, "built\n", offset=0)
    ended = await services.client.end_stream(*where, record, exit_code=2, duration_s=1.0)

    assert [(one.path, one.body_size_bytes) for one in ended] == [(paths[0], 6), (paths[1], 0)]
    assert [await services.status(path) for path in (record, *paths)] == [500, 500, 500]
    assert "exit=2" in (await services.entry(record)).body


async def test_only_commands_are_run_by_clients_and_a_rejection_runs_nothing(services) -> None:
    # RU170: reject -> 403
    services.script(f'<set path="a.txt"><<REPLACE\nnew\nREPLACE</set>{GO_ON}', f"<sh>touch ran</sh>{GO_ON}", DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    where, file = (services.project, "r"), "log://turn_1/set/a.txt"
    with pytest.raises(InvalidError) as wrong:
        await services.client.resolve(*where, file, accept=True, client_runs=True)
    assert wrong.value.metadata["field"] == "client_runs"
    await services.client.resolve(*where, file, accept=False)
    assert (await services.until(queued)).status == 499
    assert await services.status(file) == 403
    assert not (services.files / "ran").exists()


async def test_watchers_see_a_clients_stream_grow_and_end(services) -> None:
    # RU174, RU236, RU245
    await ready_run(services)
    client, where = services.client, (services.project, "r")
    heard: list[tuple] = []
    async with contextlib.aclosing(client.watch(*where)) as events:
        async for event in events:
            kind = event.WhichOneof("event")
            if kind == "snapshot" and event.snapshot.last:
                stream = await client.open_stream(*where, "sh", "watch", channels=[1])
                await client.append_stream(*where, stream.path, 1, "one")
                await client.append_stream(*where, stream.path, 1, "two")
                await client.end_stream(*where, stream.path, STREAM_END_ABORTED, reason="The window was closed.")
            if kind == "output_appended":
                heard.append((event.output_appended.offset, event.output_appended.text))
            if kind in ("message_added", "message_updated"):
                entry = getattr(event, kind).entry
                heard.append((entry.path.rpartition("/")[2], entry.state, entry.body[:6]))
            if heard and heard[-1][0] == "watch" and heard[-1][1] == entry_pb2.STATE_FAILED:
                break
    text = "".join(one[1] for one in heard if isinstance(one[0], int))
    first = next(one[2] for one in heard if one[0] == "watch_1")
    assert first + text == "onetwo"
    assert ("watch_1", CANCELLED, "onetwo") in heard
    record = await services.entry(stream.path)
    assert (record.outcome, "The window was closed." in record.body) == ("stopped:499", True)


async def test_a_producer_whose_stream_is_cancelled_is_told_at_its_next_call(services) -> None:
    # RU237
    await ready_run(services)
    client, where = services.client, (services.project, "r")
    stream = await client.open_stream(*where, "env", "tail -f log")
    token = token_for("another")
    async with Client.connect(client.address, token) as another:
        with pytest.raises(PreconditionError) as foreign:
            await another.append_stream(*where, stream.path, 1, "x")
        assert foreign.value.metadata["from"] == "foreign"
        await another.end_stream(*where, stream.path, STREAM_END_CANCELLED)
    with pytest.raises(PreconditionError) as stopped:
        await client.append_stream(*where, stream.path, 1, "x")
    assert (stopped.value.reason, stopped.value.metadata["from"]) == (Reason.TRANSITION_FORBIDDEN, "cancelled")


async def test_a_stream_of_a_client_that_went_away_ends(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, store_settings={"stream_grace_s": 0.5}) as services:
        await ready_run(services)
        stream = await services.client.open_stream(services.project, "r", "sh", "make", channels=[1])
        await services.client.append_stream(services.project, "r", stream.path, 1, "so far")
        async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
            async with asyncio.timeout(60):
                async for event in events:
                    if event.output_cancelled.path == stream.path:
                        break
        assert event.output_cancelled.reason == "producer_lost:499"
        entry = await services.entry(stream.channels[0].path)
        assert (entry.body, entry.status) == ("so far", 499)


async def test_env_runs_where_nobody_looks_only_if_it_cannot_change_anything(services) -> None:
    # C30: there is no sandbox here; where there is one see the tests of the sandbox
    status = await services.client.get_status()
    if status.confinement != query_pb2.CONFINEMENT_LIMITS:
        pytest.skip("this host has a sandbox")
    services.script(f"<env>ls</env>{DONE}", DONE)
    await services.until(await services.act())
    assert (await services.entry("log://turn_1/env/ls")).outcome == "permission:403"


async def test_a_command_sees_no_secret_of_the_runtime(services, monkeypatch) -> None:
    for name in ("TURNWRIGHT_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "hush")
    assert os.environ["TURNWRIGHT_TOKEN"] == "hush"
    services.script(f"<sh>env</sh>{GO_ON}", DONE)
    await services.until(await services.act())
    body = (await services.entry("sh://turn_1/env_1")).body
    assert "PATH=" in body
    assert "hush" not in body
    assert "TURNWRIGHT" not in body
