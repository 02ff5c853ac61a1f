"""Mounts: services of the store that the executor serves for clients.

A call is forwarded as it is, in the name of its caller and at the caller's tier, so the store decides what is allowed.
Source: architecture 7, 10; docs/adr/0054.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from turnwright.schedules.v1 import schedule_service_pb2
from turnwright.sessions.v1 import session_service_pb2
from turnwright.streams.v1 import stream_service_pb2

from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.peer import Around, Peer, rpc_of

MOUNTED: Final = (
    schedule_service_pb2.DESCRIPTOR.services_by_name["ScheduleService"],
    session_service_pb2.DESCRIPTOR.services_by_name["SessionService"],
    stream_service_pb2.DESCRIPTOR.services_by_name["StreamService"],
)
"""The services of the store that the executor serves."""


def mounts(store: Peer, around: Mapping[str, Around]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers of all mounted services. `around`: what is added, by method."""
    handlers = []
    for service in MOUNTED:
        rpcs = {method.name: _unary(method, store, around.get(method.name)) for method in service.methods}
        handlers.append(grpc.method_handlers_generic_handler(service.full_name, rpcs))
    return tuple(handlers)


def _unary(method: MethodDescriptor, store: Peer, around: Around | None) -> grpc.RpcMethodHandler[Any, Any]:
    rpc = rpc_of(store.channel, method)

    async def forward(request: Any, _context: Any) -> Any:
        return await store.call(rpc, request, caller=current_caller())

    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    return grpc.unary_unary_rpc_method_handler(
        around(method, forward) if around else forward,
        request_deserializer=request.FromString,
        response_serializer=answer.SerializeToString,
    )
