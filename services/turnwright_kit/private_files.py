"""Files with secrets: read only if not everybody on the host can."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_private(path: Path) -> bytes:
    """The content of a file. Raises OSError if it cannot be read, ValueError if everybody on the host may read it."""
    content, exposure = read_file(path)
    if exposure:
        raise ValueError(exposure)
    return content


def read_file(path: Path) -> tuple[bytes, str]:
    """The content of a file, and a sentence if everybody on the host may read it. Raises OSError."""
    with path.open("rb") as file:
        if os.name == "posix" and os.fstat(file.fileno()).st_mode & stat.S_IROTH:
            exposure = (
                f"everybody on this host may read {path}: run `chmod o-rwx {path}`; "
                "if Kubernetes mounts it, set `defaultMode: 0440` on its volume"
            )
        else:
            exposure = ""
        return file.read(), exposure
