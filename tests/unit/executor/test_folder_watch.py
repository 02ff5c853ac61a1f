"""A scan that the kernel tells where something happened finds what a scan finds that looks at everything."""

import gc
import os
import resource
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from pathlib import Path

import inotify_simple
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.constraints import Constraints
from turnwright_executor.files.file_threads import StoppedError
from turnwright_executor.files.folder_watch import FolderWatch
from turnwright_executor.files.scan import DiskScanner

FOLDERS = ("", "src/", "src/deep/", "ignored/", "docs/")
NAMES = ("a.py", "b.txt", ".gitignore")
PATHS = [folder + name for folder in FOLDERS for name in NAMES]


@pytest.fixture
def queue():
    """Skips a test where the kernel has no queue left for it."""
    try:
        inotify_simple.INotify().close()
    except OSError:
        pytest.skip("other processes of this user have taken all of its inotify instances")


def scanner(root, watch=None, **more) -> DiskScanner:
    return DiskScanner(root, **({"file_bytes_max": 1000, "files_max": 1000} | more), watch=watch)


def watched(root, **more) -> DiskScanner:
    return scanner(root, FolderWatch(os.path.realpath(root)), **more)


def scan(one: DiskScanner, doubtful=()):
    return one._scan(frozenset(doubtful), lambda: None)


def copied(one: DiskScanner) -> DiskScanner:
    other = copy(one)
    other.detach()
    return other


def stats_of(one: DiskScanner) -> int:
    """How often a scan asks the system about a file or a folder."""
    count = 0

    def seen(_frame, event, argument):
        nonlocal count
        count += event == "c_call" and argument.__name__ == "stat"

    sys.setprofile(seen)
    try:
        scan(one)
    finally:
        sys.setprofile(None)
    return count


def fill(root: Path, count: int) -> None:
    for number in range(count):
        folder = root / f"folder_{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}.txt").write_text(str(number))
        os.utime(folder / f"{number}.txt", (1, 1))
        os.utime(folder, (1, 1))
    os.utime(root, (1, 1))


def test_a_project_in_which_nothing_happened_is_not_looked_at(tmp_path, queue):
    fill(tmp_path, 300)
    at = {"now_ns": lambda: 10**18}
    plain, told = scanner(tmp_path, **at), watched(tmp_path, **at)
    assert scan(plain) == scan(told)
    assert told._is_watched
    assert stats_of(plain) > 300
    assert stats_of(told) < 40
    (tmp_path / "folder_3" / "10.txt").write_text("more")
    other = copied(told)
    # The folders, and the files of one of them; each scanner is told of it.
    assert [stats_of(one) < 150 for one in (told, other)] == [True, True]
    assert [stats_of(one) < 40 for one in (told, other)] == [True, True]


class Story:
    """Does one thing after the other to a folder, and hides what cannot be done."""

    def __init__(self, root: Path):
        self.root = root

    def write(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("ignored/\n" if place.name == ".gitignore" and not text else text)

    def replace(self, path, text):
        self.write(path + ".new", text)
        (self.root / (path + ".new")).replace(self.root / path)

    def remove(self, path, _):
        (self.root / path).unlink()

    def drop(self, path, _):
        shutil.rmtree((self.root / path).parent if "/" in path else self.root / "src")

    def move(self, path, _):
        folder = Path(path).parent
        (self.root / folder).rename(self.root / f"moved_{folder.name}")

    def link(self, path, _):
        place = self.root / path
        place.unlink(missing_ok=True)
        place.symlink_to(self.root / "a.py")

    def close(self, path, _):
        (self.root / path).chmod(0o200)

    def swap(self, _, text):
        """Another folder takes the place of the project."""
        other = self.root.with_name("other")
        shutil.rmtree(other, ignore_errors=True)
        shutil.copytree(self.root, other, symlinks=True)
        (other / "swapped.txt").write_text(text)
        shutil.rmtree(self.root)
        other.rename(self.root)


deeds = st.tuples(
    st.sampled_from(["write", "write", "replace", "remove", "drop", "move", "link", "close", "swap", "nothing"]),
    st.sampled_from(PATHS),
    st.sampled_from(["", "one", "another", "\0"]),
)


@pytest.mark.slow
@pytest.mark.parametrize("is_repository", [False, True])
@settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(rounds=st.lists(st.tuples(st.lists(deeds, max_size=3), st.sets(st.sampled_from(PATHS), max_size=1)), max_size=8))
def test_both_find_the_same_whatever_happens(tmp_path_factory, is_repository, rounds):
    root = tmp_path_factory.mktemp("story") / "project"
    root.mkdir()
    story = Story(root)
    for path in ("a.py", "src/deep/a.py", "docs/b.txt", "ignored/a.py"):
        story.write(path, "begin")
    if is_repository:
        subprocess.run(["git", "init", "-q"], cwd=root, check=True)
        story.write(".gitignore", "ignored/\n")
    plain, told, seldom_plain, seldom_told = scanner(root), watched(root), scanner(root), watched(root)
    assert scan(plain) == scan(told)
    for number, (happened, doubtful) in enumerate(rounds):
        if number == 3:
            # Another run goes on from what this one has seen.
            told = copied(told)
        for what, path, text in happened:
            with suppress(OSError):
                getattr(story, what, lambda *_: None)(path, text)
        # Taken by both before the next thing happens.
        assert scan(plain, doubtful) == scan(told, doubtful)
        if number % 2:
            assert scan(seldom_plain) == scan(seldom_told)


def test_more_events_than_the_kernel_keeps_are_a_reason_to_look_at_everything(tmp_path):
    before = watches()
    fill(tmp_path, 10)
    plain, told, other = scanner(tmp_path), watched(tmp_path), watched(tmp_path)
    scan(plain), scan(told), scan(told), scan(other)
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    files = [tmp_path / "folder_0" / name for name in ("0.txt", "7.txt")]
    for _ in range(kept // 4 + 1):
        for file in files:
            os.utime(file)
            os.utime(file, (1, 1))
    (tmp_path / "folder_5" / "5.txt").write_text("in the dark")
    found = scan(told)
    assert found == scan(plain)
    assert "folder_5/5.txt" in [file.path for file in found.changed]
    # All that read the queue have missed something, whoever noticed it.
    assert scan(other) == found
    (tmp_path / "folder_5" / "5.txt").write_text("in the light")
    assert scan(told) == scan(other) == scan(plain)
    assert watches() <= before + 1


@pytest.mark.parametrize("stops_after", [1, 5, 20])
def test_what_was_told_to_a_scan_that_broke_off_is_found_by_the_next(tmp_path, stops_after):
    fill(tmp_path, 30)
    plain, told = scanner(tmp_path), watched(tmp_path)
    scan(plain), scan(told), scan(told)
    for number in (1, 8, 15, 22, 29):
        (tmp_path / "folder_1" / f"{number}.txt").write_text("again")
    (tmp_path / "folder_2" / "new.txt").write_text("new")
    left = stops_after

    def check():
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError

    with suppress(StoppedError):
        told._scan(frozenset(), check)
    changed = {file.path: file.text for file in scan(told).changed}
    expected = {file.path: file.text for file in scan(plain).changed}
    # Of a scan that was broken off nobody has heard: more may be told again, never less.
    assert expected.items() <= changed.items()


def test_what_is_taken_in_from_anywhere_is_looked_at_each_time(tmp_path):
    fill(tmp_path, 10)
    (tmp_path / ".hidden").mkdir()
    said = Constraints([FileConstraint(".hidden/*.md", FileConstraintKind.ADD)])
    told = watched(tmp_path, constraints=said)
    scan(told), scan(told)
    (tmp_path / ".hidden" / "x.md").write_text("taken in")
    assert [file.path for file in scan(told).changed] == [".hidden/x.md"]


def test_a_file_system_that_others_may_change_is_not_watched():
    assert FolderWatch("/proc/self").follow([""]) is False


def test_a_user_without_queues_has_everything_looked_at(tmp_path):
    fill(tmp_path, 10)
    plain, told = scanner(tmp_path), watched(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert told._watch.follow([""]) is False
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert scan(plain) == scan(told)
    (tmp_path / "folder_5" / "5.txt").write_text("more")
    assert scan(plain) == scan(told)
    assert told._watch.changed() is None


def test_a_folder_that_cannot_be_watched_is_no_matter_of_other_readers(tmp_path, queue):
    fill(tmp_path, 10)
    told, other = watched(tmp_path), FolderWatch(os.path.realpath(tmp_path))
    scan(told)
    assert told._is_watched
    assert other.follow(["", "gone"]) is False
    assert told._watch.changed() == set()
    (tmp_path / "folder_5" / "5.txt").write_text("more")
    assert told._watch.changed() == {"folder_5"}


def test_a_reader_that_comes_later_does_not_take_what_others_watch_for_watched_by_itself(tmp_path, queue):
    one, other = FolderWatch(os.path.realpath(tmp_path)), FolderWatch(os.path.realpath(tmp_path))
    assert one.follow([""]) is False
    assert one.follow([""]) is True
    assert other.follow([""]) is False
    assert other.follow([""]) is True


def test_a_folder_is_watched_as_long_as_somebody_follows_it(tmp_path, queue):
    (tmp_path / "src").mkdir()
    one, other = FolderWatch(os.path.realpath(tmp_path)), FolderWatch(os.path.realpath(tmp_path))
    for reader in (one, other):
        reader.follow(["", "src"])
    assert one.follow([""]) is True
    (tmp_path / "src" / "a.py").write_text("")
    assert (one.changed(), other.changed()) == (set(), {"src"})
    other.follow([""])
    (tmp_path / "src" / "b.py").write_text("")
    assert (one.changed(), other.changed()) == (set(), set())


def watches() -> int:
    """How many of the kernel's queues this process has open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(str(entry.readlink()))
    return links.count("anon_inode:inotify")


def test_runs_of_one_project_share_a_queue_that_the_last_one_closes(tmp_path, queue):
    gc.collect()
    fill(tmp_path, 10)
    before = watches()
    runs = [watched(tmp_path) for _ in range(200)]
    for run in runs:
        scan(run)
    assert runs[0]._is_watched
    assert watches() == before + 1
    (tmp_path / "folder_3" / "3.txt").write_text("more")
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(scan, runs))
    assert [[file.path for file in each.changed] for each in found] == [["folder_3/3.txt"]] * 200
    del runs[1:], run
    gc.collect()
    assert watches() == before + 1
    runs.clear()
    gc.collect()
    assert watches() == before
