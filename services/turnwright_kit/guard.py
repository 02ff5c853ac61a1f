"""The interceptor around every handler: it authenticates the caller, and translates whatever the handler raises.

Handlers are wrapped once, when they are registered: a gRPC interceptor would build a wrapper for each call, which costs
a fifth of a small one.

Unknown callers are refused before their message is read: a handler is looked up by the metadata alone, and where the
connection says who calls, which no look-up knows, a stream handler asks it first (kit/unread_calls).
Calls of clients are counted on them (kit/caller_ledger), and those beyond the limits are refused in the same way.
Source: architecture 10, 14.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import grpc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from msgspec import structs

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.headers import is_open
from turnwright_core.rpc_codec import Codecs
from turnwright_kit.access import MethodAccess, check_declared, method_access
from turnwright_kit.caller_ledger import CallerLedger, CallerLimits, CountedCall
from turnwright_kit.guarded_call import CallsInProgress, GuardedCall
from turnwright_kit.identity.caller import Caller, current_caller, enter_caller
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.identity.policy import Policy
from turnwright_kit.in_process import CallContext, CallDetails, LocalContext, LocalServer
from turnwright_kit.message_size import check_length, size_limit
from turnwright_kit.scope import Metadata, bind
from turnwright_kit.stream_rights import StreamRight
from turnwright_kit.unread_calls import PROBES_MAX, Context, Handler, admitting, checked, probing, refusing

# Numbers of enums that this release does not know, in requests.
#
# Protobuf keeps them, so a handler would take a later release's word for something for the absence of one. They are
# refused by name where requests are read, before anything is done.

_SHOWN_MAX: Final = 20
"""Values of an enum that an error lists."""


def unknown_enum(message: object) -> TurnwrightError | None:
    """The error for the first enum in a message whose number has no name; None if all have one."""
    for path, number, field in _unknown(message):
        kind: Any = field.enum_type
        known = [value.name for value in kind.values][:_SHOWN_MAX]
        return invalid(path, f"{path} has no value {number}: it is one of {', '.join(known)}.")
    return None


def _unknown(message: Any) -> Iterator[tuple[str, int, FieldDescriptor]]:
    for field, is_many, numbers in _fields(message.DESCRIPTOR):
        name = field.name
        if numbers is not None:
            value = getattr(message, name)
            for number in value if is_many else (value,):
                if number not in numbers:
                    yield name, number, field
        elif is_many:
            value = getattr(message, name)
            for each in value.values() if hasattr(value, "values") else value:
                yield from ((f"{name}.{path}", number, of) for path, number, of in _unknown(each))
        elif message.HasField(name):
            yield from ((f"{name}.{path}", number, of) for path, number, of in _unknown(getattr(message, name)))


@cache
def _fields(kind: Descriptor) -> tuple[tuple[FieldDescriptor, bool, frozenset[int] | None], ...]:
    """The fields of a message that are enums, with their numbers, or that have enums somewhere below them."""
    found: list[tuple[FieldDescriptor, bool, frozenset[int] | None]] = []
    for field in kind.fields:
        if field.enum_type is not None:
            found.append((field, field.is_repeated, frozenset(field.enum_type.values_by_number)))
        elif field.message_type is not None and _has_enums(_value_of(field), frozenset()):
            found.append((field, field.is_repeated, None))
    return tuple(found)


def _value_of(field: FieldDescriptor) -> Any:
    """The message of a field; of a map, that of its values."""
    kind: Any = field.message_type
    of_map = kind.fields_by_name["value"].message_type if kind.GetOptions().map_entry else None
    return of_map or kind


def _has_enums(kind: Descriptor, above: frozenset[str]) -> bool:
    if kind.full_name in above:
        return False
    above |= {kind.full_name}
    return any(
        field.enum_type is not None or (field.message_type is not None and _has_enums(_value_of(field), above))
        for field in kind.fields
    )


OURS: Final = "turnwright."
"""What the names of the contract's services begin with: others are of the libraries, health and reflection."""

SERIALIZED_MAX: Final = 64
"""Messages of a stream method that are kept in their serialized form: callers that follow the same are not all at the
same one."""

SERIALIZED_BYTES_MAX: Final = 16 * 1024
"""Maximum length of a message that is kept, in bytes."""


class GuardedServer:
    """Registers servicers: passes their handlers on to the server, each behind the guard."""

    def __init__(
        self,
        server: grpc.aio.Server | None,
        local: LocalServer,
        gate: CallerGate,
        calls: CallsInProgress,
        codecs: Callable[[], Codecs] | None = None,
        limits: CallerLimits | None = None,
        policy: Policy | None = None,
    ) -> None:
        """Guard the handlers of this server; callers in this process use `local`. Calls are tracked in `calls`.

        Without a server, only callers in this process reach them. `codecs` are of the handlers that take values, and
        `limits` of what each client may have under way. `policy` says who may do what; without one, only services may
        do anything.
        """
        self._policy = policy or Policy(lambda: time.time_ns() // 1_000_000)
        self._codecs = codecs or dict
        self.ledger = CallerLedger(limits or CallerLimits(), self._policy.quota_of)
        self._server = server
        self._local = local
        self._gate = gate
        self._calls = calls
        self._guarded: list[_Guarded] = []
        self.names: list[str] = []
        """Full names of the services, in the order in which they were added."""

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Raises UndeclaredAccessError for a service of the contract with an rpc that does not say who may call it."""
        added = [handler.service_name() for handler in handlers if isinstance(handler, grpc.ServiceRpcHandler)]
        for name in added:
            if name.startswith(OURS):
                check_declared(name)
        self.names += added
        guarded = tuple(
            _Guarded(handler, self._gate, self._calls, self._codecs, self.ledger, self._policy) for handler in handlers
        )
        if self._server is not None:
            self._server.add_generic_rpc_handlers(guarded)
        self._local.add(*guarded)
        self._guarded += guarded

    def find(self, method: str, context: CallContext) -> Handler:
        """The handler for a call that comes by another protocol, in whose task this is called.

        It refuses the call, whatever its kind, by a stream of both sides. Raises LookupError for an unknown method.
        """
        for one in self._guarded:
            if found := one.find(method, context):
                return found
        raise LookupError(method)

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Nothing: grpc.aio's server uses generic handlers only."""


class _Guarded(grpc.GenericRpcHandler):
    """The handlers of one service, each wrapped at its first call."""

    def __init__(
        self,
        inner: grpc.GenericRpcHandler,
        gate: CallerGate,
        calls: CallsInProgress,
        codecs: Callable[[], Codecs],
        ledger: CallerLedger,
        policy: Policy,
    ) -> None:
        self._ledger = ledger
        self._policy = policy
        self._inner = inner
        self._codecs = codecs
        self._gate = gate
        self._calls = calls
        self._wrapped: dict[str, Handler] = {}
        self._probes = asyncio.Semaphore(PROBES_MAX)

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """The guarded handler of a method; None for a method of another service."""
        method = handler_call_details.method
        found = self._wrapped.get(method)
        if found is None:
            inner = self._inner.service(handler_call_details)
            if inner is None:
                return None
            found = self._wrapped[method] = self._guarded(inner, method)
        metadata = handler_call_details.invocation_metadata
        # Within one process there is nothing to read, and the metadata comes with the call.
        return found if metadata is None else self._handler_for(found, method, metadata)

    def find(self, method: str, context: CallContext) -> Handler | None:
        """The same for a call whose context is there before its handler."""
        metadata = context.invocation_metadata()
        found = self.service(CallDetails(method))
        if found is None or is_open(method) or not self._gate.is_by_connection(metadata):
            return found and self._handler_for(found, method, metadata)
        return self._connected(found, method, context, metadata)

    def _handler_for(self, found: Handler, method: str, metadata: Metadata) -> Handler:
        if self._gate.is_by_connection(metadata) and not is_open(method):
            return admitting(found, lambda context: self._connected(found, method, context, metadata))
        try:
            caller = self._caller_of(metadata)
        except TurnwrightError as error:
            return probing(found, self._probes) if is_open(method) else refusing(error, method, self._calls)
        # The handler runs in the task in which it is looked up.
        return self._counting(found, method, caller)

    def _connected(self, found: Handler, method: str, context: Any, metadata: Metadata) -> Handler:
        """The handler for a caller whom the connection names."""
        try:
            caller = self._caller_of(metadata, context)
        except TurnwrightError as error:
            return refusing(error, method, self._calls)
        return self._counting(found, method, caller)

    def _counting(self, found: Handler, method: str, caller: Caller) -> Handler:
        enter_caller(caller)
        try:
            if caller.is_counted:
                self._ledger.check(caller.name, is_stream=not found.unary_unary)
        except TurnwrightError as error:
            return refusing(error, method, self._calls, caller.name)
        return found

    def _guarded(self, handler: Handler, method: str) -> Handler:
        codecs = {
            "request_deserializer": reader(handler.request_deserializer),
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method), **codecs)
        serialize = handler.response_serializer or bytes
        if handler.unary_stream:
            serialize = codecs["response_serializer"] = Serializer(serialize)
            stream = self._stream(handler.unary_stream, serialize, method)
            return grpc.unary_stream_rpc_method_handler(stream, **codecs)
        if handler.stream_stream:
            stream = self._stream(handler.stream_stream, serialize, method)
            return grpc.stream_stream_rpc_method_handler(stream, **codecs)
        return grpc.stream_unary_rpc_method_handler(self._upload(handler.stream_unary, method), **codecs)

    def _admitted(self, context: Any, metadata: Metadata, access: MethodAccess | None) -> str:
        """The name of the caller, who is known since the handler was looked up, but within one process."""
        if isinstance(context, LocalContext):
            caller = context.caller or self._caller_of(metadata)
        else:
            caller = current_caller()
            if not caller.by:
                caller = structs.replace(caller, peer=context.peer())
        # A service of an earlier release does not say what it was called by.
        if access and not (caller.by and caller.method):
            caller = structs.replace(caller, method=access.path, right=access.right)
        if caller.by:
            bind(by=caller.by)
        enter_caller(caller)
        return caller.name

    def _caller_of(self, metadata: Metadata, context: Any = None) -> Caller:
        self._gate.revoked = self._policy.revoked_token_ids
        caller = self._gate.caller(metadata, context)
        self._policy.check_call(caller)
        return caller

    async def _counted(self, context: Any, project: str = "", *, opened: bool, is_stream: bool) -> CountedCall | None:
        """Count a call, once there is room, until its answer is sent; None for services, and in process.

        Raises QUEUE_FULL. Calls of open methods are counted on their connection alone.
        """
        if isinstance(context, LocalContext) or not (opened or current_caller().is_counted):
            return None
        principal = "" if opened else current_caller().name
        shared = () if opened else self._policy.quotas_over(current_caller(), project)
        counted = await self._ledger.begin(principal, context.peer(), shared, is_stream=is_stream)
        task = asyncio.current_task()
        assert task, "handlers run in tasks"
        task.add_done_callback(lambda _: counted.end())
        return counted

    def _unary(self, inner: Any, method: str) -> Any:
        codec, opened, access = self._codecs().get(method), is_open(method), _access_to(method)

        async def call(request: object, context: Context) -> object:
            metadata: Any = context.invocation_metadata() or ()
            async with GuardedCall(self._calls, method, context, metadata, is_stream=False) as guarded:
                guarded.admitted("" if opened else self._admitted(context, metadata, access), checked(request))
                if access:
                    await access.check(self._policy, current_caller(), request)
                counted = await self._counted(context, _project_of(access, request), opened=opened, is_stream=False)
                if codec is None or isinstance(request, codec.request):
                    answer = await inner(request, context)
                else:
                    answer = codec.answer_to_pb(await inner(codec.request_from_pb(request), context))
                if (limit := _size_limit(context, metadata)) < MESSAGE_BYTES_MAX:
                    check_length(answer.ByteSize(), limit)
                if counted:
                    counted.hold(answer.ByteSize())
                return answer

        return call

    def _upload(self, inner: Any, method: str) -> Any:
        """A method that is sent a stream: its first message says what the call is about. One is read at a time."""
        access = _access_to(method)

        async def call(requests: AsyncIterator[object], context: Context) -> object:
            metadata: Any = context.invocation_metadata() or ()
            async with GuardedCall(self._calls, method, context, metadata, is_stream=True) as guarded:
                guarded.admitted(self._admitted(context, metadata, access), None)
                counted = await self._counted(context, opened=False, is_stream=True)
                first = checked(await anext(aiter(requests), None))
                if first is None:
                    raise invalid("message", "The call has sent no message: send at least one.")
                guarded.admitted("", first)
                if access:
                    await access.check(self._policy, current_caller(), first)
                answer = await inner(_following(first, requests), context)
                if counted:
                    counted.hold(answer.ByteSize())
                return answer

        return call

    def _stream(self, inner: Any, serialize: Callable[[Any], bytes], method: str) -> Any:
        codec, opened, access = self._codecs().get(method), is_open(method), _access_to(method)

        async def call(request: Any, context: Context) -> None:
            metadata: Any = context.invocation_metadata() or ()
            async with GuardedCall(self._calls, method, context, metadata, is_stream=True) as guarded:
                guarded.admitted("" if opened else self._admitted(context, metadata, access), checked(request))
                if access:
                    await access.check(self._policy, current_caller(), request)
                counted = await self._counted(context, _project_of(access, request), opened=opened, is_stream=True)
                encode = None
                limit = _size_limit(context, metadata)
                if codec and not isinstance(request, codec.request):
                    request, encode = codec.request_from_pb(request), codec.answer_to_pb
                with StreamRight(self._policy, access, request):
                    async with contextlib.aclosing(inner(request, context)) as answers:
                        async for answer in answers:
                            message = encode(answer) if encode else answer
                            if limit < MESSAGE_BYTES_MAX:
                                check_length(len(serialize(message)), limit)
                            if counted:
                                counted.hold(message.ByteSize(), is_last=False)
                            try:
                                await context.write(message)
                            except grpc.aio.InternalError:
                                # The caller has left, with the message unread.
                                raise asyncio.CancelledError from None
                            if counted:
                                counted.sent()

        return call


def _access_to(method: str) -> MethodAccess | None:
    """What a method of the contract asks of its callers; those of libraries ask nothing but an identity."""
    return method_access(method) if method.startswith(f"/{OURS}") else None


def _project_of(access: MethodAccess | None, request: object) -> str:
    return access.project_of(request) if access else ""


def _size_limit(context: object, metadata: Metadata) -> int:
    """The longest message that a caller takes, in bytes. Without a socket of its own, a call takes any."""
    return MESSAGE_BYTES_MAX if isinstance(context, LocalContext) else size_limit(metadata)


def reader(deserialize: Any) -> Callable[[Any], Any]:
    """Reads messages; one that cannot be read comes as its error, which is raised where errors are translated."""

    def read(data: Any) -> object:
        try:
            message = deserialize(data)
        except DecodeError as error:
            return fault(
                Reason.INVALID_FIELD,
                f"The message cannot be parsed as the request of this method: {error}. Strings must be UTF-8, without "
                "unpaired surrogates.",
                field="message",
            )
        return unknown_enum(message) or message

    return read


async def _following(first: object, requests: AsyncIterator[object]) -> AsyncIterator[object]:
    """The messages of a stream whose first one was read."""
    yield first
    async for request in requests:
        yield checked(request)


class Serializer:
    """Serializes a stream's messages; a message that is sent to many callers is serialized once.

    This is safe because no handler changes a message that it has sent.
    """

    def __init__(self, serialize: Callable[[Any], bytes]) -> None:
        self._serialize = serialize
        self._latest: dict[int, tuple[object, bytes]] = {}
        """The latest messages by id; kept with them, since an id is free once its object is gone."""

    def __call__(self, message: object) -> bytes:
        if found := self._latest.get(id(message)):
            return found[1]
        data = self._serialize(message)
        if len(self._latest) == SERIALIZED_MAX:
            self._latest.clear()
        if len(data) <= SERIALIZED_BYTES_MAX:
            self._latest[id(message)] = (message, data)
        return data
