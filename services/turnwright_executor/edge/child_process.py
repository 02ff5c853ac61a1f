"""A child process that the event loop waits for, whichever loop it is.

uvloop starts its own children by fork, which copies the tables of all our memory, some milliseconds in which nothing
else happens; `subprocess` starts them by vfork. The end of one is told by its pidfd, or where the system has none, by a
thread.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from contextlib import suppress


class ChildProcess:
    """A process that was started here. It has no pipes of ours."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for its end from now on, in the running event loop."""
        self.pid = process.pid
        self._process = process
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        try:
            self._descriptor = os.pidfd_open(self.pid)
        except (AttributeError, OSError):
            threading.Thread(target=self._wait, name=f"wait for {self.pid}", daemon=True).start()
        else:
            self._loop.add_reader(self._descriptor, self._reap)

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative where a signal ended it; None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
        """Wait for its end."""
        await self._ended.wait()

    def _reap(self) -> None:
        if self._process.poll() is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._ended.set()

    def _wait(self) -> None:
        self._process.wait()
        with suppress(RuntimeError):  # the loop may have ended since
            self._loop.call_soon_threadsafe(self._ended.set)
