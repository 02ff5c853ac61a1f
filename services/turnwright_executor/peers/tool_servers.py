"""Calls servers of tools by gRPC, and knows what each of them brings.

What a server brings is asked for in the background while it is used; only one that was never asked keeps a loop
waiting, for as long as a connection may take.
Source: architecture 6, 10; docs/adr/0081.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import Final

import grpc
from turnwright.tool.v1 import tool_service_pb2 as pb
from turnwright.tool.v1 import tool_service_pb2_grpc, workspace_pb2

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_executor.domain.tool_servers import Away, RegisteredServer
from turnwright_executor.domain.tool_spec import ServedTool
from turnwright_executor.peers.server_starts import ServerStarts
from turnwright_executor.peers.tool_channels import CONNECTIONS_MAX, LOST, ServerChannels, words
from turnwright_executor.peers.tool_listings import Listing, ServerState, listed, merged
from turnwright_executor.tools.remote import CallEvent, CallFailedError, CallProgress, CallProposal, RemoteCall
from turnwright_executor.wire.tools import answer_to_pb, question_from_pb, result_from_pb
from turnwright_kit.logs import get_logger

DESCRIBE_S: Final = 5.0
"""Seconds that a server may take to say what it brings."""
START_CHECK_S: Final = 40.0
"""The same of a program that has to start first, and perhaps is loaded, where somebody waits for the check."""
CANCEL_S: Final = 2.0
LISTINGS_BYTES_MAX: Final = 256 * 1024 * 1024
"""What all lists may take together."""
STARTS_MAX: Final = 3
"""Starts of its server that one call may be sent to."""

_HTTP: Final = {
    grpc.StatusCode.INVALID_ARGUMENT: "invalid:400",
    grpc.StatusCode.OUT_OF_RANGE: "invalid:400",
    grpc.StatusCode.FAILED_PRECONDITION: "refused:412",
    grpc.StatusCode.UNAUTHENTICATED: "unauthenticated:401",
    grpc.StatusCode.PERMISSION_DENIED: "permission:403",
    grpc.StatusCode.NOT_FOUND: "not_found:404",
    grpc.StatusCode.ALREADY_EXISTS: "conflict:409",
    grpc.StatusCode.ABORTED: "conflict:409",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "exhausted:429",
    grpc.StatusCode.UNIMPLEMENTED: "unimplemented:501",
    grpc.StatusCode.UNAVAILABLE: "unavailable:503",
    grpc.StatusCode.CANCELLED: "unavailable:503",
    grpc.StatusCode.DEADLINE_EXCEEDED: "timeout:504",
}
_TOO_LONG: Final = "Received message larger than max"
"""How gRPC says here that a message was not taken: nothing else tells it from what a server says."""

_log = get_logger("tools")


Callback = Callable[[str, str, float], AbstractContextManager[pb.Callback | None]]
"""How a call may call back while the context lasts; None: it may not. See Callbacks."""


class GrpcToolServers:
    """Implements tools.remote.ToolServers and tools.catalogue.SpecSource. Closed at the end of the executor."""

    def __init__(
        self,
        registered: Callable[[str], Awaitable[Sequence[RegisteredServer]]],
        channels: ServerChannels,
        callback: Callback,
        starts: ServerStarts,
    ) -> None:
        """`registered`: the servers for a project."""
        self._registered, self.channels, self._callback, self._starts = registered, channels, callback, starts
        self._listings: dict[tuple[RegisteredServer, str], Listing] = {}
        self._asking: dict[tuple[RegisteredServer, str], asyncio.Task[Listing]] = {}
        self._cancelling: set[asyncio.Task[None]] = set()

    async def specs(self, project: str) -> Sequence[ServedTool]:
        """See SpecSource."""
        return [spec for state in await self.states(project, hosts=False) for spec in state.listing.specs]

    async def states(
        self, project: str, *, check: bool = False, only: str = "", hosts: bool = True
    ) -> list[ServerState]:
        """The servers for a project, the deployment's first, with what each brings. `check` asks them all now.

        Without `hosts` those are left out that are sandbox hosts.
        """
        try:
            servers = await self._registered(project)
        except TurnwrightError as error:
            _log.warning("tool_servers_unlisted", project=project, reason=error.reason.name)
            return []
        wanted = [one for one in servers if only in ("", one.name) and (hosts or not one.workspaces)]
        listings = await asyncio.gather(*(self._listing(one, project, check=check) for one in wanted))
        return merged(list(map(ServerState, wanted, listings)))

    async def _listing(self, server: RegisteredServer, project: str, *, check: bool) -> Listing:
        if server.is_bridged and not project:
            each = f"it is started for each project: `turnwright mcp check {server.name}` in one asks what it brings"
            return Listing(problem=each)
        key = server, project
        known = self._listings.get(key)
        if known is not None and known.is_fresh and not check:
            return known
        asking = self._asking.get(key)
        if asking is None:
            if check:
                self.channels.look_again(server)
            asking = self._asking[key] = asyncio.create_task(
                self._asked(key, known, START_CHECK_S if check and server.is_bridged else DESCRIBE_S),
                name=f"tools of {server.name}",
            )
            asking.add_done_callback(lambda _: self._asking.pop(key, None))
        if known is not None and not check:
            return known
        return await asyncio.shield(asking)

    async def _asked(self, key: tuple[RegisteredServer, str], known: Listing | None, most_s: float) -> Listing:
        """Ask a server what it brings. Never raises; of one that is away the tools stay, so that it is told of them."""
        server, project = key
        before = known or Listing()
        try:
            stub = tool_service_pb2_grpc.ToolServiceStub(await self.channels.ready(server))
            request = pb.DescribeRequest(project=project, version=before.version)
            asking = stub.Describe(request, timeout=most_s, metadata=self.channels.metadata(server))
            # gRPC gives None for bytes that are no message.
            answer: pb.DescribeResponse | None = await asking
            wrong = f"{server.name} at {server.address} answers something else than the contract says."
            listing = before.lost(wrong) if answer is None else await listed(server, answer, before)
        except Away as away:
            listing = before.lost(str(away))
        except grpc.aio.AioRpcError as error:
            is_login_needed = server.is_mcp and from_rpc(error, server.name, "").reason is Reason.LOGIN_NEEDED
            why = words(error)
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                why = f"it has not answered within {most_s:g} s. It may still be starting: check it again"
            problem = why
            if not server.is_bridged:
                problem = f"{server.name} at {server.address} does not say what it brings: {why}"
            listing = before.lost(problem, is_login_needed=is_login_needed)
        if listing.problem and listing.problem != before.problem:
            _log.warning("tool_server_lost", server=server.name, project=project, problem=listing.problem)
        self._listings.pop(key, None)
        self._listings[key] = listing
        size = sum(one.size for one in self._listings.values())
        while len(self._listings) > CONNECTIONS_MAX or size > LISTINGS_BYTES_MAX:
            size -= self._listings.pop(next(iter(self._listings))).size
        return listing

    async def dispatch(self, server: str, call: RemoteCall) -> AsyncGenerator[CallEvent]:
        """See tools.remote.ToolServers."""
        found = await self._found(server, call)
        async with aclosing(self.responses(server, call)) as messages:
            async for message in messages:
                if (event := _event_of(message, found)) is not None:
                    yield event

    async def responses(
        self, server: str, call: RemoteCall, workspace: workspace_pb2.WorkspaceCall | None = None
    ) -> AsyncGenerator[pb.DispatchResponse]:
        """As dispatch, with the messages as they come. `workspace`: what a sandbox host is to do."""
        found = await self._found(server, call)
        timeout_s = call.timeout_s or found.timeout_s
        end_s = (call.began_s or time.monotonic()) + timeout_s
        try:
            back_s = time.monotonic() + call.away_s if call.away_s else end_s
            channel = await (self.channels.back(found, back_s) if call.began_s else self.channels.ready(found))
            metadata = self.channels.metadata(found)
        except Away as away:
            raise CallFailedError("unavailable:503", str(away), is_sent=False) from None
        dispatch = tool_service_pb2_grpc.ToolServiceStub(channel).Dispatch
        with self._calling_back(found, call) as callback:
            left_s = max(0.0, end_s - time.monotonic()) if call.began_s else timeout_s
            request = _request(call, callback, left_s)
            if workspace is not None:
                request.workspace.CopyFrom(workspace)
            for _ in range(STARTS_MAX):
                self._starts.fence(request, channel)
                stream = dispatch(request, timeout=left_s, metadata=metadata)
                is_over = False
                try:
                    # gRPC gives None for bytes that are no message.
                    messages: AsyncIterable[pb.DispatchResponse | None] = stream
                    async for message in messages:
                        if message is None:
                            text = f"The server {server} has sent something else than an event of a call."
                            raise CallFailedError("protocol:502", text, is_sent=True, is_lost=True)
                        is_over = not message.HasField("progress")
                        if message.HasField("other_start"):
                            self._starts.update(message.other_start, channel)
                            break
                        yield message
                        if is_over:
                            return
                    else:
                        is_over = True
                        text = f"The server {server} has ended the call without a result."
                        raise CallFailedError("protocol:502", text, is_sent=True, is_lost=True)
                except grpc.aio.AioRpcError as error:
                    is_over = True
                    raise _failed(found, timeout_s, error) from None
                finally:
                    stream.cancel()
                    if not is_over:
                        self.cancel(server, call)
            text = f"{server} has named {STARTS_MAX} starts for one call: one process must take its calls, and stay up."
            raise CallFailedError("unavailable:503", text, is_sent=False)

    async def _found(self, server: str, call: RemoteCall) -> RegisteredServer:
        """The server that a call is for. Raises CallFailedError."""
        named = await self._named(server, call.project)
        found = next((one for one in named if one.registration == call.registration), None)
        if found is None:
            text = (
                f"Another server is registered as {server} than the one that this call is for: at another address, or "
                "by somebody else. It was not called. A new task gets the tools of the one that is there now."
            )
            raise CallFailedError("conflict:409", text, is_sent=False)
        return found

    def _calling_back(self, server: RegisteredServer, call: RemoteCall) -> AbstractContextManager[pb.Callback | None]:
        """What a call that may change something can call back with: none of another program's, which a bridge calls."""
        if server.is_bridged or not call.calls_back:
            return nullcontext()
        return self._callback(call.project, call.principal, server.timeout_s)

    async def _named(self, server: str, project: str) -> Sequence[RegisteredServer]:
        """The servers of this name, the deployment's first. Raises CallFailedError if there is none."""
        try:
            named = [one for one in await self._registered(project) if one.name == server]
        except TurnwrightError as error:
            raise CallFailedError("unavailable:503", error.message, is_sent=False) from None
        if not named:
            raise CallFailedError("not_found:404", f"The server {server} is not registered any more.", is_sent=False)
        return named

    def cancel(self, server: str, call: RemoteCall) -> None:
        """See tools.remote.ToolServers. Also for servers that do not see the end of a call's stream."""
        task = asyncio.create_task(self._cancelled(server, call), name=f"cancel {call.call_id}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancelled(self, server: str, call: RemoteCall) -> None:
        request = pb.CancelRequest(project=call.project, run=call.run, call_id=call.call_id, epoch=call.epoch)
        try:
            found = (await self._named(server, call.project))[0]
            stub = tool_service_pb2_grpc.ToolServiceStub(await self.channels.ready(found))
            await stub.Cancel(request, timeout=CANCEL_S, metadata=self.channels.metadata(found))
        except (CallFailedError, Away, grpc.aio.AioRpcError) as error:
            problem = words(error) if isinstance(error, grpc.aio.AioRpcError) else str(error)
            _log.info("tool_cancel_failed", run=call.run, server=server, problem=problem)

    async def close(self) -> None:
        if self._cancelling:
            await asyncio.wait(self._cancelling, timeout=CANCEL_S)
        tasks = [*self._asking.values(), *self._cancelling]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.channels.close()


def _event_of(message: pb.DispatchResponse, server: RegisteredServer) -> CallEvent | None:
    match message.WhichOneof("event"):
        case "progress":
            return CallProgress(message.progress.text, message.progress.channel)
        case "proposal":
            return CallProposal(message.proposal.body, message.proposal.state)
        case "result":
            return result_from_pb(message.result)
        case "model_request":
            return question_from_pb(message.model_request, server.model)
    return None


def _request(call: RemoteCall, callback: pb.Callback | None, left_s: float) -> pb.DispatchRequest:
    request = pb.DispatchRequest(
        project=call.project,
        run=call.run,
        call_id=call.call_id,
        tool=call.tool,
        arguments=call.arguments,
        epoch=call.epoch,
        idempotency_key=call.key,
        proposal_state=call.state,
        comment=call.comment,
        tool_version=call.tool_version,
        principal=call.principal,
        callback=callback,
        model_answer=answer_to_pb(*call.answer) if call.answer else None,
    )
    request.deadline.FromMilliseconds(round((time.time() + left_s) * 1000))
    return request


def _failed(server: RegisteredServer, timeout_s: float, error: grpc.aio.AioRpcError) -> CallFailedError:
    outcome = _HTTP.get(error.code(), "tool:500")
    text = f"{server.name}: {words(error)}"
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LONG in (error.details() or ""):
        outcome, text = "too_large:502", f"{server.name} has answered with more than {MESSAGE_BYTES_MAX} bytes at once."
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = f"{server.name} gave no result within {timeout_s:g} s."
    return CallFailedError(outcome, text, is_sent=True, is_lost=error.code() in LOST)
