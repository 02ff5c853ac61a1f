"""Confinement of commands beyond limits: what they see of the host, and what they may write.

With bubblewrap a command has the host's files read-only, its project and the caches of compilers and package managers
writable (for a command that only looks nothing, and no network), a /tmp of its own, and processes of its own, none of
which outlives it. Our home, where the token and the database are, is empty to it. A superuser keeps only the rights
over files that it needs to work on a project of somebody else's. Without bubblewrap there are limits only.
Source: architecture 6; decision C30; research/tooling 5.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from turnwright_core.values import frozen

BUBBLEWRAP: Final = "bubblewrap"
LIMITS: Final = "limits"

Choice = Literal["auto", "bubblewrap", "limits"]
"""What the settings ask for: the best that the host can do, or one of the two and nothing else."""

PROBE_S: Final = 5.0
"""Seconds that the sandbox has to show that the host lets it work."""


class SandboxMissingError(Exception):
    """The settings ask for a sandbox that this host does not have. The text says what to do."""


@frozen
class Sandbox:
    """How commands are confined. `program` is bubblewrap's; empty: by limits only."""

    program: str = ""
    hidden: tuple[str, ...] = ()
    """Directories that are empty to a command."""
    writable: tuple[str, ...] = ()
    """Directories beside the project that a command may write, where they exist."""

    @property
    def name(self) -> str:
        """What is told of it: `bubblewrap` or `limits`."""
        return BUBBLEWRAP if self.program else LIMITS

    @property
    def own_processes(self) -> frozenset[str]:
        """Names of the processes that hold the sandbox: a command ends before them, else it has no time to."""
        return frozenset({Path(self.program).name[:15]} if self.program else ())

    @property
    def keeps_read_only(self) -> bool:
        """Whether a command can be kept from changing the project."""
        return bool(self.program)

    def wrapped(self, argv: Sequence[str], root: str, *, read_only: bool) -> list[str]:
        """The program and arguments that run a command in a project's root under this confinement."""
        if not self.program:
            return list(argv)
        outer = [path for path in self.hidden if not Path(path).is_relative_to(root)]
        inner = [path for path in self.hidden if path not in outer]
        bind = "--ro-bind" if read_only else "--bind"
        network = ["--unshare-net"] if read_only else []
        caches = [] if read_only else [option for path in self.writable for option in ("--bind-try", path, path)]
        # Later mounts lie on top of earlier ones: the project may be below what is hidden, or hold it.
        return [
            *(self.program, "--die-with-parent", "--unshare-pid", "--unshare-ipc", *network, *_capabilities()),
            *("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", *caches),  # noqa: S108
            *(*_empty(outer), bind, root, root, *_empty(inner), "--chdir", root, "--", *argv),
        ]


KEPT_RIGHTS: Final = ("CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_FOWNER", "CAP_FSETID")
"""What is left of a superuser's rights: those over files. Others have none of them."""


def _capabilities() -> list[str]:
    kept = [] if os.geteuid() else [option for name in KEPT_RIGHTS for option in ("--cap-add", name)]
    return ["--cap-drop", "ALL", *kept]


def _empty(paths: Sequence[str]) -> list[str]:
    return [option for path in paths for option in ("--tmpfs", path)]


async def find_sandbox(choice: Choice, home: Path, writable: Sequence[str] = (), program: str = "bwrap") -> Sandbox:
    """The sandbox of this host. Raises SandboxMissingError where the settings ask for one that does not work.

    `home` is hidden from commands; `writable` are directories beside the project, `~` the user's own.
    """
    if choice == LIMITS:
        return Sandbox()
    found = shutil.which(program) or ""
    sandbox = Sandbox(found, await asyncio.to_thread(_existing, home), _expanded(writable))
    problem = await _problem(sandbox) if found else "it is not installed"
    if not problem:
        return sandbox
    if choice == BUBBLEWRAP:
        raise SandboxMissingError(
            f"commands shall run under bubblewrap, and {problem}; install it (bwrap) or let this host use user "
            "namespaces, or choose auto or limits"
        )
    return Sandbox()


def _expanded(paths: Sequence[str]) -> tuple[str, ...]:
    return tuple(os.path.expanduser(path) for path in paths)  # noqa: PTH111 - text in, text out


def _existing(home: Path) -> tuple[str, ...]:
    return (str(home.resolve()),) if home.is_dir() else ()


async def _problem(sandbox: Sandbox) -> str:
    """What keeps the sandbox from working here; empty when it does."""
    argv = sandbox.wrapped(["/bin/sh", "-c", ":"], "/usr", read_only=True)
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROBE_S):
            _, said = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"it did not answer within {PROBE_S:g} s"
    return "" if process.returncode == 0 else f"it fails here: {said.decode(errors='replace').strip()[:200]}"
