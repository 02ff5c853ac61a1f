"""A command ends with the exit code of its work, whatever still runs in its process."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

from turnwright_cli.session import in_time

STUCK_THREAD = """
import asyncio, threading
from turnwright_cli.options import _finish
from turnwright_cli import __main__
async def work():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    print("told")
    return 7
__main__.main = lambda: _finish(work())
__main__.run()
"""

STUCK_AT_EXIT = """
import atexit, threading
from turnwright_cli import __main__
def main():
    print("told")
    raise SystemExit(7)
atexit.register(threading.Event().wait)
__main__.main = main
__main__.run()
"""


@pytest.mark.parametrize("program", [STUCK_THREAD, STUCK_AT_EXIT], ids=["in the event loop", "at the exit of Python"])
def test_what_hangs_does_not_keep_a_command_from_ending(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (7, "told\n", "")


STUCK_AFTER_A_FAULT = """
import asyncio, threading
from turnwright_cli.options import _finish
from turnwright_cli.exit_codes import FailureError
from turnwright_cli import __main__
async def work():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    raise FailureError(3, "It was not to be had.")
__main__.main = lambda: _finish(work())
__main__.run()
"""


def test_what_hangs_does_not_keep_a_command_from_saying_why_it_failed():
    done = subprocess.run(
        [sys.executable, "-c", STUCK_AFTER_A_FAULT], capture_output=True, timeout=60, check=False, text=True
    )
    assert (done.returncode, done.stderr) == (3, "turnwright: It was not to be had.\n")


@pytest.mark.asyncio
async def test_what_does_not_hear_that_it_shall_end_is_left_behind():
    heard, released = asyncio.Event(), asyncio.Event()

    async def deaf():
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()
            heard.set()

    async with asyncio.timeout(60):
        assert await in_time(deaf(), 0.05) is False
        await heard.wait()
        released.set()
        assert await in_time(asyncio.sleep(0), 5) is True


@pytest.mark.asyncio
async def test_what_fails_in_time_is_reported():
    async def failing():
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        await in_time(failing(), 5)
