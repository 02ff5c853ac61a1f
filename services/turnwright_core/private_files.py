"""Files with secrets: read only if not everybody on the host can, written for their owner alone."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def replacing_atomically(file: Path) -> Iterator[Path]:
    """A new file with mode 0600 that gets its name only if the block succeeds, synced to disk."""
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        yield scratch
        _sync(scratch)
        scratch.replace(file)
    finally:
        scratch.unlink(missing_ok=True)
    _sync(file.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
