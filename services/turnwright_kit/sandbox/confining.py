"""How a command is started in its sandbox. Source: architecture 6; decision C30."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

from turnwright_kit.sandbox import bubblewrap, landlock
from turnwright_kit.sandbox.sandbox import Backend, Confined, Sandbox, Shared


def confined(
    sandbox: Sandbox, argv: Sequence[str], root: str, *, read_only: bool, network: bool, caches: str = ""
) -> Confined:
    """A command in a project's root. Raises PermissionError if it must not run, OSError.

    `caches` is the folder with the directories that it writes in the place of those that others write, too; empty: it
    writes those.
    """
    if sandbox.refusal:
        raise PermissionError(errno.EPERM, sandbox.refusal)
    if not sandbox.keeps_read_only:
        if read_only:
            raise PermissionError(errno.EPERM, "this host cannot keep it from changing the project")
        return Confined(tuple(argv))
    shared = [Shared(path, caches + path) for path in sandbox.writable]
    if caches:
        for place in shared:
            os.makedirs(place.source, mode=0o700, exist_ok=True)
    confine = bubblewrap.confined if sandbox.backend is Backend.BUBBLEWRAP else landlock.confined
    return confine(sandbox, argv, root, shared, read_only=read_only, network=network)
