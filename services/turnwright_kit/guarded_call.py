"""What stands around each call of a server: its task and scope, its span and log line, and the status it ends with.

`rpc_ended` is its canonical log line, with method, code, seconds, principal, request id, the project and the run that
the request names, and the reason of an error. Nothing else of a message is logged. Calls that failed, were slow or
changed something for somebody are logged at `info`, all others at `debug`: a turn makes dozens of them. Other lines
logged during the call carry the same ids. What was refused is counted, too (kit/refusals).
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final, Self

import grpc

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.access import is_change, is_owners
from turnwright_kit.errors import abort, code_of, translate
from turnwright_kit.identity.caller import Caller, Kind, current_caller
from turnwright_kit.logs import DEBUG, INFO, get_logger, is_logged
from turnwright_kit.refusals import Refusals
from turnwright_kit.scope import Metadata, enter_scope
from turnwright_kit.telemetry import call_begun, call_ended

SLOW_S: Final = 1.0
"""Seconds from which a call counts as slow. Streams never do: they last as long as somebody reads them."""

ID_CHARS_MAX: Final = 200
"""Maximum length of a logged id: it is logged before the request has been validated."""

_log = get_logger("rpc")


class CallsInProgress:
    """The calls in progress on a server, and those that it has refused."""

    def __init__(self, refusals: Refusals | None = None) -> None:
        self.refusals = refusals or Refusals()
        self._tasks: dict[asyncio.Task[object], bool] = {}
        """Each with whether its call returns a stream."""
        self._ended: set[asyncio.Task[object]] = set()

    def begins(self, task: asyncio.Task[object], *, is_stream: bool) -> None:
        self._tasks[task] = is_stream

    def ends(self, task: asyncio.Task[object]) -> None:
        del self._tasks[task]
        self._ended.discard(task)

    async def streams_ended(self, within_s: float) -> None:
        """Wait so long, or until the calls in progress that return streams have ended."""
        if streams := [task for task, is_stream in self._tasks.items() if is_stream]:
            await asyncio.wait(streams, timeout=within_s)

    async def ended(self, within_s: float) -> None:
        """Wait so long for the calls in progress, then cancel them. No more may come."""
        # Those that have just come begin.
        await asyncio.sleep(0)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def end(self) -> None:
        """End all calls; each gets the error that the service is shutting down."""
        self._ended |= self._tasks.keys()
        for task in self._tasks:
            task.cancel()

    def reason(self, task: asyncio.Task[object]) -> TurnwrightError | None:
        """The error of a call that was ended here; None if the client has cancelled it."""
        if task not in self._ended:
            return None
        task.uncancel()
        return fault(Reason.DRAINING, "The service is shutting down, and this call was not done: retry.")


class GuardedCall:
    """One call; enter it around its handler."""

    __slots__ = (
        "_began_s", "_caller", "_calls", "_context", "_is_change", "_is_stream", "_method", "_scope", "_span", "_task"
    )  # fmt: skip

    def __init__(
        self, calls: CallsInProgress, method: str, context: Any, metadata: Metadata, *, is_stream: bool
    ) -> None:
        task = asyncio.current_task()
        assert task, "handlers run in tasks"
        self._calls, self._method, self._context, self._is_stream, self._task = calls, method, context, is_stream, task
        self._scope = enter_scope(metadata, None if is_stream else context.time_remaining())
        self._caller: Caller | None = None
        self._is_change = False
        self._began_s = time.monotonic()
        self._span = call_begun(method, self._scope)
        calls.begins(task, is_stream=is_stream)

    def admitted(self, principal: str, request: Any) -> None:
        """Have lines of the log name the caller and the subject of the call."""
        bound, task = self._scope.bound, getattr(request, "task", request)
        if principal:
            bound["principal"] = principal
            self._caller = current_caller()
        # The service that was called first has told of a call that another one passes on.
        if self._caller and not self._caller.by and self._caller.kind is not Kind.SERVICE:
            self._is_change = is_change(self._method) and not is_owners(request)
        for name in ("project", "run", "request_id"):
            found = getattr(task, name, "")
            if found and isinstance(found, str):
                bound[name] = found[:ID_CHARS_MAX]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        code, failure = "OK" if error is None else "CANCELLED", None
        if isinstance(error, asyncio.CancelledError):
            failure = self._calls.reason(self._task)
        elif isinstance(error, Exception) and not isinstance(error, grpc.aio.AbortError):
            failure = translate(error, self._method)
        try:
            if failure:
                code = code_of(failure).name
                name, project = self._method.rpartition("/")[2], str(self._scope.bound.get("project", ""))
                self._calls.refusals.add(self._caller, self._context.peer(), name, project, failure.reason)
                await abort(self._context, failure)
        finally:
            self._calls.ends(self._task)
            self._ended(code, failure.reason.name if failure else "")
            self._scope.end()

    def _ended(self, code: str, reason: str) -> None:
        """Write the line, if its level is logged."""
        seconds = time.monotonic() - self._began_s
        if code == "CANCELLED" and self._context.time_remaining() == 0:
            code = "DEADLINE_EXCEEDED"
        call_ended(self._span, self._method, code, seconds)
        is_notable = code not in ("OK", "CANCELLED") or self._is_change or (seconds >= SLOW_S and not self._is_stream)
        if not is_logged(level := INFO if is_notable else DEBUG):
            return
        values = {"method": self._method.lstrip("/"), "code": code, "seconds": round(seconds, 6)}
        _log.say(level, "rpc_ended", self._scope.bound | values | ({"reason": reason} if reason else {}))
