"""Reading entries by path: some lines of them, and what the model was sent."""

import hashlib

import pytest
from turnwright.store.v1 import read_pb2, write_pb2
from turnwright.types.v1 import cursor_pb2, packet_pb2

from cases import params
from contract.store.harness import ARCHIVED, RESOLVED, STREAMING, VISIBLE, append, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.wire.packets import role_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

# ---- Lines


@pytest.mark.parametrize(
    "case", [case for case in params("rummy/get_partial.jsonl") if "slice" in case.values[0]["expected"]]
)
async def test_some_lines_of_a_body(run, case):
    """RU273 by the cases; whoever reads lines changes nothing of the entry."""
    given_, expected = case["input"], case["expected"]
    await run.write(set_("known://a", given_["body"], visibility=ARCHIVED))
    lines = read_pb2.LineRange(line=given_.get("line", 0), limit=given_.get("limit", 0))
    got = await run.client.call("GetEntries", **run.address, paths=["known://a"], lines=lines)
    span = read_pb2.LineSpan(first=expected["first"], last=expected["last"], total=expected["total"])
    assert ([entry.body for entry in got.entries], list(got.spans)) == ([expected["slice"]], [span])
    whole = await run.entry("known://a")
    assert (whole.visibility == VISIBLE, whole.write_count) == (expected["promoted"], 1)


async def test_lines_of_a_streaming_body_reach_over_its_pieces(run):
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "one\ntw", state=STREAMING))
    await run.write(append(path, "o\nthr"))
    await run.write(append(path, "ee\n"))
    paths = [path, "known://none", path]
    got = await run.client.call("GetEntries", **run.address, paths=paths, lines=read_pb2.LineRange(line=-2, limit=5))
    assert [entry.body for entry in got.entries] == ["two\nthree"] * 2
    assert list(got.spans) == [read_pb2.LineSpan(first=2, last=3, total=3)] * 2
    assert got.entries[0].body_size_bytes == len("one\ntwo\nthree\n")


async def test_an_empty_slice_says_so(run):
    await run.write(set_("known://a", "x\ny"))
    lines = read_pb2.LineRange(line=9)
    got = await run.client.call("GetEntries", **run.address, paths=["known://a"], lines=lines, without_bodies=True)
    assert ([entry.body for entry in got.entries], list(got.spans)) == ([""], [read_pb2.LineSpan(total=2)])


async def test_a_few_lines_of_long_bodies_are_no_large_answer(run):
    paths = [f"known://{number}" for number in range(3)]
    for path in paths:
        await run.write(set_(path, "x\n" * (6 * 1024 * 1024)))
    got = await run.client.call("GetEntries", **run.address, paths=paths, lines=read_pb2.LineRange(line=7, limit=2))
    assert [entry.body for entry in got.entries] == ["x\nx"] * 3


# ---- What the model was sent


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
