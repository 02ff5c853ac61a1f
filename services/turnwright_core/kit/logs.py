"""Structured logs: key-values for people on a terminal, JSON everywhere else. Secrets are redacted by key.

Made of Python's own parts: a library for it costs each process, also one that says nothing, a tenth of a second.
Source: house 3; architecture 10, 13.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO

LOG_FILE_BYTES_MAX: Final = 10 * 1024 * 1024
"""A log file that has grown beyond this is set aside once, when the next process opens it."""

_SECRET_KEYS: Final = frozenset({"token", "authorization", "api_key", "secret", "password"})


class Log:
    """What one part of a service says: an event and its values, one line each. Never raises."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        """`name` is the part's; it is in each of its lines."""
        self._name = name

    def debug(self, event: str, **values: object) -> None:
        """For whoever looks for a fault."""
        self.say(logging.DEBUG, event, values)

    def info(self, event: str, **values: object) -> None:
        """As it should be."""
        self.say(logging.INFO, event, values)

    def warning(self, event: str, **values: object) -> None:
        """Not as it should be; it goes on."""
        self.say(logging.WARNING, event, values)

    def error(self, event: str, **values: object) -> None:
        """Something failed. An exception given as `exc_info` is written with its traceback."""
        self.say(logging.ERROR, event, values)

    def say(self, level: int, event: str, values: Mapping[str, object]) -> None:
        """One line at a level of Python's logging, unless it is below what is logged."""
        if level >= _sink.level:
            # A log that cannot be written to must not end what it tells of.
            with contextlib.suppress(OSError, ValueError):
                _sink.stream().write(_sink.line(_fields(self._name, level, event, values)) + "\n")


def get_logger(name: str) -> Log:
    """The log of a part of a service."""
    return Log(name)


class FromLibraries(logging.Handler):
    """Brings what libraries say through Python's own logging into ours, as lines of the same form and level.

    Without it their warnings would go bare to standard error, whatever the level.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Say it again. What a library says is no event with fields: it is one text, and the name of who said it."""
        exc = {"exc_info": record.exc_info[1]} if record.exc_info else {}
        said = {"library": record.name, "text": record.getMessage(), **exc}
        Log("library").say(record.levelno, "library said", said)


def configure_logs(level: str, file: Path | None = None) -> None:
    """Log from now on at `level` (debug, info, warning, error) to standard error, or to a file as JSON lines.

    Warnings and errors of libraries come along. A file that an earlier call opened is closed.
    """
    global _sink
    opened = _open(file) if file else None
    before, _sink = _sink, _sink_for(logging.getLevelNamesMapping()[level.upper()], opened)
    if before.file is not None:
        before.file.close()
    logging.getLogger().addHandler(_LIBRARIES)


@dataclass(frozen=True, slots=True)
class _Sink:
    """Where lines go: those of which level, in which form, and the file if it is one."""

    level: int
    line: Callable[[Mapping[str, Any]], str]
    file: TextIO | None = None

    def stream(self) -> TextIO:
        """Standard error is looked up at each line: who runs us may have put another in its place."""
        return self.file or sys.stderr


def _sink_for(level: int, file: TextIO | None) -> _Sink:
    return _Sink(level, _for_programs if file or not sys.stderr.isatty() else _for_people, file)


def _fields(name: str, level: int, event: str, values: Mapping[str, object]) -> dict[str, Any]:
    fields: dict[str, Any] = {"event": event, "logger": name, "level": logging.getLevelName(level).lower()}
    fields["timestamp"] = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    for key, value in values.items():
        if key == "exc_info":
            fields["exception"] = _told(value)
        else:
            fields[key] = "[redacted]" if key in _SECRET_KEYS else value
    return fields


def _told(error: object) -> str:
    """An exception with its traceback. Local variables are not in it: those may hold secrets."""
    if not isinstance(error, BaseException):
        return repr(error)
    return "".join(traceback.format_exception(error)).rstrip("\n")


def _for_programs(fields: Mapping[str, Any]) -> str:
    return json.dumps(fields, default=repr)


def _for_people(fields: Mapping[str, Any]) -> str:
    rest = dict(fields)
    at, level, event = rest.pop("timestamp"), rest.pop("level"), rest.pop("event")
    told = f"\n{rest.pop('exception')}" if "exception" in rest else ""
    values = " ".join(f"{key}={_plain(value)}" for key, value in rest.items())
    return f"{at[11:19]} {level:<7} {event}  {values}{told}"


def _plain(value: object) -> str:
    """Text as it is, unless it holds what a terminal would obey."""
    return value if isinstance(value, str) and value.isprintable() else repr(value)


def _open(file: Path) -> TextIO:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists() and file.stat().st_size > LOG_FILE_BYTES_MAX:
        file.replace(file.with_suffix(file.suffix + ".1"))
    return file.open("a", encoding="utf-8", buffering=1)


_LIBRARIES: Final = FromLibraries(logging.WARNING)
_sink = _Sink(logging.WARNING, _for_programs)
