"""Work on files holds up nothing but files, and stops with who wanted it."""

import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.constraints import Constraints
from turnwright_executor.files.file_threads import FILES_MAX, SCANS_MAX, StoppedError, on_files, on_trees
from turnwright_executor.files.scan import DiskScanner

LONG_S = 3600.0


async def until(condition) -> None:
    """Wait for what must come; the test's own limit ends it where it does not."""
    while not condition():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


@pytest.fixture
def stuck():
    """Work that does not come back before the test ends, as on a disk that does not answer."""
    free = threading.Event()
    yield lambda _: free.wait(LONG_S)
    free.set()


@pytest.mark.asyncio
async def test_files_that_do_not_answer_hold_up_neither_trees_nor_other_threads_nor_their_callers(stuck):
    tasks = [asyncio.create_task(on_files(stuck)) for _ in range(2 * FILES_MAX)]
    await asyncio.sleep(0)
    assert await on_trees(lambda _: "a tree") == "a tree"
    assert await asyncio.to_thread(lambda: "a thread") == "a thread"
    for task in tasks:
        task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(answer) for answer in answers} == {asyncio.CancelledError}


@pytest.mark.asyncio
async def test_trees_that_do_not_answer_hold_up_no_files(stuck):
    tasks = [asyncio.create_task(on_trees(stuck)) for _ in range(2 * SCANS_MAX)]
    await asyncio.sleep(0)
    assert await on_files(lambda _: "a file") == "a file"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.asyncio
async def test_work_is_told_when_nobody_waits_for_it_any_more():
    begun, ended = threading.Event(), []

    def work(check) -> None:
        begun.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        except StoppedError:
            ended.append("stopped")
            raise

    task = asyncio.create_task(on_files(work))
    await until(begun.is_set)
    assert not ended
    task.cancel()
    await until(lambda: ended)


def test_a_process_ends_whatever_its_files_do():
    script = """
import asyncio, threading
from turnwright_executor.files.file_threads import on_files

async def main():
    asyncio.create_task(on_files(lambda _: threading.Event().wait()))
    await on_files(lambda _: None)

asyncio.run(main())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=100).returncode == 0


def tree(root, count=300):
    for number in range(count):
        (root / f"{number}.txt").write_text("x")
    return root


@pytest.mark.parametrize("steps", [0, 1, 5, 50, 299])
def test_a_scan_asks_between_two_files_whether_somebody_waits(tmp_path, steps):
    asked = iter(range(steps))

    def check() -> None:
        if next(asked, None) is None:
            raise StoppedError

    one = DiskScanner(tree(tmp_path), file_bytes_max=1000, files_max=1000)
    with pytest.raises(StoppedError):
        one._scan(frozenset(), check)
    assert one.total < 300


@pytest.mark.asyncio
async def test_git_that_is_waited_for_ends_with_who_wanted_its_answer(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep {LONG_S:.0f}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    one = DiskScanner(tree(tmp_path, 3), file_bytes_max=1000, files_max=1000, git_timeout_s=LONG_S)
    task = asyncio.create_task(one.scan())
    await until((tmp_path / "pid").exists)
    process = int((tmp_path / "pid").read_text())
    assert is_running(process)
    task.cancel()
    await until(lambda: not is_running(process))


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.asyncio
async def test_a_constraint_that_takes_too_long_fails_the_scan_and_shows_nothing(tmp_path):
    (tmp_path / ("a" * 60 + "b")).write_text("secret")
    said = Constraints([FileConstraint("/(a|aa)+$/", FileConstraintKind.IGNORE)])
    with pytest.raises(OSError, match="use a simpler one"):
        await DiskScanner(tmp_path, file_bytes_max=1000, files_max=1000, constraints=said).scan()
