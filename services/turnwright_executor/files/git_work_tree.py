"""Git's view of the files below a folder, each answer from a child process, and the inputs of those answers.

A repository may be untrusted, including its configuration and its index. So nothing that a repository configures is
run: no file system monitor, hook or pager; and nothing is fetched, as git does for missing promised objects. Its
listing is treated as a list of untrusted names.
"""

from __future__ import annotations

import errno
import os
import re
import select
import stat
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnwright_executor.files.file_threads import Check
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.readable import read_beginning

MEMORY_KIB_MAX: Final = 1024 * 1024
"""Memory limit of git, in KiB: it reads whole lists of ignore rules, and a file of 200 GiB may be all zeros."""

_GIT: Final = (
    *("sh", "-c", f'ulimit -v {MEMORY_KIB_MAX} 2>/dev/null; exec "$0" "$@"'),
    "git",
    "--no-pager",
    *("-c", "core.fsmonitor=false"),
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.quotePath=false"),
    # A folder that looks like the inside of a repository does not count.
    *("-c", "safe.bareRepository=explicit"),
)
_ENVIRONMENT: Final = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    # For git before 2.45: no protocol is allowed for fetching from another repository.
    "GIT_ALLOW_PROTOCOL": "",
    "LC_ALL": "C",
}
_ANSWERS: Final = (0, 1)
"""Exit codes with an answer; `check-ignore` exits with 1 if nothing is ignored."""
_NOT_FOUND: Final = 127
"""Exit code of the shell if there is no such program."""


class Inputs(Struct, frozen=True):
    """Files, existing or not, on which git's answers depend."""

    index: str
    """The index of tracked files; commands that add something write it."""
    rules: tuple[str, ...]
    """Ignore rules, and the configuration that names them."""


OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Longest output that is read, in bytes: an index of some megabytes may list gigabytes of names."""

IGNORE_FILE: Final = ".gitignore"
REPOSITORY: Final = ".git"
CONFIGURATIONS_MAX: Final = 100
"""Files of a repository's configuration that are looked through for what they name."""

_READ: Final = frozenset({IGNORE_FILE, ".gitattributes", ".gitmodules", REPOSITORY})
_NAMED: Final = re.compile(rb"^[^#;\n]*\b(path|excludesfile|attributesfile)[ \t]*=(.+)$", re.IGNORECASE | re.MULTILINE)
_CONFIGURATION_BYTES_MAX: Final = 64 * 1024
_POLL_S: Final = 0.1
_GIT_FILE_BYTES_MAX: Final = 4096
_CHUNK_BYTES: Final = 256 * 1024


class GitWorkTree:
    """The part of a work tree below a root."""

    def __init__(self, root: str, timeout_s: float) -> None:
        """Each call times out after this many seconds."""
        self.check: Check = lambda: None
        """Called while git runs: raises if nobody waits any more."""
        self._root = root
        self._timeout_s = timeout_s
        self._met = ""
        """What git waited for when it was asked before; empty if it did not."""

    def files(self) -> list[str] | None:
        """Tracked files, and untracked ones that are not ignored; None outside a work tree.

        Raises OSError if git is not installed, subprocess.SubprocessError if it times out or prints too much.
        """
        output = self._ask("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return None if output is None else _names(output)

    def ignored(self, folders: Collection[str]) -> frozenset[str]:
        """Those of the folders in which git does not look for files to add. Raises as `files`."""
        asked = b"".join(os.fsencode(folder) + b"\0" for folder in folders)
        output = self._ask("check-ignore", "-z", "--stdin", stdin=asked) if asked else b""
        return frozenset(_names(output or b""))

    def inputs(self) -> Inputs | None:
        """Inputs other than the `.gitignore` files below the root; None if git does not tell. Raises as `files`.

        Also None if the root is not in this work tree, as a repository may claim.
        """
        where = self._ask("rev-parse", "--show-toplevel", "--git-path", "index", "--git-path", "info/exclude")
        lines = os.fsdecode(where or b"").splitlines()
        if len(lines) != 3:
            # Outside a work tree, or below a folder with a line break in its name.
            return None
        top, index, exclude = (os.path.join(self._root, line) for line in lines)
        if not Path(self._root).is_relative_to(os.path.realpath(top)):
            return None
        above = [os.path.join(folder, IGNORE_FILE) for folder in _folders_between(self._root, top)]
        return Inputs(index, (exclude, *above, *self._configuration(top), *_usual_files()))

    def _configuration(self, top: str) -> Iterator[str]:
        """The configuration files of git here, and the ignore files that they name."""
        names = _names(self._ask("config", "--list", "--show-origin", "-z") or b"")
        for origin in {origin.removeprefix("file:") for origin in names[::2] if origin.startswith("file:")}:
            yield from (os.path.join(base, origin) for base in {self._root, top})
        for value in names[1::2]:
            if value.startswith("core.excludesfile\n"):
                yield os.path.join(top, os.path.expanduser(value.partition("\n")[2]))

    def _ask(self, *question: str, stdin: bytes = b"") -> bytes | None:
        if special := special_file(self._root) or (self._met if _is_special(self._met) else ""):
            raise _waits_for(special)
        # Other processes of our user can read the environment of our children.
        environment = allowed_environment(os.environ) | _ENVIRONMENT
        with tempfile.TemporaryFile() as asked:
            asked.write(stdin)
            asked.seek(0)
            process = subprocess.Popen(  # noqa: S603 - no shell, and no option comes from outside
                [*_GIT, "-C", self._root, *question],
                stdin=asked,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
        with process:
            try:
                output = self._output_of(process)
            finally:
                process.kill()
        if process.returncode == _NOT_FOUND:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "git")
        return output if process.returncode in _ANSWERS else None

    def _output_of(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout
        output, deadline_s = bytearray(), time.monotonic() + self._timeout_s
        waiting = select.poll()
        waiting.register(process.stdout, select.POLLIN)
        # While git is silent, we look for what it may be waiting for.
        looked_at = _special_files_below(self._root)
        wait_s = _POLL_S
        while time.monotonic() < deadline_s:
            self.check()
            if not waiting.poll(wait_s * 1000):
                found = next(looked_at, None)
                if found:
                    self._met = found
                    raise _waits_for(found)
                wait_s = _POLL_S if found is None else 0.0
                continue
            wait_s = _POLL_S
            chunk = os.read(process.stdout.fileno(), _CHUNK_BYTES)
            if not chunk:
                process.wait(max(0.0, deadline_s - time.monotonic()))
                return bytes(output)
            output += chunk
            if len(output) > OUTPUT_BYTES_MAX:
                raise subprocess.SubprocessError(f"git says more than {OUTPUT_BYTES_MAX} bytes")
        raise subprocess.TimeoutExpired(process.args, self._timeout_s)


def entries_above(root: str) -> list[str]:
    """Where git looks for the repository of a folder: `.git` in it and in each folder above."""
    return [str(folder / REPOSITORY) for folder in (Path(root), *Path(root).parents)]


def special_file(root: str) -> str:
    """A pipe or device where git reads files of a repository, and would wait for ever; empty if there is none.

    Files with ignore rules are looked at in the root and above it. Those below are only looked for when git waits,
    because that is many folders.
    """
    read: list[Path] = []
    for entry in map(Path, entries_above(root)):
        read.append(entry.with_name(IGNORE_FILE))
        if entry.exists():
            read.append(entry)
            for folder in _repositories(entry):
                for inner in (folder, folder / "info", folder / "objects" / "info"):
                    with suppress(OSError):
                        read += inner.iterdir()
                read += _named_in([folder / "config", folder / "config.worktree"], entry.parent)
            read += map(Path, _usual_files())
            return next((str(path) for path in read if _is_special(path)), "")
    return ""


def _named_in(waiting: list[Path], top: Path) -> Iterator[Path]:
    """The files that a repository's configuration includes, and its file of ignore rules, without a question to git."""
    seen = set[Path]()
    while waiting and len(seen) < CONFIGURATIONS_MAX:
        if (one := waiting.pop()) in seen:
            continue
        seen.add(one)
        with suppress(OSError, ValueError):
            for key, value in _NAMED.findall(read_beginning(one, _CONFIGURATION_BYTES_MAX)):
                base = one.parent if key.lower() == b"path" else top
                named = base / os.path.expanduser(os.fsdecode(value.strip()).strip('"'))
                yield named
                waiting.append(named)


def _special_files_below(root: str) -> Iterator[str]:
    """For each folder below a root, the nearest first: a special file in it that git reads, or the empty text.

    Git reads ignore rules everywhere, and everything of repositories, also of those in the work tree of another one.
    """
    waiting = deque([(root, Path(root).name == REPOSITORY)])
    while waiting:
        folder, is_repository = waiting.popleft()
        found = ""
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, is_repository or entry.name == REPOSITORY))
                elif (is_repository or entry.name in _READ) and not found and _is_special(entry.path):
                    found = entry.path
        yield found


def _waits_for(special: str) -> subprocess.SubprocessError:
    return subprocess.SubprocessError(f"git would wait for {special}: replace it by a file")


def _repositories(entry: Path) -> tuple[Path, ...]:
    """The folder of a repository; of a linked work tree, which has a file with its name, also that of the main one."""
    if entry.is_dir():
        return (entry,)
    named = ""
    with suppress(OSError):
        named = os.fsdecode(read_beginning(entry, _GIT_FILE_BYTES_MAX)).removeprefix("gitdir:").strip()
    if not named:
        return ()
    return entry.parent / named, (entry.parent / named).parent.parent


def _is_special(path: str | Path) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    # To open a socket fails at once, and /dev/null is an empty file.
    is_device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    return stat.S_ISFIFO(status.st_mode) or (is_device and status.st_rdev != os.stat(os.devnull).st_rdev)


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _folders_between(root: str, top: str) -> Iterator[str]:
    for folder in Path(root).parents:
        if not folder.is_relative_to(top):
            return
        yield str(folder)


def _usual_files() -> tuple[str, ...]:
    """Default locations of configuration and rules, which may be created later."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "git"
    return "/etc/gitconfig", str(Path("~/.gitconfig").expanduser()), str(home / "config"), str(home / "ignore")
