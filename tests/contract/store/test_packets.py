"""What the model was sent: stored by pieces, read byte for byte."""

import random
import string

import pytest
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import packet_pb2

from contract.store.counting import row_counts, stored_bytes
from contract.store.harness import Run, new_project, set_, working_run
from turnwright_core.delta_encoding import Copied
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.packets import piece_to_pb, role_from_pb, role_to_pb

pytestmark = pytest.mark.asyncio


def packet(turn: int, *messages: tuple[str, list[Copied | str]], base_turn: int = 0) -> write_pb2.PacketRecord:
    """A packet of messages: role and pieces."""
    return write_pb2.PacketRecord(
        turn=turn,
        messages=[
            packet_pb2.PacketMessage(role=role_to_pb(role), pieces=map(piece_to_pb, parts)) for role, parts in messages
        ],
        base_turn=base_turn,
    )


async def read(run: Run, turn: int) -> list[tuple[str, str]]:
    """A stored packet: role and text of each message."""
    messages: list[tuple[str, str]] = []
    async for part in run.client.stream("ReadPacket", **run.address, turn=turn):
        if part.index == len(messages):
            messages.append((role_from_pb(part.role), ""))
        assert messages[part.index][0] == role_from_pb(part.role)
        messages[part.index] = (role_from_pb(part.role), messages[part.index][1] + part.text)
    return messages


async def sent(run: Run, *messages: tuple[str, list[str]], **more) -> int:
    """A turn whose packet is stored."""
    number = (await run.begin()).next.number
    await run.write(packet=packet(number, *messages, **more))
    await run.end(number)
    return number


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def not_found(run: Run, turn: int) -> TurnwrightError:
    return await refused(read(run, turn))


async def test_a_packet_is_read_byte_for_byte(run):
    """RU197, C22."""
    messages = [("system", ["ä\r\n", "", "\0 \ud7ff\U0001f600"]), ("user", ["x" * 300, "x" * 300]), ("assistant", [])]
    number = await sent(run, *messages)
    assert await read(run, number) == [(role, "".join(texts)) for role, texts in messages]


async def test_a_long_packet_comes_in_parts(run):
    """Cut at characters: a part is text by itself."""
    text = "é€" * 200_000
    number = await sent(run, ("system", ["short"]), ("user", ["a", text, "b"]))
    parts = [part async for part in run.client.stream("ReadPacket", **run.address, turn=number)]
    assert max(len(part.text.encode()) for part in parts) <= 256 * 1024
    assert [part.last for part in parts] == [False] * 4 + [True]
    assert await read(run, number) == [("system", "short"), ("user", f"a{text}b")]


async def test_a_long_text_is_stored_once_in_a_project(client, run, db, tmp_path):
    shared = "rules " * 200
    await sent(run, ("system", [shared, shared]), ("user", ["one"]))
    other = await working_run(client, run.project, "other")
    number = await sent(other, ("system", [shared]), ("user", ["two" * 500]))
    assert row_counts(db, tmp_path)["blocks"] == 2
    far = await working_run(client, await new_project(client, "far"), "r1")
    await sent(far, ("system", [shared]))
    assert row_counts(db, tmp_path)["blocks"] == 3
    assert await read(other, number) == [("system", shared), ("user", "two" * 500)]


async def test_a_packet_that_comes_whole_stores_only_what_is_new(run, db, tmp_path):
    """An owner that takes a run over does not know what the one before it has sent."""
    chance = random.Random(5)
    texts = ["".join(chance.choices(string.ascii_letters, k=600)) for _ in range(100)]
    await sent(run, ("user", texts))
    before = stored_bytes(db, tmp_path, "packets")
    number = await sent(run, ("user", [*texts[:50], "new", *texts[50:]]))
    assert stored_bytes(db, tmp_path, "packets") - before <= 4096
    assert await read(run, number) == [("user", "".join([*texts[:50], "new", *texts[50:]]))]


async def test_a_packet_may_copy_from_the_one_before(run):
    await sent(run, ("system", ["rules"]), ("user", ["a", "b", "c"]))
    copying = [("system", [Copied(0, 1)]), ("user", [Copied(1, 1), "new", Copied(2, 2), "end", "a"])]
    number = await sent(run, *copying, base_turn=1)
    again = await sent(run, ("user", [Copied(0, 4), "x", Copied(6, 1)]), base_turn=number)
    assert await read(run, number) == [("system", "rules"), ("user", "anewbcenda")]
    assert await read(run, again) == [("user", "rulesanewbxa")]


async def test_copies_are_read_back_over_more_turns_than_a_chain_is_long(run):
    """Each turn adds a text at the end, and moves one from the front."""
    texts = [f"piece {number}" for number in range(8)]
    await sent(run, ("user", texts))
    for turn in range(2, 80):
        moved = f"turn {turn}"
        await sent(run, ("user", [Copied(1, len(texts) - 1), Copied(0, 1), moved]), base_turn=turn - 1)
        texts = [*texts[1:], texts[0], moved]
    assert await read(run, 79) == [("user", "".join(texts))]


@pytest.mark.parametrize("base_turn", [1, 3])
async def test_only_the_packet_before_is_copied_from(run, base_turn, db, tmp_path):
    """Whoever is told so sends it whole: nothing of the request is stored."""
    await sent(run, ("user", ["a"]))
    await sent(run, ("user", ["b"]))
    await run.begin()
    await run.end(3)
    number = (await run.begin()).next.number
    wanted = packet(number, ("user", [Copied(0, 1), "new"]), base_turn=base_turn)
    error = await refused(run.write(set_("known://a", "x"), packet=wanted))
    assert (error.reason, error.metadata) == (
        Reason.PACKET_BASE_MISSING,
        {"run": "r1", "turn": str(base_turn)},
    )
    counts = row_counts(db, tmp_path)
    assert (counts["packets"], await run.entry("known://a")) == (2, None)


async def test_the_latest_packet_is_read_in_its_pieces_and_a_fork_has_none_yet(client, run):
    long = ["x" * 300_000, "", "é" * 5]
    await sent(run, ("system", ["s"]), ("user", ["a"]))
    await sent(run, ("system", ["s"]), ("conversation", [*long, "b"]))
    await run.begin()
    await run.end(3)
    parts = [part async for part in client.stream("ReadPacket", **run.address)]
    assert len(parts) > 2
    pieces = [[chars for part in parts if part.index == index for chars in part.piece_chars] for index in (0, 1)]
    assert pieces == [[1], [300_000, 0, 5, 1]]
    assert "".join(part.text for part in parts if part.index) == "".join([*long, "b"])
    await client.call("ForkRun", **run.address, new_run="child")
    child = Run(client, run.project, "child")
    assert (await not_found(child, 0)).reason is Reason.TURN_NOT_FOUND
    assert await read(child, 2) == await read(run, 2)


async def test_a_fork_copies_nothing_from_its_parents_packet(client, run):
    """Its own first packet comes whole: the parent's may be removed any day."""
    await sent(run, ("user", ["a"]))
    await client.call("ForkRun", **run.address, new_run="child")
    child = Run(client, run.project, "child")
    await child.enqueue()
    await child.claim()
    error = await refused(sent(child, ("user", [Copied(0, 1)]), base_turn=1))
    assert error.reason is Reason.PACKET_BASE_MISSING


async def test_a_packet_is_stored_with_the_writes_of_its_request(run):
    begun = await run.begin()
    await run.write(set_("known://a", "x"), packet=packet(1, ("user", ["hi"])))
    assert (await run.entry("known://a")).body == "x"
    assert await read(run, begun.next.number) == [("user", "hi")]


async def test_a_packet_of_the_open_turn_is_replaced(run):
    """A packet that did not fit is assembled again in the same turn."""
    await sent(run, ("user", ["a", "b"]))
    await run.begin()
    await run.write(packet=packet(2, ("user", ["a", "b", "c"])))
    await run.write(packet=packet(2, ("user", ["a", "d"])))
    await run.end(2)
    assert await sent(run, ("user", ["a", "d", "e"])) == 3
    assert [await read(run, turn) for turn in (1, 2, 3)] == [[("user", "ab")], [("user", "ad")], [("user", "ade")]]


@pytest.mark.parametrize("number", [0, 1, 3])
async def test_only_the_open_turn_takes_a_packet(run, number):
    await run.begin()
    await run.end(1)
    await run.begin()
    error = await refused(run.write(packet=packet(number, ("user", ["x"]))))
    assert error.reason is Reason.TRANSITION_FORBIDDEN
    assert error.metadata == {"from": "2", "to": str(number), "object": "packet"}


async def test_a_packet_needs_the_fence(run):
    await run.begin()
    call = run.client.call("WriteEntries", **run.address, packet=packet(1, ("user", ["x"])))
    assert (await refused(call)).metadata == {"field": "epoch"}
    run.epoch += 1
    assert (await refused(run.write(packet=packet(1, ("user", ["x"]))))).reason is Reason.LEASE_LOST


@pytest.mark.parametrize(
    ("record", "metadata"),
    [
        ([packet_pb2.PacketMessage()], {"field": "packet.role"}),
        (
            [packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER)] * 17,
            {"field": "packet.messages", "limit": "16", "actual": "17", "unit": "items"},
        ),
        (
            [packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=[packet_pb2.PacketPiece()] * 50_001)]
            * 2,
            {"field": "packet.pieces", "limit": "100000", "actual": "100002", "unit": "items"},
        ),
        (
            [packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=[piece_to_pb(Copied(0, 1))])],
            {"field": "packet.copied"},
        ),
    ],
    ids=["role", "messages", "pieces", "copied"],
)
async def test_a_malformed_packet_is_refused(run, record, metadata):
    await run.begin()
    error = await refused(run.write(packet=write_pb2.PacketRecord(turn=1, messages=record)))
    assert error.metadata == metadata


@pytest.mark.parametrize(
    ("copied", "base_turn", "field"),
    [
        (Copied(1, 2), 1, "packet.copied"),
        (Copied(2, 1), 1, "packet.copied"),
        (Copied(0, 0), 1, "packet.copied"),
        (Copied(0, 4_000_000_000), 1, "packet.pieces"),
        (Copied(0, 1), 2, "packet.base_turn"),
    ],
)
async def test_what_the_base_does_not_have_is_not_copied(run, copied, base_turn, field):
    await sent(run, ("user", ["a", "b"]))
    await run.begin()
    error = await refused(run.write(packet=packet(2, ("user", [copied]), base_turn=base_turn)))
    assert error.metadata["field"] == field


async def test_a_turn_without_packet_is_not_found(run):
    await run.begin()
    await run.end(1)
    for turn in (1, 2):
        error = await not_found(run, turn)
        assert (error.reason, error.metadata) == (Reason.TURN_NOT_FOUND, {"run": "r1", "turn": str(turn)})


async def test_a_fork_reads_the_packets_of_inherited_turns(run):
    """C22 over forks: packets are not copied."""
    await sent(run, ("user", ["first"]))
    await run.client.call("ForkRun", **run.address, new_run="child")
    child = Run(run.client, run.project, "child")
    await child.enqueue()
    await child.claim()
    await sent(child, ("user", ["child's"]))
    await sent(run, ("user", ["parent's"]))
    assert [await read(child, turn) for turn in (1, 2)] == [[("user", "first")], [("user", "child's")]]
    assert await read(run, 2) == [("user", "parent's")]
    assert (await not_found(child, 3)).reason is Reason.TURN_NOT_FOUND


async def test_many_turns_of_shifting_packets_are_read_back(run):
    """RU199: pieces come, go and move over more turns than one chain of layouts is long."""
    chance = random.Random(7)
    texts = [f"block {number}" for number in range(30)]
    packets = []
    for turn in range(1, 71):
        for _ in range(3):
            place = chance.randrange(len(texts) + 1)
            if chance.random() < 0.4:
                texts[place:place] = [f"new {turn} {chance.random()}"]
            elif chance.random() < 0.5:
                texts[place : place + 2] = []
            else:
                texts = texts[place:] + texts[:place]
        half = len(texts) // 2
        messages = [
            ("system", ["sep", *texts[:half]]),
            ("user", [part for text in texts[half:] for part in (text, "sep")]),
        ]
        packets.append([(role, "".join(parts)) for role, parts in messages])
        assert await sent(run, *messages) == turn
    assert [await read(run, turn) for turn in range(1, 71)] == packets


@pytest.mark.parametrize("db", ["sqlite", pytest.param("postgresql", marks=pytest.mark.soak)], indirect=True)
async def test_packets_grow_with_what_is_new(run, db, tmp_path):
    """C22: less than two bytes are stored for each new byte, layouts, keys and indexes included."""
    chance = random.Random(1)

    def text() -> str:
        return "".join(chance.choices(string.ascii_letters + string.digits, k=1000))

    texts = [text() for _ in range(200)]
    await sent(run, ("system", texts[:50]), ("user", texts[50:]))
    before, new = stored_bytes(db, tmp_path, "blocks", "packets"), 0
    for _ in range(200):
        for place in chance.sample(range(200), 3):
            texts[place] = text()
            new += 1000
        number = (await run.begin()).next.number
        wanted = packet(number, ("system", texts[:50]), ("user", texts[50:]))
        await run.write(packet=wanted)
        await run.end(number)
    ratio = (stored_bytes(db, tmp_path, "blocks", "packets") - before) / new
    print(f"stored {ratio:.2f} bytes per new byte")
    assert ratio < 2
    assert await read(run, number) == [("system", "".join(texts[:50])), ("user", "".join(texts[50:]))]


async def test_a_repeated_request_stores_its_packet_once(run, db, tmp_path):
    await run.begin()
    for _ in range(2):
        await run.write(packet=packet(1, ("user", ["x"])), request_id="once")
    assert row_counts(db, tmp_path)["packets"] == 1


async def test_the_note_of_a_packet_comes_with_its_first_part(run):
    turn = (await run.begin()).next.number
    record = packet(turn, ("system", ["one"]), ("user", ["three"]))
    record.note = '{"tokens":7}'
    await run.write(packet=record)
    parts = [part async for part in run.client.stream("ReadPacket", **run.address, turn=turn)]
    assert [(part.text, part.note) for part in parts] == [("one", '{"tokens":7}'), ("three", "")]


async def test_a_note_that_is_too_long_is_refused(run):
    turn = (await run.begin()).next.number
    record = packet(turn, ("user", ["one"]))
    record.note = "x" * (512 * 1024 + 1)
    error = await refused(run.write(packet=record))
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, "packet.note")
