"""The client: one connection to an executor with every rpc of its contract, at the tier client."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack

import grpc
from google.protobuf.message import Message
from msgspec import Struct
from turnwright.executor.v1 import executor_service_pb2, executor_service_pb2_grpc, task_pb2
from turnwright.projects.v1 import project_service_pb2
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import (
    cursor_pb2,
    entry_pb2,
    loop_pb2,
    project_pb2,
    proposal_pb2,
    run_pb2,
    settings_pb2,
)
from turnwright_values.types import Tier

from turnwright_client.administration import AdministrationCalls
from turnwright_client.control import PLAN_FORMS, ControlCalls, PlanForm
from turnwright_client.grants import GrantCalls
from turnwright_client.queries import QueryCalls
from turnwright_client.sessions import SessionCalls
from turnwright_client.watch import InboxChange, Lost, Opened, WatchPolicy, watch_events, watch_inbox
from turnwright_core.chat.prompt_edits import PromptEdit
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.wire.prompt_edits import edit_to_pb
from turnwright_core.wire.resources import FOR_CLIENTS
from turnwright_core.wire.run_view import Event, RunView
from turnwright_kit.certificates import Tls
from turnwright_kit.errors import is_of_transport
from turnwright_kit.idempotency import may_be_repeated
from turnwright_kit.identity.caller import Caller
from turnwright_kit.in_process import LocalServers
from turnwright_kit.peer import Peer, Request, Response
from turnwright_kit.transport import PLAINTEXT

# Safe retries: calls with a request id, and calls that only read.
#
# A call that failed because of a proxy or a lost connection may or may not have been carried out. Retried with the same
# `request_id` it is carried out once, and the first answer is returned.

_EXECUTOR: Final = "turnwright.executor.v1.ExecutorService"

RETRIES_MAX: Final = 4
"""Retries of one call; the last one starts about two seconds after the first."""

PASSING: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})
"""Transient errors: the same call may succeed in a moment, or at once at another replica."""


class RetryingPeer(Peer):
    """The connection of a client to an executor."""

    def __init__(
        self,
        address: str,
        token: str,
        timeout_s: float,
        policy: WatchPolicy,
        tls: Tls = PLAINTEXT,
        local_servers: LocalServers | None = None,
    ) -> None:
        """Like a Peer with the tier client; pauses between retries follow the policy."""
        super().__init__("executor", address, token, timeout_s, Tier.CLIENT, local_servers, tls)
        self._policy = policy
        self._has_answered = False

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Request, Response],
        request: Request,
        timeout_s: float | None = None,
        caller: Caller | None = None,
    ) -> Response:
        """Call with retries, within one deadline for all attempts. Raises TurnwrightError."""
        end_s = time.monotonic() + (timeout_s or self.timeout_s)
        retries = min(self._policy.retries_max, RETRIES_MAX) if _make_idempotent(request) else 0
        failures = 0
        while True:
            left_s = end_s - time.monotonic()
            try:
                answer = await super().call(method, request, left_s, caller)
            except TurnwrightError as error:
                failures += 1
                pause_s = self._policy.pause_s(failures)
                is_passing = error.reason in PASSING or is_of_transport(error)
                if not is_passing or failures > retries or left_s <= pause_s or self._never_answered():
                    raise
            else:
                self._has_answered = True
                return answer
            await asyncio.sleep(pause_s)

    def _never_answered(self) -> bool:
        """Whether the address has never answered: then it is probably wrong, and waiting does not help."""
        failing = grpc.ChannelConnectivity.TRANSIENT_FAILURE
        return not self._has_answered and self.channel.get_state() is failing


def _make_idempotent(request: object) -> bool:
    """Whether a request is safe to retry; adds a request id if the message has one."""
    assert isinstance(request, Message)
    identified = getattr(request, "task", request)
    for name in ("request_id", "command_id"):
        if name in identified.DESCRIPTOR.fields_by_name:
            setattr(identified, name, getattr(identified, name) or secrets.token_hex(16))
            return True
    # The requests of other services stand beside them, in one file.
    service = next((one.full_name for one in request.DESCRIPTOR.file.services_by_name.values()), _EXECUTOR)
    return may_be_repeated(f"/{service}/{request.DESCRIPTOR.name.removesuffix('Request')}", request)


T = TypeVar("T")
EventCursor = cursor_pb2.EventCursor
PendingProposal = proposal_service_pb2.PendingProposal
OnEvent = Callable[[Event], Awaitable[object] | object]
OnProposal = Callable[[proposal_pb2.Proposal], Awaitable[bool | str] | bool | str]
"""Decides on a proposal: True accepts it, False rejects it and ends the loop.

A text answers a question; it rejects anything else, and the model reads it.
"""


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


class QueuedLoop(Struct, frozen=True):
    """A task in a run's queue: the loop, and the cursor after which to watch the run."""

    project: str
    run: str
    sequence: int
    cursor: EventCursor
    state: run_pb2.Run
    """The run as it was when the task was queued."""


class Client(AdministrationCalls, ControlCalls, GrantCalls, QueryCalls, SessionCalls):
    """A client of an executor.

    Every method raises TurnwrightError; unary calls end within the timeout given at connect.

    Calls that fail because of a lost connection or a proxy are retried if that is safe: see `retrying`.
    """

    _proposals: proposal_service_pb2_grpc.ProposalServiceAsyncStub

    def __init__(self, peer: Peer, policy: WatchPolicy) -> None:
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
        local_servers: LocalServers | None = None,
    ) -> AsyncGenerator[Client, None]:
        """A client for the duration of the block. Nothing is sent before the first call.

        Without certificates it speaks plaintext, to an executor on this host only. `local_servers`: executors in this
        process, by address.
        """
        policy = policy or WatchPolicy()
        peer = RetryingPeer(address, token, timeout_s, policy, tls, local_servers)
        try:
            yield cls(peer, policy)
        finally:
            await peer.close()

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
    ) -> project_pb2.Project:
        """Register a directory on the executor's host; safe to repeat. An empty name is derived from the root.

        `config_path` is the client's own configuration file for the project, `assembly` how its runs are sent to
        their models by default; None: unchanged. `force`: also a folder of the system or a home.
        """
        request = project_service_pb2.InitProjectRequest(
            root=root, name=name, config_path=config_path, assembly=assembly, force=force
        )
        return (await self._peer.call(self._projects.InitProject, request)).project

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

    async def resolve(
        self,
        project: str,
        run: str,
        path: str,
        *,
        accept: bool,
        comment: str = "",
        contents: Mapping[str, str] | None = None,
        answer: str = "",
        client_runs: bool = False,
        request_id: str = "",
    ) -> proposal_service_pb2.ResolveProposalResponse:
        """Decide on a proposal. A rejection without a comment ends the loop; with a comment the model reads it.

        An acceptance may replace the proposed `contents`, by path, with a `comment` why, or carry the `answer` to a
        question. With `client_runs` the caller runs the proposed command itself and fills its channels (append_stream,
        end_stream). If somebody else was faster, raises NOT_PROPOSED with what was decided and by
        whom.
        """
        request = proposal_service_pb2.ResolveProposalRequest(
            project=project, run=run, path=path, request_id=request_id
        )
        if accept:
            request.accept.answer, request.accept.client_runs = answer, client_runs
            request.accept.comment = comment
            for edited, text in (contents or {}).items():
                request.accept.contents.add(path=edited, content=text)
            request.accept.SetInParent()
        else:
            request.reject.comment = comment
            request.reject.SetInParent()
        return await self._peer.call(self._proposals.ResolveProposal, request)

    async def get_proposal(self, project: str, run: str, path: str) -> proposal_service_pb2.GetProposalResponse:
        """A proposal with everything that it would write. Raises NOT_PROPOSED if it does not wait for a decision."""
        request = proposal_service_pb2.GetProposalRequest(project=project, run=run, path=path)
        return await self._peer.call(self._proposals.GetProposal, request)

    def list_proposals(self, project: str = "", run: str = "") -> AsyncIterator[PendingProposal]:
        """Proposals that wait for a decision, in a run, in a project or in all; the longest waiting first."""
        request = proposal_service_pb2.ListProposalsRequest(project=project, run=run)
        return self._peer.items(self._proposals.ListProposals, request, lambda page: page.proposals)

    def watch_proposals(self, project: str = "") -> AsyncGenerator[InboxChange, None]:
        """Stream the proposals that wait for a decision, then changes. Reconnects by itself.

        After a reconnect all waiting proposals are sent again, up to the message with `complete`: those missing by then
        have been decided. If you stop before it ends, close it (`contextlib.aclosing`).
        """
        request = proposal_service_pb2.WatchProposalsRequest(project=project)
        return watch_inbox(partial(self._peer.stream, self._proposals.WatchProposals, request, None), self._policy)

    async def abort(
        self, project: str, run: str, request_id: str = "", *, loop: int = 0
    ) -> run_service_pb2.AbortRunResponse:
        """End the active loop with 499; does nothing if no loop is active, or another one than `loop`; 0: any."""
        request = run_service_pb2.AbortRunRequest(project=project, run=run, loop=loop, request_id=request_id)
        return await self._peer.call(self._runs.AbortRun, request)

    async def run_to_end(
        self, queued: QueuedLoop, on_proposal: OnProposal | None = None, on_event: OnEvent | None = None
    ) -> loop_pb2.Loop:
        """Wait until a task's loop has ended, and return the loop. There is no time limit; use `asyncio.timeout`.

        `on_proposal` decides on what the task proposes; without it, its proposals wait for somebody else. `on_event` is
        given every event of the run, such as the pieces of a reply. Both may be async.
        """
        view = RunView(queued.state)
        asked: dict[str, proposal_pb2.Proposal] = {}

        async def follow(event: Event) -> None:
            view.apply(event)
            if on_event is not None:
                await _value(on_event(event))
            if on_proposal is None or view.run is None or view.run.loop.sequence != queued.sequence:
                return
            for path, proposal in list(view.proposals.items()):
                if asked.get(path) != proposal and not proposal.HasField("client_tool"):
                    asked[path] = proposal
                    await self._decide(queued, proposal, await _value(on_proposal(proposal)))

        return await self.wait_loop(queued.project, queued.run, queued.sequence, queued.cursor, follow)

    async def _decide(self, queued: QueuedLoop, proposal: proposal_pb2.Proposal, decision: bool | str) -> None:
        """Resolve a proposal as `OnProposal` says, unless somebody else was faster."""
        is_answer = isinstance(decision, str) and proposal.HasField("question")
        words = decision if isinstance(decision, str) else ""
        try:
            await self.resolve(
                queued.project,
                queued.run,
                proposal.path,
                accept=is_answer or decision is True,
                comment="" if is_answer else words,
                answer=words if is_answer else "",
            )
        except TurnwrightError as error:
            if error.reason is not Reason.NOT_PROPOSED:
                raise

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


async def _value(found: Awaitable[T] | T) -> T:
    """What a function gave that may be async."""
    return await found if inspect.isawaitable(found) else found


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
    return [item.proposal async for item in client.list_proposals(project, run)]


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
