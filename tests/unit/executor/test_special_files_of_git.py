"""Pipes, devices and sockets where git reads files: it would wait for most of them, and none of them costs its time."""

from __future__ import annotations

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from turnwright_executor.files import git_work_tree
from turnwright_executor.files.git_work_tree import GitWorkTree
from turnwright_executor.files.scan import DiskScanner

READ = (".git", ".git/HEAD", ".git/config", ".git/index", ".git/packed-refs", ".git/info/exclude", ".git/commondir",
        ".git/config.worktree", ".git/objects/info/alternates", ".gitignore")  # fmt: skip


def repository(folder: Path) -> Path:
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / "a.txt").write_text("a")
    return folder


def special(path: Path, kind: str) -> None:
    if path.is_dir():
        path.rename(path.with_name("away"))
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "null":
        path.symlink_to(os.devnull)
    else:
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(path.parent)
            made.bind(path.name)


@pytest.fixture
def git(monkeypatch, tmp_path):
    """A work tree: git would wait for the whole time, and end with another error."""
    monkeypatch.chdir(tmp_path)
    return lambda root: GitWorkTree(str(root), 30.0)


@pytest.mark.parametrize("kind", ["pipe", "link"])
@pytest.mark.parametrize("name", [*READ, ".git/included", ".git/config.worktree"])
def test_git_is_not_asked_where_it_would_wait(tmp_path, git, name, kind):
    root = repository(tmp_path / "p")
    with (root / ".git/config").open("a") as config:
        config.write("[include]\n\tpath = other\n")
    (root / ".git/other").write_text('[core] excludesFile = ".git/included"')
    special(root / name, kind)
    (root / "inner").mkdir()
    for place in (root, root / "inner"):
        for ask in (git(place).files, git(place).inputs, lambda place=place: git(place).ignored(["x"])):
            with pytest.raises(subprocess.SubprocessError, match="would wait"):
                ask()


BELOW = ("inner/.gitignore", "inner/deep/.gitignore", "inner/.gitattributes", "nested/.git/HEAD", "nested/.git/config",
         "nested/.git/commondir", "nested/.git/index", "nested/.git/refs/heads/main", "nested/.gitignore", "inner/.git",
         ".gitattributes", ".gitmodules", ".git/refs/heads/main", "a.txt", "inner/pipe")  # fmt: skip
WAITS = ("inner/.gitignore", "inner/deep/.gitignore", "nested/.git/HEAD", "nested/.git/commondir")


@pytest.mark.parametrize("kind", ["pipe", "link", "socket", "null"])
@pytest.mark.parametrize("name", BELOW)
def test_what_lies_deeper_does_not_cost_the_time_of_git(tmp_path, git, name, kind):
    root = repository(tmp_path / "p")
    repository(root / "nested")
    special(root / name, kind)
    for path in ("inner/b.txt", "inner/deep/c.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x")
    asked = git(root)
    if kind == "pipe" and name in WAITS:
        for _ in range(2):
            with pytest.raises(subprocess.SubprocessError, match="would wait") as told:
                asked.files()
            assert not isinstance(told.value, subprocess.TimeoutExpired)
        (root / name).unlink()
    if name in WAITS and kind == "link":
        # It may read zeros until it has no more memory, or until they are found.
        with suppress(subprocess.SubprocessError):
            asked.files()
        return
    found = asked.files()
    assert (name, found) == ("nested/.git/commondir", None) or {"inner/b.txt", "inner/deep/c.txt"} <= set(found or ())


@pytest.mark.parametrize("kind", ["socket", "null"])
@pytest.mark.parametrize("name", READ)
def test_git_is_asked_where_it_does_not_wait(tmp_path, git, name, kind):
    root = repository(tmp_path / "p")
    special(root / name, kind)
    for ask in (git(root).files, git(root).inputs):
        ask()
    assert git_work_tree.special_file(str(root)) == ""


@pytest.mark.parametrize(
    "name", [".gitignore", "inner/.gitignore", ".git/index", "nested/.git/HEAD", "inner/AGENTS.md"]
)
@pytest.mark.asyncio
async def test_a_project_with_a_pipe_is_listed_without_git(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    root = repository(tmp_path / "p")
    repository(root / "nested")
    special(root / name, "pipe")
    scanner = DiskScanner(root, file_bytes_max=1000, files_max=99, git_timeout_s=1000.0)
    for _ in range(2):
        await scanner.scan()
        assert {"a.txt", "nested/a.txt"} >= set(scanner.files) >= {"a.txt"}


def test_a_linked_work_tree_is_looked_at_in_the_repository_that_it_names(tmp_path, git):
    root = repository(tmp_path / "p")
    asked = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*asked, "commit", "-q", "--allow-empty", "-m", "a"], check=True)
    subprocess.run([*asked, "worktree", "add", "-q", str(tmp_path / "w")], check=True)
    assert git_work_tree.special_file(str(tmp_path / "w")) == ""
    for name in ("info/exclude", "worktrees/w/index"):
        path = root / ".git" / name
        path.rename(tmp_path / "away")
        os.mkfifo(path)
        with pytest.raises(subprocess.SubprocessError):
            git(tmp_path / "w").files()
        path.unlink()
        (tmp_path / "away").rename(path)


def test_a_repository_of_files_is_asked(tmp_path):
    root = repository(tmp_path / "p")
    assert GitWorkTree(str(root), 30.0).files() == ["a.txt"]
    assert GitWorkTree(str(tmp_path), 30.0).files() is None
