"""Tools in a Python process of their own: `server = ToolServer()`, `@server.tool(...)`, `await server.serve(address)`.

What it does for a tool: who has lost a run is refused, also after a restart; a call that comes again with the same
idempotency key gets the result of the first, a cancelled call stops, and what a tool raises fails the command.
docs/tools.md shows one, and how to do the same in Go and TypeScript.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from msgspec import Struct
from turnwright.tool.v1 import result_pb2, tool_service_pb2, tool_service_pb2_grpc, workspace_pb2
from turnwright.types.v1 import command_record_pb2

NAME: Final[str] = tool_service_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name

RUNS_MAX: Final = 10_000
"""Runs whose epoch is remembered; with one more all are forgotten, and a new start begins."""

RESULTS_MAX: Final = 1000
"""Results that are remembered by idempotency key. Who needs more, or needs them after a restart, keeps them."""

PROGRESS_MAX: Final = 100
"""Pieces of progress of one call that wait to be sent; then `progress` waits, too."""

EFFECT_CLASSES: Final = {
    "pure": command_record_pb2.EFFECT_CLASS_PURE,
    "idempotent": command_record_pb2.EFFECT_CLASS_IDEMPOTENT,
    "outside": command_record_pb2.EFFECT_CLASS_OUTSIDE,
}

ToolAnswer = str | result_pb2.ToolResult | result_pb2.ToolProposal
ToolHandler = Callable[["Call"], Awaitable[ToolAnswer]]
Owned = tool_service_pb2.DispatchRequest | tool_service_pb2.CancelRequest
"""What comes with an epoch."""


class ToolError(Exception):
    """A call that failed: `raise ToolError(404, "There is no such issue.")`. The text is what the model reads."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Call:
    """One call: `arguments` match the schema. `request` has everything else that was sent."""

    def __init__(self, request: tool_service_pb2.DispatchRequest, sent: asyncio.Queue[result_pb2.ToolProgress]) -> None:
        self.request = request
        self.arguments: dict[str, Any] = json.loads(request.arguments or "{}")
        self._sent = sent
        self._has_reader = True

    @property
    def state(self) -> bytes | None:
        """What the tool has returned with its proposal, which was accepted; None: it has made none."""
        return self.request.proposal_state if self.request.HasField("proposal_state") else None

    async def progress(self, text: str, channel: int = 0, files: workspace_pb2.ScanPiece | None = None) -> None:
        """Show a piece of output while the call goes on. `channel`, `files`: as in ToolProgress."""
        if self._has_reader:
            await self._sent.put(result_pb2.ToolProgress(text=text, channel=channel, files=files))

    def leave(self) -> None:
        """Nobody reads the progress of the call any more: it goes on, and waits for nobody."""
        self._has_reader = False
        while not self._sent.empty():
            self._sent.get_nowait()


class _Offered(Struct, frozen=True):
    """A tool with what carries it out."""

    tool: tool_service_pb2.Tool
    handle: ToolHandler
    is_idempotent: bool


class Fence:
    """What a server remembers of the owners of runs, so that it can refuse who has lost one."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic, runs_max: int = RUNS_MAX) -> None:
        """`clock_s`: that of leases."""
        self._clock_s, self._runs_max = clock_s, runs_max
        self._forget()

    def _forget(self) -> None:
        self._start = secrets.token_hex(16)
        self._epochs: dict[tuple[str, str], int] = {}

    def other_start(self, request: tool_service_pb2.DispatchRequest) -> tool_service_pb2.DispatchResponse | None:
        """The answer to a call for another start; None: it is for this one, or belongs to no owner."""
        if not request.epoch or request.start == self._start:
            return None
        start = tool_service_pb2.ServerStart(id=self._start)
        start.clock.FromNanoseconds(int(self._clock_s() * 1e9))
        return tool_service_pb2.DispatchResponse(other_start=start)

    def refusal(self, request: Owned) -> str:
        """Why a call is refused; empty: it is not. Calls of clients, 0, belong to no owner."""
        if not request.epoch:
            return ""
        key = request.project, request.run
        known = self._epochs.get(key, 0)
        if request.epoch < known:
            return f"The epoch {request.epoch} is over: {known} has called for this run since."
        ends_s = inf
        if isinstance(request, tool_service_pb2.DispatchRequest) and request.HasField("lease_end"):
            ends_s = request.lease_end.ToNanoseconds() / 1e9
        if ends_s <= self._clock_s():
            return f"The lease of the epoch {request.epoch} has ended."
        if known == 0 and len(self._epochs) == self._runs_max:
            self._forget()
        self._epochs[key] = request.epoch
        return ""


class ToolServer(tool_service_pb2_grpc.ToolServiceServicer):
    """Serves turnwright.tool.v1.ToolService. Tools may be added and removed while it runs."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._offered: dict[str, _Offered] = {}
        self._fence = Fence(clock_s)
        self._results: OrderedDict[tuple[str, str], asyncio.Task[ToolAnswer]] = OrderedDict()
        self._running: dict[tuple[str, str, str], asyncio.Task[ToolAnswer]] = {}

    def tool(
        self,
        name: str,
        text: str,
        *,
        schema: Mapping[str, Any] | None = None,
        effect_class: str = "outside",
        title: str = "",
        read_only: bool = False,
        destructive: bool = False,
        open_world: bool = True,
        proposes: bool = False,
        version: str = "",
    ) -> Callable[[ToolHandler], ToolHandler]:
        """Offer the function below: `async def f(call) -> str`, or a ToolResult, or a ToolProposal if it `proposes`.

        `effect_class` is `pure`, `idempotent` or `outside`. Raises KeyError for another one.
        """
        tool = tool_service_pb2.Tool(
            name=name,
            description=inspect.cleandoc(text),
            schema="" if schema is None else json.dumps(schema),
            effect_class=EFFECT_CLASSES[effect_class],
            annotations=tool_service_pb2.ToolAnnotations(
                title=title, read_only=read_only, destructive=destructive, open_world=open_world
            ),
            version=version,
            proposes=proposes,
        )

        def offer(handle: ToolHandler) -> ToolHandler:
            self._offered[name] = _Offered(tool, handle, effect_class == "idempotent")
            return handle

        return offer

    def remove(self, name: str) -> None:
        """Offer a tool no more. Loops that began with it have calls of it refused."""
        self._offered.pop(name, None)

    async def serve(self, address: str, credentials: grpc.ServerCredentials | None = None) -> grpc.aio.Server:
        """Start to serve, with health; `await (await server.serve(...)).wait_for_termination()` serves for ever.

        Without credentials everybody who reaches the address may call: within a host, or behind a proxy.
        """
        server = grpc.aio.server()
        tool_service_pb2_grpc.add_ToolServiceServicer_to_server(self, server)
        healthy = health.aio.HealthServicer()
        await healthy.set(NAME, health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
        if credentials is None:
            self.port = server.add_insecure_port(address)
        else:
            self.port = server.add_secure_port(address, credentials)
        await server.start()
        return server

    async def Describe(  # noqa: N802 - as the contract names it
        self, request: tool_service_pb2.DescribeRequest, _context: Any
    ) -> tool_service_pb2.DescribeResponse:
        tools = [one.tool for one in self._offered.values()]
        text = b"".join(tool.SerializeToString(deterministic=True) for tool in tools)
        version = hashlib.sha256(text).hexdigest()[:16]
        if request.version == version:
            return tool_service_pb2.DescribeResponse(version=version, unchanged=True)
        return tool_service_pb2.DescribeResponse(version=version, tools=tools)

    async def Dispatch(  # noqa: N802 - as the contract names it
        self, request: tool_service_pb2.DispatchRequest, context: Any
    ) -> AsyncGenerator[tool_service_pb2.DispatchResponse]:
        if other := self._fence.other_start(request):
            yield other
            return
        await self._check(request, context)
        offered = self._offered.get(request.tool)
        if offered is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, f"There is no tool {request.tool} here any more.")
        sent: asyncio.Queue[result_pb2.ToolProgress] = asyncio.Queue(PROGRESS_MAX)
        call = Call(request, sent)
        task, is_own = self._task(offered, call)
        key = request.project, request.run, request.call_id
        self._running[key] = task
        # And not with this attempt: Cancel is also for one that goes on without it.
        task.add_done_callback(lambda done: self._running.get(key) is done and self._running.pop(key))
        try:
            while not (task.done() and sent.empty()):
                getting = asyncio.ensure_future(sent.get())
                try:
                    await asyncio.wait((task, getting), return_when=asyncio.FIRST_COMPLETED)
                    if getting.done():
                        yield tool_service_pb2.DispatchResponse(progress=getting.result())
                finally:
                    getting.cancel()
            yield await _answered(task, context)
        finally:
            if is_own and not task.done():
                task.cancel()
            call.leave()

    def _task(self, offered: _Offered, call: Call) -> tuple[asyncio.Task[ToolAnswer], bool]:
        """The work of a call, and whether it ends with it: one that may come again goes on for the next attempt."""
        key = call.request.project, call.request.idempotency_key
        if offered.is_idempotent and call.state is None and (known := self._results.get(key)):
            return known, False
        task = asyncio.ensure_future(offered.handle(call))
        if offered.is_idempotent and call.state is None:
            self._results[key] = task
            task.add_done_callback(lambda done: self._forget_failed(key, done))
            if len(self._results) > RESULTS_MAX:
                self._results.popitem(last=False)
        return task, not offered.is_idempotent

    def _forget_failed(self, key: tuple[str, str], task: asyncio.Task[ToolAnswer]) -> None:
        if (task.cancelled() or task.exception()) and self._results.get(key) is task:
            del self._results[key]

    async def Cancel(  # noqa: N802 - as the contract names it
        self, request: tool_service_pb2.CancelRequest, context: Any
    ) -> tool_service_pb2.CancelResponse:
        await self._check(request, context)
        if task := self._running.get((request.project, request.run, request.call_id)):
            task.cancel()
        await self.cancelled(request)
        return tool_service_pb2.CancelResponse()

    async def cancelled(self, request: tool_service_pb2.CancelRequest) -> None:
        """A call was stopped, or what it has proposed is not carried out. For servers that keep something for one."""

    async def _check(self, request: Owned, context: Any) -> None:
        if refusal := self._fence.refusal(request):
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, refusal)


async def _answered(task: asyncio.Task[ToolAnswer], context: Any) -> tool_service_pb2.DispatchResponse:
    """The last message of a call."""
    try:
        answer = await asyncio.shield(task)
    except ToolError as error:
        part = result_pb2.ToolPart(text=str(error))
        answer = result_pb2.ToolResult(parts=[part], status=error.status)
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
        await _abort(context, grpc.StatusCode.ABORTED, "The call was cancelled.")
    except Exception as error:  # noqa: BLE001 - a tool that crashes fails its call, not the server
        await _abort(context, grpc.StatusCode.UNKNOWN, f"The tool crashed: {type(error).__name__}: {error}")
    if isinstance(answer, result_pb2.ToolProposal):
        return tool_service_pb2.DispatchResponse(proposal=answer)
    if isinstance(answer, str):
        answer = result_pb2.ToolResult(parts=[result_pb2.ToolPart(text=answer)])
    return tool_service_pb2.DispatchResponse(result=answer)


async def _abort(context: Any, status: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(status, text)
    raise AssertionError("it has been aborted")
