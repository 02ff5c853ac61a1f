"""Nothing that stands in a project, and nothing that its repository says, makes a scan read outside of it or run anything.

Architecture 6 (confinement); rows RU114, RU115, RU165.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import pytest
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.constraints import Constraints
from turnwright_executor.files.git_work_tree import MEMORY_KIB_MAX
from turnwright_executor.files.scan import DiskScanner

from .hostile_git import GITLINK, git, promising, write_index

SECRET = "the secret of somebody else"


@pytest.fixture
def outside(tmp_path) -> Path:
    (tmp_path / "outside" / "deep").mkdir(parents=True)
    for name in ("token", "deep/token"):
        (tmp_path / "outside" / name).write_text(SECRET)
    return tmp_path / "outside"


@pytest.fixture
def root(tmp_path, outside) -> Path:
    """A repository with one file that is what it seems."""
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    (root / "ok.txt").write_text("ok")
    return root


def scanner(root: Path, *said: tuple[str, str], **more) -> DiskScanner:
    constraints = Constraints(FileConstraint(one[0], FileConstraintKind[one[1].upper()]) for one in said)
    return DiskScanner(root, **({"file_bytes_max": 1000, "files_max": 100} | more), constraints=constraints)


async def found(root: Path, *said: tuple[str, str], **more) -> dict[str, str | None]:
    scan = await scanner(root, *said, **more).scan()
    return {file.path: file.text for file in scan.changed}


SCAN = """
import asyncio, json, resource, sys
from pathlib import Path
from turnwright_core.constraints import Constraints
from turnwright_executor.files.scan import DiskScanner

scan = DiskScanner(Path(sys.argv[1]), file_bytes_max=1000, files_max=100, constraints=Constraints(()))
paths = [file.path for file in asyncio.run(scan.scan()).changed]
print(json.dumps([paths, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""
"""Scans a project alone; prints what it found, and the most memory that git had, in KiB."""


@pytest.mark.parametrize(
    "name",
    ["../outside/token", "a/../../outside/token", "/etc/passwd", "{outside}/token", "//etc/passwd", "./ok.txt", "a//b"],
)
@pytest.mark.asyncio
async def test_a_name_in_the_index_that_leaves_the_project_is_no_file_of_it(root, outside, name):
    (root / "a").mkdir()
    write_index(root, name.replace("{outside}", str(outside)), "ok.txt")
    assert await found(root) == {"ok.txt": "ok"}


@pytest.mark.parametrize("name", [".git/config", ".GIT/config", ".Git/HEAD", "a/.git/config", ".turnwright/workspace"])
@pytest.mark.asyncio
async def test_a_name_in_the_index_that_belongs_to_version_control_or_the_runtime_is_no_file_of_the_project(root, name):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).touch()
    write_index(root, name, "ok.txt")
    assert await found(root) == {"ok.txt": "ok"}


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("is_scanned_before", [True, False])
@pytest.mark.asyncio
async def test_a_tracked_file_whose_folder_has_become_a_link_is_gone(root, outside, depth, is_scanned_before):
    folder = root.joinpath(*["a"] * depth)
    folder.mkdir(parents=True)
    (folder / "token").write_text("mine")
    git(root, "add", ".")
    one = scanner(root)
    if is_scanned_before:
        await one.scan()
    (folder / "token").unlink()
    folder.rmdir()
    folder.symlink_to(f"{'../' * depth}outside")
    scan = await one.scan()
    assert SECRET not in [file.text for file in scan.changed]
    assert scan.removed == ((f"{'a/' * depth}token",) if is_scanned_before else ())


@pytest.mark.parametrize("target", ["../outside", "{outside}", "sub", "./sub/../../outside", "/"])
@pytest.mark.asyncio
async def test_links_lead_nowhere_also_where_the_project_asks_for_what_lies_behind_them(root, outside, target):
    (root / "sub").mkdir()
    (root / "sub" / "in.txt").write_text("in")
    (root / "link").symlink_to(target.replace("{outside}", str(outside)))
    (root / "file").symlink_to(outside / "token")
    said = [(pattern, "add") for pattern in ("link/*", "link/**", "link/token", "link/deep/*", "file", "*/token")]
    write_index(root, "link/token", "file", "ok.txt")
    assert await found(root, *said) == {"ok.txt": "ok", "sub/in.txt": "in"}


@pytest.mark.parametrize(
    "pattern",
    ["../**", "../outside/token", "../outside/*", "{..,x}/**", "{../outside,x}/*", "ok.txt/../../outside/token", "/{root}/../outside/*",
     ".git/config", ".git/*", "**/config", "/.*token$/", "@(..)/outside/*", "[.][.]/outside/*"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["add", "readonly"])
@pytest.mark.asyncio
async def test_a_constraint_takes_in_nothing_outside_of_the_project(root, outside, pattern, kind):
    said = (pattern.replace("{root}", str(root)), kind)
    assert await found(root, said) == {"ok.txt": "ok"}


@pytest.mark.asyncio
async def test_what_is_no_file_is_not_waited_for(root):
    os.mkfifo(root / "pipe")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(root / "socket"))
    (root / "dev").symlink_to("/dev/zero")
    write_index(root, "pipe", "socket", "dev", "ok.txt")
    assert await found(root, ("pipe", "add"), ("*", "add")) == {"ok.txt": "ok"}
    listening.close()


@pytest.mark.asyncio
async def test_what_the_index_calls_another_repository_is_no_file(root):
    (root / "sub").mkdir()
    (root / "sub" / ".git").write_text("gitdir: ../.git\n")
    (root / "sub" / "x").write_text("x")
    write_index(root, "sub", mode=GITLINK)
    assert await found(root) == {"ok.txt": "ok"}


@pytest.mark.parametrize("name", ["line\nbreak", "tab\t", "esc\x1b[2J", "del\x7f", "\x9b2J"])
@pytest.mark.asyncio
async def test_a_name_with_control_characters_is_no_path(root, name):
    (root / name).write_text("x")
    write_index(root, name, "ok.txt")
    assert await found(root) == {"ok.txt": "ok"}


@pytest.mark.parametrize(("names", "folders", "mib_max"), [(30, "a/" * 2000, 16), (2500, f"{'a' * 18}/" * 100, 160)])
@pytest.mark.asyncio
async def test_what_an_index_lists_of_folders_without_files_costs_a_scan_bounded_memory(root, names, folders, mib_max):
    write_index(root, *(f"{number}/{folders}f" for number in range(names)), "ok.txt")
    tracemalloc.start()
    try:
        assert await found(root) == {"ok.txt": "ok"}
        assert tracemalloc.get_traced_memory()[1] < mib_max * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not bound the memory of a process")
def test_git_does_not_take_the_memory_that_a_long_list_of_what_is_ignored_asks_for(root):
    # Of zeros, which cost nothing on a disk. One that git could still read, so that a fault here costs seconds only.
    with (root / ".git" / "info" / "exclude").open("wb") as rules:
        rules.truncate(MEMORY_KIB_MAX * 1024 + 256 * 1024 * 1024)
    # In a process of its own: a child counts with the memory of the process that started it.
    alone = subprocess.run([sys.executable, "-c", SCAN, root], check=True, capture_output=True, text=True)
    paths, children_kib = json.loads(alone.stdout)
    assert paths == ["ok.txt"]
    assert 0 < children_kib < MEMORY_KIB_MAX


@pytest.mark.asyncio
async def test_a_hard_link_is_the_file_itself(root):
    os.link(root / "ok.txt", root / "same.txt")
    assert await found(root) == {"ok.txt": "ok", "same.txt": "ok"}


@pytest.mark.asyncio
async def test_a_folder_that_is_swapped_for_a_link_while_it_is_read_is_never_followed(root, outside):
    (root / "a").mkdir()
    (root / "a" / "token").write_text("mine")
    (root / "b").symlink_to(outside)
    git(root, "add", "a/token")
    stopped = threading.Event()

    def swap() -> None:
        while not stopped.is_set():
            for one, other in (("a", "c"), ("b", "a"), ("a", "b"), ("c", "a")):
                (root / one).rename(root / other)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        one = scanner(root)
        texts = [file.text for _ in range(60) for file in (await one.scan(["a/token"])).changed]
    finally:
        stopped.set()
        swapping.join()
    assert set(texts) <= {"mine", "ok"}


def program(root: Path) -> str:
    """A program that says that it ran."""
    (root.parent / "evil").write_text(f'#!/bin/sh\necho "$0" >> {root.parent}/ran\nexit 1\n')
    (root.parent / "evil").chmod(0o755)
    return str(root.parent / "evil")


RUNNING = {
    "a monitor of files": {"core.fsmonitor": "{program}"},
    "a pager": {"core.pager": "{program}", "pager.ls-files": "{program}"},
    "aliases": {"alias.ls-files": "!{program}", "alias.check-ignore": "!{program}", "alias.rev-parse": "!{program}"},
    "filters": {"filter.x.clean": "{program}", "filter.x.process": "{program}", "diff.external": "{program}"},
    "hooks": {"core.hooksPath": ".."},
}


@pytest.mark.parametrize("settings", RUNNING.values(), ids=RUNNING.keys())
@pytest.mark.asyncio
async def test_what_a_repository_configures_is_not_run(root, settings):
    for key, value in settings.items():
        git(root, "config", key, value.format(program=program(root)))
    for name in ("post-index-change", "fsmonitor-watchman", "post-checkout"):
        (root.parent / name).write_text((root.parent / "evil").read_text() if settings else "")
        (root.parent / name).chmod(0o755)
    (root / ".gitattributes").write_text("* filter=x\n")
    assert await found(root) == {".gitattributes": "* filter=x\n", "ok.txt": "ok"}
    assert not (root.parent / "ran").exists()


@pytest.mark.asyncio
async def test_what_a_repository_promises_is_not_fetched(tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    promising(root, program(root))
    git(root, "ls-files")
    assert (tmp_path / "ran").exists(), "git by itself runs it"
    (tmp_path / "ran").unlink()
    assert "a.txt" in await found(root)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("elsewhere", ["..", "../outside", "/", "sub"])
@pytest.mark.asyncio
async def test_a_repository_cannot_name_another_work_tree(root, outside, elsewhere):
    (root / "sub").mkdir()
    (root / "sub" / "in.txt").write_text("in")
    git(root, "add", "ok.txt", "sub/in.txt")
    git(root, "config", "core.worktree", str((root / elsewhere).resolve()))
    assert set(await found(root)) <= {"ok.txt", "sub/in.txt"}


@pytest.mark.asyncio
async def test_a_repository_elsewhere_that_a_file_points_to_is_asked_for_names_only(root, tmp_path):
    (root / ".git").rename(tmp_path / "meta")
    (root / ".git").write_text(f"gitdir: {tmp_path}/meta\n")
    git(root, "config", "core.fsmonitor", program(root))
    assert await found(root) == {"ok.txt": "ok"}
    assert not (tmp_path / "ran").exists()


@pytest.mark.asyncio
async def test_a_folder_that_looks_like_the_inside_of_a_repository_is_none(root, tmp_path):
    bare = root / "bare"
    git(root, "init", "-q", "--bare", str(bare))
    git(bare, "config", "core.fsmonitor", program(root))
    (bare / "x.txt").write_text("x")
    assert "x.txt" in await found(bare)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("place", [".gitignore", "sub/.gitignore", ".git/info/exclude", ".git/index", ".git/config"])
@pytest.mark.asyncio
async def test_a_pipe_where_git_reads_does_not_hold_a_scan_for_long(root, place):
    """As long as git may take; then a walk answers, and git is not asked again for a while."""
    (root / "sub").mkdir()
    (root / place).unlink(missing_ok=True)
    os.mkfifo(root / place)
    one = scanner(root, git_timeout_s=0.2)
    assert "ok.txt" in [file.path for file in (await one.scan()).changed]
