"""The files of a project on a real disk. Rows RU204, RU205; architecture 6 (confinement), 11 (hashes)."""

import asyncio
import errno
import hashlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwright_executor.files.confinement import Tree
from turnwright_executor.files.contents import HASHED_BYTES_MAX, read, written_aside
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import SHORT_BYTES_MAX, DiskWorkspace
from turnwright_executor.tools.ports import FileText, OutsideProjectError


def digest(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def root(tmp_path) -> Path:
    """A project, beside a directory that is none of its business."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "canary").write_text("canary")
    root = tmp_path / "project"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("a\n")
    (root / "out").symlink_to(tmp_path / "outside")
    (root / "canary").symlink_to(tmp_path / "outside" / "canary")
    (root / "dangling").symlink_to(tmp_path / "outside" / "new")
    (root / "inner").symlink_to("src")
    (root / "loop").symlink_to("loop")
    return root


@pytest.fixture(params=[True, False], ids=["local", "remote"])
def workspace(request, root) -> DiskWorkspace:
    """On a disk of this machine, whose short files are read in the event loop, and elsewhere, where none are."""
    return DiskWorkspace(root, 1000, is_local=lambda _: request.param)


def at_once(coroutine) -> bool:
    """Whether it comes to its end without waiting for a thread."""
    try:
        coroutine.send(None)
    except StopIteration:
        return True
    coroutine.close()
    return False


@pytest.mark.asyncio
async def test_only_short_files_of_this_machine_that_need_no_closer_look_are_read_in_the_event_loop(root):
    (root / "short.bin").write_bytes(b"\0" * 2000)
    (root / "long.txt").write_text("x" * (SHORT_BYTES_MAX + 1))
    os.mkfifo(root / "pipe")
    paths = ("src/a.py", "short.bin", "long.txt", "./src/a.py", "inner/a.py", "gone", "src", "pipe", "..", "\0")
    local, remote = (DiskWorkspace(root, 1000, is_local=lambda _, told=told: told) for told in (True, False))
    assert [path for path in paths if at_once(local.find(path))] == ["src/a.py", "short.bin", "gone"]
    assert [path for path in paths if at_once(remote.find(path))] == []
    for path in ("src/a.py", "short.bin", "gone", "src/gone", "none/gone", "inner/gone"):
        assert await local.find(path) == await remote.find(path)


@pytest.mark.parametrize(
    ("path", "spelling"),
    [
        ("src/a.py", "src/a.py"),
        ("./src//a.py", "src/a.py"),
        ("src/../src/a.py", "src/a.py"),
        ("src/.", "src"),
        ("new/dir/b.py", "new/dir/b.py"),
        ("inner/a.py", "src/a.py"),
        ("..a/..b", "..a/..b"),
        ("a\\b", "a\\b"),
    ],
)
@pytest.mark.asyncio
async def test_a_path_has_one_spelling(workspace, path, spelling):
    assert await workspace.normalise(path) == spelling


@pytest.mark.asyncio
async def test_an_absolute_path_inside_becomes_relative(workspace, root, tmp_path):
    (tmp_path / "alias").symlink_to(root)
    assert await workspace.normalise(f"{root}/src/a.py") == "src/a.py"
    assert await workspace.normalise(f"{tmp_path}/alias/src/a.py") == "src/a.py"


ESCAPES = [
    "../outside/canary",
    "/etc/passwd",
    "src/../../outside/canary",
    "out/canary",
    "canary",
    "dangling",
    "..",
    "",
    "\0",
]


@pytest.mark.parametrize("path", [*ESCAPES, "."])
@pytest.mark.asyncio
async def test_a_path_that_leaves_the_root_is_refused_whatever_the_operation(workspace, tmp_path, path):
    for operation in (
        workspace.read(path),
        workspace.replace(path, "x", None),
        workspace.replace(path, None, digest("canary")),
    ):
        with pytest.raises(OutsideProjectError):
            await operation
    with pytest.raises(OutsideProjectError):
        await workspace.normalise(path)
    assert (tmp_path / "outside" / "canary").read_text() == "canary"
    assert names(tmp_path / "outside") == ["canary"]


@pytest.mark.parametrize(
    "path",
    [".git/config", "sub/.git/x", ".GIT/config", ".g\u200cit/config", ".turnwright/workspace", ".git", ".hg/hgrc"],
)
@pytest.mark.asyncio
async def test_version_control_and_the_marker_are_neither_read_nor_written(workspace, root, path):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("theirs")
    (root / "by-link").symlink_to(path)
    for name in (path, "by-link"):
        for operation in (workspace.read(name), workspace.gather(name, 9, 99), workspace.replace(name, "x", None)):
            with pytest.raises(OutsideProjectError):
                await operation
    assert (root / path).read_text() == "theirs"


PARTS = st.sampled_from(
    ["..", ".", "src", "out", "canary", "dangling", "inner", "loop", "a.py", "new", "", "/", "~", "..."]
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PARTS, min_size=1, max_size=8).map("/".join))
def test_no_path_writes_outside(workspace, root, tmp_path, path):
    async def write():
        try:
            await workspace.replace(path, "written", None)
            await workspace.replace(path, None, digest("written"))
        except (OutsideProjectError, OSError):
            pass

    asyncio.run(write())
    assert names(tmp_path) == ["outside", "project"]
    assert names(tmp_path / "outside") == ["canary"]
    assert (tmp_path / "outside" / "canary").read_text() == "canary"


@pytest.mark.asyncio
async def test_a_link_that_appears_after_the_check_is_not_followed(workspace, root, tmp_path):
    relative = await workspace.normalise("src/a.py")
    (root / "src" / "a.py").unlink()
    (root / "src").rmdir()
    (root / "src").symlink_to(tmp_path / "outside")
    with Tree(workspace.root) as tree, pytest.raises(OutsideProjectError, match=r"through a link \(src\)"):
        read(tree, relative, 1000)


@pytest.mark.asyncio
async def test_a_file_is_read_with_its_hash(workspace, root):
    assert await workspace.read("src/a.py") == FileText("a\n", digest("a\n"), 2)
    assert await workspace.read("inner/a.py") == FileText("a\n", digest("a\n"), 2)
    assert await workspace.read("nowhere/b.py") is None
    assert await workspace.read("src/a.py/b") is None
    with pytest.raises(OutsideProjectError):
        await workspace.read("loop/b")


@pytest.mark.parametrize("data", [b"\xff\xe9", b"a\0b", b"\xed\xa0\x80"], ids=["latin", "nul", "surrogate"])
@pytest.mark.asyncio
async def test_what_is_no_text_has_a_hash_only(workspace, root, data):
    (root / "b.bin").write_bytes(data)
    found = await workspace.read("b.bin")
    assert found
    assert (found.text, found.hash, found.bytes_) == (None, digest(data), len(data))


@pytest.mark.asyncio
async def test_a_file_over_the_limit_has_a_hash_only(workspace, root):
    (root / "big").write_text("x" * 1001)
    (root / "fits").write_text("x" * 1000)
    assert await workspace.read("big") == FileText(None, digest("x" * 1001), 1001)
    assert (await workspace.read("fits")).text == "x" * 1000


@pytest.mark.asyncio
async def test_of_a_file_of_any_size_nothing_is_read_before_its_size_is_known(workspace, root):
    with (root / "vast").open("wb") as file:
        file.truncate(200 * 1024**3)
    found = await workspace.read("vast")
    assert (found.text, found.bytes_) == (None, 200 * 1024**3)
    with (root / "vast").open("r+b") as file:
        file.truncate(HASHED_BYTES_MAX + 1)
    assert not await workspace.replace("vast", None, found.hash), "it has changed"
    assert await workspace.replace("vast", None, (await workspace.read("vast")).hash)
    assert not (root / "vast").exists()


@pytest.mark.asyncio
async def test_a_change_that_was_accepted_is_not_made_to_another_file_that_its_path_leads_to_by_now(workspace, root):
    (root / "docs").mkdir()
    path = await workspace.normalise("docs/new.yml")
    (root / "docs").rmdir()
    (root / "docs").symlink_to("src")
    with pytest.raises(OutsideProjectError, match=r"now leads to src/new\.yml"):
        await workspace.replace(path, "text", None)
    assert names(root / "src") == ["a.py"]


@pytest.mark.asyncio
async def test_the_home_of_the_runtime_is_no_part_of_a_project_around_it(root):
    home = root / "data" / "turnwright"
    home.mkdir(parents=True)
    (home / "token").write_text("secret")
    (root / "way").symlink_to("data")
    workspace = DiskWorkspace(root, 1000, home=home)
    for path in ("data/turnwright/token", "way/turnwright/token", "data/turnwright", str(home / "token")):
        with pytest.raises(OutsideProjectError):
            await workspace.read(path)
    assert (await workspace.gather("data", 9, 99)).files == {}


@pytest.mark.asyncio
async def test_a_folder_and_a_pipe_are_no_files(workspace, root):
    os.mkfifo(root / "pipe")
    assert await workspace.read("pipe") is None
    with pytest.raises(IsADirectoryError):
        await workspace.read("src")


@pytest.mark.asyncio
async def test_a_new_file_is_made_with_its_folders(workspace, root):
    assert await workspace.replace("new/deep/b.py", "b", None)
    assert (root / "new/deep/b.py").read_text() == "b"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE((root / "new/deep/b.py").stat().st_mode) == 0o666 & ~umask


@pytest.mark.asyncio
async def test_a_replaced_file_keeps_its_mode_and_gets_exactly_the_text(workspace, root):
    file = root / "run.sh"
    file.write_bytes(b"old\r\n")
    file.chmod(0o754)
    assert await workspace.replace("run.sh", "new\r\nline\n", digest("old\r\n"))
    assert file.read_bytes() == b"new\r\nline\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o754
    assert names(root / "src") == ["a.py"]
    assert not [name for name in names(root) if name.endswith(".tmp")]


@pytest.mark.asyncio
async def test_a_file_behind_a_link_is_replaced_and_the_link_stays(workspace, root):
    (root / "link.py").symlink_to("src/a.py")
    assert await workspace.replace(await workspace.normalise("link.py"), "b", digest("a\n"))
    assert (root / "link.py").is_symlink()
    assert (root / "src/a.py").read_text() == "b"


@pytest.mark.parametrize(
    ("content", "base"),
    [("new", digest("other")), ("new", None), (None, digest("other")), (None, None)],
    ids=["edit", "create", "delete", "delete of a new one"],
)
@pytest.mark.asyncio
async def test_a_file_that_is_not_what_it_was_is_left_alone(workspace, root, content, base):
    assert not await workspace.replace("src/a.py", content, base)
    assert (root / "src/a.py").read_text() == "a\n"


@pytest.mark.asyncio
async def test_a_file_that_is_gone_is_not_written_again(workspace, root):
    assert not await workspace.replace("gone/b.py", "b", digest("x"))
    assert not (root / "gone").exists()


@pytest.mark.asyncio
async def test_work_that_is_done_counts_as_done(workspace, root):
    assert await workspace.replace("src/a.py", "a\n", digest("before"))
    assert await workspace.replace("src/gone.py", None, digest("before"))
    assert await workspace.replace("nowhere/gone.py", None, digest("before"))


@pytest.mark.asyncio
async def test_a_file_is_deleted(workspace, root):
    assert await workspace.replace("src/a.py", None, digest("a\n"))
    assert names(root / "src") == []


@pytest.mark.asyncio
async def test_of_two_who_make_a_file_one_wins(workspace, root):
    answers = await asyncio.gather(*(workspace.replace("one.py", f"text {n}", None) for n in range(8)))
    assert answers.count(True) == 1
    assert (root / "one.py").read_text() == f"text {answers.index(True)}"


@pytest.mark.asyncio
async def test_a_write_that_fails_leaves_nothing_behind(workspace, root):
    with pytest.raises(OSError, match="File name too long"):
        await workspace.replace("x" * 300, "text", None)
    (root / "src" / "a.py").unlink()
    (root / "src" / "a.py").mkdir()
    with pytest.raises(IsADirectoryError):
        await workspace.replace("src/a.py", "text", None)
    assert not list(root.rglob("*.tmp"))


@pytest.mark.asyncio
async def test_a_file_that_changes_while_its_successor_is_written_is_left_alone(workspace, root):
    with Tree(workspace.root) as tree:
        assert not workspace._write(tree, "src/a.py", b"new", digest("what it was a moment ago"))
    assert (root / "src/a.py").read_text() == "a\n"
    assert names(root / "src") == ["a.py"]


KILLED = """
import asyncio, hashlib, os, signal, stat, sys
from turnwright_executor.files.workspace import DiskWorkspace
root, old, moment = sys.argv[1:]
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)
fsync, hash_of, seen = os.fsync, DiskWorkspace._hash_of, []
if moment == "compared":
    DiskWorkspace._hash_of = lambda *args: (seen.append(1), kill() if len(seen) == 2 else hash_of(*args))[1]
else:
    os.fsync = lambda one: kill() if is_folder(one) == (moment == "named") else fsync(one)
base = hashlib.sha256(old.encode()).hexdigest() if old else None
asyncio.run(DiskWorkspace(root, 1000).replace("a.py", "new", base))
"""


@pytest.mark.parametrize(
    ("old", "moment", "left"),
    [("", "written", None), ("", "named", "new"), ("old", "written", "old"), ("old", "compared", "old")],
)
def test_who_is_killed_while_writing_leaves_nothing_behind(tmp_path, old, moment, left):
    if old:
        (tmp_path / "a.py").write_text(old)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), old, moment], check=False)

    assert done.returncode == -signal.SIGKILL
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == ({"a.py": left} if left else {})


def test_a_file_system_without_nameless_files_is_written_to(tmp_path, monkeypatch):
    opened = os.open

    def refusing(path, flags, *more, **options):
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return opened(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refusing)
    folder = opened(tmp_path, os.O_RDONLY)
    with written_aside(folder, b"whole") as new:
        assert (tmp_path / new.temporary_name()).read_bytes() == b"whole"
    os.close(folder)
    assert names(tmp_path) == []


@pytest.mark.asyncio
async def test_a_temporary_file_is_never_one_of_the_project(tmp_path):
    folder = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "a.tmp").write_text("theirs")
    with written_aside(folder, b"ours") as new:
        assert (tmp_path / new.temporary_name()).exists()
        scan = await DiskScanner(tmp_path, file_bytes_max=1000, files_max=10).scan()
    os.close(folder)

    assert [file.path for file in scan.changed] == ["a.tmp"]
