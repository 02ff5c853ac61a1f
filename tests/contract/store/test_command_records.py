"""What a command has come through: kept beside the attributes, and written by the runtime alone."""

import pytest
from turnwright.types.v1 import command_record_pb2, entry_pb2
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry
from turnwright_values.types import Tier

from contract.store.harness import Client, as_tier, new_project, set_, start_store, working_run
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

PATH = "log://turn_1/set/a.txt"
# Long enough to be compressed.
RECORD = command_record_pb2.CommandRecord(
    tool="set",
    command=command_record_pb2.CommandText(
        attributes=[command_record_pb2.CommandAttribute(name=name, value="a.txt") for name in ("path", "like")],
        body="text\0" * 100,
    ),
    ordinal=3,
    recorded=command_record_pb2.RecordedStage(),
)


def recorded(record=RECORD, writer=Tier.SYSTEM, body="text", **more):
    return set_(PATH, body, record=record.SerializeToString(), writer=writer, **more)


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_record_comes_back_as_it_was_written(run):
    await run.write(recorded())
    entry = await run.entry(PATH)
    assert (entry.record, entry.attributes_json) == (RECORD, "{}")


async def test_what_others_write_leaves_the_record_as_it_is(run):
    """An entry of a command may be edited and hidden; what it has come through is not theirs to change."""
    await run.write(recorded())
    before = await run.entry(PATH)
    await run.write(set_(PATH, "other", '{"summary":"x"}', writer=Tier.MODEL), set_(PATH, visibility=3))
    after = await run.entry(PATH)
    assert (after.body, after.attributes_json, after.record) == ("other", '{"summary":"x"}', before.record)


async def test_a_record_alone_is_another_version(run):
    await run.write(recorded())
    before = await run.entry(PATH)
    settled = command_record_pb2.CommandRecord(tool="set", settled=command_record_pb2.SettledStage())
    await run.write(recorded(settled, body=None))
    after = await run.entry(PATH)
    assert (after.record, after.body, after.write_count) == (settled, before.body, before.write_count + 1)
    assert after.revision > before.revision


async def test_a_write_that_says_nothing_moves_the_revision_alone(run):
    """By it the owner of a client's command shows that it lives."""
    await run.write(recorded())
    before = await run.entry(PATH)
    [revision] = (await run.write(set_(PATH, writer=Tier.SYSTEM))).revisions
    after = await run.entry(PATH)
    assert after.revision == revision > before.revision
    assert (after.record, after.body, after.update_time) == (before.record, before.body, before.update_time)


@pytest.mark.parametrize("writer", [Tier.MODEL, Tier.CLIENT, Tier.PLUGIN])
async def test_nobody_but_the_runtime_writes_a_record(run, writer):
    """Whoever could would say what was accepted, and by whom."""
    await run.write(recorded())
    for body in ("forged", None):
        error = await refused(run.write(recorded(writer=writer, body=body)))
        assert (error.reason, error.metadata["path"]) == (Reason.WRITER_FORBIDDEN, PATH)
    assert (await run.entry(PATH)).record == RECORD


async def test_a_token_below_the_runtime_writes_no_record(run):
    plugin = as_tier(run.client.peer.address, Tier.PLUGIN)
    for writer in (Tier.UNSPECIFIED, Tier.SYSTEM):
        error = await refused(plugin.call("WriteEntries", **run.address, writes=[recorded(writer=writer)]))
        assert error.reason in (Reason.WRITER_FORBIDDEN, Reason.TIER_FORBIDDEN)
    await plugin.close()


async def test_a_record_over_the_limit_is_refused(run):
    long = command_record_pb2.CommandRecord(tool="x" * 1024 * 1024)
    error = await refused(run.write(recorded(long)))
    assert (error.reason, error.metadata["field"], error.metadata["unit"]) == (Reason.LIMIT_EXCEEDED, "record", "bytes")


@pytest.mark.parametrize("change", [CopyEntry("known://a"), MoveEntry("known://a"), CopyEntry("log://turn_1/set/b")])
async def test_a_copy_is_no_command(run, change):
    await run.write(recorded(), set_("log://turn_1/set/b", "b", record=RECORD.SerializeToString(), writer=Tier.SYSTEM))
    await run.write(write_to_pb(EntryWrite(PATH, change, Tier.PLUGIN)))
    copy = await run.entry(change.to)
    assert (copy.body, copy.HasField("record")) == ("text", False)


async def test_an_entry_that_takes_the_place_of_a_removed_record_is_no_command(run):
    await run.write(recorded())
    await run.write(write_to_pb(EntryWrite(PATH, MoveEntry("known://a"), Tier.PLUGIN)))
    await run.write(set_(PATH, "mine", writer=Tier.MODEL))
    assert not (await run.entry(PATH)).HasField("record")


async def test_an_empty_record_takes_it_away(run):
    await run.write(recorded())
    await run.write(recorded(command_record_pb2.CommandRecord(), body=None))
    assert not (await run.entry(PATH)).HasField("record")


async def test_a_fork_and_an_earlier_moment_show_the_record_that_was(client, run):
    await run.begin()
    await run.write(recorded())
    await run.end(1)
    await client.call("ForkRun", **run.address, turn=1, new_run="fork")
    await run.write(recorded(command_record_pb2.CommandRecord(tool="later")))
    address = run.address | {"run": "fork"}
    [entry] = (await client.call("GetEntries", **address, paths=[PATH])).entries
    assert entry.record == RECORD


async def test_a_claim_brings_what_the_commands_have_come_through(run):
    await run.begin()
    await run.write(recorded(state=entry_pb2.STATE_RECORDED))
    await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)
    [record] = (await run.claim()).records
    assert (record.path, record.record) == (PATH, RECORD)


async def test_a_record_is_there_after_a_restart(tmp_path, own_db):
    server = await start_store(tmp_path)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r")
    await run.write(recorded())
    await client.close()
    await server.stop()
    server = await start_store(tmp_path)
    client = Client(server.address)
    [entry] = (await client.call("GetEntries", **run.address, paths=[PATH])).entries
    assert entry.record == RECORD
    await client.close()
    await server.stop()
