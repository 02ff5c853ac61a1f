"""The sandbox of commands: what they see of the host, and what they may write.

With bubblewrap a command sees the host's system files and toolchains read-only (`readable`) and can write its project
and the caches of compilers and package managers (a read-only command nothing, and it has no network). It has its own
home, /tmp and process namespace; none of its processes outlives it. It sees nothing else of the host, such as homes,
databases and sockets; our own home appears empty, even inside the project. A superuser keeps only the file capabilities
that are needed for a project owned by somebody else. Without bubblewrap there are resource limits only.
Source: architecture 6; decision C30; research/tooling 5.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Final, Literal

from msgspec import Struct

from turnwright_executor.files.confinement import MARKER_FOLDER
from turnwright_executor.files.environment import allowed_environment
from turnwright_executor.shell.readable import git_paths_outside, is_replaceable, readable

BUBBLEWRAP: Final = "bubblewrap"
LIMITS: Final = "limits"

Choice = Literal["auto", "bubblewrap", "limits"]
"""The setting: the best that the host supports, or one kind only."""

SECRETS: Final = ("~/.cache/huggingface/token", "~/.cache/huggingface/stored_tokens")
"""Credentials that tools keep among their caches."""

TMPFS_BYTES: Final = 1024 * 1024 * 1024
"""Size limit of an in-memory directory, in bytes: its memory counts to no process."""

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not ours, the sandbox's
_MIB: Final = 1024 * 1024
SMALL_TMPFS_BYTES: Final = {"/run": 16 * _MIB, _SHARED_MEMORY: 64 * _MIB, "/var/tmp": 256 * _MIB}  # noqa: S108
"""Size limit of small in-memory directories: that of shared memory in typical containers."""

PROBE_S: Final = 5.0
"""Timeout for testing whether the sandbox works on this host, in seconds."""


class SandboxMissingError(Exception):
    """The settings require a sandbox that this host does not support. The text says what to do."""


class Sandbox(Struct, frozen=True):
    """How commands are confined. `program` is bubblewrap's; empty: limits only."""

    program: str = ""
    hidden: tuple[str, ...] = ()
    """Directories and files that appear empty to a command, wherever they are."""
    readable: tuple[str, ...] = ()
    """Existing paths besides the project that a command may read; it sees nothing else of the host."""
    writable: tuple[str, ...] = ()
    """Existing directories besides the project that a command may write."""

    @property
    def name(self) -> str:
        return BUBBLEWRAP if self.program else LIMITS

    @property
    def own_processes(self) -> frozenset[str]:
        """Names of the processes that hold the sandbox: the command is killed before them."""
        return frozenset({Path(self.program).name[:15]} if self.program else ())

    @property
    def keeps_read_only(self) -> bool:
        return bool(self.program)

    def wrapped(self, argv: Sequence[str], root: str, *, read_only: bool) -> list[str]:
        """The command line that runs a command in a project's root inside the sandbox."""
        if not self.program:
            return list(argv)
        network = ["--unshare-net"] if read_only else []
        return [
            *(self.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *network, *_capabilities()),
            *("--unsetenv", "TMPDIR", *self._mounts(root, read_only=read_only)),
            # It is in memory, too, without a limit.
            *("--remount-ro", "/dev"),
            *(*([] if root == "/" else ["--remount-ro", "/"]), "--chdir", root, "--", *argv),
        ]

    def _mounts(self, root: str, *, read_only: bool) -> Iterator[str]:
        """The mount options: deeper paths come later, and of two for one path the later wins."""
        bind = "--ro-bind-try" if read_only else "--bind-try"
        home = os.path.expanduser("~")
        beside = [
            *(_shown(path) for path in self.readable if not self._is_replaced(path)),
            *(_empty(path) for path in ("/tmp", "/var/tmp", "/run", home)),  # noqa: S108
            *(_bound("--ro-bind-try", path) for path in git_paths_outside(root)),
            *(_bound(bind, path) for path in self.writable),
        ]
        steps = [
            *(step for step in beside if not self._is_covered(step[-1], root)),
            *(("--dev", "/dev"), _empty(_SHARED_MEMORY), ("--proc", "/proc"), _bound(bind.removesuffix("-try"), root)),
            # The workspace id: a command that could write it could impersonate another workspace.
            _bound("--ro-bind-try", str(PurePath(root) / MARKER_FOLDER)),
            *(_covered(path) for path in self.hidden),
        ]
        latest = {step[-1]: step for step in steps}
        for place in sorted(latest, key=lambda path: len(PurePath(path).parts)):
            yield from latest[place]

    def _is_replaced(self, path: str) -> bool:
        """Whether a command has replaced a path with a link, or could have."""
        return os.path.realpath(path) != path and is_replaceable(Path(path), self.writable)

    def _is_covered(self, path: str, root: str) -> bool:
        """Whether a path is in the project, which is visible as a whole, or in what is hidden."""
        return any(PurePath(path).is_relative_to(other) for other in (root, *self.hidden))


BwrapOption = tuple[str, ...]
"""One option of bubblewrap; its last word is the path in the sandbox."""


def _bound(option: str, path: str) -> BwrapOption:
    return option, path, path


def _shown(path: str) -> BwrapOption:
    """A read-only path; top-level links of distributions stay links."""
    place = Path(path)
    if len(place.parts) == 2 and place.is_symlink():
        return "--symlink", str(place.readlink()), path
    return _bound("--ro-bind-try", path)


def _empty(path: str) -> BwrapOption:
    """An empty in-memory directory with a size limit."""
    return "--size", str(SMALL_TMPFS_BYTES.get(path, TMPFS_BYTES)), "--tmpfs", path


def _covered(path: str) -> BwrapOption:
    """An empty directory or file in place of a path."""
    return _empty(path) if Path(path).is_dir() else ("--ro-bind", "/dev/null", path)


KEPT_RIGHTS: Final = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID")
"""Capabilities that a superuser keeps: those over files. Other users have none of them."""


def _capabilities() -> list[str]:
    kept = [] if os.geteuid() else [option for name in KEPT_RIGHTS for option in ("--cap-add", name)]
    return ["--cap-drop", "ALL", *kept]


async def find_sandbox(
    choice: Choice, home: Path, writable: Sequence[str] = (), more: Sequence[str] = (), program: str = "bwrap"
) -> Sandbox:
    """The sandbox of this host. Raises SandboxMissingError if the settings require one that does not work.

    `home` is hidden from commands; `writable` are additional writable directories, `more` additional readable paths;
    `~` is the user's own directory.
    """
    if choice == LIMITS:
        return Sandbox()
    found = shutil.which(program) or ""
    environment = allowed_environment(os.environ)
    hidden = await asyncio.to_thread(_existing, home, *_expanded(SECRETS))
    shared = _expanded(writable)
    shown = await asyncio.to_thread(readable, environment, _expanded(more), shared)
    sandbox = Sandbox(found, hidden, shown, shared)
    problem = await _problem(sandbox) if found else "it is not installed"
    if not problem:
        return sandbox
    if choice == BUBBLEWRAP:
        raise SandboxMissingError(
            f"commands must run under bubblewrap, but {problem}; install it (bwrap) or let this host use user "
            "namespaces, or choose auto or limits"
        )
    return Sandbox()


def _expanded(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.expanduser(path) for path in paths)


def _existing(*paths: Path | str) -> tuple[str, ...]:
    # `Path.exists` raises if a folder above is inaccessible; what we cannot see does not exist for commands either.
    return tuple(str(Path(path).resolve()) for path in paths if os.path.exists(path))


async def _problem(sandbox: Sandbox) -> str:
    """Why the sandbox does not work here; empty if it does."""
    argv = sandbox.wrapped(["/bin/sh", "-c", ":"], "/usr", read_only=True)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROBE_S):
            _, stderr = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it did not answer within {PROBE_S:g} s"
    return "" if process.returncode == 0 else f"it fails here: {stderr.decode(errors='replace').strip()[:200]}"
