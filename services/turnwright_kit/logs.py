"""Structured logs: key-values on a terminal, JSON everywhere else. Secrets are redacted by key.

structlog is imported with the first line: most commands log nothing, and its import is a fifth of their time. Source:
house 3; architecture 10, 13.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from turnwright_kit.scope import current_scope

if TYPE_CHECKING:
    from structlog.typing import Processor

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO

LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
"""Size beyond which a log file is rotated once, when the next process opens it."""

_SECRET_KEYS: Final = frozenset({"token", "authorization", "api_key", "secret", "password"})


class Log:
    """The logger of one part of a service: an event and its fields, one line each. Never raises."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, event: str, **values: object) -> None:
        self.say(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        self.say(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        self.say(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        self.say(logging.ERROR, event, values)

    def say(self, level: int, event: str, values: Mapping[str, object]) -> None:
        """Log one line at a level of Python's logging, unless that level is not logged."""
        if not is_logged(level):
            return
        # Not structlog's own context: binding there would import the library with the first call.
        values = {**current_scope().fields, **values}
        # A log that cannot be written must not fail what it reports.
        with contextlib.suppress(OSError, ValueError):
            _target.structlog().get_logger().bind(logger=self._name).log(level, event, **values)


def is_logged(level: int) -> bool:
    """Whether a level is logged, so that callers can skip building the line."""
    return level >= _target.level


def get_logger(name: str) -> Log:
    return Log(name)


_CALLER_LEFT: Final = "ExecuteBatchError raised in core"
"""What gRPC reports as an error: a caller has left, or its process has died, while its answer was being sent."""


class LibraryLogHandler(logging.Handler):
    """A handler that forwards records of Python's own logging to our log, in the same form and with the same level.

    What is no fault is logged as DEBUG.

    Without it the warnings of libraries would go to standard error in another form, whatever the level.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Forward a record. It is not an event with fields but one text with the name of its logger."""
        level = DEBUG if str(record.msg).startswith(_CALLER_LEFT) else record.levelno
        exc = {"exc_info": record.exc_info[1]} if record.exc_info else {}
        fields = {"library": record.name, "text": record.getMessage(), **exc}
        Log("library").say(level, "library_logged", fields)


def configure_logs(level: str, file: Path | None = None) -> None:
    """From now on log at `level` (debug, info, warning, error) to standard error, or to a file as JSON lines.

    Warnings and errors of libraries are included. A file opened by an earlier call is closed.
    """
    _target.set(logging.getLevelNamesMapping()[level.upper()], _open(file) if file else None)
    logging.getLogger().addHandler(_LIBRARIES)


class _Target:
    """Where lines go and the lowest level; structlog is configured with the first line."""

    def __init__(self) -> None:
        self.level = logging.WARNING
        self._file: TextIO | None = None
        self._is_configured = False

    def set(self, level: int, file: TextIO | None) -> None:
        before, self._file = self._file, file
        self.level, self._is_configured = level, False
        if before is not None:
            before.close()

    def structlog(self) -> Any:
        import structlog  # noqa: PLC0415 - see the module

        if not self._is_configured:
            structlog.configure(
                processors=[
                    structlog.contextvars.merge_contextvars,
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                    _redact,
                    *self._renderers(),
                ],
                wrapper_class=structlog.make_filtering_bound_logger(self.level),
                # Standard error is looked up at each line, because it may have been replaced.
                logger_factory=lambda *_: structlog.WriteLogger(self._file or sys.stderr),
                cache_logger_on_first_use=False,
            )
            self._is_configured = True
        return structlog

    def _renderers(self) -> list[Processor]:
        from structlog import dev, processors  # noqa: PLC0415 - see the module

        if self._file or not sys.stderr.isatty():
            return [processors.format_exc_info, processors.JSONRenderer()]
        # The default formatter prints local variables, which may contain secrets.
        return [_printable, dev.ConsoleRenderer(exception_formatter=dev.plain_traceback)]


def _redact(_logger: object, _name: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    for key in _SECRET_KEYS & event.keys():
        event[key] = "[redacted]"
    return event


def _printable(_logger: object, _name: str, event: MutableMapping[str, object]) -> MutableMapping[str, object]:
    """Text without control characters that a terminal would obey."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = repr(value)[1:-1]
    return event


def _open(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > LOG_FILE_BYTES_MAX:
        file.replace(file.with_suffix(file.suffix + ".1"))
    return file.open("a", encoding="utf-8", buffering=1)


_LIBRARIES: Final = LibraryLogHandler(logging.WARNING)
_target: Final = _Target()
