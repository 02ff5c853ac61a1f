"""Which projects lie on this machine, by what is mounted now."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from turnwright_executor.files.mounts import Mounts

MOUNTED_LATER = """
import subprocess, sys
from turnwright_executor.files.folder_watch import FolderWatch
from turnwright_executor.files.mounts import MOUNTS
root = sys.argv[1]
watch = FolderWatch(root)
watch.follow({"", "shared"})
print(MOUNTS.is_local_tree(root), watch.follow({"", "shared"}), watch.changed() is not None)
subprocess.run(["mount", "-t", "ramfs", "ramfs", f"{root}/shared"], check=True)
print(MOUNTS.is_local_tree(root), watch.changed() is not None)
subprocess.run(["umount", f"{root}/shared"], check=True)
print(MOUNTS.is_local_tree(root))
"""
NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def line(device, place, kind):
    return f"36 35 {device} / {place} rw,noatime master:1 - {kind} /dev/root rw\n"


@pytest.fixture
def told(tmp_path):
    """What a table of mounts makes of a folder."""
    (tmp_path / "a b").mkdir()
    root = str(tmp_path / "a b")

    def tell(*mounts):
        (tmp_path / "table").write_text("".join(line(*mount) for mount in mounts))
        return Mounts(str(tmp_path / "table")).is_local_tree(root)

    return root, tell


def test_what_is_mounted_below_a_folder_is_part_of_it(told):
    root, tell = told
    device = Path(root).stat().st_dev
    here, elsewhere = (f"{os.major(device)}:{os.minor(device)}", "/", "ext4"), ("0:99", "/elsewhere", "nfs4")
    escaped = root.replace(" ", "\\040")
    assert tell(here, elsewhere)
    assert tell(here, elsewhere, ("0:98", f"{escaped}/ram", "tmpfs"))
    assert not tell(here, elsewhere, ("0:98", f"{escaped}/shared", "nfs4"))
    assert not tell(here, elsewhere, (here[0], "/", "fuse.sshfs"))
    assert not tell(elsewhere)


def test_nothing_is_local_that_the_kernel_tells_nothing_about(told, tmp_path):
    root, _ = told
    assert not Mounts("/gone").is_local_tree(root)
    assert not Mounts(str(tmp_path)).is_local_tree(root)
    assert not Mounts().is_local_tree(f"{root}/gone")


def test_what_is_mounted_is_read_from_the_kernel():
    assert Mounts().mounts_below("")


def test_a_table_that_could_not_be_read_is_read_again():
    mounts = Mounts()
    known = mounts.mounts_below("")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        # poll(2) refuses more descriptors than a process may have.
        assert mounts.mounts_below("") == ()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert mounts.mounts_below("") == known


def test_what_is_mounted_later_is_seen(tmp_path):
    (tmp_path / "shared").mkdir()
    if subprocess.run((*NAMESPACE, "true"), check=False, capture_output=True).returncode:
        pytest.skip("no namespaces for users here")
    command = (*NAMESPACE, sys.executable, "-c", MOUNTED_LATER, str(tmp_path))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    if done.stdout.startswith("True False"):
        pytest.skip("other processes of this user have taken all of its inotify instances")
    assert done.stdout.splitlines() == ["True True True", "False False", "True"]
