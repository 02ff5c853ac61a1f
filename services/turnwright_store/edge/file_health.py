"""Health of the database file: not deleted, replaced or corrupted.

SQLite does not notice that its file was deleted or replaced: it writes on to the old inode, which is gone with the
process. And it finds corruption only when it reads a page. So the inodes of the file and its log are compared after
each commit, before it is acknowledged; the quick check reads the first pages through a new connection with an empty
cache; the integrity check reads everything once a day. After damage was found, the store must be restarted.

Only SQLite may open the file: closing another descriptor of it would release SQLite's locks.
Source: SQLite, "How To Corrupt An SQLite Database File"; docs/store.md.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Final

from turnwright_core.errors import Reason, fault
from turnwright_kit.logs import get_logger
from turnwright_store.edge.sqlite_codes import driver_error, is_corruption

READ_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A larger file is not checked as a whole while its store runs."""

_STEPS: Final = 10_000
"""Steps of SQLite's virtual machine between checks whether to go on."""

_log = get_logger("store.database")


class FileHealth:
    """The health of one database file."""

    def __init__(self, path: Path) -> None:
        self._file = path
        self._opened: dict[str, os.stat_result] = {}
        self._damage = ""
        self._change = ""
        self._is_closed = threading.Event()

    def remember_files(self) -> None:
        files = (str(self._file), f"{self._file}-wal")
        self._opened = {path: os.stat(path) for path in files if os.path.exists(path)}  # noqa: PTH110, PTH116 - as below

    def close(self) -> None:
        self._is_closed.set()

    def note_error(self, error: BaseException) -> None:
        """Note an error of SQLite, if it means damage."""
        if is_corruption(error) and not self._is_closed.is_set():
            self._note_damage(str(driver_error(error)))

    def raise_if_damaged(self) -> None:
        """Raise DATABASE_UNAVAILABLE if a problem is known."""
        if self._change:
            # Somebody may have restored it.
            self._change = self._changed()
        if problem := self._damage or self._change:
            message = f"The database file {self._file} {problem}. Stop the store, restore a backup, and start it again."
            raise fault(Reason.DATABASE_UNAVAILABLE, message)

    def check_files(self) -> None:
        """Compare the files with those that were opened. Raises as `raise_if_damaged` does."""
        change = self._changed()
        if change and change != self._change:
            _log.error("database_file_changed", path=str(self._file), detail=change)
        self._change = change
        self.raise_if_damaged()

    def quick_check(self) -> None:
        """Read the first pages from disk. Raises as `raise_if_damaged` does."""
        self.check_files()
        if self._read("SELECT count(*) FROM sqlite_master") == 0:
            self._note_damage("it holds no tables")
        self.raise_if_damaged()

    def integrity_check(self) -> None:
        """Check the structure of every page, unless the file is too large. Raises as `raise_if_damaged` does."""
        self.check_files()
        if self._file.stat().st_size <= READ_BYTES_MAX:
            found = self._read("PRAGMA quick_check(1)")
            if isinstance(found, str) and found != "ok":
                self._note_damage(found.splitlines()[-1])
        self.raise_if_damaged()

    def _read(self, statement: str) -> object:
        try:
            with closing(sqlite3.connect(f"{self._file.as_uri()}?mode=ro", uri=True)) as connection:
                connection.set_progress_handler(self._is_closed.is_set, _STEPS)
                return connection.execute(statement).fetchone()[0]
        except sqlite3.Error as error:
            # Any other error, such as a full disk, is reported to the requests that hit it.
            self.note_error(error)
            return None

    def _note_damage(self, detail: str) -> None:
        if not self._damage:
            self._damage = f"is damaged ({detail})"
            _log.error("database_damaged", path=str(self._file), detail=detail)

    def _changed(self) -> str:
        """What happened to the files at these paths since they were opened; empty if they are the same."""
        for path, before in self._opened.items():
            try:
                now = os.stat(path)  # noqa: PTH116 - after each commit
            except FileNotFoundError:
                return "has lost its log" if path.endswith("-wal") else "was deleted"
            except OSError as error:
                return f"cannot be looked at ({error.strerror})"
            if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
                return "has got another log" if path.endswith("-wal") else "was replaced"
            # It never shrinks while a store runs.
            if not path.endswith("-wal") and now.st_size < before.st_size:
                return "was cut short"
        return ""
