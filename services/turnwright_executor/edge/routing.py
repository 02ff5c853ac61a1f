"""Routing: calls for a run reach the executor that owns it, whichever executor they were sent to.

Theory of operation. For a call that the owner must see, and for every watch, the owner is looked up: our own lease
first, then the store, whose lease has the owner's address. A call for another executor's run is forwarded once, with
the client's own token, tier and deadline. A forwarded call is never forwarded again, but refused with NOT_OWNER. An
owner that does not answer may be dead: then the call is answered here from the store, which has everything that was
acknowledged; what only an owner can do, it or the next one does when it reads that.

A watch passes on the owner's events with its numbers. If the run moves it continues after the last of them: from the
new owner's tail if that has the position, else from a snapshot. All watches of a run share one stream from its owner:
see relaying.
Source: architecture 7 (any replica answers for any run), 10 (forwarded calls carry the client's principal).
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from msgspec import Struct, field
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse
from turnwright.executor.v1.task_pb2 import EventCursor

from turnwright_core.errors import ANSWERED, Reason, TurnwrightError, fault
from turnwright_core.kit.auth import AUTHORIZATION, TIER
from turnwright_core.kit.errors import from_rpc
from turnwright_core.kit.logs import get_logger
from turnwright_core.kit.message_size import RECEIVES_ALL
from turnwright_core.kit.scope import TRACEPARENT, TRACESTATE
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_core.wire.events import events_of
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.edge.owners import Owners
from turnwright_executor.edge.relaying import FellBehindError, MovedError, Relays

if TYPE_CHECKING:  # generic in the stubs only
    Context = grpc.aio.ServicerContext[Any, Any]
else:
    Context = grpc.aio.ServicerContext

TO_OWNER: Final = frozenset({"Resolve", "Abort", "CancelStream", "Notify"})
"""Calls that must reach the owner at once: they end its work, wake it, or notify its watchers."""

WATCH: Final = "WatchRun"

FORWARDED: Final = "turnwright-forwarded"
"""Metadata of a call that was forwarded by another executor."""

FORWARD_S_MAX: Final = 3.0
"""Timeout of a forwarded call in seconds: an owner that hangs must not delay an abort."""

SLOWER_MAX: Final = 3
"""Maximum factor by which the interval between ownership checks grows: many watches may wait at once."""

AVOIDED_LOOKS: Final = 10
"""Ownership checks for which an unresponsive owner is not tried again."""

GONE: Final = (Reason.SERVICE_UNAVAILABLE, Reason.DRAINING, Reason.NOT_OWNER)
"""Errors of calls to an owner that has died, is shutting down, or was replaced."""

_log = get_logger("routing")

RpcMetadata = Sequence[tuple[str, str | bytes]]
UnaryHandler = Callable[[Any, Context], Awaitable[Any]]
WatchHandler = Callable[[WatchRunRequest, Context], AsyncIterator[WatchRunResponse]]


class _OwnerChecks(Struct):
    """Schedules a watch's checks of who owns the run."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set if somebody may have started to work on the run."""
    is_resting: bool = False
    """Whether no check is due until it is set."""


class Router:
    """Decides for each call which executor handles it."""

    def __init__(self, owners: Owners, poll_s: float, relays: Relays, own_metadata: RpcMetadata) -> None:
        """`poll_s` is the interval between ownership checks of a watch.

        `own_metadata` identifies this executor: shared streams are opened on its own behalf.
        """
        self._owners = owners
        self._poll_s = poll_s
        self._relays = relays
        self._own_metadata = own_metadata

    def route(self, servicer: Any) -> None:
        """Route those calls of a servicer that must reach the owner of a run."""
        for name in TO_OWNER:
            setattr(servicer, name, self.answering(name, getattr(servicer, name)))
        servicer.WatchRun = self.watching(servicer.WatchRun)

    # Calls with one answer ---------------------------------------------------------------------------------------

    def answering(self, name: str, inner: UnaryHandler) -> UnaryHandler:
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
                return await self._forwarded(name, owner, request, context, metadata)
            except TurnwrightError as error:
                if error.reason not in GONE:
                    raise
                _log.info("owner_lost", method=name, run=address.run, owner=owner, reason=error.reason.name)
            return await inner(request, context)

        return answer

    async def _forwarded(self, name: str, owner: str, request: Any, context: Context, metadata: RpcMetadata) -> Any:
        left_s = context.time_remaining()
        timeout_s = FORWARD_S_MAX if left_s is None else min(left_s / 2, FORWARD_S_MAX)
        async with self._owners.reached(owner) as stub:
            try:
                return await getattr(stub, name)(request, timeout=timeout_s, metadata=_passed_on(metadata))
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

    def watching(self, inner: WatchHandler) -> WatchHandler:
        """A handler that watches here as `inner` does, or at the run's owner, and follows the run when it moves."""

        async def watch(request: WatchRunRequest, context: Context) -> AsyncIterator[WatchRunResponse]:
            metadata = tuple(context.invocation_metadata() or ())
            # A watcher that waits long for its first event learns this way that it waits for an executor.
            await context.send_initial_metadata(((ANSWERED, "1"),))
            avoided = ""
            while True:
                found = await self._owner_address(RunAddress(request.project, request.run), metadata)
                at = "" if found == avoided else found
                before = request.after.SerializeToString()
                last: WatchRunResponse | None = None
                try:
                    async with contextlib.aclosing(self._from(at, avoided, inner, request, context)) as coming:
                        async for event in coming:
                            yield event
                            last = event if _is_position(event) else last
                except MovedError:
                    _advance(request, last)
                    avoided = ""
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

        return watch

    def _from(
        self, at: str, avoided: str, inner: WatchHandler, request: WatchRunRequest, context: Context
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events after `request.after`, from the executor `at` an address or from here; MovedError."""
        if at:
            return self._relayed(at, request, tuple(context.invocation_metadata() or ()))
        return self._followed(inner(request, context), RunAddress(request.project, request.run), "", avoided)

    async def _relayed(
        self, owner: str, request: WatchRunRequest, metadata: RpcMetadata
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The owner's events after `request.after`, which advances with them; MovedError when the run moves.

        While no relay has the position, they come in a stream of the watcher's own, on its own behalf.
        """
        address = RunAddress(request.project, request.run)
        key = (address, owner)

        def shared(after: EventCursor) -> AsyncGenerator[WatchRunResponse, None]:
            wanted = WatchRunRequest(project=address.project, run=address.run, after=after, batched=True)
            return self._followed(self._there(owner, wanted, self._own_metadata), address, owner, "")

        while True:
            if request.HasField("after") and self._relays.can_join(key, request.after):
                with contextlib.suppress(FellBehindError):
                    async with self._relays.hold(key, request.after, shared) as relay:
                        async with contextlib.aclosing(
                            relay.watch(request.after.seq, batched=request.batched)
                        ) as events:
                            async for event in events:
                                yield event
                                _advance(request, event)
                        return
            own = self._followed(self._there(owner, request, metadata), address, owner, "")
            async with contextlib.aclosing(own):
                async for event in own:
                    yield event
                    _advance(request, event)
                    if _is_position(event) and self._relays.can_join(key, event.cursor):
                        break
                else:
                    return

    async def _there(
        self, owner: str, request: WatchRunRequest, metadata: RpcMetadata
    ) -> AsyncIterator[WatchRunResponse]:
        async with self._owners.reached(owner) as stub:
            call = stub.WatchRun(request, metadata=_passed_on(metadata))
            try:
                async for event in call:
                    yield event
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error, "executor", owner) from None
            finally:
                call.cancel()

    async def _followed(
        self, events: Any, address: RunAddress, at: str, avoided: str
    ) -> AsyncGenerator[WatchRunResponse, None]:
        """The events, from the executor `at` an address or from here, until the run moves: then MovedError."""
        look = _OwnerChecks()
        looking = asyncio.ensure_future(self._until_moved(address, at, avoided, look))
        coming: asyncio.Future[WatchRunResponse] = asyncio.get_running_loop().create_future()
        try:
            while True:
                if not at and (look.is_resting or self._owners.is_here(address)):
                    # While nobody or this executor owns it, nothing can move; otherwise each event would cost a task.
                    event = await anext(events)
                else:
                    coming = asyncio.ensure_future(anext(events))
                    await asyncio.wait((coming, looking), return_when=asyncio.FIRST_COMPLETED)
                    if not coming.done():
                        raise MovedError
                    event = coming.result()
                if at or ((look.is_resting or not self._owners.is_here(address)) and _may_start_work(event)):
                    look.wake.set()
                yield event
        except StopAsyncIteration:
            return
        finally:
            looking.cancel()
            coming.cancel()
            await asyncio.gather(looking, coming, return_exceptions=True)
            await events.aclose()

    async def _until_moved(self, address: RunAddress, at: str, avoided: str, look: _OwnerChecks) -> None:
        looks = 0
        while True:
            wait_s = self._poll_s * min(looks + 1, SLOWER_MAX)
            is_notified = not at and await _set_within(look.wake, wait_s)
            if at:
                await asyncio.sleep(wait_s)
            look.wake.clear()
            if self._owners.is_here(address):
                if at:
                    return
                continue
            looks += not is_notified
            with contextlib.suppress(TurnwrightError):
                found = await self._owners.find(address)
                if found.address not in ("", at) and (found.address != avoided or looks >= AVOIDED_LOOKS):
                    return
                if not found.has_work:
                    look.is_resting = True
                    await look.wake.wait()
                    look.is_resting = False


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def _may_start_work(message: WatchRunResponse) -> bool:
    """Whether somebody may have started to work on a run."""
    return any(
        event.HasField("turn_started")
        or (event.HasField("run_state") and event.run_state.run.status in (QUEUED, RUNNING))
        for event in events_of(message)
    )


def _is_forwarded(metadata: RpcMetadata) -> bool:
    return any(key == FORWARDED for key, _ in metadata)


def _passed_on(metadata: RpcMetadata) -> tuple[tuple[str, str | bytes], ...]:
    """The caller's credentials for the owner: its token and the tier that it requested."""
    kept = tuple((key, value) for key, value in metadata if key in (AUTHORIZATION, TIER, TRACEPARENT, TRACESTATE))
    return (*kept, (FORWARDED, "1"), RECEIVES_ALL)


def _not_owner(address: RunAddress, owner: str) -> TurnwrightError:
    message = f"Another executor works on {address.run}: send the call to it, or to any executor again."
    return fault(Reason.NOT_OWNER, message, run=address.run, address=owner)


def _advance(request: WatchRunRequest, event: WatchRunResponse | None) -> None:
    """Have a watch go on after an event, if it can."""
    if event and _is_position(event):
        request.after.CopyFrom(event.cursor)


def _is_position(event: WatchRunResponse) -> bool:
    """Whether a watch can resume after an event: only after a complete snapshot; heartbeats come between its parts."""
    kind = event.WhichOneof("event")
    return kind != "heartbeat" and (kind != "snapshot" or event.snapshot.last)
