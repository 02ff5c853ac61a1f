"""Rpcs of TurnService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import Connection
from turnwright.turns.v1 import turn_service_pb2 as pb
from turnwright.turns.v1 import turn_service_pb2_grpc

from turnwright_core.wire import runs as wire
from turnwright_store.app import registry
from turnwright_store.app.list_entries import time_limit
from turnwright_store.app.packets import read_packet
from turnwright_store.app.run_details import list_messages
from turnwright_store.rpc.calls import Calls, Fields, address_of, query


class TurnServicer(Calls, turn_service_pb2_grpc.TurnServiceServicer):
    """Serves turnwright.turns.v1.TurnService."""

    @query
    def ListLoops(self, request: pb.ListLoopsRequest, connection: Connection) -> Fields:
        size, token = request.page_size, request.page_token
        found, token = registry.list_loops(connection, request.project, request.run, size, token)
        return {"loops": map(wire.loop_to_pb, found), "next_page_token": token}

    @query
    def ListTurns(self, request: pb.ListTurnsRequest, connection: Connection) -> Fields:
        if request.numbers:
            named = registry.turns_by_number(connection, request.project, request.run, request.numbers)
            return {"turns": map(wire.turn_to_pb, named)}
        size, token = request.page_size, request.page_token
        found, token = registry.list_turns(connection, request.project, request.run, size, token)
        return {"turns": map(wire.turn_to_pb, found), "next_page_token": token}

    def ReadPacket(self, request: pb.ReadPacketRequest, _context: Any) -> AsyncIterator[pb.ReadPacketResponse]:
        return read_packet(self._database, address_of(request), request.turn)

    @query
    def ListMessages(self, request: pb.ListMessagesRequest, connection: Connection) -> Fields:
        rules, size, token = self._rules, request.page_size, request.page_token
        check_time = time_limit(rules.pattern_s_max)
        found, turns, token = list_messages(connection, rules, address_of(request), size, token, check_time)
        return {"messages": found, "turns": map(wire.turn_to_pb, turns), "next_page_token": token}
