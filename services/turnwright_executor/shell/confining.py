"""How a command is started in its sandbox. Source: architecture 6; decision C30."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from turnwright_executor.shell import bubblewrap, landlock
from turnwright_executor.shell.sandbox import Backend, Confined, Sandbox, Shared


def confined(sandbox: Sandbox, argv: Sequence[str], root: str, *, read_only: bool, network: bool) -> Confined:
    """A command in a project's root. Raises PermissionError if it must not run."""
    if sandbox.refusal:
        raise PermissionError(errno.EPERM, sandbox.refusal)
    if not sandbox.keeps_read_only:
        if read_only:
            raise PermissionError(errno.EPERM, "this host cannot keep it from changing the project")
        return Confined(tuple(argv))
    shared = [Shared(path, path) for path in sandbox.writable]
    confine = bubblewrap.confined if sandbox.backend is Backend.BUBBLEWRAP else landlock.confined
    return confine(sandbox, argv, root, shared, read_only=read_only, network=network)
