"""Commands under bubblewrap: a file system of their own, mounted from parts of the host's.

A command sees the host's system files and toolchains read-only and can write its project and the caches of compilers
and package managers (a read-only command nothing). It has its own home, /tmp and process namespace; none of its
processes outlives it. It sees nothing else of the host, such as homes, databases and sockets; what is hidden appears
empty, even inside the project. A superuser keeps only the file capabilities that are needed for a project owned by
somebody else.

Commands of this project or of one around it may replace a folder with a link at any moment. So what they can write is
opened without following links, and bubblewrap mounts what is held open, or ends.
Source: architecture 6; decision C30; research/tooling 5.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from turnwright_kit.sandbox.readable import MARKER_FOLDER, git_paths_outside
from turnwright_kit.sandbox.sandbox import Confined, Sandbox, Shared, is_within

TMPFS_BYTES: Final = 1024 * 1024 * 1024
"""Size limit of an in-memory directory, in bytes: its memory counts to no process."""

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - not ours, the sandbox's
_MIB: Final = 1024 * 1024
SMALL_TMPFS_BYTES: Final = {"/run": 16 * _MIB, _SHARED_MEMORY: 64 * _MIB, "/var/tmp": 256 * _MIB}  # noqa: S108
"""Size limit of small in-memory directories: that of shared memory in typical containers."""

KEPT_RIGHTS: Final = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID")
"""Capabilities that a superuser keeps: those over files. Other users have none of them."""


def confined(
    sandbox: Sandbox, argv: Sequence[str], root: str, shared: Iterable[Shared], *, read_only: bool, network: bool
) -> Confined:
    """The command line that runs a command in a project's root inside of bubblewrap."""
    own_network = [] if network else ["--unshare-net"]
    held: list[int] = []
    try:
        mounts = [*_mounts(sandbox, root, shared, held, read_only=read_only)]
    except OSError:
        for descriptor in held:
            os.close(descriptor)
        raise
    options = [
        *(sandbox.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *own_network, *_capabilities()),
        *("--unsetenv", "TMPDIR", *mounts),
        # It is in memory, too, without a limit.
        *("--remount-ro", "/dev"),
        # The kernel's settings belong to user 0, whatever his capabilities: one of them names a program that it runs.
        *([] if os.geteuid() else ("--remount-ro", "/proc")),
        *(*([] if root == "/" else ["--remount-ro", "/"]), "--chdir", root, "--", *argv),
    ]
    return Confined(tuple(options), held=tuple(held))


def _mounts(
    sandbox: Sandbox, root: str, shared: Iterable[Shared], held: list[int], *, read_only: bool
) -> Iterator[str]:
    """The mount options: deeper paths come later, and of two for one path the later wins.

    Raises NotADirectoryError for a root that is none.
    """
    bind = "--ro-bind-try" if read_only else "--bind-try"
    home = os.path.expanduser("~")
    hidden = sandbox.hidden_paths()
    beside = [
        *(_shown(path) for path in sandbox.seen()),
        *((_HELD, path) for path in git_paths_outside(root)),
        *(_empty(path) for path in ("/tmp", "/var/tmp", "/run", home)),  # noqa: S108
        *((bind, place.source, place.path) for place in shared),
    ]
    steps = [
        *(step for step in beside if not any(is_within(step[-1], one) for one in (root, *hidden))),
        *(("--dev", "/dev"), _empty(_SHARED_MEMORY), ("--proc", "/proc"), (bind.replace("-try", "-fd"), root)),
        # The workspace id: a command that could write it could impersonate another workspace.
        (_HELD, str(Path(root) / MARKER_FOLDER)),
        *(_covered(path) for path in hidden),
        *((_HELD, path) for path in sandbox.inside),
    ]
    latest = {step[-1]: step for step in steps}
    for place in sorted(latest, key=lambda path: len(path.split("/")) if path != "/" else 0):
        option = latest[place]
        if not option[0].endswith("-fd"):
            yield from option
        elif (descriptor := _opened(place)) is not None:
            held.append(descriptor)
            yield from (option[0], str(descriptor), place)
        elif place == root:
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory, or a link leads there", root)


def _opened(path: str) -> int | None:
    """The descriptor of a directory; None if nothing of the kind is there, or a link leads there."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if os.readlink(f"/proc/self/fd/{descriptor}") == path:
        return descriptor
    os.close(descriptor)
    return None


BwrapOption = tuple[str, ...]
"""One option of bubblewrap; its last word is the path in the sandbox. One ending in `-fd` has no descriptor yet."""

_HELD: Final = "--ro-bind-fd"


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


def _capabilities() -> list[str]:
    kept = [] if os.geteuid() else [option for name in KEPT_RIGHTS for option in ("--cap-add", name)]
    return ["--cap-drop", "ALL", *kept]
