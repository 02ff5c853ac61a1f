"""The end of a child is told in either event loop, by its pidfd or without one, and no zombie is left."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
import uvloop

from turnwright_kit.sandbox.command_process import ChildProcess


def no_pidfd(_pid):
    raise OSError


def child(*argv):
    return ChildProcess(subprocess.Popen(argv))


def is_there(pid):
    return Path(f"/proc/{pid}").exists()


def descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("has_pidfd", [True, False])
def test_the_end_of_a_child_is_reported(monkeypatch, loop, has_pidfd):
    if not has_pidfd:
        monkeypatch.setattr(os, "pidfd_open", no_pidfd, raising=False)

    async def ended(command):
        process = child("/bin/sh", "-c", command)
        before = process.returncode
        async with asyncio.timeout(60):
            await asyncio.gather(process.wait(), process.wait())
        return before, process.returncode, is_there(process.pid)

    async def all_of_them():
        return [await ended(command) for command in ("sleep 0.2; exit 3", "kill -9 $$", ":")]

    with asyncio.Runner(loop_factory=loop) as runner:
        told = runner.run(all_of_them())
    assert [one[1:] for one in told] == [(3, False), (-9, False), (0, False)]
    assert told[0][0] is None


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_nothing_stays_open_behind_a_child(loop):
    async def opened():
        await child("/bin/true").wait()
        return descriptors()

    async def twice():
        return await opened(), await opened()

    with asyncio.Runner(loop_factory=loop) as runner:
        first, second = runner.run(twice())
    assert first == second
