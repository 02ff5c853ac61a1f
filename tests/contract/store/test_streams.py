"""Streams of producers that are not the run's owner: opened, grown once, ended; and those that nobody produces."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import stream_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    CANCELLED,
    FAILED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Client,
    append,
    as_tier,
    new_project,
    new_run,
    set_,
    start_store,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.domain.limits import WriteLimits

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

RECORD = "log://turn_0/sh/make_all"
OUT, ERR = "sh://turn_0/make_all_1", "sh://turn_0/make_all_2"
COMPLETED, ABORTED = stream_pb2.STREAM_END_COMPLETED, stream_pb2.STREAM_END_ABORTED
STOPPED = stream_pb2.STREAM_END_CANCELLED


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def opened(run, target="make all", **fields):
    wanted = {"tool": "sh", "target": target, **fields}
    return await run.client.call("OpenStream", **run.address, **wanted)


async def grow(run, text, channel=1, path=RECORD, by=None, **fields):
    wanted = {"path": path, "channel": channel, "text": text, **fields}
    return (await (by or run.client).call("AppendStream", **run.address, **wanted)).channel


async def end(run, how, path=RECORD, by=None, **fields):
    answer = await (by or run.client).call("EndStream", **run.address, path=path, end=how, **fields)
    return [(channel.number, channel.body_size_bytes, channel.state) for channel in answer.channels]


async def seen(run, *paths):
    """State, outcome and body of entries."""
    entries = [await run.entry(path) for path in paths]
    return [(entry.state, entry.outcome, entry.body) for entry in entries]


# ---- Begin


async def test_a_stream_is_a_record_and_its_channels(run):
    # RU072, RU170-RU172, RU178
    answer = await opened(run)
    assert (answer.path, [(one.number, one.path) for one in answer.channels]) == (RECORD, [(1, OUT), (2, ERR)])
    record, first = await run.entry(RECORD), await run.entry(OUT)
    assert (record.status, record.body) == (200, f"started 'make all', Output: {OUT}, {ERR}")
    assert (first.status, first.visibility, first.body) == (102, SUMMARIZED, "")
    told = {"command": "make all", "channel": 1, "summary": "make all", "producer": "operator"}
    assert json.loads(first.attributes_json) == told


async def test_two_streams_about_the_same_have_records_of_their_own(run):
    await run.begin()
    paths = [(await opened(run, channels=[1])).path for _ in range(3)]
    base = "log://turn_1/sh/make_all"
    assert paths == [base, f"{base}+2", f"{base}+3"]
    assert (await grow(run, "x", path=paths[1])).path == "sh://turn_1/make_all+2_1"


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tool": "known"}, None),
        ({"tool": "tail"}, "tool"),
        ({"tool": "https"}, "tool"),
        ({"tool": "a/b"}, "tool"),
        ({"target": " "}, "target"),
        ({"channels": [0]}, "channel"),
        ({"channels": [100]}, "channel"),
        ({"channels": range(1, 18)}, "channels"),
        ({"target": "x" * 513}, "target"),
    ],
)
async def test_a_stream_is_refused_that_cannot_be_one(run, fields, named):
    if named is None:
        assert (await opened(run, **fields)).path == "log://turn_0/known/make_all"
        return
    assert (await refused(opened(run, **fields))).metadata["field"] == named


async def test_a_registered_scheme_has_streams(run):
    # RU173, RU178
    await run.client.call("SetScheme", scheme={"name": "tail", "category": "SCHEME_CATEGORY_DATA"})
    answer = await opened(run, "app.log", tool="tail", channels=[1, 3])
    assert [one.path for one in answer.channels] == ["tail://turn_0/app.log_1", "tail://turn_0/app.log_3"]


async def test_streams_are_no_matter_of_models(run):
    await opened(run)
    other = as_tier(run.client.peer.address, Tier.MODEL)
    calls = {"OpenStream": {"tool": "sh", "target": "x"}, "AppendStream": {"channel": 1}, "EndStream": {"end": 1}}
    for rpc, fields in calls.items():
        path = {} if rpc == "OpenStream" else {"path": RECORD}
        assert (await refused(other.call(rpc, **run.address, **path, **fields))).reason is Reason.RIGHT_MISSING
    await other.close()


# ---- Grow


async def test_a_piece_that_comes_again_is_not_doubled(run):
    # RU234
    await opened(run)
    assert (await grow(run, "one\n", offset=0)).body_size_bytes == 4
    assert (await grow(run, "one\n", offset=0)).body_size_bytes == 4
    assert (await grow(run, "zwei ä\n", offset=4)).body_size_bytes == 12
    assert (await grow(run, "e\nzwei ä\n3\n", offset=2)).body_size_bytes == 14
    assert (await run.entry(OUT)).body == "one\nzwei ä\n3\n"
    error = await refused(grow(run, "late", offset=20))
    assert (error.reason, error.metadata["actual"]) == (Reason.REVISION_CONFLICT, "14")
    assert (await refused(grow(run, "ä", offset=13))).reason is Reason.REVISION_CONFLICT


async def test_a_piece_with_a_request_id_is_added_once(run):
    await opened(run)
    answers = [await grow(run, "x", request_id="q1") for _ in range(3)]
    assert [answer.body_size_bytes for answer in answers] == [1, 1, 1]
    assert (await run.entry(OUT)).body == "x"


async def test_an_owners_append_is_repeated_by_its_offset(run):
    await run.write(set_("sh://turn_1/x_1", "", state=STREAMING))
    piece = append("sh://turn_1/x_1", "abc")
    piece.append.offset = 0
    for _ in range(2):
        await run.write(piece, piece)
    assert (await run.entry("sh://turn_1/x_1")).body == "abc"


async def test_another_channel_opens_with_its_first_piece(run):
    # RU173
    await opened(run, channels=[1])
    assert (await refused(grow(run, "x", 7, offset=3))).reason is Reason.REVISION_CONFLICT
    assert (await grow(run, "notes", 7, offset=0)).path == "sh://turn_0/make_all_7"
    assert await seen(run, "sh://turn_0/make_all_7") == [(STREAMING, "", "notes")]


async def test_only_its_producer_adds_to_a_stream(run):
    await opened(run)
    other = as_tier(run.client.peer.address, Tier.CLIENT, "other")
    error = await refused(grow(run, "x", by=other))
    assert (error.reason, error.metadata["from"]) == (Reason.TRANSITION_FORBIDDEN, "foreign")
    assert (await refused(end(run, COMPLETED, by=other))).reason is Reason.TRANSITION_FORBIDDEN
    await other.close()
    assert (await refused(grow(run, "x", path="log://turn_0/sh/none"))).reason is Reason.ENTRY_NOT_FOUND
    assert (await refused(grow(run, "x", path=OUT))).metadata["field"] == "path"


async def test_a_record_of_an_open_turn_is_ended_by_its_producer(run):
    # The owner of the run goes on with its turn meanwhile.
    await run.begin()
    path = (await opened(run)).path
    await grow(run, "x", path=path)
    assert await end(run, COMPLETED, path=path, exit_code=0) == [(1, 1, RESOLVED), (2, 0, RESOLVED)]
    assert (await run.entry(path)).status == 200
    await run.end(1, status=102)


# ---- End


@pytest.mark.parametrize(
    ("how", "fields", "state", "outcome", "body"),
    [
        (COMPLETED, {"exit_code": 0, "duration": timedelta(seconds=1.23456)}, RESOLVED, "", "ran 'make all', exit=0"),
        (COMPLETED, {}, RESOLVED, "", "ran 'make all'"),
        (COMPLETED, {"exit_code": 2}, FAILED, "exit_2:500", "ran 'make all', exit=2"),
        (ABORTED, {"reason": "closed"}, CANCELLED, "aborted:499", "stopped 'make all', closed"),
        (STOPPED, {}, CANCELLED, "cancelled:499", "stopped 'make all'"),
    ],
)
async def test_the_end_stands_in_the_channels_and_in_the_record(run, how, fields, state, outcome, body):
    # RU176, RU235-RU237
    await opened(run)
    await grow(run, "built\n")
    by = as_tier(run.client.peer.address, Tier.CLIENT, "other") if how == STOPPED else run.client
    assert await end(run, how, by=by, **fields) == [(1, 6, state), (2, 0, state)]
    assert await seen(run, OUT, ERR) == [(state, outcome, "built\n"), (state, outcome, "")]
    record = await run.entry(RECORD)
    # It had begun, so it is not told as cancelled.
    is_stopped = state == CANCELLED
    assert (record.state, record.outcome) == ((FAILED, "stopped:499") if is_stopped else (state, outcome))
    assert record.body == f"{body}, Output: {OUT} (6 bytes), {ERR} (empty)"
    told = json.loads(record.attributes_json)
    assert told["channels"] == [{"path": OUT, "bytes": 6}, {"path": ERR, "bytes": 0}]
    expected = {key: value for key, value in fields.items() if key != "duration"}
    assert {key: told.get(key) for key in expected} == expected
    assert told.get("duration_s") == (1.235 if "duration" in fields else None)
    assert (await run.entry(OUT)).visibility == (VISIBLE if state == FAILED else SUMMARIZED)


async def test_what_has_ended_stays_as_it_is(run):
    await opened(run)
    await end(run, STOPPED)
    before = await run.entry(RECORD)
    assert await end(run, COMPLETED, exit_code=0) == []
    assert await run.entry(RECORD) == before
    error = await refused(grow(run, "more"))
    assert (error.reason, error.metadata["from"]) == (Reason.TRANSITION_FORBIDDEN, "cancelled")
    assert (await refused(grow(run, "more", 5))).reason is Reason.TRANSITION_FORBIDDEN


@pytest.mark.parametrize(
    ("how", "fields", "named"),
    [
        (0, {}, "end"),
        (ABORTED, {"exit_code": 1}, "exit_code"),
        (COMPLETED, {"duration": timedelta(seconds=-1)}, "duration"),
        (ABORTED, {"reason": "x" * 1025}, "reason"),
    ],
)
async def test_an_end_is_refused_that_cannot_be_one(run, how, fields, named):
    await opened(run)
    assert (await refused(end(run, how, **fields))).metadata["field"] == named


async def test_the_channels_of_the_owners_command_can_be_cancelled_only(run):
    # RU237
    await run.begin()
    path, channel = "log://turn_1/sh/x", "sh://turn_1/x_1"
    await run.write(set_(path, "", '{"tool":"sh","ordinal":0}', state=1), set_(channel, "so far", state=STREAMING))
    for how in (COMPLETED, ABORTED):
        assert (await refused(end(run, how, path=path))).reason is Reason.TRANSITION_FORBIDDEN
    assert await end(run, STOPPED, path=path) == [(1, 6, CANCELLED)]
    assert await seen(run, channel) == [(CANCELLED, "cancelled:499", "so far")]
    assert (await run.entry(path)).status == 100
    error = await refused(run.write(append(channel, "more")))
    assert (error.reason, error.metadata["from"]) == (Reason.TRANSITION_FORBIDDEN, "cancelled")


# ---- Silence


@asynccontextmanager
async def quick_store(folder, **settings):
    server = await start_store(folder, **{"stream_grace_s": 0.4, "lease_s": 0.4, "lease_grace_s": 0.1, **settings})
    client = Client(server.address)
    try:
        yield client, await new_project(client)
    finally:
        await client.close()
        await server.stop()


async def settled(run, path):
    async with asyncio.timeout(60):
        while (entry := await run.entry(path)).state == STREAMING:  # noqa: ASYNC110 - polled like a client would
            await asyncio.sleep(0.05)
    return entry


async def after_beats(begin, beat, look, within_s):
    """What is seen after beats for longer than `within_s`; None where one came later than that after the one before.

    A slow machine may have that, and then what is seen says nothing.
    """
    last_s = end_s = time.monotonic()
    await begin()
    while time.monotonic() < end_s + 1.5 * within_s:
        asked_s = time.monotonic()
        await beat()
        if time.monotonic() > last_s + within_s:
            return None
        last_s = asked_s
        await asyncio.sleep(within_s / 10)
    found = await look()
    return found if time.monotonic() < last_s + within_s else None


async def test_a_stream_whose_producer_vanished_ends(tmp_path, own_db):
    # RU237: cleans stale 102
    async with quick_store(tmp_path, stream_grace_s=120) as (client, project):
        run = await new_run(client, project, "r")
        await opened(run)
        await grow(run, "what came")
    async with quick_store(tmp_path) as (client, _):
        run.client = client
        assert (await settled(run, OUT)).outcome == "producer_lost:499"
        assert await seen(run, OUT, ERR) == [
            (CANCELLED, "producer_lost:499", "what came"),
            (CANCELLED, "producer_lost:499", ""),
        ]
        record = await run.entry(RECORD)
        assert (record.state, record.outcome) == (FAILED, "producer_lost:499")
        assert record.body.startswith("producer lost 'make all', its producer is gone")


async def test_a_stream_lives_while_one_of_its_channels_hears_of_its_producer(tmp_path, own_db):
    async with quick_store(tmp_path, stream_grace_s=1) as (client, project):
        found = None
        while found is None:
            run = await new_run(client, project)
            beat, look = partial(grow, run, "", 2), partial(seen, run, OUT, ERR)
            found = await after_beats(partial(opened, run), beat, look, within_s=1)
        assert found == [(STREAMING, "", ""), (STREAMING, "", "")]


async def test_a_silent_command_lives_as_long_as_the_lease_of_its_owner(tmp_path, own_db):
    channel = "sh://turn_1/sleep_1"
    async with quick_store(tmp_path, lease_s=1) as (client, project):
        found = None
        while found is None:
            run = await new_run(client, project)
            await run.enqueue()

            async def begin(run=run):
                await run.claim()
                await run.begin()
                await run.write(set_("log://turn_1/sh/sleep", "", state=1), set_(channel, "zzz", state=STREAMING))

            async def beat(run=run):
                leases = [{**run.address, "epoch": run.epoch}]
                await client.call("RenewLeases", owner="owner", address="here:1", leases=leases)

            found = await after_beats(begin, beat, partial(seen, run, channel), within_s=1)
        assert found == [(STREAMING, "", "zzz")]

        # Nobody renews any more: the owner is gone, and nobody takes the run over.
        assert (await settled(run, channel)).outcome == "producer_lost:499"
        assert (await run.entry("log://turn_1/sh/sleep")).status == 100


async def test_an_entry_that_streams_without_being_a_channel_ends_too(tmp_path, own_db):
    async with quick_store(tmp_path) as (client, project):
        run = await new_run(client, project, "r")
        write = write_pb2.EntryWrite(path="known://slow", writer=Tier.PLUGIN, set={"body": "so", "state": STREAMING})
        await client.call("WriteEntries", **run.address, writes=[write])
        assert (await settled(run, "known://slow")).outcome == "producer_lost:499"


async def test_a_stream_whose_record_is_full_ends_without_figures_and_keeps_no_other_from_its_end(tmp_path, own_db):
    async with quick_store(tmp_path, write_limits=WriteLimits(attributes_bytes_max=1024)) as (client, project):
        full, other = await new_run(client, project, "full"), await new_run(client, project, "other")
        for run in (full, other):
            await opened(run)
        attributes = json.loads((await full.entry(RECORD)).attributes_json)
        room = json.dumps({**attributes, "more": "x" * (1000 - len(json.dumps(attributes)))})
        await client.call("WriteEntries", **full.address, writes=[set_(RECORD, attributes=room)])
        assert (await settled(other, OUT)).outcome == "producer_lost:499"
        for channel in (OUT, ERR):
            assert (await settled(full, channel)).outcome == "producer_lost:499"
        assert (await full.entry(RECORD)).attributes_json == room


# ---- Parts of bodies


async def part(run, path, **fields):
    answer = await run.client.call("GetEntry", **run.address, path=path, **fields)
    return answer.body_offset, answer.entry.body, answer.entry.body_size_bytes


async def test_a_part_of_a_body_is_read_where_it_stands(run):
    # RU175
    await run.write(set_("known://whole", "aäbcd"))
    assert await part(run, "known://whole") == (0, "aäbcd", 6)
    assert await part(run, "known://whole", body_offset=3, body_bytes_max=2) == (3, "bc", 6)
    assert await part(run, "known://whole", body_bytes_max=2) == (0, "a", 6)
    assert await part(run, "known://whole", body_offset=9) == (6, "", 6)
    assert await part(run, "known://whole", body_offset=-3) == (3, "bcd", 6)
    assert await part(run, "known://whole", body_offset=-9, body_bytes_max=3) == (0, "aä", 6)
    assert (await refused(part(run, "known://none"))).reason is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"body_offset": 2}, (1, "äbcd", 6)),
        ({"body_offset": -4}, (1, "äbcd", 6)),
        ({"body_offset": 2, "body_bytes_max": 2}, (1, "ä", 6)),
        ({"body_offset": 1, "body_bytes_max": 1}, (1, "", 6)),
    ],
)
async def test_a_part_says_where_it_begins_where_its_offset_is_inside_of_a_character(run, fields, expected):
    await run.write(set_("known://whole", "aäbcd"))
    assert await part(run, "known://whole", **fields) == expected


async def test_every_part_of_a_growing_body_can_be_read(run):
    await run.write(set_("sh://turn_1/x_1", "head ", state=STREAMING))
    pieces = [f"piece ä{number} " * 1000 for number in range(20)]
    for piece in pieces:
        await run.write(append("sh://turn_1/x_1", piece))
    data = ("head " + "".join(pieces)).encode()
    inside = data.index("ä".encode(), 150_000) + 1
    for offset in (0, 3, 5, 6, 40, 100_000, inside, len(data) - 1):
        begin = offset - (offset == inside)
        found = await part(run, "sh://turn_1/x_1", body_offset=offset)
        assert found == (begin, data[begin:].decode(), len(data))
        assert offset == 0 or found == await part(run, "sh://turn_1/x_1", body_offset=offset - len(data))
    assert await part(run, "sh://turn_1/x_1", body_offset=7, body_bytes_max=30) == (7, data[7:37].decode(), len(data))


# ---- What watchers hear


async def test_a_watcher_hears_that_an_end_of_the_loop_is_wanted(run):
    cursor = (await run.view()).cursor
    await run.client.call("AbortRun", **run.address)
    async for change in run.client.stream("WatchChanges", **run.address, after=cursor):
        if change.HasField("run"):
            assert (change.abort_requested, change.run.loop.sequence) == (True, 1)
            break
    await run.end(0, loop=(499, "aborted", ""))
    async for change in run.client.stream("WatchChanges", **run.address, after=cursor):
        if change.HasField("run"):
            assert not change.abort_requested
            break
