"""Forwarding of rpcs to the store, after a check of the caller's tier (facade).

Theory of operation. Messages of the executor and of the store share the names and types of their fields, but not their
numbers, so they are copied by name. A `Forward` compares both contracts when it is defined: a field of ours that the
store's message lacks, or has with another type, is a TypeError at import, so nothing can be lost in a call.
Source: architecture 7, 10 (forwarded calls carry the client's principal).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum
from functools import cache, partial
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from turnwright.executor.v1 import executor_service_pb2
from turnwright.store.v1 import store_service_pb2, store_service_pb2_grpc

from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, fault
from turnwright_core.kit.auth import Caller, current_caller
from turnwright_core.kit.peer import Peer
from turnwright_executor.ports.vendors import CheckVendor

M = TypeVar("M", bound=Message)

_EXECUTOR = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
_STORE = store_service_pb2.DESCRIPTOR.services_by_name["StoreService"]


class CallIdentity(Enum):
    """The identity with which the store is called."""

    EXECUTOR = "executor"
    CLIENT = "client"


class Forward:
    """One forwarded rpc; by default the store's rpc has the same name."""

    def __init__(
        self,
        method: str = "",
        identity: CallIdentity = CallIdentity.CLIENT,
        floor: Tier = Tier.MODEL,
    ) -> None:
        """`floor` is the minimum tier here; the store checks its own as well."""
        self._method = method
        self._identity = identity
        self._floor = floor

    def __set_name__(self, owner: type, name: str) -> None:
        """Find both messages. Raises TypeError if their fields do not match."""
        self._name = name
        self._method = self._method or name
        ours, theirs = _EXECUTOR.methods_by_name[name], _STORE.methods_by_name[self._method]
        _check_shape(ours.input_type, theirs.input_type)
        _check_shape(ours.output_type, theirs.output_type)
        self._request = GetMessageClass(theirs.input_type)
        self._answer = GetMessageClass(ours.output_type)

    def __get__(self, servicer: Forwarding, owner: type) -> Callable[[Any, Any], Awaitable[Any]]:
        return partial(self._handle, servicer)

    async def _handle(self, servicer: Forwarding, request: Message, _context: Any) -> Message:
        caller = check_floor(self._floor, self._name)
        name: Caller | None = caller
        if self._identity is CallIdentity.EXECUTOR:
            name = None
        method = getattr(servicer.rows, self._method)
        answer = await servicer.store.call(method, copy_fields(request, self._request), caller=name)
        return copy_fields(answer, self._answer)


class Forwarding:
    """Base class of the servicers: the peer of the store, and the list of vendors."""

    store: Peer
    rows: store_service_pb2_grpc.StoreServiceAsyncStub
    check_vendor: CheckVendor


def check_floor(floor: Tier, method: str) -> Caller:
    """The caller. Raises TIER_FORBIDDEN below the minimum tier."""
    caller = current_caller()
    if caller.tier < floor:
        tier, needed = caller.tier.name.lower(), floor.name.lower()
        message = f"This needs a token of the tier {needed}; the one in use has the tier {tier}."
        raise fault(Reason.TIER_FORBIDDEN, message, method=method, tier=needed, ceiling=tier)
    return caller


def copy_fields(source: Message, target: type[M], **given: Any) -> M:
    """A new message with those fields of `source` that have the same name and type, and with the given values."""
    shared = _shared(source.DESCRIPTOR, target.DESCRIPTOR)
    fields = {field.name: value for field, value in source.ListFields() if field.name in shared}
    return target(**fields | given)


@cache
def _shared(source: Descriptor, target: Descriptor) -> frozenset[str]:
    theirs = target.fields_by_name
    return frozenset(field.name for field in source.fields if _same(field, theirs.get(field.name)))


def _same(one: FieldDescriptor, other: FieldDescriptor | None) -> bool:
    return other is not None and _type(one) == _type(other)


def _type(field: FieldDescriptor) -> tuple[Any, ...]:
    return field.type, field.is_repeated, field.has_presence, field.message_type, field.enum_type


def _check_shape(ours: Descriptor, theirs: Descriptor) -> None:
    """Raises TypeError if the store's message lacks one of our fields."""
    for field in ours.fields:
        if not _same(field, theirs.fields_by_name.get(field.name)):
            raise TypeError(f"{theirs.full_name} has nothing for {field.full_name}.")
