"""The identity of a workspace. Architecture 3."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from turnwright_executor.files.workspace_marker import find_workspace
from turnwright_executor.ports.workspaces import FoundWorkspace


def workspace_id(root) -> str:
    return find_workspace(root).id


def test_the_id_stays_with_the_directory(tmp_path):
    (tmp_path / "here").mkdir()
    first = workspace_id(tmp_path / "here")
    assert workspace_id(tmp_path / "here") == first
    (tmp_path / "here").rename(tmp_path / "there")
    assert workspace_id(tmp_path / "there") == first
    (tmp_path / "alias").symlink_to("there")
    assert workspace_id(tmp_path / "alias") == first
    assert UUID(first)


COPIES = {
    "cp -r": ["cp", "-r", "a", "b"],
    "cp -a": ["cp", "-a", "a", "b"],
    "hard links": ["cp", "-al", "a", "b"],
    "an archive": ["sh", "-c", "mkdir b && tar -C a -c . | tar -C b -x"],
}


@pytest.mark.parametrize("command", COPIES.values(), ids=COPIES.keys())
@pytest.mark.parametrize("first", ["a", "b"])
def test_a_copy_is_another_workspace_and_that_is_reported_once(tmp_path, command, first):
    (tmp_path / "a" / "src").mkdir(parents=True)
    original = workspace_id(tmp_path / "a")
    subprocess.run(command, cwd=tmp_path, check=True)
    found = {name: find_workspace(tmp_path / name) for name in sorted("ab", key=lambda name: name != first)}
    assert (found["a"].id, found["a"].copied_from) == (original, "")
    assert (found["b"].id != original, found["b"].copied_from) == (True, str(tmp_path / "a"))
    again = [find_workspace(tmp_path / name) for name in "ab"]
    assert [(one.id, one.copied_from) for one in again] == [(original, ""), (found["b"].id, "")]


def test_a_copy_of_a_copy_is_a_third_workspace(tmp_path):
    (tmp_path / "a").mkdir()
    ids = [workspace_id(tmp_path / "a")]
    for one, other in ("ab", "bc", "cd"):
        subprocess.run(["cp", "-r", one, other], cwd=tmp_path, check=True)
        ids.append(workspace_id(tmp_path / other))
    assert len(set(ids)) == 4
    assert [workspace_id(tmp_path / name) for name in "abcd"] == ids


@pytest.mark.parametrize("first", ["b", "c"])
def test_a_copy_is_distinguished_after_its_original_was_moved(tmp_path, first):
    (tmp_path / "a").mkdir()
    original = workspace_id(tmp_path / "a")
    subprocess.run(["cp", "-r", "a", "b"], cwd=tmp_path, check=True)
    (tmp_path / "a").rename(tmp_path / "c")
    found = {name: find_workspace(tmp_path / name) for name in sorted("bc", key=lambda name: name != first)}
    assert (found["c"].id, found["b"].id != original) == (original, True)
    assert [bool(found[name].copied_from) for name in "bc"] == [True, False]


def test_what_takes_the_place_of_a_directory_with_its_marker_is_its_workspace(tmp_path):
    """A backup that is restored where it was taken."""
    (tmp_path / "a").mkdir()
    original = workspace_id(tmp_path / "a")
    subprocess.run("cp -r a backup && rm -r a && cp -r backup a && rm -r backup", shell=True, cwd=tmp_path, check=True)
    assert find_workspace(tmp_path / "a") == FoundWorkspace(str(tmp_path / "a"), original)
    (tmp_path / "a").rename(tmp_path / "b")
    assert workspace_id(tmp_path / "b") == original


def noted(root, values) -> None:
    """Have a marker say that it was written for another directory."""
    marker = root / ".turnwright" / "workspace"
    workspace, said = marker.read_text().splitlines()
    marker.write_text(f"{workspace}\n{json.dumps(json.loads(said) | values)}\n")


@pytest.mark.parametrize(
    "seen",
    [
        {"root": "/somewhere/else"},
        {"root": "/somewhere/else", "device": 99_999},
        {"root": "/somewhere/else", "device": 99_999, "inode": 7},
        {"device": 99_999, "inode": 7},
        {"inode": 7},
    ],
)
def test_a_directory_that_other_hosts_and_containers_see_under_other_names_is_one_workspace(tmp_path, seen):
    original = workspace_id(tmp_path)
    noted(tmp_path, seen)
    assert find_workspace(tmp_path) == FoundWorkspace(str(tmp_path), original)
    assert find_workspace(tmp_path) == FoundWorkspace(str(tmp_path), original)


@pytest.mark.parametrize("text", ["", "no json\n", "[]\n", "{}\n", '{"root": 1}\n', "[" * 100_000])
def test_a_marker_that_says_an_id_only_is_completed(tmp_path, text):
    original = workspace_id(tmp_path)
    (tmp_path / ".turnwright" / "workspace").write_text(f"{original}\n{text}")
    assert workspace_id(tmp_path) == original
    assert str(tmp_path) in (tmp_path / ".turnwright" / "workspace").read_text()


def test_all_who_find_a_copy_at_once_agree_on_its_id(tmp_path):
    (tmp_path / "a").mkdir()
    original = workspace_id(tmp_path / "a")
    subprocess.run(["cp", "-r", "a", "b"], cwd=tmp_path, check=True)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(find_workspace, [tmp_path / "b"] * 16))
    assert (len({one.id for one in found}), original in {one.id for one in found}) == (1, False)
    assert [bool(one.copied_from) for one in found].count(True) == 1
    assert sorted(path.name for path in (tmp_path / "b" / ".turnwright").iterdir()) == [".gitignore", "workspace"]


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
