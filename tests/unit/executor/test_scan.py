"""What a scan finds on a real disk, with and without git. Rows RU115, RU165."""

import hashlib
import os
import subprocess
import time

import pytest
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.constraints import Constraints
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.ports.workspaces import Scan
from turnwright_executor.tools.ports import ScannedFile

LATER_NS = 10**12


def scanner(root, now_ns=lambda: time.time_ns() + LATER_NS, **limits) -> DiskScanner:
    """A scanner for which everything was written long ago."""
    return DiskScanner(root, **({"file_bytes_max": 1000, "files_max": 100} | limits), now_ns=now_ns)


def fill(root, **files: str):
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_git(folder, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True)


def paths(scan: Scan) -> list[str]:
    return [file.path for file in scan.changed]


@pytest.fixture
def git(tmp_path):
    run_git(tmp_path, "init", "-q")
    return tmp_path


@pytest.mark.asyncio
async def test_git_decides_what_belongs_to_a_project(git):
    fill(git, a_py="a", src__b_py="b", ignored__c_py="c", _gitignore="ignored/\n", _hidden="h", node_modules="file")
    run_git(git, "add", "a.py")
    assert paths(await scanner(git).scan()) == [".gitignore", ".hidden", "a.py", "node.modules", "src/b.py"]
    assert paths(await scanner(git / "src").scan()) == ["b.py"]


def constraints(*said: tuple[str, str]) -> Constraints:
    return Constraints(FileConstraint(one[0], FileConstraintKind[one[1].upper()]) for one in said)


@pytest.mark.asyncio
async def test_an_ignored_file_is_not_scanned(git):
    """RU114: whatever version control says of it."""
    fill(git, a_py="a", src__b_py="b", src__c_py="c", secret_txt="s")
    run_git(git, "add", ".")
    ignoring = constraints(("src/**", "ignore"), ("/secret.+/", "ignore"), ("src/c.py", "add"))
    assert paths(await scanner(git, constraints=ignoring).scan()) == ["a.py", "src/c.py"]


@pytest.mark.parametrize("kind", ["add", "readonly"])
@pytest.mark.asyncio
async def test_an_added_file_is_scanned_whatever_else_says_no(git, kind):
    """RU112, RU113: by its path, or by a pattern; what is version control's own never is."""
    fill(git, a_py="a", build__x__b_js="b", build__c_txt="c", _gitignore="build/\n.env\n", _env="e", absent="x")
    (git / "absent").unlink()
    adding = constraints((".env", kind), ("build/**/*.js", kind), ("absent", kind), ("**/HEAD", kind))
    assert paths(await scanner(git, constraints=adding).scan()) == [".env", ".gitignore", "a.py", "build/x/b.js"]


@pytest.mark.asyncio
async def test_without_version_control_constraints_hold_too(tmp_path):
    fill(tmp_path, a_py="a", node_modules="file", _env="e", src__b_py="b")
    said = constraints((".env", "add"), ("src/*", "ignore"))
    assert paths(await scanner(tmp_path, constraints=said).scan()) == [".env", "a.py", "node.modules"]


@pytest.mark.asyncio
async def test_a_tracked_file_that_was_deleted_is_not_there(git):
    fill(git, a_py="a", b_py="b")
    run_git(git, "add", ".")
    (git / "a.py").unlink()
    assert paths(await scanner(git).scan()) == ["b.py"]


@pytest.mark.asyncio
async def test_a_repository_cannot_make_a_scan_run_a_program(git):
    (git / "evil.sh").write_text(f"#!/bin/sh\ntouch {git}/ran\n")
    (git / "evil.sh").chmod(0o755)
    run_git(git, "config", "core.fsmonitor", f"{git}/evil.sh")
    assert paths(await scanner(git).scan()) == ["evil.sh"]
    assert not (git / "ran").exists()


@pytest.mark.asyncio
async def test_without_git_hidden_and_generated_folders_are_left_out(tmp_path):
    fill(tmp_path, a_py="a", src__b_py="b", _gitignore="")
    for folder in (".hidden", "node_modules", "__pycache__", "my_environment", ".turnwright", "src/.cache"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x").write_text("x")
    (tmp_path / "my_environment" / "pyvenv.cfg").write_text("")
    (tmp_path / ".env").write_text("KEY=1")
    assert paths(await scanner(tmp_path).scan()) == [".gitignore", "a.py", "src/b.py"]


@pytest.mark.asyncio
async def test_a_folder_that_an_outer_repository_ignores_is_walked(git):
    fill(git, _gitignore="inner/\n", inner__a_py="a")
    assert paths(await scanner(git / "inner").scan()) == ["a.py"]


@pytest.mark.parametrize("with_git", [True, False])
@pytest.mark.asyncio
async def test_links_are_not_followed_and_odd_names_are_left_out(tmp_path, with_git):
    root = tmp_path / "project"
    fill(root, a_py="a")
    (tmp_path / "secret").write_text("secret")
    (root / "file_link").symlink_to(tmp_path / "secret")
    (root / "folder_link").symlink_to(tmp_path)
    (root / "line\nbreak").write_text("x")
    (root / os.fsdecode(b"\xff")).write_text("x")
    os.mkfifo(root / "pipe")
    if with_git:
        run_git(root, "init", "-q")
    assert paths(await scanner(root).scan()) == ["a.py"]


@pytest.mark.asyncio
async def test_files_come_with_text_hash_and_size(tmp_path):
    (tmp_path / "a").write_text("ä\r\n")
    (tmp_path / "b").write_bytes(b"\xff")
    (tmp_path / "c").write_text("x" * 1001)
    a, b, c = (await scanner(tmp_path).scan()).changed
    assert a == ScannedFile("a", "ä\r\n", hashlib.sha256("ä\r\n".encode()).hexdigest(), 4)
    assert b == ScannedFile("b", None, hashlib.sha256(b"\xff").hexdigest(), 1)
    assert (c.path, c.text, c.bytes_) == ("c", None, 1001)


@pytest.mark.asyncio
async def test_a_second_scan_tells_only_what_changed(tmp_path):
    fill(tmp_path, a_py="a", b_py="b", c_py="c")
    one = scanner(tmp_path)
    await one.scan()
    assert await one.scan() == Scan((), ())
    (tmp_path / "a.py").write_text("A")
    (tmp_path / "b.py").unlink()
    fill(tmp_path, d_py="d")
    scan = await one.scan()
    assert paths(scan) == ["a.py", "d.py"]
    assert scan.removed == ("b.py",)
    assert one.total == 3


@pytest.mark.asyncio
async def test_an_unchanged_file_is_not_read_again(tmp_path):
    fill(tmp_path, a_py="a")
    one = scanner(tmp_path)
    await one.scan()
    before = (tmp_path / "a.py").stat().st_atime_ns
    os.utime(tmp_path / "a.py", ns=(before, (tmp_path / "a.py").stat().st_mtime_ns))
    assert await one.scan() == Scan((), ())
    kept = one._seen["a.py"]
    await one.scan()
    assert one._seen["a.py"] is kept


@pytest.mark.asyncio
async def test_a_second_write_in_the_same_moment_is_seen(tmp_path):
    fill(tmp_path, a_py="a")
    one = scanner(tmp_path, now_ns=time.time_ns)
    await one.scan()
    assert one._seen["a.py"].signature is None, "its times may not tell a second write apart"
    status = (tmp_path / "a.py").stat()
    (tmp_path / "a.py").write_text("b")
    os.utime(tmp_path / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert paths(await one.scan()) == ["a.py"]


@pytest.mark.asyncio
async def test_a_touched_file_has_not_changed(tmp_path):
    fill(tmp_path, a_py="a")
    one = scanner(tmp_path)
    await one.scan()
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert await one.scan() == Scan((), ())


@pytest.mark.asyncio
async def test_only_so_many_files_are_read(tmp_path):
    fill(tmp_path, a_py="a", b_py="b", c_py="c")
    assert paths(await scanner(tmp_path, files_max=2).scan()) == ["a.py", "b.py"]


@pytest.mark.asyncio
async def test_a_root_that_is_gone_is_an_error_and_not_an_empty_project(tmp_path):
    with pytest.raises(FileNotFoundError):
        await scanner(tmp_path / "nowhere").scan()
