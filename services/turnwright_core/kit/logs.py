"""Structured logs: key-values for people on a terminal, JSON everywhere else. Secrets are redacted by key.

structlog is loaded with the first line: most commands say nothing, and its import is a fifth of their time.
Source: house 3; architecture 10, 13.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from turnwright_core.kit.scope import current_scope

if TYPE_CHECKING:
    from structlog.typing import Processor

DEBUG: Final = logging.DEBUG
INFO: Final = logging.INFO

LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
"""A log file that has grown beyond this is set aside once, when the next process opens it."""

_SECRET_KEYS: Final = frozenset({"token", "authorization", "api_key", "secret", "password"})


class Log:
    """What one part of a service says: an event and its values, one line each. Never raises."""

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
        """One line at a level of Python's logging, unless it is below what is logged."""
        if not is_logged(level):
            return
        # Not structlog's own context: to bind there would load the library with the first call.
        values = {**current_scope().bound, **values}
        # A log that cannot be written to must not end what it tells of.
        with contextlib.suppress(OSError, ValueError):
            _target.structlog().get_logger().bind(logger=self._name).log(level, event, **values)


def is_logged(level: int) -> bool:
    """Whether lines of this level are written: what is not is not made up either."""
    return level >= _target.level


def get_logger(name: str) -> Log:
    return Log(name)


class FromLibraries(logging.Handler):
    """Brings what libraries say through Python's own logging into ours, as lines of the same form and level.

    Without it their warnings would go bare to standard error, whatever the level.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Say it again. What a library says is no event with fields: it is one text, and the name of who said it."""
        exc = {"exc_info": record.exc_info[1]} if record.exc_info else {}
        said = {"library": record.name, "text": record.getMessage(), **exc}
        Log("library").say(record.levelno, "library_logged", said)


def configure_logs(level: str, file: Path | None = None) -> None:
    """Log from now on at `level` (debug, info, warning, error) to standard error, or to a file as JSON lines.

    Warnings and errors of libraries come along. A file that an earlier call opened is closed.
    """
    _target.set(logging.getLevelNamesMapping()[level.upper()], _open(file) if file else None)
    logging.getLogger().addHandler(_LIBRARIES)


class _Target:
    """Where lines go, and from which level on; structlog is told with the first one."""

    def __init__(self) -> None:
        self.level = logging.WARNING
        self._file: TextIO | None = None
        self._is_told = False

    def set(self, level: int, file: TextIO | None) -> None:
        before, self._file = self._file, file
        self.level, self._is_told = level, False
        if before is not None:
            before.close()

    def structlog(self) -> Any:
        import structlog  # noqa: PLC0415 - see the module

        if not self._is_told:
            structlog.configure(
                processors=[
                    structlog.contextvars.merge_contextvars,
                    structlog.processors.add_log_level,
                    structlog.processors.TimeStamper(fmt="iso", utc=True),
                    _redact,
                    *self._renderers(),
                ],
                wrapper_class=structlog.make_filtering_bound_logger(self.level),
                # Standard error is looked up at each line: who runs us may have put another in its place.
                logger_factory=lambda *_: structlog.WriteLogger(self._file or sys.stderr),
                cache_logger_on_first_use=False,
            )
            self._is_told = True
        return structlog

    def _renderers(self) -> list[Processor]:
        from structlog import dev, processors  # noqa: PLC0415 - see the module

        if self._file or not sys.stderr.isatty():
            return [processors.format_exc_info, processors.JSONRenderer()]
        # The default formatter prints local variables, and those may hold secrets.
        return [_printable, dev.ConsoleRenderer(exception_formatter=dev.plain_traceback)]


def _redact(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in _SECRET_KEYS & event.keys():
        event[key] = "[redacted]"
    return event


def _printable(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Text as it is, unless it holds what a terminal would obey."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = repr(value)[1:-1]
    return event


def _open(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > LOG_FILE_BYTES_MAX:
        file.replace(file.with_suffix(file.suffix + ".1"))
    return file.open("a", encoding="utf-8", buffering=1)


_LIBRARIES: Final = FromLibraries(logging.WARNING)
_target: Final = _Target()
