"""Commands at a real (pseudo) terminal: what a person sees and types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cli_process import WAIT_S, Bench

LINES = 40
LINES_FOLDED = 1000


class Terminal:
    """What a person sees and types."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes], columns: int) -> None:
        self.seen = ""
        """What came since something was typed."""
        self.process = process
        self._descriptor = descriptor
        self._columns = columns
        self._all = b""

    def screen(self, lines: int = LINES) -> str:
        """What stands on the terminal now, as text."""
        import pyte

        screen = pyte.Screen(self._columns, lines)
        pyte.ByteStream(screen).feed(self._all)
        return "\n".join(line.rstrip() for line in screen.display).strip("\n")

    def fold(self) -> str:
        """All that was printed and left there, however far it has scrolled by now."""
        return self.screen(LINES_FOLDED)

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
        self._all += data
        self.seen += data.decode(errors="replace")
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


# The terminal becomes the process's own. Tests that were begun with nohup would ignore SIGHUP, and with them all that they
# start. In a process of its own: gRPC's threads, which other tests of this one have begun, do not survive a fork well.
_OWN_TERMINAL = """\
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@contextmanager
def terminal(bench: Bench, *arguments: str, columns: int = 100, kind: str = "xterm-256color") -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, columns, 0, 0))
    # The size of a terminal is its own, whatever the tests run in.
    env = {name: value for name, value in bench.env(TERM=kind).items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _OWN_TERMINAL, *bench.command(*arguments)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=bench.project,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    person = Terminal(ours, process, columns)
    try:
        yield person
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        person.vanish()
