"""The lock of a database file: one process owns it, and others are told to connect to that one.

Source: architecture 3 (a lock file makes a second process join the first one's socket).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DatabaseInUseError(OSError):
    """Another process owns the database. `path` is the database file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is in use by another process: connect to the running store, or stop it first")
        self.path = path


def lock_file(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


class FileLock:
    """Locks a database for this process until `release` or the end of the process, however it ends."""

    def __init__(self, database: Path) -> None:
        """Take the lock. Raises DatabaseInUseError."""
        self._descriptor = os.open(lock_file(database), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise DatabaseInUseError(database) from None

    def release(self) -> None:
        """Release the lock. The file stays: removing it would race with the next owner."""
        os.close(self._descriptor)
