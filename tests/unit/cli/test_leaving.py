"""A command ends with the exit code of its work, whatever still runs in its process."""

from __future__ import annotations

import subprocess
import sys

import pytest

STUCK_THREAD = """
import asyncio, threading
from turnwright_cli.leaving import watched
async def work():
    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)
    print("told")
    return 7
with watched(work(), 0.2) as bounded:
    asyncio.run(bounded)
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
