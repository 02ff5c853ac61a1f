"""The client: one connection to an executor with every rpc of its contract, at the tier client."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any, Final, Self, TypedDict, Unpack

import grpc
from msgspec import Struct
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, task_pb2
from turnwright.projects.v1 import project_service_pb2
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import (
    cursor_pb2,
    entry_pb2,
    loop_pb2,
    project_pb2,
    proposal_pb2,
    run_pb2,
    settings_pb2,
    usage_pb2,
)

from turnwright_client.administration import AdministrationCalls
from turnwright_client.control import PLAN_FORMS, ControlCalls, PlanForm
from turnwright_client.proposals import OnProposal, ProposalCalls, ProposalChoice, value_of
from turnwright_client.queries import QueryCalls
from turnwright_client.retrying import RetryingPeer
from turnwright_client.sessions import SessionCalls
from turnwright_client.watch import Lost, Opened, WatchPolicy, watch_events
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.remote_service import CHANNEL_OPTIONS
from turnwright_core.rpc.transport import PLAINTEXT, open_channel
from turnwright_core.runs import LOOP_ENDED, STATUSES
from turnwright_core.wire.prompt_edits import edit_to_pb
from turnwright_core.wire.resources import FOR_CLIENTS
from turnwright_core.wire.run_view import Event, RunView

EventCursor = cursor_pb2.EventCursor
_BY_ARGUMENT: Final = ("Give `tls=Tls(authorities=Path(...))`", "`tls=Tls(insecure=True)`")
OnEvent = Callable[[Event], Awaitable[object] | object]


class TaskOptions(TypedDict, total=False):
    """Options of a task. An empty `run` creates a new one; `fork` gives the task to a fork of the run.

    `model` is short for the model of `settings`. `edits` change the prompts of its turns: `turnwright_client.edits`.
    """

    run: str
    model: str
    settings: settings_pb2.LoopSettings | None
    run_settings: settings_pb2.RunSettings | None
    request_id: str
    fork: task_pb2.TaskFork | None
    edits: Sequence[PromptEdit]


CLONE_S: Final = 3600.0
"""Seconds that making a project of a git repository may take; executors have a limit of their own."""


class QueuedLoop(Struct, frozen=True):
    """A task in a run's queue: the loop, and the cursor after which to watch the run."""

    project: str
    run: str
    sequence: int
    cursor: EventCursor
    state: run_pb2.Run
    """The run as it was when the task was queued."""


class Outcome(Struct, frozen=True):
    """How a task has ended: what was said, the verdict, and what it took."""

    loop: loop_pb2.Loop
    view: RunView
    """The run as its events told of it meanwhile."""

    @property
    def text(self) -> str:
        """The last answer, or what the model said about the end."""
        return self.loop.summary

    @property
    def status(self) -> int:
        """200, or why it is none."""
        return self.loop.status

    @property
    def verdict(self) -> str:
        """The status as a word: `done`, `cannot`, `stopped`, `failed`, `too large`."""
        known = STATUSES.get(self.status)
        return known.word if known else str(self.status)

    @property
    def spend(self) -> usage_pb2.Usage:
        """The tokens of its turns, and the money, if that is known."""
        return self.loop.usage


class Client(AdministrationCalls, ControlCalls, ProposalCalls, QueryCalls, SessionCalls):
    """A client of an executor.

    Every method raises TurnwrightError; unary calls end within the timeout given at connect.

    Calls that fail because of a lost connection or a proxy are retried if that is safe: see `retrying`.
    """

    def __init__(self, peer: RetryingPeer, policy: WatchPolicy) -> None:
        self._peer = peer
        self._policy = policy
        self._stub: executor_service_pb2_grpc.ExecutorServiceAsyncStub = executor_service_pb2_grpc.ExecutorServiceStub(
            peer.channel
        )
        vars(self).update({f"_{resource.package}": resource.stub(peer.channel) for resource in FOR_CLIENTS})

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls,
        address: str,
        token: str,
        timeout_s: float = 30.0,
        policy: WatchPolicy | None = None,
        tls: Tls = PLAINTEXT,
        channel: grpc.aio.Channel | None = None,
    ) -> AsyncGenerator[Self, None]:
        """A client for the duration of the block. Nothing is sent before the first call.

        Without certificates it speaks plaintext, to an executor on this host only. `channel`: one of your own, which
        the client closes.
        """
        policy = policy or WatchPolicy()
        channel = channel or open_channel(address, CHANNEL_OPTIONS, tls, _BY_ARGUMENT)
        peer = RetryingPeer(address, token, timeout_s, policy, channel)
        try:
            yield cls(peer, policy)
        finally:
            await peer.close()

    def as_caller(self, token: str) -> Self:
        """A client for somebody else's calls, on this connection. Raises UNAUTHENTICATED: no such token."""
        own = self._peer
        return type(self)(RetryingPeer(own.address, token, own.timeout_s, self._policy, own.channel), self._policy)

    @property
    def address(self) -> str:
        return self._peer.address

    async def init_project(
        self,
        root: str,
        name: str = "",
        config_path: str | None = None,
        assembly: settings_pb2.Assembly.ValueType | None = None,
        *,
        force: bool = False,
        git_url: str = "",
        git_ref: str = "",
    ) -> project_pb2.Project:
        """Register a directory on the executor's host; safe to repeat. An empty name is derived from the root.

        `config_path` is the client's own configuration file for the project, `assembly` how its runs are sent to
        their models by default; None: unchanged. `force`: also a folder of the system or a home. `git_url`: clone this
        repository, at its branch or tag `git_ref`, and register the clone; `root` is empty. That may take minutes.
        """
        request = project_service_pb2.InitProjectRequest(
            root=root,
            name=name,
            config_path=config_path,
            assembly=assembly,
            force=force,
            git_url=git_url,
            git_ref=git_ref,
        )
        timeout_s = CLONE_S if git_url else None
        return (await self._peer.call(self._projects.InitProject, request, timeout_s)).project

    async def ask(self, project: str, prompt: str, **options: Unpack[TaskOptions]) -> QueuedLoop:
        """Queue a read-only task."""
        task = _task(project, prompt, **options)
        answer = await self._peer.call(self._stub.Ask, task_pb2.AskRequest(task=task))
        return _queued(project, answer.queued)

    async def act(self, project: str, prompt: str, **options: Unpack[TaskOptions]) -> QueuedLoop:
        """Queue a task that may change things."""
        task = _task(project, prompt, **options)
        answer = await self._peer.call(self._stub.Act, task_pb2.ActRequest(task=task))
        return _queued(project, answer.queued)

    def watch(
        self,
        project: str,
        run: str,
        after: EventCursor | None = None,
        *,
        plans: PlanForm = "none",
        raw_replies: bool = False,
        lost: Lost | None = None,
    ) -> AsyncGenerator[Event, None]:
        """Stream events of the run after the cursor, or a snapshot and then events. Reconnects by itself.

        `lost` is told while that fails again and again. `plans` selects how plans are sent: each by its id
        ("operations"), or all as one list ("legacy"). `raw_replies`: as the model wrote them, not as prose and calls.
        If you stop before it ends, close it (`contextlib.aclosing`).
        """
        form = PLAN_FORMS[plans]
        replies = executor_service_pb2.REPLY_FORM_RAW if raw_replies else executor_service_pb2.REPLY_FORM_PARTS

        def open_stream(cursor: EventCursor | None) -> Opened[Event]:
            request = executor_service_pb2.WatchRunRequest(
                project=project, run=run, after=cursor, batched=True, plans=form, replies=replies
            )
            return self._peer.stream(self._stub.WatchRun, request, None)

        return watch_events(open_stream, after, self._policy, lost)

    async def abort(
        self, project: str, run: str, request_id: str = "", *, loop: int = 0
    ) -> run_service_pb2.AbortRunResponse:
        """End the active loop with 499; does nothing if no loop is active, or another one than `loop`; 0: any."""
        request = run_service_pb2.AbortRunRequest(project=project, run=run, loop=loop, request_id=request_id)
        return await self._peer.call(self._runs.AbortRun, request)

    async def run_to_end(
        self,
        task: QueuedLoop | Awaitable[QueuedLoop],
        on_proposal: OnProposal | None = None,
        on_event: OnEvent | None = None,
    ) -> Outcome:
        """Wait until a task, such as `client.act(...)`, has ended. There is no time limit; use `asyncio.timeout`.

        `on_proposal` decides on what the task proposes; without it, its proposals wait for somebody else. `on_event` is
        given every event of the run, such as the pieces of a reply. Both may be async.
        """
        queued = await value_of(task)
        view = RunView(queued.state)
        asked: dict[str, proposal_pb2.Proposal] = {}

        async def follow(event: Event) -> None:
            view.apply(event)
            if on_event is not None:
                await value_of(on_event(event))
            if on_proposal is None or view.run is None or view.run.loop.sequence != queued.sequence:
                return
            for path, proposal in list(view.proposals.items()):
                if asked.get(path) != proposal and not proposal.HasField("client_tool"):
                    asked[path] = proposal
                    decision: ProposalChoice = await value_of(on_proposal(proposal))
                    await self.decide(queued.project, queued.run, proposal, decision)

        loop = await self.wait_loop(queued.project, queued.run, queued.sequence, queued.cursor, follow)
        return Outcome(loop, view)

    async def wait_loop(
        self,
        project: str,
        run: str,
        sequence: int,
        after: EventCursor | None = None,
        on_event: Callable[[Event], Awaitable[None]] | None = None,
    ) -> loop_pb2.Loop:
        """Wait until a loop has ended, by its number in the run. For a task that was just queued see `run_to_end`."""
        async with contextlib.aclosing(self.watch(project, run, after)) as events:
            async for event in events:
                if on_event is not None:
                    await on_event(event)
                loop = loop_in(event)
                if loop is not None and loop.sequence == sequence and loop.status in LOOP_ENDED:
                    return loop
                # Later loops are told of while they are queued, too: this one is over once the run is at one of them.
                if max(event.run_state.run.loop.sequence, event.snapshot.run.loop.sequence) > sequence:
                    break
        return await self.get_loop(project, run, sequence)


def loop_in(event: Event) -> loop_pb2.Loop | None:
    """The loop that an event contains, or None."""
    match event.WhichOneof("event"):
        case "run_state":
            return event.run_state.loop
        case "snapshot" if event.snapshot.last and event.snapshot.run.HasField("loop"):
            return event.snapshot.run.loop
        case _:
            return None


def entries_in(event: Event) -> Sequence[entry_pb2.Entry]:
    """The entries that an event contains."""
    match event.WhichOneof("event"):
        case "message_added":
            return (event.message_added.entry,)
        case "message_updated":
            return (event.message_updated.entry,)
        case "snapshot":
            return event.snapshot.entries
        case _:
            return ()


async def pending_proposals(client: Client, project: str, run: str) -> Sequence[proposal_pb2.Proposal]:
    return [item.proposal async for item in client.list_proposals(project, run) if item.run == run]


def _task(
    project: str, prompt: str, edits: Sequence[PromptEdit] = (), model: str = "", **options: Any
) -> task_pb2.Task:
    task = task_pb2.Task(project=project, prompt=prompt, **options)
    if model:
        task.settings.model = model
    task.settings.edits.extend(map(edit_to_pb, edits))
    return task


def _queued(project: str, queued: task_pb2.QueuedTask) -> QueuedLoop:
    return QueuedLoop(project, queued.run.run, queued.loop.sequence, queued.cursor, queued.run)
