"""The identity of a workspace. Architecture 3."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from turnwright_executor.edge.workspace_marker import workspace_id


def test_the_id_stays_with_the_directory(tmp_path):
    (tmp_path / "here").mkdir()
    first = workspace_id(tmp_path / "here")
    assert workspace_id(tmp_path / "here") == first
    (tmp_path / "here").rename(tmp_path / "there")
    assert workspace_id(tmp_path / "there") == first
    (tmp_path / "alias").symlink_to("there")
    assert workspace_id(tmp_path / "alias") == first
    assert UUID(first)


def test_two_directories_have_two_ids(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
    assert workspace_id(tmp_path / "a") != workspace_id(tmp_path / "b")


def test_version_control_does_not_see_the_marker(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    workspace_id(tmp_path)
    seen = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, check=True, capture_output=True)
    assert seen.stdout == b""


@pytest.mark.parametrize("spoil", ["a file in the way", "a foreign marker", "a link"])
def test_without_a_marker_the_id_is_that_of_the_path(tmp_path, spoil):
    folder = tmp_path / "root" / ".turnwright"
    folder.parent.mkdir()
    if spoil == "a file in the way":
        folder.write_text("")
    elif spoil == "a foreign marker":
        folder.mkdir()
        (folder / "workspace").write_text("not an id")
    else:
        folder.symlink_to(tmp_path)
    first = workspace_id(tmp_path / "root")
    assert first == workspace_id(tmp_path / "root")
    assert UUID(first).version == 5


def test_a_root_that_is_not_there_has_an_id_too(tmp_path):
    assert UUID(workspace_id(tmp_path / "nowhere")).version == 5
    assert not (tmp_path / "nowhere").exists()


def test_all_who_come_at_once_agree(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        ids = set(pool.map(workspace_id, [tmp_path] * 16))
    assert len(ids) == 1
    assert sorted(path.name for path in (tmp_path / ".turnwright").iterdir()) == [".gitignore", "workspace"]


@pytest.mark.parametrize("kind", ["a pipe", "a link to a pipe", "a link to a marker", "a folder that is a link"])
def test_a_marker_that_is_no_file_is_neither_waited_for_nor_followed(tmp_path, kind):
    other, root = tmp_path / "other", tmp_path / "root"
    for folder in (other, root):
        (folder / ".turnwright").mkdir(parents=True)
    foreign = workspace_id(other)
    marker = root / ".turnwright" / "workspace"
    os.mkfifo(tmp_path / "pipe")
    if kind == "a pipe":
        os.mkfifo(marker)
    elif kind == "a folder that is a link":
        (root / ".turnwright").rmdir()
        (root / ".turnwright").symlink_to(other / ".turnwright")
    else:
        marker.symlink_to(tmp_path / "pipe" if "pipe" in kind else other / ".turnwright" / "workspace")
    found = workspace_id(root)
    assert (UUID(found).version, found != foreign) == (5, True)
