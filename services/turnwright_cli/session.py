"""A command's connection: to the given server, to the home's live stack, or to a stack embedded in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from turnwright.executor.v1 import query_pb2
from turnwright.store.v1 import lease_pb2, store_service_pb2_grpc
from turnwright.types.v1 import project_pb2

from turnwright_cli.discovery import locate, read_record
from turnwright_cli.exit_codes import FAILED, FailureError
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.invocation import TABLES, CliSettings, Invocation
from turnwright_cli.output import complain, enum_word
from turnwright_cli.plain import safe_line
from turnwright_cli.stack import Stack, StackPlan, embedded_plan, reading_plan, setting_fields, settings_class
from turnwright_client import Client, WatchPolicy
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.rpc.remote_service import CHANNEL_OPTIONS
from turnwright_core.rpc.transport import open_channel
from turnwright_core.suggestions import did_you_mean
from turnwright_kit.home import ensure_home
from turnwright_kit.in_process import LocalChannel
from turnwright_kit.logs import configure_logs, get_logger
from turnwright_kit.peer import Peer
from turnwright_kit.settings import PREFIX, Settings, load
from turnwright_kit.settings_report import settings_in_force

if TYPE_CHECKING:
    import grpc

JOINED_RETRIES_MAX = 1
"""Reconnects to a stack embedded in another command:

when that command ends, we start our own. One is enough for a short interruption, because each waits for the connection
to come back.
"""
JOIN_POLL_S = 0.2
"""Seconds between attempts to open the database or to find out who has it."""
JOIN_WAIT_S = 10.0
"""Seconds to wait for a stack that has the database but does not answer yet."""
IDLE_POLL_S = 0.5
"""Seconds between checks whether an embedded stack used by other commands is idle."""
STOP_S = 60.0
"""Seconds that an embedded stack may take to stop once the command's work is done; everything is stored by then."""
LOG_FILE = "turnwright.log"

_log = get_logger("cli")


class Session(Struct, frozen=True):
    """A connected client. `joined`: the stack belongs to another command and may end with it.

    `attached`: the stack was already running for this command's home, so the settings of both can be compared.
    """

    client: Client
    joined: bool = False
    attached: bool = False
    named: bool = False
    """Whether the command named the executor, which may be anywhere."""


def secret_of(settings: Settings) -> str:
    try:
        return settings.secret()
    except ValueError as error:
        raise FailureError(FAILED, f"{error}.") from None


@contextlib.asynccontextmanager
async def open_session(
    settings: CliSettings, reads: Collection[str] | None = None, *, stays: bool = True
) -> AsyncGenerator[Session, None]:
    """A session for the duration of the block.

    An embedded stack is stopped after it, or if it `stays`, once other commands no longer use it.

    `reads`: the command only reads, and needs these services beside the store and the executor. Raises FailureError.
    """
    secret_of(settings)
    # What only reads has nothing to tell but what fails: the first line of a log costs a fifth of its time.
    level = settings.log_level if reads is None else "warning"
    configure_logs(level, ensure_home(settings.home) / LOG_FILE)
    address = await locate(settings.home, settings.server, tls=settings.tls)
    if address is None:
        plan = embedded_plan(settings.home) if reads is None else reading_plan(settings.home, reads)
        stack, address = await _embed_or_join(settings, plan)
    else:
        stack = None
    own = stack if reads is None else None
    async with contextlib.AsyncExitStack() as leaving:
        if stack is not None:
            leaving.push_async_callback(_stop, stack)
        if own is not None and stays:
            await leaving.enter_async_context(_until_idle(own.addresses["store"], settings))
        record = read_record(settings.home)
        # A stack of another command may end with it; a server is waited for, not replaced.
        is_embedded = record is not None and record.embedded and record.executor == address
        joined = stack is None and not settings.server and is_embedded
        # What only reads is called within this process: it listens nowhere.
        local = LocalChannel(stack.local_servers[address]) if stack is not None and own is None else None
        policy = WatchPolicy(retries_max=JOINED_RETRIES_MAX) if joined else WatchPolicy()
        # Opened here for its refusal of plaintext, which names settings; that of the library names its arguments.
        channel = cast("grpc.aio.Channel | None", local) or open_channel(address, CHANNEL_OPTIONS, settings.tls)
        given = settings.secret(), settings.rpc_timeout_s, policy
        async with _CopyAnnouncer.connect(address, *given, channel=channel) as client:
            yield Session(client, joined, attached=stack is None and not settings.server, named=bool(settings.server))


@contextlib.asynccontextmanager
async def open_project(
    call: Invocation, *services: str, reads: bool = False
) -> AsyncGenerator[tuple[Client, str], None]:
    """A session's client, and the name of the command's project, which is registered.

    A command that only `reads` registers nothing, so the name may be empty; it needs `services` beside the store and
    the executor.
    """
    async with open_session(call.settings, reads=services if reads else None) as session:
        find = session.client.find_project if reads else session.client.init_project
        project = await find(call.root)
        yield session.client, project.name if project else ""


@contextlib.asynccontextmanager
async def open_scope(
    call: Invocation, *, deployment: bool, reads: bool = False
) -> AsyncGenerator[tuple[Client, str], None]:
    """A session's client, and the name of the command's project, or nothing for the deployment.

    Of the deployment no project is registered, so any service that has the call answers it.
    """
    if not deployment:
        async with open_project(call, reads=reads) as found:
            yield found
        return
    async with open_session(call.settings, reads=() if reads else None) as session:
        yield session.client, ""


async def _stop(stack: Stack) -> None:
    if not await in_time(stack.stop(), STOP_S):
        _log.error("stack_abandoned", tasks=sorted(task.get_name() for task in asyncio.all_tasks()))


async def in_time(work: Coroutine[None, None, None], seconds: float) -> bool:
    """Run work with a time limit; returns whether it finished. Raises what it raises.

    Work that is late is cancelled and abandoned, because waiting for its cancellation may take forever.
    """
    task = asyncio.create_task(work, name="leaving")
    try:
        await asyncio.wait((task,), timeout=seconds)
    finally:
        task.cancel()
    if not task.done():
        return False
    task.result()
    return True


class _CopyAnnouncer(Client):
    """A client that also reports when a project turns out to be a copy."""

    async def init_project(self, *args: Any, **kwargs: Any) -> project_pb2.Project:
        project = await super().init_project(*args, **kwargs)
        if project.copied_from:
            complain(
                f"{project.root} is a copy of {project.copied_from}: from now on it is a separate project "
                f"({project.name}), without the runs of the original."
            )
        return project


async def _embed_or_join(settings: CliSettings, plan: StackPlan) -> tuple[Stack | None, str]:
    """Start a stack, or join the one that was faster.

    Between opening the database and answering the first call, a stack can be neither replaced nor found; this waits
    until that is over.
    """
    from turnwright_store.edge.lock import DatabaseInUseError

    clock = asyncio.get_running_loop().time
    deadline = clock() + JOIN_WAIT_S
    while True:
        stack = Stack(plan)
        try:
            await stack.start()
            return stack, stack.addresses["executor"]
        except DatabaseInUseError as error:
            reason = str(error)
        if address := await locate(settings.home, tls=settings.tls):
            return None, address
        if clock() >= deadline:
            raise FailureError(
                FAILED,
                f"{reason}\nThe process that holds it has not answered as an executor for {JOIN_WAIT_S:g} s. If it "
                "only runs a store, name the executor with --server; otherwise stop that process, or set another "
                "TURNWRIGHT_HOME.",
            )
        await asyncio.sleep(JOIN_POLL_S)


@contextlib.asynccontextmanager
async def _until_idle(address: str, settings: CliSettings) -> AsyncGenerator[None, None]:
    """After the block, serve other commands that have joined our stack until their loops end; Ctrl-C exits.

    Loops that existed before do not count: they may wait for something that never happens here.
    """
    peer = Peer("store", address, settings.secret(), settings.rpc_timeout_s, tls=settings.tls)
    stub: store_service_pb2_grpc.StoreServiceAsyncStub = store_service_pb2_grpc.StoreServiceStub(peer.channel)

    async def work() -> set[tuple[str, str, int]]:
        """The queued or running loops."""
        answer = await peer.call(stub.ListWork, lease_pb2.ListWorkRequest(page_size=PAGE_SIZE_MAX, with_held=True))
        return {(run.project, run.run, run.loop.sequence) for run in answer.runs}

    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(peer.close)
        found = await work()
        yield
        is_announced = False
        with Interrupts().entered() as interrupts:
            while not interrupts.asked.is_set() and (theirs := await work() - found):
                if not is_announced:
                    names = ", ".join(sorted(run for _, run, _ in theirs))
                    complain(f"still at work on other tasks ({names}); Ctrl-C leaves.")
                    is_announced = True
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(interrupts.asked.wait(), IDLE_POLL_S)


_OF_PLACES: Final = frozenset(
    f"TURNWRIGHT_{name}"
    for name in (*("HOME", "TOKEN", "LISTEN", "DB", "STORE", "ASSEMBLER", "PROVIDER", "ADVERTISE"), "LOG_LEVEL")
)
"""Variables with addresses of services; a stack always differs from a terminal in them."""
_OF_MODELS: Final = (TABLES["models"], TABLES["context"])
"""Models that are known to the services but not set here do no harm."""


async def announce(session: Session) -> None:
    """Report on standard error which variables nothing reads, that services were joined, and which settings differ."""
    # Settings of services are for those that run them.
    for sentence in () if session.named else unknown_variables(os.environ):
        complain(sentence)
    if not session.attached:
        return
    try:
        ignored, _ = differing_variables(await session.client.get_status())
    except TurnwrightError:
        # If something is wrong, the command itself will report it.
        return
    if session.joined:
        complain("using the services that another command has started, with its settings")
    if ignored:
        complain(f"the running services use other values than this terminal for: {', '.join(ignored)}")


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Sentences on variables that look like settings but are not, so nothing reads them."""
    names = sorted(one for one in environment if one.startswith(PREFIX))
    if not names:
        return []
    known = setting_fields(CliSettings)
    return [
        f"no setting is called {safe_line(name)}{did_you_mean(name, known, 0.8)}"
        for name in names
        if name not in known and not name.startswith(tuple(TABLES.values()))
    ]


def service_word(service: query_pb2.ServiceStatus) -> str:
    return enum_word(query_pb2.ServiceName.DESCRIPTOR, service.name)


def differing_variables(status: query_pb2.GetStatusResponse) -> tuple[list[str], list[str]]:
    """Variables that are set here, and which the running services have otherwise; and those that only these have.

    Both are empty if the services report none.
    """
    there = {(service_word(one), each.variable): each.digest for one in status.services for each in one.settings}
    if not there:
        return [], []
    serving = {service_word(service) for service in status.services if service.serving}
    here = {
        (name, one.variable): one.digest for name in serving for one in settings_in_force(load(settings_class(name)))
    }
    wrong = {key for key in here.keys() | there.keys() if here.get(key) != there.get(key)}
    ignored = {name for service, name in wrong if (service, name) in here} - _OF_PLACES
    theirs = {name for _, name in wrong if not name.startswith(_OF_MODELS)} - _OF_PLACES - ignored
    return sorted(map(safe_line, ignored)), sorted(map(safe_line, theirs))
