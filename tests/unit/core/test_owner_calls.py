"""What the owner of a run says in each turn comes over a network as it was."""

import pytest
from turnwright_values.assembler import AssembleRequest, AssembleResponse, PacketReport, UnfitPiece
from turnwright_values.provider import Dropped, Finish, GenerateRequest, Retry, RetryReason, Tool
from turnwright_values.replies import ServerBlock, ThinkingBlock, ToolCall
from turnwright_values.store import (
    AppendEntry,
    ClaimRunResponse,
    CopyEntry,
    Durability,
    EndTurnRequest,
    EndTurnResponse,
    EntryWrite,
    LoopEnd,
    MoveEntry,
    NextTurn,
    RemoveEntry,
    SetEntry,
    WatchChangesRequest,
    WatchChangesResponse,
    WriteEntriesRequest,
    WriteEntriesResponse,
)
from turnwright_values.types import (
    Capabilities,
    CompressionStrength,
    Cursor,
    Entry,
    FileConstraint,
    FileConstraintKind,
    Loop,
    LoopSettings,
    Mode,
    Model,
    PlanDelta,
    PlanKind,
    ReportedWindow,
    RequestKind,
    ResponseFormat,
    Rule,
    RuleLevel,
    RuleSet,
    RuleVerdict,
    Run,
    RunSettings,
    Spend,
    State,
    Tier,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
    ViewChange,
    ViewFilter,
    Visibility,
)

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
from turnwright_core.chat.message import Image, Message, Role, Text
from turnwright_core.chat.prompt_edits import PromptEdit, Verb
from turnwright_core.delta_encoding import Copied
from turnwright_core.models import Reasoning, ToolChoice
from turnwright_core.packet_values import PacketMessage, TurnPacket
from turnwright_core.plans.plan import Plan
from turnwright_core.schemes import BUILT_IN
from turnwright_core.wire import owner_calls as wire
from turnwright_core.wire.model_calls import GENERATE
from turnwright_core.wire.runs import claim_from_pb, claim_to_pb
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
CHANGE = ViewChange(CURSOR, LATER, (ENTRY,), ("gone",), "v1", ViewFilter.MESSAGES)
PIECES = PacketMessage("user", ("new", Copied(0, 4)), {"new": "a.txt"})
PACKET = TurnPacket(3, (PIECES,), 2, "note", again=True, reserve_tokens=9, reserve_cost_usd=0.5)
EDIT = PromptEdit(Verb.APPEND, Role.USER, (Text("more"),), plugin="nudge")
REPORT = PacketReport(
    digest="d" * 64, tokens=9, ceiling=10, chars=11, cursor=CURSOR, effects=WRITES, overflow=True, render_version="0.1.0", plugins=("tides",), plan_tokens=3, compression=CompressionStrength.LOW, unfit=(UnfitPiece("a", 2),),
    edits=(EDIT,), edit_tokens=4, after_reply=WRITES,
    replaced_chars=5,
)  # fmt: skip
END = EndTurnRequest(
    project="p", run="r", epoch=8, turn=3, result=RESULT, writes=WRITES, loop_end=LoopEnd(200, "r", "s"),
    next=NextTurn(REQUEST, WRITES), schemes_version="v1", view_filter=ViewFilter.MESSAGES, release=True, rules_version="v1",
)  # fmt: skip
MODEL = Model("fast", "v/m", 100)
RULES = RuleSet("v2", (Rule(1, RuleLevel.RUN, RuleVerdict.ALLOW, "sh", "git *"),), "alice", RuleLevel.PROJECT)
CLAIM = ClaimRunResponse(
    epoch=8, lease_ms=6000, run=RUN, loop=LOOP, model=MODEL, open_turn=TURN, records=(ENTRY,), recent_turns=(TURN,), turn_before=TURN, abort_requested=True, project_root="/srv", workspace_id="ws", turn_losses=1, turn_calls=2,
    file_constraints=(FileConstraint("*.py", FileConstraintKind.ADD, 3),), file_constraints_left_out=True, files={"a.py": "ab"}, schemes=registry_to_pb([SCHEME]),
    spent=Spend(turns=2, wall_s=1.5), loop_spent=Spend(tokens=3), titled=True, rules=RULES,
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
GENERATE_CALL = GenerateRequest(
    Model("fast", "v/m", 100, 9, Capabilities(tools=False), ReportedWindow(5, 6, "r", 7)), (REPLY,), 0.5, 8, 3,
    (Tool("get", "d", "{}", strict=True, cache=True),), ToolChoice(tool="get", single=True), ("end",),
    ResponseFormat("{}", "a", strict=True), Reasoning("low"), {"k": "v"}, ("tools",), "{}", ("reasoning",), "digest",
)  # fmt: skip
REPLY_PARTS = [
    AppendContent("a é"), AppendReasoning("b"), SetToolCalls((CALL,)), SetThinkingBlocks((THOUGHT,)), AddCitation("{}"),
    AddServerBlock(BLOCK), SetUsage(USAGE), MergeExtra("{}"), Retry(1, 0.5, RetryReason.SERVER, "d", USAGE, ("refused_blocks",)),
    Finish("stop", USAGE, "m", True, (Dropped("stop", "why"),)),
]  # fmt: skip
PAIRS = [
    (GENERATE_CALL, GENERATE.request_to_pb, GENERATE.request_from_pb),
    *((part, GENERATE.answer_to_pb, GENERATE.answer_from_pb) for part in REPLY_PARTS),
    (CLAIM, claim_to_pb, claim_from_pb),
    (
        END,
        wire.END_TURN.request_to_pb,
        wire.END_TURN.request_from_pb,
    ),
    (
        EndTurnResponse(
            RUN, CURSOR, TURN, registry_to_pb([SCHEME]), CHANGE, released=True, rules=RULES, deliveries_due=True
        ),
        wire.END_TURN.answer_to_pb,
        wire.END_TURN.answer_from_pb,
    ),
    (
        WriteEntriesRequest(
            project="p",
            run="r",
            epoch=8,
            writes=WRITES,
            durability=Durability.FULL,
            run_status=202,
            packet=PACKET,
            view_filter=ViewFilter.MESSAGES,
            request_id="once",
        ),
        wire.WRITE_ENTRIES.request_to_pb,
        wire.WRITE_ENTRIES.request_from_pb,
    ),
    (
        WriteEntriesResponse((1, 0), ("a", "b"), CURSOR, CHANGE),
        wire.WRITE_ENTRIES.answer_to_pb,
        wire.WRITE_ENTRIES.answer_from_pb,
    ),
    (
        WatchChangesRequest("p", "r", CURSOR, ViewFilter.TIMELINE, 99, ("user",), True),
        wire.WATCH_CHANGES.request_to_pb,
        wire.WATCH_CHANGES.request_from_pb,
    ),
    (
        WatchChangesResponse(
            cursor=CURSOR,
            entries=(ENTRY,),
            removed_paths=("gone",),
            run=RUN,
            loops=(LOOP,),
            turns=(TURN,),
            abort_requested=True,
            send_ms=7,
            plans=(Plan("main", PlanKind.MARKDOWN, "# Do it", 2, "agent", (PlanDelta(1, "more", 5),), 6),),
        ),
        wire.WATCH_CHANGES.answer_to_pb,
        wire.WATCH_CHANGES.answer_from_pb,
    ),
    (
        AssembleRequest(
            "p",
            "r",
            3,
            1,
            100,
            CURSOR,
            1.5,
            base_digest="digest",
            view_changes=(CHANGE,),
            transcript=True,
            output_reserve=5,
            edits=(EDIT,),
            request=REQUEST,
            prefill=True,
            kind=RequestKind.COMPACTION,
        ),
        wire.ASSEMBLE.request_to_pb,
        wire.ASSEMBLE.request_from_pb,
    ),
]
PARTS = [
    (AssembleResponse((PIECES, PacketMessage("tools", ("[]",)))), wire.ASSEMBLE.answer_to_pb, wire.ASSEMBLE.answer_from_pb),
    (AssembleResponse((), REPORT), wire.ASSEMBLE.answer_to_pb, wire.ASSEMBLE.answer_from_pb),
]  # fmt: skip


@pytest.mark.parametrize(("value", "encode", "decode"), [*PAIRS, *PARTS])
def test_what_is_sent_is_what_comes(value, encode, decode):
    assert decode(type(encode(value)).FromString(encode(value).SerializeToString())) == value


@pytest.mark.parametrize("value", [*(value for value, _, _ in PAIRS), REPLY, PACKET, CHANGE, PIECES, REPORT])
def test_each_field_of_these_is_tried(value):
    left_out = [name for name in value.__struct_fields__ if getattr(value, name) in (0, "", None, False, (), [], {})]
    assert left_out == []


def test_what_is_left_out_stays_out():
    for value, encode, decode in (
        (
            EndTurnRequest(project="p", run="r", epoch=1),
            wire.END_TURN.request_to_pb,
            wire.END_TURN.request_from_pb,
        ),
        (
            WriteEntriesRequest(project="p", run="r", epoch=None, writes=[]),
            wire.WRITE_ENTRIES.request_to_pb,
            wire.WRITE_ENTRIES.request_from_pb,
        ),
        (WriteEntriesResponse((), (), CURSOR), wire.WRITE_ENTRIES.answer_to_pb, wire.WRITE_ENTRIES.answer_from_pb),
    ):
        assert encode(decode(encode(value))) == encode(value)
    assert (
        wire.WRITE_ENTRIES.request_from_pb(
            wire.WRITE_ENTRIES.request_to_pb(WriteEntriesRequest(project="p", run="r", epoch=None, writes=[]))
        ).epoch
        is None
    )
