"""Pipes, devices and sockets where git reads files: git would wait for them, so it is not asked."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from turnwright_executor.edge import git_work_tree
from turnwright_executor.edge.git_work_tree import GitWorkTree

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
    path.parent.mkdir(exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            os.chdir(path.parent)
            made.bind(path.name)


@pytest.fixture
def git(monkeypatch, tmp_path):
    """A work tree: git would wait for the whole time, and end with another error."""
    monkeypatch.chdir(tmp_path)
    return lambda root: GitWorkTree(str(root), 30.0)


@pytest.mark.parametrize("kind", ["pipe", "link", "socket"])
@pytest.mark.parametrize("name", READ)
def test_git_is_not_asked_where_it_would_wait(tmp_path, git, name, kind):
    root = repository(tmp_path / "p")
    special(root / name, kind)
    (root / "inner").mkdir()
    for place in (root, root / "inner"):
        for ask in (git(place).files, git(place).inputs, lambda place=place: git(place).ignored(["x"])):
            with pytest.raises(subprocess.SubprocessError, match="would wait"):
                ask()


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
