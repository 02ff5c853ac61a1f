"""A packet says whose bodies its texts show, and the store keeps of these what the bodies do not say."""

import sqlite3
from contextlib import closing

import msgspec
import pytest
from turnwright_values.assembler import PacketReport
from turnwright_values.types import Cursor

from contract.executor.test_pipeline import DONE, Asked
from services import running
from turnwright_core.delta_encoding import Copied
from turnwright_core.packet_values import PacketMessage
from turnwright_core.wire.owner_calls import packet_from_pb, packet_to_pb
from turnwright_executor.peers.packets import turn_packet
from turnwright_executor.ports.packets import AssembledMessage, Packet
from turnwright_store.sql.packets import TextGroup

pytestmark = pytest.mark.asyncio

SOURCE = "".join(f"def step_{number}(): return {number * 7919 % 1009}\n" for number in range(40))


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")


def leaning(file):
    """Paths of the entries whose bodies texts lean on."""
    with closing(sqlite3.connect(file)) as database:
        stored = database.execute("SELECT pieces FROM packets WHERE pieces IS NOT NULL").fetchall()
        paths = dict(database.execute("SELECT versions.id, path FROM versions JOIN entries ON entries.id = entry_id"))
    groups = [group for (one,) in stored for group in msgspec.msgpack.decode(one, type=list[TextGroup])]
    return {paths[version] for group in groups for version in group.versions}


async def test_a_body_that_the_model_is_shown_is_stored_once(tmp_path):
    """C22: with the entry, not again with the packet of each turn that shows it."""
    writes = Asked("WriteEntries")
    more = '<update status="102">More.</update>'
    async with running(tmp_path, [writes]) as services:
        (services.files / "a.py").write_text(SOURCE)
        services.script(f'<get path="a.py"/>{more}', f'<set path="known://b">{SOURCE[::-1]}</set>{more}', more, DONE)
        assert (await services.until(await services.act())).status == 200
        sent = (await services.entry("user://4")).body
        assert SOURCE in sent
        assert SOURCE[::-1] in sent
        assert leaning(tmp_path / "home" / "turnwright.db") >= {"a.py", "known://b"}
    packets = [request.packet for _, request in writes.asked if request.HasField("packet")]
    named = [set(packet_from_pb(packet).shows.values()) for packet in packets]
    assert ["a.py" in paths for paths in named].count(True) == 1
    assert ["known://b" in paths for paths in named].count(True) == 1
    assert named[3] == set()


@pytest.mark.parametrize("base_turn", [0, 1])
async def test_what_the_assembler_says_of_its_texts_is_passed_on(base_turn):
    message = AssembledMessage(
        "user", ("old", "new", "last"), PacketMessage("user", (Copied(0, 1), "new", "last"), {"new": "known://a"})
    )
    cursor = Cursor("i", 1, 1, 1)
    packet = Packet((message,), PacketReport(digest="0" * 64, tokens=3, ceiling=100, chars=10, cursor=cursor))
    record = packet_to_pb(turn_packet(2, packet, base_turn))
    assert packet_from_pb(record).shows == {"new": "known://a"}
    assert [piece.shows for piece in record.messages[0].pieces] == ["", "known://a", ""]
