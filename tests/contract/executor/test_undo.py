"""What a turn changed in project files is recorded, and can be taken back by a client."""

from __future__ import annotations

import codecs
import hashlib
import json

import pytest
from turnwright.store.v1.ledger_pb2 import WriteEntriesRequest
from turnwright.store.v1.store_service_pb2_grpc import StoreServiceStub
from turnwright.store.v1.write_pb2 import EntryWrite, SetEntry
from turnwright.types.v1.command_record_pb2 import (
    EFFECT_CLASS_IDEMPOTENT,
    ClientCall,
    CommandRecord,
    DispatchedStage,
    Effect,
    FileEdit,
    FileEffect,
    WrittenFile,
)
from turnwright.types.v1.entry_pb2 import STATE_RECORDED, TIER_SYSTEM

from services import SECRET
from turnwright_core.errors import InvalidError
from turnwright_kit.peer import Peer

ASK = '<sh command="true"/>'

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">On.</update>'


async def undone(services, turn="", request_id=""):
    attributes = {"turn": str(turn)} if turn else {}
    return await services.client.call_tool(services.project, "r", "undo", attributes, request_id=request_id)


def told(record):
    return record.outcome, json.loads(record.attributes_json).get("undone"), record.body


async def test_a_turn_is_taken_back_where_nothing_else_changed_its_files(services) -> None:
    files = services.files
    for name in ("a.txt", "b.txt", "gone.txt", "from.txt"):
        (files / name).write_text(f"{name}\none\ntwo")
    services.script(
        '<set path="a.txt">first\n</set><set path="a.txt">second</set><set path="b.txt">b</set>'
        '<set path="sub/new.txt">new\n</set><rm path="gone.txt"/><mv path="from.txt" to="to.txt"/>'
        '<sh command="true"/>' + GO_ON,
        '<set path="a.txt">third\n</set>' + DONE,
    )
    await services.until(await services.act())
    record = (await services.entry("log://turn_1/set/a.txt")).record.settled.files
    assert [(one.path, one.HasField("base_hash"), one.patch.splitlines()[-4:]) for one in record] == [
        ("a.txt", True, ["-one", "-two", "\\ No newline at end of file", "+first"])
    ]

    # The latest turn that changed files comes first, then the one before.
    assert told(await undone(services)) == ("", 2, "Undid turn 2:\nedit a.txt (+1 -1)")
    (files / "b.txt").write_text("mine\n")
    once = await undone(services, request_id="1")
    again = await undone(services, request_id="1")
    assert once == again
    outcome, turn, body = told(once)
    assert (outcome, turn) == ("", 1)
    assert "b.txt stays as it is: it is not what the turn made of it any more" in body
    assert body.endswith("look after it yourself: `true`")
    assert {one.name: one.read_text() for one in files.iterdir() if one.is_file()} == {
        name: f"{name}\none\ntwo" for name in ("a.txt", "gone.txt", "from.txt")
    } | {"b.txt": "mine\n"}
    assert not (files / "sub/new.txt").exists()
    outcome, _, body = told(await undone(services))
    assert (outcome, body.startswith("None of the latest")) == ("invalid:400", True)
    again = await undone(services, 2)
    assert "Nothing of turn 2 was taken back." in again.body


async def test_files_in_other_encodings_go_back_to_the_bytes_they_were_and_a_foreign_one_costs_no_strike(
    services,
) -> None:
    files = services.files
    before = {
        "a.txt": codecs.BOM_UTF16_LE + "eins\r\nzwei\r\n".encode("utf-16-le"),
        "gone.txt": codecs.BOM_UTF16_BE + "weg\n".encode("utf-16-be"),
        "from.txt": codecs.BOM_UTF32_LE + "ä\n".encode("utf-32-le"),
        "latin.txt": b"caf\xe9 au lait\n",
    }
    for name, data in before.items():
        (files / name).write_bytes(data)
    services.script(
        '<set path="a.txt">new\n</set><rm path="gone.txt"/><mv path="from.txt" to="to.txt"/>' + GO_ON,
        '<get path="latin.txt"/>' + GO_ON,
        '<get path="latin.txt" line="1"/>' + GO_ON,
        '<set path="latin.txt">x\n</set>' + GO_ON,
        '<sh command="true"/>' + DONE,
    )
    await services.until(await services.act())
    assert (await services.entry("log://turn_4/set/latin.txt")).outcome == "unsupported:415"
    assert (await services.entry("log://turn_5/sh/true")).outcome == ""
    assert (files / "a.txt").read_bytes() == codecs.BOM_UTF16_LE + "new\r\n".encode("utf-16-le")
    assert (files / "to.txt").read_bytes() == before["from.txt"]
    assert told(await undone(services, 1))[0] == ""
    assert {one.name: one.read_bytes() for one in files.iterdir() if one.is_file()} == before


async def test_the_model_reads_what_was_taken_back_and_entries_show_the_files_again(services) -> None:
    (services.files / "a.txt").write_text("old\n")
    services.script('<set path="a.txt">new\n</set>' + DONE, DONE)
    await services.until(await services.act())
    record = await undone(services)
    assert record.outcome == "", record.body
    assert (await services.entry("a.txt")).body == "old\n"
    await services.until(await services.act())
    explained = await services.client.explain_packet(services.project, "r", 2)
    assert record.path in {piece.path for piece in explained.pieces}


async def test_what_cannot_be_taken_back_is_named_with_what_to_do(services) -> None:
    (services.files / "data.bin").write_bytes(b"\xff\x00")
    (services.files / "s.txt").write_text("s\n")
    services.script('<rm path="data.bin"/><sh command="echo x > s.txt"/>' + DONE)
    await services.until(await services.act())
    outcome, _, body = told(await undone(services, 1))
    assert outcome == "conflict:409"
    assert "data.bin stays as it is: its content before the turn was not kept. Restore it from version control." in body
    assert "s.txt stays as it is: a shell command changed it" in body
    assert body.endswith("of turn 1 changed is not taken back; look after it yourself: `echo x > s.txt`")
    for turn, expected in ((2, "There is no turn 2: the run has 1."), ("x", "There is no turn x: the run has 1.")):
        assert told(await undone(services, turn))[::2] == ("invalid:400", expected)


async def test_a_file_that_was_edited_on_acceptance_goes_back_to_what_it_was(services) -> None:
    (services.files / "a.txt").write_text("old\n")
    services.script('<set path="a.txt">new\n</set>' + GO_ON, DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    path = "log://turn_1/set/a.txt"
    edited = {"a.txt": "edited\n"}
    await services.client.resolve(services.project, "r", path, accept=True, contents=edited, comment="Not so new.")
    await services.until(queued)
    assert (await services.entry(path)).body.endswith("+edited\nThe reviewer said: Not so new.")
    (file,) = (await services.entry(path)).record.settled.files
    assert file == WrittenFile(
        path="a.txt",
        base_hash=file.base_hash,
        hash=file.hash,
        patch="--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-old\n+edited\n",
    )
    assert (await undone(services)).outcome == ""
    assert (services.files / "a.txt").read_text() == "old\n"


async def test_a_comment_goes_with_an_accepted_change_of_files_only(services) -> None:
    services.script(ASK, DONE)
    await services.until(await services.act(yolo=False), 202)
    with pytest.raises(InvalidError, match="accept it without a comment"):
        await services.client.resolve(services.project, "r", "log://turn_1/sh/true", accept=True, comment="So be it.")


async def test_a_killed_executor_leaves_an_undo_that_the_same_call_brings_to_its_end(services) -> None:
    files = [services.files / name for name in ("a.txt", "b.txt")]
    for file in files:
        file.write_text("old\n")
    services.script('<set path="a.txt">new\n</set><set path="b.txt">new\n</set>' + DONE)
    await services.until(await services.act())
    whole = await undone(services, 1, request_id="1")

    # What is left of a call whose executor was killed between two files: a mark, and one file that is done.
    files[1].write_text("new\n")
    call = ClientCall(principal=whole.record.call.principal, request=whole.record.call.request)
    new = hashlib.sha256(b"new\n").hexdigest()
    edits = [FileEdit(path=file.name, base_hash=new, content="old\n") for file in files]
    left = CommandRecord(
        tool="undo",
        command=whole.record.command,
        effect_class=EFFECT_CLASS_IDEMPOTENT,
        call=call,
        dispatched=DispatchedStage(effect=Effect(files=FileEffect(edits=edits))),
    )
    folder = f"log://call_{hashlib.sha256(f'{call.principal}{chr(10)}2'.encode()).hexdigest()[:16]}"
    change = SetEntry(state=STATE_RECORDED, attributes_json='{"undone": 1}', record=left)
    write = EntryWrite(path=f"{folder}/undo/call", set=change, writer=TIER_SYSTEM)
    request = WriteEntriesRequest(project=services.project, run="r", writes=[write])
    peer = Peer("store", services.addresses["store"], SECRET, 5.0)
    await peer.call(StoreServiceStub(peer.channel).WriteEntries, request)
    await peer.close()

    again = await undone(services, 1, request_id="2")
    assert (again.path, told(again)[:2]) == (write.path, ("", 1))
    assert [file.read_text() for file in files] == ["old\n", "old\n"]
