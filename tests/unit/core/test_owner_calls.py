"""What the owner of a run says in each turn comes over a network as it was."""

import pytest
from msgspec.structs import fields

from turnwright_core.chat.deltas import (
    AddCitation,
    AddServerBlock,
    AppendContent,
    AppendReasoning,
    MergeExtra,
    SetThinkingBlocks,
    SetToolCalls,
    SetUsage,
)
from turnwright_core.chat.message import Image, Message, Role, ServerBlock, Text, ThinkingBlock, ToolCall
from turnwright_core.chat.prompt_edits import PromptEdit, Verb
from turnwright_core.claims import Claim
from turnwright_core.constraints import FileConstraint
from turnwright_core.delta_encoding import Copied
from turnwright_core.entries import (
    AppendEntry,
    CopyEntry,
    Cursor,
    Entry,
    EntryWrite,
    MoveEntry,
    RemoveEntry,
    SetEntry,
    State,
    Tier,
    Visibility,
)
from turnwright_core.model_calls import Dropped, Finished, GenerateCall, Retry, ToolChoice, ToolDefinition
from turnwright_core.models import Capabilities, Model, Reasoning, ReportedWindow
from turnwright_core.owner_calls import (
    AssembleCall,
    AssembledPart,
    EndTurnCall,
    EntriesWritten,
    PacketMessage,
    PacketReport,
    ReturnView,
    RunChanges,
    TurnEnd,
    TurnEnded,
    TurnPacket,
    TurnStart,
    ViewChange,
    WatchChangesCall,
    WriteEntriesCall,
)
from turnwright_core.runs import (
    AnswerFormat,
    CompressionStrength,
    Loop,
    LoopEnd,
    LoopSettings,
    Mode,
    Run,
    RunSettings,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
)
from turnwright_core.schemes import BUILT_IN
from turnwright_core.wire import owner_calls as wire
from turnwright_core.wire.claims import claim_from_pb, claim_to_pb
from turnwright_core.wire.model_calls import GENERATE
from turnwright_core.wire.schemes import registry_to_pb

SCHEME = BUILT_IN.rules("log")
CURSOR, LATER = Cursor("i", 1, 2, 3), Cursor("i", 4, 5, 6)
ENTRY = Entry(
    path="a é", scheme="log", scope="run:1", body="b\0", body_size_bytes=2, attributes_json='{"a":1}',
    visibility=Visibility.SUMMARIZED, state=State.FAILED, outcome="x:1", writer=Tier.PLUGIN, turn=1, loop=2, position=3,
    write_count=4, revision=5, hash="ab", update_ms=6, record=b"",
)  # fmt: skip
WRITES = (
    EntryWrite("a", SetEntry("b", "{}", Visibility.ARCHIVED, Visibility.VISIBLE, State.RESOLVED, "", "{}"), Tier.CLIENT, 7),
    EntryWrite("a", AppendEntry("more", 3), Tier.PLUGIN, turn=1, loop=2),
    EntryWrite("a", RemoveEntry(), Tier.SYSTEM),
    EntryWrite("a", CopyEntry("b", Visibility.ARCHIVED), Tier.SYSTEM),
    EntryWrite("a", MoveEntry("b"), Tier.SYSTEM),
)  # fmt: skip
REQUEST = TurnRequest("fast", "v/m", 100, 0.5, ("get",))
RESULT = TurnResult(finish="stop", cursor=CURSOR, packet_tokens=9)
LOOP = Loop(1, LoopSettings(Mode.ACT, "fast"), "x", 102, create_ms=1)
RUN = Run("p", "r", RunSettings(model="fast"), 102, 3, LOOP)
TURN = Turn(3, 1, REQUEST, RESULT, 5, 6, 7)
CHANGE = ViewChange(CURSOR, LATER, (ENTRY,), ("gone",), "v1", messages=True)
PIECES = PacketMessage("user", ("new", Copied(0, 4)), {"new": "a.txt"})
PACKET = TurnPacket(3, (PIECES,), 2, "note", again=True)
EDIT = PromptEdit(Verb.APPEND, Role.USER, (Text("more"),), plugin="nudge")
REPORT = PacketReport(
    "d" * 64, 9, 10, 11, CURSOR, WRITES, True, "0.1.0", ("tides",), 3, CompressionStrength.LOW, (("a", 2),),
    (EDIT,), 4, WRITES, replaced_chars=5,
)  # fmt: skip
END = TurnEnd(3, RESULT, WRITES, LoopEnd(200, "r", "s"), TurnStart(REQUEST, WRITES), release=True)
MODEL = Model("fast", "v/m", 100)
CLAIM = Claim(
    8, 6000, RUN, LOOP, MODEL, TURN, (ENTRY,), (TURN,), TURN, True, "/srv", "ws", 1, 2,
    (FileConstraint("*.py", "add", 3),), {"a.py": "ab"}, registry_to_pb([SCHEME]),
)  # fmt: skip
CALL, THOUGHT, BLOCK = (
    ToolCall("get", "{}", 1, "v", "c", "s", 2),
    ThinkingBlock("t", 1, "i", "x", "s", "d"),
    ServerBlock(1, "{}"),
)
REPLY = Message(
    Role.ASSISTANT, (Text("a é", cache=True), Image("image/png", b"png"), Image(url="https://x/y")), "why", (CALL,), (THOUGHT,),
    (BLOCK,), ("{}",), "{}", "v/m", "c", "get", failed=True,
)  # fmt: skip
USAGE = Usage(1, 2, 3, 4, 5, cost_usd=0.5)
GENERATE_CALL = GenerateCall(
    Model("fast", "v/m", 100, 9, Capabilities(tools=False), ReportedWindow(5, 6, "r", 7)), (REPLY,), 0.5, 8, 3,
    (ToolDefinition("get", "d", "{}", strict=True, cache=True),), ToolChoice(tool="get", single=True), ("end",),
    AnswerFormat("{}", "a", strict=True), Reasoning("low"), {"k": "v"}, ("tools",), "{}", refused=("reasoning",),
)  # fmt: skip
REPLY_PARTS = [
    AppendContent("a é"), AppendReasoning("b"), SetToolCalls((CALL,)), SetThinkingBlocks((THOUGHT,)), AddCitation("{}"),
    AddServerBlock(BLOCK), SetUsage(USAGE), MergeExtra("{}"), Retry(1, 0.5, "server", "d", USAGE, ("refused_blocks",)),
    Finished("stop", USAGE, "m", True, (Dropped("stop", "why"),)),
]  # fmt: skip
PAIRS = [
    (GENERATE_CALL, GENERATE.request_to_pb, GENERATE.request_from_pb),
    *((part, GENERATE.answer_to_pb, GENERATE.answer_from_pb) for part in REPLY_PARTS),
    (CLAIM, claim_to_pb, claim_from_pb),
    (EndTurnCall("p", "r", 8, END, "v1", ReturnView.PACKET), wire.end_turn_to_pb, wire.end_turn_from_pb),
    (
        TurnEnded(RUN, LOOP, CURSOR, True, TURN, registry_to_pb([SCHEME]), CHANGE, released=True),
        wire.turn_ended_to_pb,
        wire.turn_ended_from_pb,
    ),
    (
        WriteEntriesCall("p", "r", 8, WRITES, 2, 202, PACKET, ReturnView.MESSAGES, "once"),
        wire.write_entries_to_pb,
        wire.write_entries_from_pb,
    ),
    (
        EntriesWritten((1, 0), ("a", "b"), CURSOR, True, CHANGE),
        wire.entries_written_to_pb,
        wire.entries_written_from_pb,
    ),
    (WatchChangesCall("p", "r", CURSOR, 3, 99, ("user",)), wire.watch_changes_to_pb, wire.watch_changes_from_pb),
    (
        RunChanges(CURSOR, (ENTRY,), ("gone",), RUN, (LOOP,), (TURN,), abort_requested=True, send_ms=7),
        wire.run_changes_to_pb,
        wire.run_changes_from_pb,
    ),
    (
        AssembleCall(
            "p",
            "r",
            3,
            1,
            100,
            CURSOR,
            1.5,
            "digest",
            (CHANGE,),
            True,
            5,
            (EDIT,),
            REQUEST,
            prefill=True,
            compaction=True,
        ),
        wire.assemble_to_pb,
        wire.assemble_from_pb,
    ),
]
PARTS = [
    (AssembledPart((PIECES, PacketMessage("tools", ("[]",)))), wire.assembled_part_to_pb, wire.assembled_part_from_pb),
    (AssembledPart((), REPORT), wire.assembled_part_to_pb, wire.assembled_part_from_pb),
]  # fmt: skip


@pytest.mark.parametrize(("value", "encode", "decode"), [*PAIRS, *PARTS])
def test_what_is_sent_is_what_comes(value, encode, decode):
    assert decode(type(encode(value)).FromString(encode(value).SerializeToString())) == value


@pytest.mark.parametrize("value", [*(value for value, _, _ in PAIRS), REPLY, END, PACKET, CHANGE, PIECES, REPORT])
def test_each_field_of_these_is_tried(value):
    left_out = [one.name for one in fields(value) if getattr(value, one.name) in (0, "", None, False, (), [], {})]
    assert left_out == []


def test_what_is_left_out_stays_out():
    for value, encode, decode in (
        (EndTurnCall("p", "r", 1, TurnEnd(0)), wire.end_turn_to_pb, wire.end_turn_from_pb),
        (WriteEntriesCall("p", "r", None, []), wire.write_entries_to_pb, wire.write_entries_from_pb),
        (EntriesWritten((), (), CURSOR), wire.entries_written_to_pb, wire.entries_written_from_pb),
    ):
        assert encode(decode(encode(value))) == encode(value)
    assert wire.write_entries_from_pb(wire.write_entries_to_pb(WriteEntriesCall("p", "r", None, []))).epoch is None


def test_a_call_weighs_what_its_texts_do():
    small = WriteEntriesCall("p", "r", 1, [EntryWrite("a", SetEntry("b"))])
    large = WriteEntriesCall("p", "r", 1, [EntryWrite("a", SetEntry("b" * 10_000))])
    grown = WriteEntriesCall("p", "r", 1, [EntryWrite("a", AppendEntry("b" * 10_000))])
    packet = WriteEntriesCall("p", "r", 1, [], packet=TurnPacket(1, (PacketMessage("user", ("x" * 10_000,)),)))
    assert small.weight_bytes < 1000
    assert all(one.weight_bytes >= 10_000 for one in (large, grown, packet))
    end = TurnEnd(1, RESULT, large.writes, next=TurnStart(REQUEST, large.writes))
    assert EndTurnCall("p", "r", 1, end).weight_bytes == 2 * large.weight_bytes
