"""Reflection, under both of its names: `grpc.reflection.v1` and `v1alpha`, which have the same messages.

The library has v1alpha only, and finds no methods, which the protocol allows to ask for (`package.service.method`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

V1ALPHA: Final = reflection.SERVICE_NAME
V1: Final = V1ALPHA.replace("v1alpha", "v1")


def reflection_handlers(services: Sequence[str]) -> tuple[grpc.GenericRpcHandler, ...]:
    """Handlers that tell of these services, and of themselves."""
    servicer = reflection.aio.ReflectionServicer((*services, V1ALPHA, V1), pool=_Descriptors())
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return tuple(
        grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in (V1ALPHA, V1)
    )


class _Descriptors:
    """What the library asks of a pool: the one of this process, then one with the later name of reflection."""

    def __init__(self) -> None:
        self._pools = (descriptor_pool.Default(), _pool_of_v1())

    def __getattr__(self, name: str) -> Any:
        return lambda *given: self._first(lambda pool: getattr(pool, name)(*given))

    def FindFileContainingSymbol(self, name: str) -> Any:  # noqa: N802 - the library's name
        try:
            return self._first(lambda pool: pool.FindFileContainingSymbol(name))
        except KeyError:
            return self._first(lambda pool: pool.FindMethodByName(name)).containing_service.file

    def _first(self, find: Callable[[Any], Any]) -> Any:
        """What the first pool finds that has it. Raises KeyError."""
        *others, last = self._pools
        for pool in others:
            try:
                return find(pool)
            except KeyError:
                continue
        return find(last)


def _pool_of_v1() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = (text.replace("v1alpha", "v1") for text in (file.name, file.package))
    for message in file.message_type:
        for field in (one for one in message.field if one.type_name):
            field.type_name = field.type_name.replace("v1alpha", "v1")
    for rpc in file.service[0].method:
        rpc.input_type, rpc.output_type = (name.replace("v1alpha", "v1") for name in (rpc.input_type, rpc.output_type))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
