"""The canonical line of an rpc: one line when it has ended, with what somebody who looks for it would search by.

`rpc_ended` has method, code, seconds, principal, request id, and the run that the request names; of an error its
reason. What a message holds beside these is not logged. Calls that failed or were slow are logged at `info`, all
others at `debug`: a turn makes dozens of them. What a handler logs meanwhile says the same ids.
"""

from __future__ import annotations

import time
from typing import Any, Final

import grpc

from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.errors import code_of
from turnwright_core.kit.logs import DEBUG, INFO, get_logger, is_logged
from turnwright_core.kit.scope import CallScope

SLOW_S: Final = 1.0
"""Seconds from which on a call counts as slow. Streams never do: they last as long as somebody reads them."""

ID_CHARS_MAX: Final = 200
"""Longest id that is logged: a request has not been checked when its call begins."""

_log = get_logger("rpc")


class CallLine:
    """How one call goes. Until something else is said, its caller has left it."""

    __slots__ = ("_began_s", "_code", "_method", "_reason", "_scope")

    def __init__(self, method: str, scope: CallScope) -> None:
        """The call of a method begins."""
        self._method = method
        self._scope = scope
        self._began_s = time.monotonic()
        self._code = "CANCELLED"
        self._reason = ""

    def admitted(self, principal: str, request: Any) -> None:
        """It is known who calls, and for what."""
        bound, task = self._scope.bound, getattr(request, "task", request)
        if principal:
            bound["principal"] = principal
        for name in ("run", "request_id"):
            if found := _id(task, name):
                bound[name] = found

    def answered(self) -> None:
        """It has ended well."""
        self._code = "OK"

    def failed(self, error: TurnwrightError) -> TurnwrightError:
        """It ends with this error; the same."""
        self._code, self._reason = code_of(error).name, error.reason.name
        return error

    def ended(self, context: grpc.aio.ServicerContext[Any, Any], *, is_stream: bool) -> None:
        """Write the line, if it is to be written."""
        seconds = time.monotonic() - self._began_s
        if self._code == "CANCELLED" and context.time_remaining() == 0:
            self._code = "DEADLINE_EXCEEDED"
        is_told = self._code not in ("OK", "CANCELLED") or (seconds >= SLOW_S and not is_stream)
        if not is_logged(level := INFO if is_told else DEBUG):
            return
        reason = {"reason": self._reason} if self._reason else {}
        values = {"method": self._method.lstrip("/"), "code": self._code, "seconds": round(seconds, 6), **reason}
        _log.say(level, "rpc_ended", self._scope.bound | values)


def _id(message: Any, name: str) -> str:
    value = getattr(message, name, "")
    return value[:ID_CHARS_MAX] if isinstance(value, str) else ""
