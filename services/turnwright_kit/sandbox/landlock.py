"""Commands under Landlock: the rules by which the kernel itself keeps a process to some of the host's files.

It needs no program, no namespaces and no rights, and so works in containers where bubblewrap does not. A rule allows
something at a path and below it; what no rule allows is refused. Landlock cannot leave out a part of what is allowed:
the folders above a hidden path are taken apart, and a project that contains one is refused.

A command has a folder of its own, with its home and its temporary files, which its supervisor makes and removes. What
it shares with other commands of its home are links in there. What a superuser's capabilities would open is dropped, and
what is not a file is refused by a filter (`seccomp`).

What is not guarded, because Landlock of this version does not: names and sizes of files whose path is known, and modes,
owners and times of files of the executor's user. Other processes' command lines can be read.
Source: landlock(7); architecture 6; ADR 69.
"""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from turnwright_kit.sandbox import seccomp, supervisor
from turnwright_kit.sandbox.readable import git_paths_outside
from turnwright_kit.sandbox.sandbox import Confined, Sandbox, Shared, is_within

ABI_MIN: Final = 6
"""The version that keeps signals within a command (Linux 6.12)."""

READ: Final = 0b0000_0000_0000_1101
"""To execute, read files and list folders."""

WRITE: Final = 0b0111_0101_1011_1111
"""That, and everything but devices, sockets and commands to devices."""

DEVICE: Final = 0b1100_0000_0000_0110
"""To read, write and command."""

DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

NAMES_MAX: Final = 4096
"""Names of a folder that is taken apart; of one with more nothing is allowed."""

_OWN: Final = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR")
"""Variables that lead into a home: in a command's own they are what they are by default."""


def confined(
    sandbox: Sandbox, argv: Sequence[str], root: str, shared: Iterable[Shared], *, read_only: bool, network: bool
) -> Confined:
    """How a command runs under Landlock. Raises PermissionError for a project that contains what must stay hidden."""
    hidden = sandbox.hidden_paths()
    for path in hidden:
        if is_within(path, root):
            raise PermissionError(
                errno.EPERM,
                f"the project contains {path}, which commands must not read, and Landlock cannot leave out a part of "
                "it: install bubblewrap, or use a project without it",
            )
    folder = f"{tempfile.gettempdir()}/turnwright-{secrets.token_hex(8)}"
    home = os.path.expanduser("~")
    changed = READ if read_only else WRITE
    rules: list[tuple[int, str]] = []
    links: dict[str, str] = {}
    places = [(READ, path, path) for path in (*sandbox.seen(), *git_paths_outside(root))]
    for rights, path, source in (*places, *((changed, place.path, place.source) for place in shared)):
        # What stands in the place of shared caches is in our home, and has nothing to hide.
        for part in _parts(source, hidden) if path == source else (source,):
            rules.append((rights, part))
            seen = path + part.removeprefix(source)
            if path != home and is_within(path, home):
                links[seen[len(home) + 1 :]] = part
    for path in sandbox.shown_inside():
        below = [one for one in hidden if not is_within(path, one)]
        rules += [(READ, part) for part in _parts(path, below)]
    own = [(changed, root), (WRITE, folder), (READ, "/proc"), *((DEVICE, device) for device in DEVICES)]
    return Confined(
        argv=tuple(argv),
        options=(
            f"folder={folder}",
            *(f"link={name}:{target}" for name, target in _topmost(links)),
            *(f"rule={rights}:{path}" for rights, path in (*rules, *own)),
            f"filter={seccomp.program(network=network).hex()}",
        ),
        environment={"HOME": f"{folder}/{supervisor.HOME}", "TMPDIR": f"{folder}/{supervisor.TEMPORARY}"},
        without=_OWN,
    )


def _parts(path: str, hidden: Sequence[str]) -> Iterator[str]:
    """A path, or what it contains beside hidden paths."""
    real = os.path.realpath(path)
    if any(is_within(real, one) for one in hidden):
        return
    if not any(is_within(one, real) for one in hidden):
        yield path
        return
    try:
        names = os.listdir(real)
    except OSError:
        return
    if len(names) <= NAMES_MAX:
        for name in names:
            yield from _parts(f"{path}/{name}", hidden)


def _topmost(links: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The links of a command's home: none within another."""
    above = ""
    for name in sorted(links):
        if not above or not is_within(name, above):
            above = name
            yield name, links[name]


def abi() -> int:
    """The version of Landlock that this kernel has; 0: none."""
    version = 1
    return max(0, supervisor.system_call(supervisor.LANDLOCK_CREATE_RULESET, None, 0, version))


def problem() -> str:
    """Why commands cannot run under Landlock here, before it is tried; empty: they may."""
    if not seccomp.is_known():
        return f"there is no filter of system calls for {os.uname().machine}"
    found = abi()
    if not found:
        return "this kernel has none"
    return "" if found >= ABI_MIN else f"this kernel has version {found}, and {ABI_MIN} is needed (Linux 6.12)"
