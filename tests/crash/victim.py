"""A store in a process of its own that can end itself at an exact point, as SIGKILL ends it.

Points are: `reply METHOD N` is after the Nth call of a method was carried out and before it is answered;
`statement PREFIX N` is before the Nth SQL statement that begins so, in the middle of its transaction. Counting begins
with SIGUSR1, so that whoever looks at what is there does not set it off.
"""

import asyncio
import itertools
import os
import signal
import sys

import grpc
from sqlalchemy import Engine, event

from turnwright_kit.logs import configure_logs
from turnwright_kit.server import RunningServer, serve_until_stopped
from turnwright_kit.settings import load
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build


class EndsAt:
    """Ends the process when it has been called so often since SIGUSR1; another signal may take the place of the end."""

    def __init__(self, number: int, how: signal.Signals = signal.SIGKILL) -> None:
        self._calls = itertools.count(1)
        self._number = number
        self._how = how
        self._counts = False
        signal.signal(signal.SIGUSR1, self.begin)

    def begin(self, _number: int = 0, _frame: object = None) -> None:
        """Count from now on."""
        self._counts = True

    def __call__(self) -> None:
        if self._counts and next(self._calls) == self._number:
            os.kill(os.getpid(), self._how)


class BeforeReply(grpc.aio.ServerInterceptor):
    """The outermost interceptor: what it does comes last before the answer is sent."""

    def __init__(self, method: str, end: EndsAt) -> None:
        self._method = method
        self._end = end

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if not details.method.endswith(f"/{self._method}"):
            return handler

        async def answered(request, context):
            response = await handler.unary_unary(request, context)
            self._end()
            return response

        return grpc.unary_unary_rpc_method_handler(answered, handler.request_deserializer, handler.response_serializer)


def before_statement(prefix: str, end: EndsAt) -> None:
    """Listen to every statement of every connection."""

    def executes(_connection, _cursor, statement, *_):
        if statement.startswith(prefix):
            end()

    event.listen(Engine, "before_cursor_execute", executes)


def observers(point: str) -> list[grpc.aio.ServerInterceptor]:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    if not point:
        return []
    kind, rest = point.split(" ", 1)
    name, number = rest.rsplit(" ", 1)
    if kind == "reply":
        return [BeforeReply(name, EndsAt(int(number)))]
    before_statement(name, EndsAt(int(number)))
    return []


def live(point: str) -> None:
    """Serve until the end."""
    # The runs have the revisions that the workers count: no chore adds any, however slow the machine is.
    settings = load(StoreSettings, fold_s=0.05, workspace_wait_s=3600.0, stream_grace_s=3600.0)
    configure_logs(settings.log_level)
    secret = settings.secret()
    seen_first = observers(point)
    asyncio.run(serve_until_stopped(RunningServer(build(settings, secret), settings.listen, secret, 1.0, seen_first)))


def main() -> None:
    """Live once for each line of standard input, which is the point of the end or empty.

    Each life is a fork of this process, which has imported everything and done nothing: only that is shared. Its
    process id and its exit status are told on standard output.
    """
    for line in sys.stdin:
        child = os.fork()
        if not child:
            live(line.strip())
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
