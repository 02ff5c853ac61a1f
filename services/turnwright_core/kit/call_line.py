"""The canonical log line of an rpc, and its span: one line when it has ended, with the fields that one would search by.

`rpc_ended` has method, code, seconds, principal, request id, the run that the request names, and the reason of an
error. Nothing else of a message is logged. Calls that failed or were slow are logged at `info`, all others at `debug`:
a turn makes dozens of them. Other lines logged during the call carry the same ids.
"""

from __future__ import annotations

import time
from typing import Any, Final

import grpc

from turnwright_core.errors import TurnwrightError
from turnwright_core.kit.errors import code_of
from turnwright_core.kit.logs import DEBUG, INFO, get_logger, is_logged
from turnwright_core.kit.scope import CallScope
from turnwright_core.kit.telemetry import call_begun, call_ended

SLOW_S: Final = 1.0
"""Seconds from which a call counts as slow. Streams never do: they last as long as somebody reads them."""

ID_CHARS_MAX: Final = 200
"""Maximum length of a logged id: it is logged before the request has been validated."""

_log = get_logger("rpc")


class CallLine:
    """The state of one call. Until it is set otherwise, the client has cancelled it."""

    __slots__ = ("_began_s", "_code", "_method", "_reason", "_scope", "_span")

    def __init__(self, method: str, scope: CallScope) -> None:
        self._method = method
        self._scope = scope
        self._began_s = time.monotonic()
        self._code = "CANCELLED"
        self._reason = ""
        self._span = call_begun(method, scope)

    def admitted(self, principal: str, request: Any) -> None:
        bound, task = self._scope.bound, getattr(request, "task", request)
        if principal:
            bound["principal"] = principal
        for name in ("run", "request_id"):
            if found := _id(task, name):
                bound[name] = found

    def answered(self) -> None:
        self._code = "OK"

    def failed(self, error: TurnwrightError) -> TurnwrightError:
        """The call failed with this error, which is returned."""
        self._code, self._reason = code_of(error).name, error.reason.name
        return error

    def ended(self, context: grpc.aio.ServicerContext[Any, Any], *, is_stream: bool) -> None:
        """Write the line, if its level is logged."""
        seconds = time.monotonic() - self._began_s
        if self._code == "CANCELLED" and context.time_remaining() == 0:
            self._code = "DEADLINE_EXCEEDED"
        call_ended(self._span, self._method, self._code, seconds)
        is_notable = self._code not in ("OK", "CANCELLED") or (seconds >= SLOW_S and not is_stream)
        if not is_logged(level := INFO if is_notable else DEBUG):
            return
        reason = {"reason": self._reason} if self._reason else {}
        values = {"method": self._method.lstrip("/"), "code": self._code, "seconds": round(seconds, 6), **reason}
        _log.say(level, "rpc_ended", self._scope.bound | values)


def _id(message: Any, name: str) -> str:
    value = getattr(message, name, "")
    return value[:ID_CHARS_MAX] if isinstance(value, str) else ""
