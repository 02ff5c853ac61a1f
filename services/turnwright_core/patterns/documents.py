"""XPath and JSONPath, run in a worker process with CPU and memory limits.

Expression and document may both be hostile: forty characters can visit a million nodes a million times, and neither
library can be interrupted. If the kernel kills the worker (`document_worker`), that fails one question; the next one
starts another worker.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from turnwright_core.patterns.bounds import timeout_error
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.selection import NO_DOCUMENT, Selection
from turnwright_core.patterns.shapes import Shape

DOCUMENT_CHARS_MAX: Final = 1_000_000

ANSWER_TIMEOUT_S: Final = 30.0
"""Seconds that an answer may take, with the start of the worker: one that is stopped uses no CPU, and never ends."""

_CHECKED_MAX: Final = 64
_BLANK: Final = "\ufeff \t\r\n"
_OPENERS: Final = {Shape.XPATH: ("<",), Shape.JSONPATH: ("{", "[")}


def select(shape: Shape, pattern: str, text: str) -> Selection:
    """What `pattern` selects in `text`. Raises PatternError."""
    found = _asked(shape, pattern, text)
    return NO_DOCUMENT if found is None else Selection(found[0])


def replace(shape: Shape, pattern: str, replacement: str, text: str) -> str | None:
    """`text` with what `pattern` selects replaced; None if it is not a document. Raises PatternError."""
    found = _asked(shape, pattern, text, replacement)
    return None if found is None else found[0]


def _asked(shape: Shape, pattern: str, text: str, *replacement: str) -> Any:
    _check(shape, pattern)
    if not text.lstrip(_BLANK).startswith(_OPENERS[shape]):
        return None
    if len(text) > DOCUMENT_CHARS_MAX:
        detail = f"It reads documents of at most {DOCUMENT_CHARS_MAX} characters; use a regex for this text"
        raise PatternError("too_large", pattern, detail)
    return _worker.answer(shape, pattern, text, *replacement)


@lru_cache(maxsize=_CHECKED_MAX)
def _check(shape: Shape, pattern: str) -> None:
    """Raise PatternError if the pattern is not a valid expression, whatever the text is."""
    _worker.answer(shape, pattern)


class _Worker:
    """The worker process, started on demand. It answers one question at a time."""

    def __init__(self, timeout_s: float = ANSWER_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def answer(self, shape: Shape, pattern: str, *texts: str) -> object:
        question = json.dumps([shape.value, pattern, *texts])
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.end()
                self._process = _started(pattern)
            process = self._process
            with _limited(process, self._timeout_s) as is_late:
                line = _exchanged(process, question)
            if not line:
                self.end()
                raise timeout_error(pattern) if is_late.is_set() else _lost(pattern, process.returncode)
        found = json.loads(line)
        if isinstance(found, dict):
            raise PatternError(found["reason"], pattern, found["detail"])
        return found

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _exchanged(process: subprocess.Popen[str], question: str) -> str:
    """The answer to a question; empty if the process ended first."""
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(f"{question}\n")
        process.stdin.flush()
        return process.stdout.readline()
    except OSError:
        return ""


@contextmanager
def _limited(process: subprocess.Popen[str], timeout_s: float) -> Iterator[threading.Event]:
    """Kill the process if the block takes longer; the event tells that it did."""
    is_late = threading.Event()

    def kill() -> None:
        is_late.set()
        process.kill()

    timer = threading.Timer(timeout_s, kill)
    timer.daemon = True
    timer.start()
    try:
        yield is_late
    finally:
        timer.cancel()


def _started(pattern: str) -> subprocess.Popen[str]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "turnwright_core.patterns.document_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # The environment may contain secrets; only the module search path is passed on.
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            encoding="ascii",
            # Ctrl-C in a terminal is for the parent process.
            process_group=0,
        )
    except OSError as error:
        detail = f"No process can be started for it now ({error.strerror}); try it later, or use a regex"
        raise PatternError("unsupported", pattern, detail) from None


def _lost(pattern: str, exit_code: int) -> PatternError:
    if exit_code == -signal.SIGPROF:
        return timeout_error(pattern)
    return PatternError("too_large", pattern, "It needs too much memory for this document; use a regex")


_worker: Final = _Worker()
atexit.register(_worker.end)
