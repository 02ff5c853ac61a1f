"""Reading entries by path: what the model was sent."""

import hashlib

from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import cursor_pb2, packet_pb2

from contract.store.harness import ARCHIVED, RESOLVED, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.wire.packets import role_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def sent(run, *messages):
    """A turn that keeps a packet of (role, text)."""
    number = (await run.begin()).next.number
    blocks = [
        packet_pb2.PacketMessage(role=role_to_pb(role), pieces=[packet_pb2.PacketPiece(text=text)])
        for role, text in messages
    ]
    await run.write(packet=write_pb2.PacketRecord(turn=number, messages=blocks))
    await run.end(number)
    return number


async def test_what_the_model_was_sent_is_read_as_entries(client, run):
    """RU197, C22: the audit entries of a packet, without a second copy of it."""
    first = await sent(run, ("system", "be brief"), ("user", "hello é"), ("user", "again"))
    second = await sent(run, ("system", "be brief"), ("user", "more"))
    paths = [
        f"system://{first}",
        f"user://{first}",
        f"user://{second}",
        "user://9",
        "system://01",
        "user://99999999999",
    ]
    got = await client.call("GetEntries", **run.address, paths=paths)
    turn = (await client.call("ListTurns", **run.address)).turns[-1]
    assert [(entry.path, entry.body) for entry in got.entries] == [
        ("system://1", "be brief"),
        ("user://1", "hello é\n\nagain"),
        ("user://2", "more"),
    ]
    entry = got.entries[0]
    assert (entry.visibility, entry.state, entry.writer, entry.turn, entry.loop) == (ARCHIVED, RESOLVED, 4, 1, 1)
    assert (entry.position, entry.revision, entry.body_size_bytes) == (0, turn.revision, 8)
    assert entry.hash == hashlib.sha256(b"be brief").hexdigest()
    assert entry.scope == (await run.entry("run://r1")).scope


async def test_a_stored_entry_wins_over_what_the_model_was_sent(run):
    number = await sent(run, ("user", "sent"))
    await run.write(set_(f"user://{number}", "stored"))
    assert (await run.entry(f"user://{number}")).body == "stored"


async def test_a_turn_that_a_moment_does_not_know_was_not_sent_anything(client, run):
    first = await sent(run, ("user", "one"))
    cursor = (await run.view()).cursor
    second = await sent(run, ("user", "two"))
    paths = [f"user://{first}", f"user://{second}"]
    got = await client.call("GetEntries", **run.address, paths=paths, at=cursor_pb2.Moment(cursor=cursor))
    assert [entry.body for entry in got.entries] == ["one"]


async def test_a_fork_reads_what_its_ancestor_was_sent(client, run):
    number = await sent(run, ("user", "one"))
    forked = await client.call("ForkRun", **run.address, new_run="child")
    later = await sent(run, ("user", "two"))
    paths = [f"user://{number}", f"user://{later}"]
    got = await client.call("GetEntries", project=run.project, run=forked.run.run, paths=paths)
    assert [entry.body for entry in got.entries] == ["one"]
