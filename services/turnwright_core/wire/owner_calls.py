"""The calls that have values: their codecs."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from turnwright.assembler.v1 import assembler_service_pb2, budget_pb2
from turnwright.store.v1 import store_service_pb2, write_pb2
from turnwright_values.assembler import AssembleRequest, AssembleResponse, CheckBudgetResponse, PacketReport
from turnwright_values.store import (
    EndTurnRequest,
    EndTurnResponse,
    WatchChangesRequest,
    WatchChangesResponse,
    WriteEntriesRequest,
    WriteEntriesResponse,
)

from turnwright_core.packet_values import PacketMessage, TurnPacket
from turnwright_core.rpc_codec import Codecs, RpcCodec
from turnwright_core.wire.codec import codec, codec_of, each, written
from turnwright_core.wire.model_calls import GENERATE
from turnwright_core.wire.packets import packet_message_from_pb, packet_message_to_pb
from turnwright_core.wire.prompt_edits import EDITS

_MESSAGE: Final = written(PacketMessage, packet_message_to_pb, packet_message_from_pb)
packet_to_pb, packet_from_pb = codec(TurnPacket, write_pb2.PacketRecord, messages=each(*_MESSAGE))
assemble_to_pb, assemble_from_pb = codec(AssembleRequest, assembler_service_pb2.AssembleRequest, edits=EDITS)
codec(PacketReport, assembler_service_pb2.PacketReport, edits=EDITS)
check_budget_to_pb, check_budget_from_pb = codec(
    AssembleRequest,
    budget_pb2.CheckBudgetRequest,
    only=tuple(budget_pb2.CheckBudgetRequest.DESCRIPTOR.fields_by_name),
    edits=EDITS,
)
"""What of a call matters to whether its turn has room for more."""

check_to_pb, check_from_pb = codec(CheckBudgetResponse, budget_pb2.CheckBudgetResponse)


def _rpc(file: Any, name: str, request: type[Struct], answer: type[Struct]) -> RpcCodec[object, Any]:
    """The codec of an rpc of the file's service."""
    (service,) = file.DESCRIPTOR.services_by_name.values()
    method = service.methods_by_name[name]
    pairs = (
        *codec_of(request, method.input_type),
        *codec_of(answer, method.output_type),
    )
    return RpcCodec(f"/{service.full_name}/{name}", request, answer, *pairs)


END_TURN: Final = _rpc(store_service_pb2, "EndTurn", EndTurnRequest, EndTurnResponse)
WRITE_ENTRIES: Final = _rpc(store_service_pb2, "WriteEntries", WriteEntriesRequest, WriteEntriesResponse)
WATCH_CHANGES: Final = _rpc(store_service_pb2, "WatchChanges", WatchChangesRequest, WatchChangesResponse)
ASSEMBLE: Final = _rpc(assembler_service_pb2, "Assemble", AssembleRequest, AssembleResponse)
OWNER_CALLS: Final[Codecs] = {
    codec.method: codec for codec in (END_TURN, WRITE_ENTRIES, WATCH_CHANGES, ASSEMBLE, GENERATE)
}
"""What services say to each other by values."""
