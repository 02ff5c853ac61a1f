"""How many files a service may have open, connections among them.

Most systems start a process with 1,024, below a limit of many more, for programs that use select(2). A port for HTTP
lets in a thousand connections of anybody: with those, databases and commands would find nothing left to open.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

FILES: Final = 65_536
"""Open files that suffice."""


def allow_open_files() -> None:
    """Let this process have as many open files as suffice, or as it may; what it had if that is more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Where the system has a limit of its own it stays as it was.
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
