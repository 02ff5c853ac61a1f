"""The client without async: the same methods, each of which waits for its answer.

Behind them is one `Client` in an event loop of its own, in a thread of its own. Functions that are given to it are
called in the thread that waits, so that they may call the client, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from functools import wraps
from queue import SimpleQueue
from typing import Any, Concatenate, Final, Generic, ParamSpec, Self, TypeVar

from turnwright.types.v1 import proposal_pb2

from turnwright_client.client import Client, Outcome, QueuedLoop
from turnwright_client.proposals import ProposalChoice
from turnwright_client.watch import WatchPolicy
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.transport import PLAINTEXT
from turnwright_core.wire.run_view import Event

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


class _LoopThread:
    """An event loop in a thread, for as long as the block lasts."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        # A program that forgets to close its client can end nevertheless.
        self._thread = threading.Thread(target=self._run, name="turnwright-client", daemon=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop().run_forever()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("A SyncClient cannot be used in its own event loop: use the async Client there.")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives. Whoever stops waiting, for instance by Ctrl-C, ends it."""
        running = self.start(work)
        try:
            return running.result()
        finally:
            running.cancel()


def _answering(
    method: Callable[Concatenate[Client, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient, P], T]:
    @wraps(method)
    def wait(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.wait(method(self._client, *args, **kwargs))

    return wait


def _iterating(
    method: Callable[Concatenate[Client, P], AsyncIterator[T]],
) -> Callable[Concatenate[SyncClient, P], Generator[T]]:
    @wraps(method)
    def iterate(self: SyncClient, /, *args: P.args, **kwargs: P.kwargs) -> Generator[T]:
        items = _Items(method(self._client, *args, **kwargs))
        try:
            while (item := self._thread.wait(items.next())) is not _END:
                yield item
        finally:
            self._thread.wait(items.close())

    return iterate


_END: Final[Any] = object()


class _Items(Generic[T]):
    """What an asynchronous iterator gives, one at a time, also if somebody has stopped to wait for one."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._turn = asyncio.Lock()

    async def next(self) -> T:
        async with self._turn:
            return await anext(self._items, _END)

    async def close(self) -> None:
        async with self._turn:
            if isinstance(self._items, AsyncGenerator):
                await self._items.aclose()


class SyncClient:
    """A client of an executor, for programs without async. See `Client` for what each method does.

    Iterators, such as that of `watch`, end when they are closed or forgotten. It may be used by several threads.
    """

    def __init__(self, client: Client, thread: _LoopThread) -> None:
        self._client, self._thread = client, thread

    @classmethod
    @contextlib.contextmanager
    def connect(
        cls,
        address: str,
        token: str,
        timeout_s: float = 30.0,
        policy: WatchPolicy | None = None,
        tls: Tls = PLAINTEXT,
    ) -> Iterator[Self]:
        """A client for the duration of the block. Nothing is sent before the first call."""
        with _LoopThread() as thread:
            entered = contextlib.AsyncExitStack()
            client = thread.wait(entered.enter_async_context(Client.connect(address, token, timeout_s, policy, tls)))
            try:
                yield cls(client, thread)
            finally:
                thread.wait(entered.aclose())

    @property
    def address(self) -> str:
        return self._client.address

    def as_caller(self, token: str) -> Self:
        """A client for somebody else's calls, on this connection. Raises UNAUTHENTICATED: no such token."""
        return type(self)(self._client.as_caller(token), self._thread)

    def run_to_end(
        self,
        task: QueuedLoop,
        on_proposal: Callable[[proposal_pb2.Proposal], ProposalChoice] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> Outcome:
        """Wait until a task, such as `client.act(...)`, has ended; the functions are called by the thread that waits.

        `on_proposal` decides on what the task proposes; without it, its proposals wait for somebody else. `on_event` is
        given every event of the run, such as the pieces of a reply.
        """
        asked: SimpleQueue[Callable[[], object] | None] = SimpleQueue()

        def here(function: Callable[[V], T] | None) -> Callable[[V], Awaitable[T]] | None:
            """The function, called where this waits."""
            if function is None:
                return None
            called = function

            async def ask(value: V) -> T:
                answer: Future[T] = Future()
                asked.put(lambda: answer.set_result(called(value)))
                return await asyncio.wrap_future(answer)

            return ask

        running = self._thread.start(self._client.run_to_end(task, here(on_proposal), here(on_event)))
        running.add_done_callback(lambda _: asked.put(None))
        try:
            while (call := asked.get()) is not None:
                call()
            return running.result()
        finally:
            running.cancel()

    init_project = _answering(Client.init_project)
    ask = _answering(Client.ask)
    act = _answering(Client.act)
    watch = _iterating(Client.watch)
    abort = _answering(Client.abort)
    wait_loop = _answering(Client.wait_loop)
    decide = _answering(Client.decide)
    resolve = _answering(Client.resolve)
    get_proposal = _answering(Client.get_proposal)
    list_proposals = _iterating(Client.list_proposals)
    watch_proposals = _iterating(Client.watch_proposals)
    find_project = _answering(Client.find_project)
    list_projects = _iterating(Client.list_projects)
    list_tools = _answering(Client.list_tools)
    list_tool_servers = _answering(Client.list_tool_servers)
    add_tool_server = _answering(Client.add_tool_server)
    remove_tool_server = _answering(Client.remove_tool_server)
    begin_tool_login = _answering(Client.begin_tool_login)
    complete_tool_login = _answering(Client.complete_tool_login)
    end_tool_login = _answering(Client.end_tool_login)
    get_run = _answering(Client.get_run)
    get_loop = _answering(Client.get_loop)
    list_runs = _iterating(Client.list_runs)
    list_messages = _iterating(Client.list_messages)
    list_turns = _iterating(Client.list_turns)
    read_packet = _answering(Client.read_packet)
    explain_packet = _answering(Client.explain_packet)
    preview_packet = _answering(Client.preview_packet)
    list_models = _answering(Client.list_models)
    get_entry = _answering(Client.get_entry)
    list_entries = _iterating(Client.list_entries)
    get_status = _answering(Client.get_status)
    create_run = _answering(Client.create_run)
    fork_run = _answering(Client.fork_run)
    rename_run = _answering(Client.rename_run)
    delete_run = _answering(Client.delete_run)
    configure_run = _answering(Client.configure_run)
    export_run = _iterating(Client.export_run)
    import_run = _answering(Client.import_run)
    inject_message = _answering(Client.inject_message)
    call_tool = _answering(Client.call_tool)
    set_model = _answering(Client.set_model)
    delete_model = _answering(Client.delete_model)
    set_file_constraints = _answering(Client.set_file_constraints)
    list_file_constraints = _answering(Client.list_file_constraints)
    notify = _answering(Client.notify)
    discover = _answering(Client.discover)
    watch_runs = _iterating(Client.watch_runs)
    set_plan = _answering(Client.set_plan)
    update_plan = _answering(Client.update_plan)
    delete_plan = _answering(Client.delete_plan)
    get_plan = _answering(Client.get_plan)
    list_plans = _iterating(Client.list_plans)
    watch_plans = _iterating(Client.watch_plans)
    open_stream = _answering(Client.open_stream)
    append_stream = _answering(Client.append_stream)
    end_stream = _answering(Client.end_stream)
    submit = _answering(Client.submit)
    list_commands = _answering(Client.list_commands)
    cancel_command = _answering(Client.cancel_command)
    set_schedule = _answering(Client.set_schedule)
    delete_schedule = _answering(Client.delete_schedule)
    pause_schedule = _answering(Client.pause_schedule)
    resume_schedule = _answering(Client.resume_schedule)
    list_schedules = _answering(Client.list_schedules)
    set_rule = _answering(Client.set_rule)
    delete_rule = _answering(Client.delete_rule)
    list_rules = _answering(Client.list_rules)
    test_rules = _answering(Client.test_rules)
    set_grant = _answering(Client.set_grant)
    delete_grant = _answering(Client.delete_grant)
    list_grants = _iterating(Client.list_grants)
    identity = _answering(Client.identity)
    create_token = _answering(Client.create_token)
    list_tokens = _iterating(Client.list_tokens)
    revoke_token = _answering(Client.revoke_token)
    list_audit = _answering(Client.list_audit)
    set_quota = _answering(Client.set_quota)
    delete_quota = _answering(Client.delete_quota)
    list_quotas = _answering(Client.list_quotas)
    set_webhook = _answering(Client.set_webhook)
    delete_webhook = _answering(Client.delete_webhook)
    list_webhooks = _answering(Client.list_webhooks)
    list_deliveries = _answering(Client.list_deliveries)
    retry_delivery = _answering(Client.retry_delivery)
