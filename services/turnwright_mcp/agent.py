"""The agent as an MCP server: tasks, their runs and decisions as four tools.

A call waits for its task at most as long as it says, because clients give up calls that take long; the task goes on.
A call that is cancelled, also by a client that leaves, ends its task. Nothing is accepted on the way: what a task
proposes waits for `decide`, or for a person elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Annotated, Any, Final

import anyio
import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from msgspec import Meta, Struct
from turnwright.types.v1.cursor_pb2 import EventCursor

from turnwright_client import Client, QueuedLoop
from turnwright_core import __version__
from turnwright_core.converters import converter
from turnwright_core.errors import TurnwrightError
from turnwright_mcp.states import ReportTurn, RunProgress, overview, state_of, until_settled

WAIT_S: Final = 50.0
"""Seconds that a call waits by default: clients give up after a minute."""
WAIT_S_MAX: Final = 3600.0
LISTED_MAX: Final = 50
"""Runs that a list has at most, the latest first."""
ABORT_S: Final = 10.0
"""Seconds that ending the task of a cancelled call may take."""

_Wait = Annotated[float, Meta(ge=0, le=WAIT_S_MAX, description="Seconds to wait for its end; it goes on after that.")]
_Run = Annotated[str, Meta(description="Name of the run to continue; empty: a new one.")]
_Named = Annotated[str, Meta(min_length=1, description="Name of the run.")]


class TaskCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `act` and `ask`."""

    prompt: Annotated[str, Meta(min_length=1, description="The task.")]
    run: _Run = ""
    model: Annotated[str, Meta(description="Alias of the model, or vendor/model; empty: as configured.")] = ""
    wait_s: _Wait = WAIT_S


class RunsCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `runs`."""

    run: Annotated[str, Meta(description="Only this run, with its answer and what waits; empty: a list.")] = ""
    wait_s: _Wait = 0.0


class DecideCall(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `decide`."""

    run: _Named
    path: Annotated[str, Meta(min_length=1, description="The proposal, as `waiting` has it.")]
    accept: Annotated[bool, Meta(description="Whether it may happen; true with an answer.")]
    comment: Annotated[str, Meta(description="Why; without one, a rejection ends the task.")] = ""
    answer: Annotated[str, Meta(description="The answer to a question.")] = ""
    wait_s: _Wait = WAIT_S


class ListedRuns(Struct, frozen=True):
    """Result of `runs` without a run."""

    runs: tuple[RunProgress, ...]


ToolWork = Callable[[Any, ReportTurn], Awaitable[Struct]]


class _Offer(Struct, frozen=True):
    """A tool."""

    name: str
    text: str
    arguments: type[Struct]
    hints: types.ToolAnnotations

    def tool(self) -> types.Tool:
        schema = msgspec.json.schema(self.arguments)["$defs"][self.arguments.__name__]
        return types.Tool(name=self.name, description=self.text, input_schema=schema, annotations=self.hints)


_OFFERS: Final = (
    _Offer(
        "act",
        "Give the agent a task in its project: files may change and commands may run, once accepted. Answers with "
        "what it did, or with what waits for a decision.",
        TaskCall,
        types.ToolAnnotations(title="Give a task", read_only_hint=False, open_world_hint=True),
    ),
    _Offer(
        "ask",
        "Ask the agent a question about its project; nothing is changed.",
        TaskCall,
        types.ToolAnnotations(title="Ask a question", read_only_hint=True, open_world_hint=True),
    ),
    _Offer(
        "runs",
        "List the runs of the project, or look at one of them: how it stands, its answer, and what waits.",
        RunsCall,
        types.ToolAnnotations(title="Look at runs", read_only_hint=True, open_world_hint=False),
    ),
    _Offer(
        "decide",
        "Accept or reject what a run proposes, or answer its question; then its task goes on.",
        DecideCall,
        types.ToolAnnotations(title="Decide", read_only_hint=False, open_world_hint=True),
    ),
)

_ARGUMENTS: Final = {offer.name: converter(offer.arguments) for offer in _OFFERS}


class AgentTools:
    """The tools, as one client of the executor calls them for one project."""

    def __init__(self, client: Client, project: str, model: str) -> None:
        """`model`: of new runs, where a call names none."""
        self._client, self._project, self._model = client, project, model
        self.leaving = asyncio.Event()
        """Set when this process ends, which no client wanted: their tasks go on."""

    async def of_caller(self, token: str) -> tuple[str, AgentTools]:
        """Whose token this is, and the tools with its rights. Raises UNAUTHENTICATED."""
        client = self._client.as_caller(token)
        identity = await client.identity(with_projects=False)
        theirs = AgentTools(client, self._project, self._model)
        theirs.leaving = self.leaving
        return identity.principal, theirs

    async def act(self, given: TaskCall, report: ReportTurn) -> Struct:
        options = await self._options(given)
        return await self._follow(given, self._client.act(self._project, given.prompt, **options), report)

    async def ask(self, given: TaskCall, report: ReportTurn) -> Struct:
        options = await self._options(given)
        return await self._follow(given, self._client.ask(self._project, given.prompt, **options), report)

    async def runs(self, given: RunsCall, report: ReportTurn) -> Struct:
        if not given.run:
            listed = [overview(run) async for run in _first(self._client.list_runs(self._project), LISTED_MAX)]
            return ListedRuns(tuple(listed))
        if given.wait_s:
            await until_settled(self._client, await self._latest(given.run), given.wait_s, report)
        return await state_of(self._client, self._project, given.run)

    async def decide(self, given: DecideCall, report: ReportTurn) -> Struct:
        decided = await self._client.resolve(
            *(self._project, given.run, given.path),
            accept=given.accept,
            comment=given.comment,
            answer=given.answer,
        )
        queued = QueuedLoop(self._project, given.run, decided.run.loop.sequence, decided.event_cursor, decided.run)
        await until_settled(self._client, queued, given.wait_s, report)
        return await state_of(self._client, self._project, given.run, queued.sequence)

    async def _options(self, given: TaskCall) -> dict[str, Any]:
        """Raises RUN_NOT_FOUND: a task would create the run that it names, but here `run` only continues one."""
        if given.run:
            await self._client.get_run(self._project, given.run)
            return {"run": given.run, "model": given.model}
        return {"model": given.model or self._model}

    async def _follow(self, given: TaskCall, giving: Awaitable[QueuedLoop], report: ReportTurn) -> Struct:
        queued = await giving
        try:
            await until_settled(self._client, queued, given.wait_s, report)
        except asyncio.CancelledError:
            if not self.leaving.is_set():
                with anyio.move_on_after(ABORT_S, shield=True):
                    await self._client.abort(self._project, queued.run, loop=queued.sequence)
            raise
        return await state_of(self._client, self._project, queued.run, queued.sequence)

    async def _latest(self, run: str) -> QueuedLoop:
        found = (await self._client.get_run(self._project, run)).run
        return QueuedLoop(self._project, run, found.loop.sequence, EventCursor(), found)


async def _first(items: AsyncIterator[Any], most: int) -> AsyncIterator[Any]:
    for _ in range(most):
        try:
            yield await anext(items)
        except StopAsyncIteration:
            return


ConnectTools = Callable[[], AbstractAsyncContextManager[AgentTools]]
ToolsOf = Callable[[ServerRequestContext], AgentTools]
"""The tools, with the rights of the one whose request it is."""


def agent_server(tools_of: ToolsOf) -> Server:
    return Server(
        "turnwright",
        title="Turnwright",
        version=__version__,
        instructions="An agent that works on one project. Give it tasks with `act`, questions with `ask`.",
        on_list_tools=_list_tools,
        on_call_tool=partial(_call_tool, tools_of),
    )


async def serve_agent(connect: ConnectTools) -> None:
    """Serve one client on standard input and output until the input ends."""
    # Nothing is read before the agent is there: a reader of the input could only be stopped by the input's end.
    async with connect() as tools, stdio_server() as (reads, writes):
        server = agent_server(lambda _: tools)
        await server.run(reads, writes, server.create_initialization_options())


async def _list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[offer.tool() for offer in _OFFERS])


async def _call_tool(
    tools_of: ToolsOf, context: ServerRequestContext, given: types.CallToolRequestParams
) -> types.CallToolResult:
    offer = next((one for one in _OFFERS if one.name == given.name), None)
    if offer is None:
        return _failed(f"There is no tool {given.name[:100]}: {', '.join(one.name for one in _OFFERS)}.")

    async def report(progress: float, message: str) -> None:
        await context.session.report_progress(progress, message=message)

    try:
        arguments = _ARGUMENTS[offer.name](given.arguments or {})
        work: ToolWork = getattr(tools_of(context), offer.name)
        found = msgspec.to_builtins(await work(arguments, report))
    except msgspec.ValidationError as error:
        return _failed(f"{offer.name}: {error}.")
    except TurnwrightError as error:
        return _failed(error.message)
    text = types.TextContent(type="text", text=msgspec.json.encode(found).decode())
    return types.CallToolResult(content=[text], structured_content=found)


def _failed(sentence: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)
