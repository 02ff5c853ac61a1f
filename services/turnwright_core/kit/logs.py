"""Structured logs: key-values for people on a terminal, JSON everywhere else. Secrets are redacted by key.

Source: house 3; architecture 10, 13.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final, TextIO

import structlog
from structlog.typing import Processor

LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
"""A log file that has grown beyond this is set aside once, when the next process opens it."""

_SECRET_KEYS: Final = frozenset({"token", "authorization", "api_key", "secret", "password"})


class FromLibraries(logging.Handler):
    """Brings what libraries say through Python's own logging into ours, as lines of the same form and level.

    Without it their warnings would go bare to standard error, whatever the level.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Say it again. What a library says is no event with fields: it is one text, and the name of who said it."""
        exc = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(record.levelno, "library said", library=record.name, text=record.getMessage(), **exc)


_LIBRARIES: Final = FromLibraries(logging.WARNING)


_OPENED: Final[list[TextIO]] = []
"""The file that lines go to now, if they go to one."""


def _redact(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key in _SECRET_KEYS & event.keys():
        event[key] = "[redacted]"
    return event


def configure_logs(level: str, file: Path | None = None) -> None:
    """Log from now on at `level` (debug, info, warning, error) to standard error, or to a file as JSON lines.

    Warnings and errors of libraries come along. A file that an earlier call opened is closed.
    """
    while _OPENED:
        _OPENED.pop().close()
    stream = _open(file) if file else sys.stderr
    json_lines = file is not None or not stream.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            *_renderers(json_lines),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    logging.getLogger().addHandler(_LIBRARIES)


def _renderers(json_lines: bool) -> list[Processor]:
    if json_lines:
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # The default formatter prints local variables, and those may hold secrets.
    return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]


def _open(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > LOG_FILE_BYTES_MAX:
        file.replace(file.with_suffix(file.suffix + ".1"))
    stream = file.open("a", encoding="utf-8", buffering=1)
    _OPENED.append(stream)
    return stream
