"""Git's view of the files below a folder, each answer from a child process, and the inputs of those answers.

A repository may be untrusted, including its configuration and its index. So nothing that a repository configures is
run: no file system monitor, hook or pager; and nothing is fetched, as git does for missing promised objects. Its
listing is treated as a list of untrusted names.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import subprocess
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from turnwright_executor.edge.environment import allowed_environment
from turnwright_executor.edge.file_threads import Check

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

_POLL_S: Final = 0.1
_GIT_FILE_CHARS_MAX: Final = 4096
_CHUNK_BYTES: Final = 256 * 1024


class GitWorkTree:
    """The part of a work tree below a root."""

    def __init__(self, root: str, timeout_s: float) -> None:
        """Each call times out after this many seconds."""
        self.check: Check = lambda: None
        """Called while git runs: raises if nobody waits any more."""
        self._root = root
        self._timeout_s = timeout_s

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
        top, index, exclude = (os.path.join(self._root, line) for line in lines)  # noqa: PTH118
        if not Path(self._root).is_relative_to(os.path.realpath(top)):
            return None
        above = [os.path.join(folder, ".gitignore") for folder in _folders_between(self._root, top)]  # noqa: PTH118
        return Inputs(index, (exclude, *above, *self._configuration(top), *_usual_files()))

    def _configuration(self, top: str) -> Iterator[str]:
        """The configuration files of git here, and the ignore files that they name."""
        names = _names(self._ask("config", "--list", "--show-origin", "-z") or b"")
        for origin in {origin.removeprefix("file:") for origin in names[::2] if origin.startswith("file:")}:
            yield from (os.path.join(base, origin) for base in {self._root, top})  # noqa: PTH118
        for value in names[1::2]:
            if value.startswith("core.excludesfile\n"):
                yield os.path.join(top, os.path.expanduser(value.partition("\n")[2]))  # noqa: PTH111, PTH118

    def _ask(self, *question: str, stdin: bytes = b"") -> bytes | None:
        if special := special_file(self._root):
            raise subprocess.SubprocessError(f"git would wait for {special}: replace it by a file")
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
        while time.monotonic() < deadline_s:
            self.check()
            if not waiting.poll(_POLL_S * 1000):
                continue
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
    return [str(folder / ".git") for folder in (Path(root), *Path(root).parents)]


def special_file(root: str) -> str:
    """A pipe, device or socket where git reads files of a repository, and would wait for ever; empty if there is none.

    Files with ignore rules are looked at in the root and above it.
    """
    read: list[Path] = []
    for entry in map(Path, entries_above(root)):
        read.append(entry.with_name(".gitignore"))
        if entry.exists():
            read.append(entry)
            for folder in _repositories(entry):
                for inner in (folder, folder / "info", folder / "objects" / "info"):
                    with suppress(OSError):
                        read += inner.iterdir()
            return next((str(path) for path in read if _is_special(path)), "")
    return ""


def _repositories(entry: Path) -> tuple[Path, ...]:
    """The folder of a repository; of a linked work tree, which has a file with its name, also that of the main one."""
    if entry.is_dir():
        return (entry,)
    if not entry.is_file():
        return ()
    with entry.open(encoding="utf-8", errors="replace") as file:
        named = file.read(_GIT_FILE_CHARS_MAX).removeprefix("gitdir:").strip()
    return entry.parent / named, (entry.parent / named).parent.parent


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


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
