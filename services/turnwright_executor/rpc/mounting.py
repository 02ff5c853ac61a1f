"""Mounts: services of the store that the executor serves for clients.

A call is forwarded as it is, in the name of its caller and at the caller's tier, so the store decides what is allowed.
Source: architecture 7, 10; docs/adr/0054.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass
from turnwright.schedules.v1 import schedule_service_pb2

from turnwright_core.kit.auth import current_caller
from turnwright_core.kit.peer import Peer

StoreCall = Callable[[Any], Awaitable[Any]]
"""Makes the call of the store: a request, and its answer."""

Around = Callable[[Any, StoreCall], Awaitable[Any]]
"""What the executor does of its own in a call: before it is forwarded, after it, or instead."""


MOUNTED: Final = (schedule_service_pb2.DESCRIPTOR.services_by_name["ScheduleService"],)
"""The services of the store that the executor serves."""


def mounts(store: Peer) -> tuple[grpc.GenericRpcHandler, ...]:
    return tuple([mount(service, store, {}) for service in MOUNTED])


def mount(service: ServiceDescriptor, store: Peer, around: Mapping[str, Around]) -> grpc.GenericRpcHandler:
    """The handlers of a service of the store. `around`: what the executor adds, by method."""
    handlers = {method.name: _unary(method, store, around.get(method.name)) for method in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _unary(method: MethodDescriptor, store: Peer, around: Around | None) -> grpc.RpcMethodHandler[Any, Any]:
    request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
    rpc: Any = store.channel.unary_unary(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=request.SerializeToString,
        response_deserializer=answer.FromString,
    )

    async def forward(request: Any) -> Any:
        return await store.call(rpc, request, caller=current_caller())

    async def handle(request: Any, _context: Any) -> Any:
        return await (around(request, forward) if around else forward(request))

    return grpc.unary_unary_rpc_method_handler(
        handle, request_deserializer=request.FromString, response_serializer=answer.SerializeToString
    )
