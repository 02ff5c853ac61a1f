"""A child process that works with any event loop.

uvloop starts children with fork, which copies the page tables of our memory, some milliseconds in which nothing else
happens; `subprocess` uses vfork. Its end is detected with a pidfd, or with a thread if the system has none.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from contextlib import suppress


class ChildProcess:
    """A started process. We hold no pipes to it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Start to watch for its end, in the running event loop."""
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
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.returncode

    async def wait(self) -> None:
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
