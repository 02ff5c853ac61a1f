"""What the owner of a run and its store say to each other in each turn, on the wire."""

from __future__ import annotations

from typing import Final

from turnwright.assembler.v1 import assembler_service_pb2, budget_pb2
from turnwright.store.v1 import ledger_pb2, read_pb2, write_pb2
from turnwright.types.v1 import view_pb2

from turnwright_core.owner_calls import (
    AssembleCall,
    AssembledPart,
    EndTurnCall,
    EntriesWritten,
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
from turnwright_core.rpc_codec import Codecs, RpcCodec
from turnwright_core.runs import LoopEnd
from turnwright_core.wire.codec import codec, each
from turnwright_core.wire.entries import (
    cursor_from_pb,
    cursor_to_pb,
    entry_from_pb,
    entry_to_pb,
    write_from_pb,
    write_to_pb,
)
from turnwright_core.wire.model_calls import GENERATE
from turnwright_core.wire.packets import packet_message_from_pb, packet_message_to_pb
from turnwright_core.wire.prompt_edits import EDITS
from turnwright_core.wire.runs import (
    loop_from_pb,
    loop_to_pb,
    run_from_pb,
    run_to_pb,
    turn_from_pb,
    turn_request_from_pb,
    turn_request_to_pb,
    turn_result_from_pb,
    turn_result_to_pb,
    turn_to_pb,
)

_MESSAGES: Final = each(packet_message_to_pb, packet_message_from_pb)
packet_to_pb, packet_from_pb = codec(TurnPacket, write_pb2.PacketRecord, messages=_MESSAGES)
_CURSOR: Final = (cursor_to_pb, cursor_from_pb)
view_change_to_pb, view_change_from_pb = codec(
    ViewChange,
    view_pb2.ViewChange,
    before=_CURSOR,
    after=_CURSOR,
    entries=each(entry_to_pb, entry_from_pb),
)
_VIEW_CHANGE: Final = (view_change_to_pb, view_change_from_pb)
assemble_to_pb, assemble_from_pb = codec(
    AssembleCall,
    assembler_service_pb2.AssembleRequest,
    at_least=_CURSOR,
    view_changes=each(view_change_to_pb, view_change_from_pb),
    edits=EDITS,
    request=(turn_request_to_pb, turn_request_from_pb),
)
_WRITES: Final = each(write_to_pb, write_from_pb)
assembled_part_to_pb, assembled_part_from_pb = codec(
    AssembledPart,
    assembler_service_pb2.AssembleResponse,
    messages=_MESSAGES,
    report=codec(
        PacketReport,
        assembler_service_pb2.PacketReport,
        cursor=_CURSOR,
        effects=_WRITES,
        unfit=each(
            lambda one: assembler_service_pb2.UnfitPiece(path=one[0], tokens=one[1]), lambda one: (one.path, one.tokens)
        ),
        edits=EDITS,
        after_reply=_WRITES,
    ),
)


check_budget_to_pb, check_budget_from_pb = codec(
    AssembleCall,
    budget_pb2.CheckBudgetRequest,
    only=("project", "run", "turn", "loop", "context_length", "at_least", "calibration", "transcript", "output_reserve",
          "edits"),
    at_least=_CURSOR,
    edits=EDITS,
)  # fmt: skip
"""What of a call matters to whether its turn has room for more."""
turn_ended_to_pb, turn_ended_from_pb = codec(
    TurnEnded,
    ledger_pb2.EndTurnResponse,
    run=(run_to_pb, run_from_pb),
    loop=(loop_to_pb, loop_from_pb),
    cursor=_CURSOR,
    next=(turn_to_pb, turn_from_pb),
    view_change=_VIEW_CHANGE,
)
entries_written_to_pb, entries_written_from_pb = codec(
    EntriesWritten,
    ledger_pb2.WriteEntriesResponse,
    cursor=_CURSOR,
    view_change=_VIEW_CHANGE,
)
watch_changes_to_pb, watch_changes_from_pb = codec(WatchChangesCall, read_pb2.WatchChangesRequest, after=_CURSOR)
run_changes_to_pb, run_changes_from_pb = codec(
    RunChanges,
    read_pb2.WatchChangesResponse,
    cursor=_CURSOR,
    entries=each(entry_to_pb, entry_from_pb),
    run=(run_to_pb, run_from_pb),
    loops=each(loop_to_pb, loop_from_pb),
    turns=each(turn_to_pb, turn_from_pb),
)


_turn_end_to_pb, _turn_end_from_pb = codec(
    TurnEnd,
    ledger_pb2.EndTurnRequest,
    result=(turn_result_to_pb, turn_result_from_pb),
    writes=_WRITES,
    loop_end=codec(LoopEnd, ledger_pb2.LoopEnd),
    next=codec(TurnStart, ledger_pb2.NextTurn, request=(turn_request_to_pb, turn_request_from_pb), writes=_WRITES),
)


def end_turn_to_pb(call: EndTurnCall) -> ledger_pb2.EndTurnRequest:
    message = _turn_end_to_pb(call.end)
    message.project, message.run, message.fence.epoch = call.project, call.run, call.epoch
    message.schemes_version = call.schemes_version
    message.return_view_change = call.return_view_change is not ReturnView.NONE
    message.view_change_of_messages = call.return_view_change is ReturnView.MESSAGES
    return message


def end_turn_from_pb(request: ledger_pb2.EndTurnRequest) -> EndTurnCall:
    """Decode. Raises InvalidError."""
    end, view = _turn_end_from_pb(request), return_view_from_pb(request)
    return EndTurnCall(request.project, request.run, request.fence.epoch, end, request.schemes_version, view)


def return_view_from_pb(
    request: ledger_pb2.BeginTurnRequest | ledger_pb2.EndTurnRequest | ledger_pb2.WriteEntriesRequest,
) -> ReturnView:
    if not request.return_view_change:
        return ReturnView.NONE
    return ReturnView.MESSAGES if request.view_change_of_messages else ReturnView.PACKET


def write_entries_to_pb(call: WriteEntriesCall) -> ledger_pb2.WriteEntriesRequest:
    return ledger_pb2.WriteEntriesRequest(
        project=call.project,
        run=call.run,
        fence=None if call.epoch is None else write_pb2.Fence(epoch=call.epoch),
        writes=map(write_to_pb, call.writes),
        durability=call.durability,  # type: ignore[arg-type]
        run_status=call.run_status,
        packet=packet_to_pb(call.packet) if call.packet else None,
        return_view_change=call.return_view_change is not ReturnView.NONE,
        view_change_of_messages=call.return_view_change is ReturnView.MESSAGES,
        request_id=call.request_id,
    )


def write_entries_from_pb(request: ledger_pb2.WriteEntriesRequest) -> WriteEntriesCall:
    """Decode. Raises InvalidError."""
    has = request.HasField
    return WriteEntriesCall(
        request.project,
        request.run,
        request.fence.epoch if has("fence") else None,
        tuple(map(write_from_pb, request.writes)),
        request.durability,
        request.run_status,
        packet_from_pb(request.packet) if has("packet") else None,
        return_view_from_pb(request),
        request.request_id,
    )


_STORE: Final = "/turnwright.store.v1.StoreService/"

END_TURN: Final = RpcCodec(
    f"{_STORE}EndTurn",
    EndTurnCall,
    TurnEnded,
    end_turn_to_pb,
    end_turn_from_pb,
    turn_ended_to_pb,
    turn_ended_from_pb,
)
WRITE_ENTRIES: Final = RpcCodec(
    f"{_STORE}WriteEntries",
    WriteEntriesCall,
    EntriesWritten,
    write_entries_to_pb,
    write_entries_from_pb,
    entries_written_to_pb,
    entries_written_from_pb,
)
WATCH_CHANGES: Final = RpcCodec(
    f"{_STORE}WatchChanges",
    WatchChangesCall,
    RunChanges,
    watch_changes_to_pb,
    watch_changes_from_pb,
    run_changes_to_pb,
    run_changes_from_pb,
)
ASSEMBLE: Final = RpcCodec(
    "/turnwright.assembler.v1.AssemblerService/Assemble",
    AssembleCall,
    AssembledPart,
    assemble_to_pb,
    assemble_from_pb,
    assembled_part_to_pb,
    assembled_part_from_pb,
)
OWNER_CALLS: Final[Codecs] = {
    codec.method: codec for codec in (END_TURN, WRITE_ENTRIES, WATCH_CHANGES, ASSEMBLE, GENERATE)
}
"""What services say to each other by values."""
