"""Texts that show an entry keep what its body does not say, and are read byte for byte whatever becomes of the body."""

import asyncio
import random

import msgspec
import pytest
import pytest_asyncio
from sqlalchemy import select
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import packet_pb2

from contract.store.counting import connected
from contract.store.harness import (
    RESOLVED,
    STREAMING,
    Client,
    Run,
    append,
    new_project,
    remove,
    set_,
    start_store,
    working_run,
)
from contract.store.test_forks import fork, work
from contract.store.test_packets import read, refused
from contract.store.test_retention import gone, over, removed, serving
from contract.store.test_streaming import folded
from turnwright_core.errors import Reason
from turnwright_core.wire.packets import piece_to_pb
from turnwright_store.edge.backup import back_up, restore
from turnwright_store.sql.packets import TextGroup
from turnwright_store.sql.tables import packets, versions

pytestmark = pytest.mark.asyncio

PATH = "known://a"
CHANCE = random.Random(3)


def letters(count: int) -> str:
    """A text of its own that does not get shorter by itself."""
    return "".join(CHANCE.choices("abcdefghijklmnopqrstuvwxyzäöü€\U0001f600\n\0 ", k=count))


BODY = letters(900)


def shown(body: str, path: str = PATH) -> str:
    """A body as packets show it."""
    return f'<known path="{path}" status="200" tokens="300">\n<<:::{path}\n{body}\n:::{path}\n</known>\n'


async def told(run: Run, *texts: str, shows: str = PATH) -> int:
    """A turn whose packet has these pieces, and says whose body they show."""
    number = (await run.begin()).next.number
    pieces = [piece_to_pb(piece, dict.fromkeys(texts, shows)) for piece in texts]
    message = packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=pieces)
    await run.write(packet=write_pb2.PacketRecord(turn=number, messages=[message]))
    await run.end(number)
    return number


@pytest.fixture
def leaning(db, tmp_path):
    """Looks up how long the texts are that are stored by bodies, group by group; fails where such a body is not there."""

    def look() -> list[int]:
        query = select(packets.c.pieces).where(packets.c.pieces.is_not(None)).order_by(packets.c.run_id, packets.c.turn)
        with connected(db, tmp_path) as connection:
            stored = connection.execute(query).scalars().all()
            there = set(connection.execute(select(versions.c.id)).scalars())
        groups = [
            group for one in stored for group in msgspec.msgpack.decode(one, type=list[TextGroup]) if group.references
        ]
        assert there.issuperset(version for group in groups for version in group.versions)
        return [len(group.data) for group in groups]

    return look


@pytest_asyncio.fixture
async def store(db, tmp_path):
    """One that deletes the rows of removed runs at once."""
    async with serving(db, tmp_path) as one:
        yield one


async def test_a_text_is_stored_by_what_the_body_does_not_say(run, leaning):
    """RU197, C22."""
    await run.write(set_(PATH, BODY))
    number = await told(run, "<log>\n", shown(BODY), "</log>\n")
    [stored] = leaning()
    assert stored < len(BODY) / 8
    assert await read(run, number) == [("user", f"<log>\n{shown(BODY)}</log>\n")]
    assert (await run.entry(f"user://{number}")).body == f"<log>\n{shown(BODY)}</log>\n"


@pytest.mark.parametrize(
    "part",
    [
        shown(BODY),
        BODY,
        BODY[:700],
        shown(BODY[200:]),
        BODY * 3,
        BODY.replace("a", "&lt;"),
        BODY[:300] + BODY[400:],
    ],
    ids=["tagged", "bare", "head", "tail", "thrice", "escaped", "with-a-gap"],
)
async def test_a_text_may_show_a_body_in_any_way(run, part):
    await run.write(set_(PATH, BODY))
    number = await told(run, part, "between", f"{part}.")
    assert await read(run, number) == [("user", f"{part}between{part}.")]


@pytest.mark.parametrize(
    ("body", "part", "path"),
    [
        (BODY[:100], shown(BODY[:100]), PATH),
        (letters(20_000), shown("short"), PATH),
        (letters(33_000), shown(BODY), PATH),
        (BODY, shown(BODY), "known://none"),
        (BODY, shown(BODY), "known://%"),
        (BODY, shown(BODY), f"{PATH}/"),
    ],
    ids=["a-short-body", "a-short-text", "a-long-body", "no-entry", "a-pattern", "not-this-path"],
)
async def test_a_text_that_gains_nothing_is_stored_whole(run, leaning, body, part, path):
    await run.write(set_(PATH, body))
    number = await told(run, part, shows=path)
    assert leaning() == []
    assert await read(run, number) == [("user", part)]


async def test_a_body_that_the_run_does_not_see_is_not_leaned_on(client, run, leaning):
    """Nobody learns by a packet what somebody else wrote, nor holds it."""
    other = await working_run(client, run.project, "other")
    far = await working_run(client, await new_project(client, "far"), "r1")
    for one in (other, far):
        await one.write(set_(PATH, BODY))
    await run.write(set_("known://removed", BODY), set_("known://removed2", BODY))
    await run.write(remove("known://removed"))
    number = await told(run, shown(BODY))
    again = await told(run, shown(BODY) + ".", shows="known://removed")
    assert leaning() == []
    assert await read(run, number) == [("user", shown(BODY))]
    assert await read(run, again) == [("user", shown(BODY) + ".")]


async def test_entries_of_the_project_are_leaned_on(run, leaning):
    await run.write(set_("src/a.py", BODY))
    number = await told(run, shown(BODY, "src/a.py"), shows="src/a.py")
    assert len(leaning()) == 1
    assert await read(run, number) == [("user", shown(BODY, "src/a.py"))]


@pytest.mark.parametrize("path", ["\0", "known://a\nb", "x" * 3000])
async def test_what_is_no_path_is_refused(run, path):
    await run.begin()
    pieces = [piece_to_pb("text", {"text": path})]
    record = write_pb2.PacketRecord(
        turn=1, messages=[packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=pieces)]
    )
    error = await refused(run.write(packet=record))
    assert (error.reason, error.metadata["field"]) in {
        (Reason.INVALID_FIELD, "packet.shows"),
        (Reason.LIMIT_EXCEEDED, "packet.shows"),
    }


async def test_a_body_that_is_written_again_leaves_its_texts(run, leaning):
    await run.write(set_(PATH, BODY))
    first = await told(run, shown(BODY))
    await run.write(set_(PATH, BODY[::-1]))
    second = await told(run, shown(BODY[::-1]))
    await run.write(remove(PATH))
    assert len(leaning()) == 2
    assert [await read(run, turn) for turn in (first, second)] == [
        [("user", shown(BODY))],
        [("user", shown(BODY[::-1]))],
    ]


async def test_a_body_that_goes_on_growing_leaves_its_texts(db, tmp_path, leaning):
    """What is folded into a body stands behind what its texts lean on."""
    server = await start_store(tmp_path, fold_s=0.05)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r1")
    path = "sh://turn_1/x_1"
    await run.write(set_(path, BODY, state=STREAMING))
    growing = await told(run, shown(BODY, path), shows=path)
    assert leaning() == []
    await run.write(set_(path, state=RESOLVED))
    ended = await told(run, shown(BODY, path) + ".", shows=path)
    assert len(leaning()) == 1
    await run.write(set_(path, state=STREAMING), append(path, "and more"))
    await run.write(set_(path, state=RESOLVED))
    assert (await folded(run, path)).body == f"{BODY}and more"
    assert await read(run, growing) == [("user", shown(BODY, path))]
    assert await read(run, ended) == [("user", shown(BODY, path) + ".")]
    await client.close()
    await server.stop()


async def test_a_text_stays_when_another_run_goes_that_was_shown_the_same(store, leaning):
    """Each leans on what its own run sees."""
    one, other = await store.run("one"), await store.run("other")
    await one.write(set_(PATH, BODY))
    await told(one, shown(BODY))
    number = await told(other, shown(BODY))
    assert len(leaning()) == 1
    await over(one)
    await removed(one)
    await gone(store, "one")
    assert leaning() == []
    assert await read(other, number) == [("user", shown(BODY))]


async def test_a_fork_goes_on_leaning_on_what_it_inherited(store, leaning):
    parent = await store.run("parent")
    await parent.write(set_(PATH, BODY))
    first = await told(parent, shown(BODY))
    child = await work(await fork(parent, "child"))
    texts = (shown(BODY), shown(BODY) + "again")
    second = await told(child, *texts)
    await over(parent)
    await removed(parent)
    await gone(store, "parent")
    assert len(leaning()) == 1
    assert await read(child, second) == [("user", "".join(texts))]
    assert (await refused(read(child, first))).reason is Reason.TURN_NOT_FOUND
    await over(child)
    await removed(child)
    await store.settles_at({**store.rows(), "blocks": 0, "packets": 0, "runs": 0, "views": 0, "turns": 0, "loops": 0,
                            "versions": 0, "entries": 0, "scopes": 3})  # fmt: skip


async def test_a_text_outlives_what_replaced_its_shared_body(store, leaning):
    """The version of a file goes when no run is left that was there when it stood: a younger one did not see it."""
    old = await store.run("old")
    await old.write(set_("a.py", BODY))
    await told(old, shown(BODY), shows="a.py")
    await old.write(set_("a.py", "new"))
    young = await store.run("young")
    number = await told(young, shown(BODY), shows="a.py")
    assert len(leaning()) == 1
    await over(old)
    await removed(old)
    await gone(store, "old")
    assert leaning() == []
    assert await read(young, number) == [("user", shown(BODY))]


async def test_a_text_that_is_shown_while_its_body_goes_is_read_as_it_was_sent(store, db, tmp_path, leaning):
    """Another run, on another replica where there can be one, shows it in the moment in which the run is removed."""
    second = await start_store(tmp_path, "second", purge_after_s=0.0, purge_every_s=0.03) if db else None
    there = Client(second.address) if second else store.client
    other = await store.run("other")
    other = Run(there, other.project, other.alias, other.epoch)
    sent = {}
    for number in range(6):
        one, body = await store.run(f"one_{number}"), letters(500)
        await one.write(set_(PATH, body))
        await told(one, shown(body))
        await over(one)
        _, turn = await asyncio.gather(removed(one), told(other, shown(body), f"{number}"))
        sent[turn] = [("user", f"{shown(body)}{number}")]
    await gone(store, "all of them")
    assert leaning() == []
    assert {turn: await read(other, turn) for turn in sent} == sent
    if second:
        await there.close()
        await second.stop()


async def test_texts_are_restored_with_the_bodies_that_they_lean_on(db, tmp_path, empty_postgres_url, leaning):
    """From either database into a file, and from that into either."""
    server = await start_store(tmp_path)
    client = Client(server.address)
    run = await working_run(client, await new_project(client), "r1")
    await run.write(set_(PATH, BODY))
    texts = ["short", shown(BODY), letters(700), "\0"]
    number = await told(run, *texts)
    assert len(leaning()) == 1
    await client.close()
    await server.stop()
    back_up(db or str(tmp_path / "turnwright.db"), tmp_path / "backup.db", lambda _text: None)
    for target in (str(tmp_path / "again.db"), empty_postgres_url):
        restore(tmp_path / "backup.db", target, lambda _text: None)
        server = await start_store(tmp_path, "again", db=target)
        client = Client(server.address)
        again = Run(client, run.project, "r1")
        assert await read(again, number) == [("user", "".join(texts))]
        await client.close()
        await server.stop()


async def test_many_texts_of_changing_bodies_are_read_as_they_were_sent(run, leaning):
    """C22: whatever is written, shown and repeated."""
    chance = random.Random(11)
    paths = [f"known://{name}" for name in "abc"] + ["src/a.py", "log://turn_1/get/x"]
    bodies = dict.fromkeys(paths, "")
    sent = {}
    for _ in range(25):
        for path in chance.sample(paths, 2):
            bodies[path] = "".join(
                chance.choices(["lorem ", "ipsum\n", "ä€", "\0", "0123456789abcdefghijklmn"], k=chance.randrange(90))
            )
        await run.write(*(set_(path, body) for path, body in bodies.items()))
        number = (await run.begin()).next.number
        texts, shows = [], {}
        for path, body in bodies.items():
            part = chance.choice([shown(body, path), body, body[: len(body) // 2], body[::-1]])
            texts += [part, "".join(chance.sample(texts, min(1, len(texts))))]
            shows[part] = chance.choice([path, path, chance.choice(paths)])
        message = packet_pb2.PacketMessage(
            role=packet_pb2.PACKET_ROLE_USER, pieces=[piece_to_pb(piece, shows) for piece in texts]
        )
        await run.write(packet=write_pb2.PacketRecord(turn=number, messages=[message]))
        await run.end(number)
        sent[number] = [("user", "".join(texts))]
    assert len(leaning()) > 15
    assert {number: await read(run, number) for number in sent} == sent


async def test_many_bodies_are_leaned_on_at_once(run, leaning):
    """More than are in memory together."""
    bodies = {f"known://n_{number}": letters(300) for number in range(230)}
    await run.write(*(set_(path, body) for path, body in bodies.items()))
    number = (await run.begin()).next.number
    shows = {shown(body, path): path for path, body in bodies.items()}
    message = packet_pb2.PacketMessage(
        role=packet_pb2.PACKET_ROLE_USER, pieces=[piece_to_pb(piece, shows) for piece in shows]
    )
    await run.write(packet=write_pb2.PacketRecord(turn=number, messages=[message]))
    assert len(leaning()) > 2
    assert await read(run, number) == [("user", "".join(shows))]
