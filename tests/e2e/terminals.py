"""Commands at a real (pseudo) terminal: what a person sees and types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cli_process import WAIT_S, Bench


class Terminal:
    """What a person sees and types."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self.seen = ""
        self.process = process
        self._descriptor = descriptor

    def expect_text(self, pattern: str) -> None:
        """Read until the text matches."""
        deadline = time.monotonic() + WAIT_S
        while not re.search(pattern, self.seen):
            assert time.monotonic() < deadline, f"{pattern!r} did not come: {self.seen!r}"
            assert self._read(), f"{pattern!r} did not come before the end: {self.seen!r}"

    def _read(self) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], 0.2)
        if not ready:
            return True
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            return False
        self.seen += data.decode()
        return bool(data)

    def type(self, text: str) -> None:
        self.seen = ""
        os.write(self._descriptor, text.encode())

    def vanish(self) -> None:
        """Close the terminal, as when its window is closed."""
        os.close(self._descriptor)
        self._descriptor = os.open(os.devnull, os.O_RDWR)

    def end(self) -> int:
        while self._read() and self.process.poll() is None:
            pass
        while self._read() and select.select([self._descriptor], [], [], 0)[0]:
            pass
        return self.process.wait(WAIT_S)


@contextmanager
def terminal(bench: Bench, *arguments: str, columns: int = 100, kind: str = "xterm-256color") -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        bench.command(*arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=bench.project,
        env=bench.env(TERM=kind),
        start_new_session=True,
    )
    os.close(theirs)
    person = Terminal(ours, process)
    try:
        yield person
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        person.vanish()
