"""The list of a project's files is the one that git or a walk would give now, and git is asked only when it may differ."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from turnwright_executor.files.confinement import Tree
from turnwright_executor.files.listing import SILENCE_NS, ProjectListing

LATER_NS = 10**12
GIT = shutil.which("git")


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path, monkeypatch):
    """What the user of this host configured is not asked."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@pytest.fixture
def root(tmp_path):
    """A repository with some files, a folder that is ignored, and an empty one."""
    root = tmp_path / "project"
    for name in ("a.py", "src/b.py", "src/deep/c.py", "build/out.js", "logs/x.log"):
        put(root / name)
    (root / "empty" / "inner").mkdir(parents=True)
    put(root / ".gitignore", "build/\n*.log\n")
    git(root, "init", "-q")
    git(root, "add", "a.py")
    return root


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Counts the processes of git since it was last asked."""
    seen = tmp_path / "calls"
    seen.touch()
    program = tmp_path / "bin" / "git"
    put(program, f'#!/bin/sh\necho "$*" >> {seen}\nexec {GIT} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def count() -> int:
        lines = seen.read_text().splitlines()
        seen.write_text("")
        return len(lines)

    return count


def put(file: Path, text: str = "x") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def git(folder: Path, *arguments: str) -> None:
    subprocess.run([GIT, *arguments], cwd=folder, check=True, capture_output=True)


def later() -> int:
    """A moment at which everything was written long ago."""
    return time.time_ns() + LATER_NS


def listing(root: Path) -> ProjectListing:
    return ProjectListing(str(root), 10.0, 1000)


def paths(one: ProjectListing, root: Path, now_ns: int | None = None) -> Sequence[str]:
    with Tree(str(root)) as tree:
        return one.paths(tree, now_ns or later())


def told(one: ProjectListing, root: Path, now_ns: int | None = None) -> set[str]:
    return set(paths(one, root, now_ns))


def replace(file: Path) -> None:
    """As an editor does, and as our own edits do."""
    put(file.with_name(".new"), "y")
    file.with_name(".new").replace(file)


UNLISTED = {
    "nothing": lambda _: None,
    "a file was written": lambda root: put(root / "a.py", "y"),
    "a file was replaced": lambda root: replace(root / "src" / "deep" / "c.py"),
    "an ignored folder got a file": lambda root: put(root / "build" / "more.js"),
    "a file came and went": lambda root: (put(root / "t"), (root / "t").unlink()),
}


@pytest.mark.parametrize("change", UNLISTED.values(), ids=UNLISTED.keys())
def test_git_is_not_started_while_no_name_came_or_went(root, calls, change):
    one = listing(root)
    before = paths(one, root)
    assert calls() > 0
    change(root)
    assert paths(one, root) is before
    assert calls() == 0


def test_a_new_name_costs_one_process(root, calls):
    one = listing(root)
    paths(one, root)
    calls()
    put(root / "src" / "new.py")
    assert "src/new.py" in told(one, root)
    assert calls() == 1


def test_git_that_does_not_answer_is_left_alone_for_a_while(root, calls):
    os.mkfifo(root / "src" / ".gitignore")
    one = ProjectListing(str(root), 0.3, 1000)
    now = later()
    assert "a.py" in told(one, root, now)
    assert calls() > 0
    put(root / "new.py")
    assert {"a.py", "new.py"} < told(one, root, now + SILENCE_NS - 1)
    assert calls() == 0
    (root / "src" / ".gitignore").unlink()
    assert told(one, root, now + SILENCE_NS) == told(listing(root), root)
    assert calls() > 0


def test_a_folder_without_a_repository_starts_no_process(tmp_path, calls):
    put(tmp_path / "plain" / "a.py")
    one = listing(tmp_path / "plain")
    assert told(one, tmp_path / "plain") == {"a.py"}
    put(tmp_path / "plain" / "b.py")
    assert told(one, tmp_path / "plain") == {"a.py", "b.py"}
    assert calls() == 0


def exclude_for_all(root: Path) -> None:
    put(Path(os.environ["HOME"]) / ".config" / "git" / "ignore", "a.py\nb.py\n")


def exclude_by_configuration(root: Path) -> None:
    put(root.parent / "excluded", "b.py\n")
    git(root, "config", "core.excludesFile", str(root.parent / "excluded"))


LISTED = {
    "a file beside others": (lambda root: put(root / "src" / "new.py"), {"src/new.py"}, set()),
    "a file in an empty folder": (lambda root: put(root / "empty" / "inner" / "e"), {"empty/inner/e"}, set()),
    "a file in new folders": (lambda root: put(root / "n" / "e" / "w"), {"n/e/w"}, set()),
    "a file beside ignored ones": (lambda root: put(root / "logs" / "x.txt"), {"logs/x.txt"}, set()),
    "a file that is gone": (lambda root: (root / "src" / "b.py").unlink(), set(), {"src/b.py"}),
    "a folder that is gone": (lambda root: shutil.rmtree(root / "src"), set(), {"src/b.py", "src/deep/c.py"}),
    "a renamed folder": (
        lambda root: (root / "src").rename(root / "lib"),
        {"lib/b.py", "lib/deep/c.py"},
        {"src/b.py", "src/deep/c.py"},
    ),
    "other rules": (lambda root: put(root / ".gitignore", "src/\n"), {"build/out.js", "logs/x.log"}, {"src/b.py", "src/deep/c.py"}),
    "rules in a folder": (lambda root: put(root / "src" / ".gitignore", "deep\n"), {"src/.gitignore"}, {"src/deep/c.py"}),
    "rules that are gone": (lambda root: (root / ".gitignore").unlink(), {"build/out.js", "logs/x.log"}, {".gitignore"}),
    "a repository's own rules": (lambda root: put(root / ".git" / "info" / "exclude", "deep\n"), set(), {"src/deep/c.py"}),
    "rules for all repositories": (exclude_for_all, set(), {"src/b.py"}),
    "rules that the configuration names": (exclude_by_configuration, set(), {"src/b.py"}),
    "an ignored file that is tracked now": (lambda root: git(root, "add", "-f", "build/out.js"), {"build/out.js"}, set()),
    "another repository inside": (lambda root: git(root / "src" / "deep", "init", "-q"), {"src/deep/"}, {"src/deep/c.py"}),
    "no repository any more": (lambda root: shutil.rmtree(root / ".git"), {"build/out.js", "logs/x.log"}, set()),
    "a link": (lambda root: (root / "link").symlink_to("/etc"), {"link"}, set()),
}  # fmt: skip


@pytest.mark.parametrize(("change", "came", "went"), LISTED.values(), ids=LISTED.keys())
def test_what_comes_and_goes_is_seen(root, change, came, went):
    one = listing(root)
    before = told(one, root)
    change(root)
    after = told(one, root)
    assert (after - before, before - after) == (came, went)
    assert after == told(listing(root), root)


def test_another_repository_inside_that_becomes_a_folder_of_this_one_is_looked_through(root):
    git(root / "src" / "deep", "init", "-q")
    one = listing(root)
    assert "src/deep/c.py" not in told(one, root)
    shutil.rmtree(root / "src" / "deep" / ".git")
    assert "src/deep/c.py" in told(one, root)


def test_rules_above_the_root_count(root):
    one = listing(root / "src")
    assert told(one, root / "src") == {"b.py", "deep/c.py"}
    put(root / ".gitignore", "deep/\n")
    assert told(one, root / "src") == {"b.py"}


def test_a_repository_that_is_made_later_is_asked(tmp_path):
    put(tmp_path / "plain" / ".hidden")
    one = listing(tmp_path / "plain")
    assert told(one, tmp_path / "plain") == {".hidden"}
    put(tmp_path / "plain" / "node_modules" / "m.js")
    assert told(one, tmp_path / "plain") == {".hidden"}
    git(tmp_path / "plain", "init", "-q")
    assert told(one, tmp_path / "plain") == {".hidden", "node_modules/m.js"}


def test_a_virtual_environment_that_is_none_any_more_is_walked(tmp_path):
    put(tmp_path / "env" / "pyvenv.cfg")
    put(tmp_path / "env" / "a.py")
    one = listing(tmp_path)
    assert told(one, tmp_path) == set()
    (tmp_path / "env" / "pyvenv.cfg").unlink()
    assert told(one, tmp_path) == {"env/a.py"}


def change_something(root: Path, chance: random.Random) -> None:
    names = ["a", "b", "c", "d.log", "build"]
    folder = root.joinpath(*chance.choices(names, k=chance.randrange(3)))
    file = folder / chance.choice([*names, ".gitignore"])
    match chance.randrange(6):
        case 0 | 1 if not any(one.is_file() for one in (folder, *folder.parents)) and not file.is_dir():
            put(file, chance.choice(["b\n", "*.log\n", "!a\n", "c/\n"]))
        case 2 if file.is_file():
            file.unlink()
        case 3 if folder != root and folder.is_dir():
            shutil.rmtree(folder)
        case 4 if file.is_file():
            replace(file)
        case 5 if file.is_file():
            git(root, "add", "-f", str(file))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_any_change_the_list_is_what_a_new_one_would_be(root, seed):
    """At the real clock: most changes are so young that their times prove nothing."""
    chance, one = random.Random(seed), listing(root)
    for step in range(40):
        for _ in range(chance.randrange(1, 4)):
            change_something(root, chance)
        now_ns = time.time_ns()
        assert told(one, root, now_ns) == told(listing(root), root, now_ns), f"step {step}"
