"""What a killed executor left of its writes. Architecture 6, 11."""

import asyncio
import os
import time
from uuid import uuid4

import pytest

from turnwright_executor.edge.leftovers import Sweeper, is_temporary, sweep, temporary_name
from turnwright_executor.edge.scan import DiskScanner

OLD = ".0123456789ab4def8123456789abcdef.tmp"


def left(folder, name=OLD, age_s=7200.0):
    """A file that changed last so many seconds ago."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text("half of it")
    then_s = time.time() - age_s
    os.utime(file, (then_s, then_s))
    return file


def swept(root):
    return sweep(str(root), time.time() - 3600)


def test_the_names_of_temporary_files_are_told_apart():
    assert is_temporary(temporary_name())
    others = [f".{uuid4().hex}.tmpx", f"{uuid4().hex}.tmp", ".x.tmp", OLD.upper(), OLD.replace("4", "5"), f"a{OLD}"]
    assert [is_temporary(name) for name in others] == [False] * len(others)


def test_what_is_old_is_swept_wherever_it_lies(tmp_path):
    files = [left(tmp_path), left(tmp_path / "src" / "deep"), left(tmp_path / ".turnwright")]
    assert (swept(tmp_path), [file.exists() for file in files]) == (3, [False] * 3)


def test_what_is_young_or_not_ours_stays(tmp_path):
    files = [
        left(tmp_path, age_s=60), left(tmp_path, ".cache.tmp"), left(tmp_path / "src", "notes.txt"),
        left(tmp_path / ".git"), left(tmp_path / "node_modules" / "x"),
    ]  # fmt: skip
    assert (swept(tmp_path), [file.exists() for file in files]) == (0, [True] * len(files))


def test_no_link_is_followed_and_none_is_removed(tmp_path):
    outside = left(tmp_path / "outside")
    root = tmp_path / "project"
    root.mkdir()
    (root / "folder").symlink_to(outside.parent)
    (root / OLD).symlink_to(outside)
    (root / OLD.replace("0", "1")).mkdir()
    assert (swept(root), outside.exists(), (root / OLD).is_symlink()) == (0, True, True)


@pytest.mark.asyncio
async def test_a_root_is_swept_once_and_in_the_background(tmp_path):
    first = left(tmp_path)
    sweeper = Sweeper()
    sweeper.open(str(tmp_path))
    while first.exists():  # noqa: ASYNC110 - nobody tells, and the file is small
        await asyncio.sleep(0.01)
    again = left(tmp_path)
    sweeper.open(str(tmp_path))
    await sweeper.close()
    assert again.exists()


@pytest.mark.asyncio
async def test_a_temporary_file_is_never_one_of_the_project(tmp_path):
    left(tmp_path, age_s=0)
    left(tmp_path / "src", age_s=0)
    left(tmp_path, "a.txt")
    scan = await DiskScanner(tmp_path, file_bytes_max=1000, files_max=10).scan()
    assert [file.path for file in scan.changed] == ["a.txt"]
