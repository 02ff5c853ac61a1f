"""Routing: calls for a run reach the executor that owns it, whichever executor they were sent to.

Theory of operation. For a call that the owner must see, and for every watch, the owner is looked up: our own lease
first, then the store, whose lease has the owner's address. A call for another executor's run is forwarded once, for
its client and with its deadline. A forwarded call is never forwarded again, but refused with NOT_OWNER. An owner that
does not answer may be dead: then the call is answered here from the store, which has everything that was acknowledged;
what only an owner can do, it or the next one does when it reads that.

A watch passes on the owner's events with its numbers. If the run moves it continues after the last of them: from the
new owner's tail if that has the position, else from a snapshot. All watches of a run share one stream from its owner
(see relaying) and one monitor of who owns it (see owners).
Source: architecture 7 (any replica answers for any run), 10 (forwarded calls carry the client's principal).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.descriptor import MethodDescriptor
from turnwright.executor.v1 import executor_service_pb2
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse
from turnwright.executor.v1.executor_service_pb2_grpc import ExecutorServiceStub
from turnwright.types.v1.cursor_pb2 import EventCursor
from turnwright.types.v1.stream_pb2 import STREAM_END_CANCELLED

from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import RECEIVES_ALL
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.owners import OwnerMonitors, Owners
from turnwright_executor.peers.relaying import Relays
from turnwright_executor.watching.hubs import Hubs
from turnwright_executor.watching.plans import PLAN_EVENTS
from turnwright_executor.watching.tail import FellBehindError, MovedError
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.credentials import Credentials
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Around, UnaryHandler, path_of, rpc_of
from turnwright_kit.scope import TextMetadata
from turnwright_kit.telemetry import outgoing

if TYPE_CHECKING:  # generic in the stubs only
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext

TO_OWNER: Final = frozenset({"Notify"})
"""Calls that must reach the owner at once: they end its work, wake it, or notify its watchers."""

WATCH: Final = "WatchRun"

FORWARDED: Final = "turnwright-forwarded"
"""Metadata of a call that was forwarded by another executor."""

FORWARD_S_MAX: Final = 3.0
"""Timeout of a forwarded call in seconds: an owner that hangs must not delay an abort."""

GONE: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DRAINING, Reason.NOT_OWNER)
"""Errors of calls to an owner that has died, is shutting down, or was replaced."""

_log = get_logger("routing")

RpcMetadata = Sequence[tuple[str, str | bytes]]
_SERVICE: Final = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]


class Router:
    """Decides for each call which executor handles it."""

    def __init__(
        self,
        owners: Owners,
        monitors: OwnerMonitors,
        hubs: Hubs,
        relays: Relays,
        credentials: Credentials,
        check_seen: Callable[[RunAddress], Awaitable[None]],
    ) -> None:
        """`credentials` are those of this executor at others. It forwards for somebody, and shares for itself.

        `check_seen` raises RUN_NOT_FOUND for a run that is not there for the caller.
        """
        self._check_seen = check_seen
        self._owners = owners
        self._monitors = monitors
        self._hubs = hubs
        self._relays = relays
        self._credentials = credentials

    def route(self, servicer: Any) -> None:
        """Route those calls of a servicer that must reach the owner of a run, and WatchRun."""
        for name in TO_OWNER:
            setattr(servicer, name, self.owner_handler(_SERVICE.methods_by_name[name], getattr(servicer, name)))
        servicer.watch_events = self.watch

    # Calls with one answer ---------------------------------------------------------------------------------------

    def around(self) -> Mapping[str, Around]:
        """What is added to the methods of mounted services: the owner of a stream must stop if it is cancelled."""

        def ending(method: MethodDescriptor, inner: UnaryHandler) -> UnaryHandler:
            to_owner = self.owner_handler(method, inner)

            def answer(request: Any, context: Context) -> Awaitable[Any]:
                return (to_owner if request.end == STREAM_END_CANCELLED else inner)(request, context)

            return answer

        return {"EndStream": ending}

    def owner_handler(self, method: MethodDescriptor, inner: UnaryHandler) -> UnaryHandler:
        """A handler that answers as `inner` does, or forwards the call to the run's owner."""

        async def answer(request: Any, context: Context) -> Any:
            address = RunAddress(request.project, request.run)
            metadata = tuple(context.invocation_metadata() or ())
            owner = await self._owner_address(address, metadata)
            if not owner:
                return await inner(request, context)
            if "request_id" in request.DESCRIPTOR.fields_by_name and not request.request_id:
                # It may have been carried out by an owner that died before it answered.
                request.request_id = secrets.token_hex(16)
            try:
                return await self._forwarded(method, owner, request, context)
            except TurnwrightError as error:
                if error.reason not in GONE:
                    raise
                _log.info("owner_lost", method=method.name, run=address.run, owner=owner, reason=error.reason.name)
            return await inner(request, context)

        return answer

    async def _forwarded(self, method: MethodDescriptor, owner: str, request: Any, context: Context) -> Any:
        left_s = context.time_remaining()
        timeout_s = FORWARD_S_MAX if left_s is None else min(left_s / 2, FORWARD_S_MAX)
        async with self._owners.connected(owner) as channel:
            try:
                with outgoing(path_of(method), owner) as trace:
                    forwarding = rpc_of(channel, method)
                    return await forwarding(
                        request, timeout=timeout_s, metadata=self._passed_on(current_caller(), trace)
                    )
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error, "executor", owner) from None

    async def _owner_address(self, address: RunAddress, metadata: RpcMetadata) -> str:
        """The address of the run's owner, if it is another executor. Raises NOT_OWNER, RUN_NOT_FOUND."""
        try:
            found = await self._owners.find(address)
        except TurnwrightError as error:
            # Without the store nobody knows; the handler here will report the error.
            if error.reason in GONE or error.reason is Reason.DATABASE_UNAVAILABLE:
                return ""
            raise
        if found.address and _is_forwarded(metadata):
            raise _not_owner(address, found.address)
        return found.address

    # Watches -----------------------------------------------------------------------------------------------------

    async def watch(self, request: WatchRunRequest, context: Context) -> AsyncIterator[WatchRunResponse]:
        """WatchRun: watches here or at the run's owner, and follows the run when it moves."""
        metadata = tuple(context.invocation_metadata() or ())
        address = RunAddress(request.project, request.run)
        await self._check_seen(address)
        # A watcher that waits long for its first event learns this way that it waits for an executor.
        await context.send_initial_metadata(((ANSWERED, "1"),))
        avoided = ""
        while True:
            found = await self._owner_address(address, metadata)
            at = "" if found == avoided else found
            before = request.after.SerializeToString()
            try:
                async with contextlib.AsyncExitStack() as held:
                    # What this executor tells by itself passes through no generator but this: each costs all watchers.
                    coming = self._relayed(at, request) if at else await self._here(request, avoided, held)
                    held.push_async_callback(coming.aclose)
                    async for event in coming:
                        yield event
            except MovedError:
                avoided = ""
                # It may be another run of this name by now.
                await self._check_seen(address)
                continue
            except TurnwrightError as error:
                if not at or error.reason not in GONE:
                    raise
                _log.info("owner_lost", method=WATCH, run=request.run, owner=at, reason=error.reason.name)
                if request.after.SerializeToString() != before:
                    # It did send something: perhaps only the connection was lost. Try it once more.
                    continue
            if not at:
                return
            avoided = at

    async def _here(
        self, request: WatchRunRequest, avoided: str, held: contextlib.AsyncExitStack
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events of this executor's hub after `request.after`, until the run moves."""
        hub = await held.enter_async_context(self._hubs.hold(RunAddress(request.project, request.run)))
        coming = await hub.watch(request.after, batched=request.batched, plans=request.plans, replies=request.replies)
        held.enter_context(self._monitors.here(hub, avoided))
        return coming

    async def _relayed(self, owner: str, request: WatchRunRequest) -> AsyncGenerator[WatchRunResponse, None]:
        """The owner's events after `request.after`, which advances with them; MovedError when the run moves.

        While no relay has the position, they come in a stream of the watcher's own, on its own behalf.
        """
        address = RunAddress(request.project, request.run)
        key = (address, owner, request.plans, request.replies)

        def shared(after: EventCursor) -> AsyncGenerator[WatchRunResponse, None]:
            wanted = WatchRunRequest(
                project=address.project,
                run=address.run,
                after=after,
                batched=True,
                plans=request.plans,
                replies=request.replies,
            )
            return self._there(owner, wanted, None)

        relay = None
        while True:
            # Who fell behind the relay gets a stream of its own first.
            relay = None if relay or not request.after.epoch else self._relays.find(key, request.after, shared)
            if relay:
                coming = relay.follow(request.after, batched=request.batched)
            else:
                coming = self._there(owner, request, current_caller())
            with contextlib.suppress(FellBehindError):
                async with contextlib.aclosing(coming):
                    async for event in coming:
                        yield event
                        if relay is None and _is_position(event):
                            request.after.CopyFrom(event.cursor)
                            if self._relays.find(key, event.cursor, shared):
                                break
                    else:
                        return

    async def _there(
        self, owner: str, request: WatchRunRequest, caller: Caller | None
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events that the owner sends, until the run moves: then MovedError. Raises TurnwrightError.

        `caller`: for whom they are; None: for this executor.
        """
        address = RunAddress(request.project, request.run)
        try:
            async with self._owners.connected(owner) as channel:
                with outgoing(path_of(_SERVICE.methods_by_name[WATCH]), owner) as trace:
                    call = ExecutorServiceStub(channel).WatchRun(request, metadata=self._passed_on(caller, trace))
                    with self._monitors.there(address, owner, call.cancel) as monitor:
                        try:
                            async for event in call:
                                monitor.active.set()
                                yield event
                        except asyncio.CancelledError:
                            task = asyncio.current_task()
                            if not monitor.moved.is_set() or (task and task.cancelling()):
                                raise
                            raise MovedError from None
                        finally:
                            call.cancel()
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, "executor", owner) from None

    def _passed_on(self, caller: Caller | None, trace: TextMetadata) -> TextMetadata:
        return (*self._credentials.metadata(caller), *trace, (FORWARDED, "1"), RECEIVES_ALL)


def _is_forwarded(metadata: RpcMetadata) -> bool:
    return any(key == FORWARDED for key, _ in metadata)


def _not_owner(address: RunAddress, owner: str) -> TurnwrightError:
    message = f"Another executor works on {address.run}: send the call to it, or to any executor again."
    return fault(Reason.NOT_OWNER, message, run=address.run, address=owner)


def _is_position(event: WatchRunResponse) -> bool:
    """Whether a watch can resume after an event: only after a complete snapshot; heartbeats come between its parts.

    Events about plans come again to who resumes after them.
    """
    kind = event.WhichOneof("event")
    return kind not in ("heartbeat", *PLAN_EVENTS) and (kind != "snapshot" or event.snapshot.last)
