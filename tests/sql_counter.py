"""Counts what SQLite carries out in this process, whoever sends it and through whichever library."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    """The first word of each statement on connections that are opened from here on, BEGIN and COMMIT among them."""
    counted: Counter[str] = Counter()
    connect = sqlite3.connect

    def count(statement: str) -> None:
        # What a trigger or the full text index carries out within a statement comes as a comment.
        if not statement.startswith("--"):
            counted[statement.split(None, 1)[0].upper()] += 1

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        connection.set_trace_callback(count)
        return connection

    sqlite3.connect = traced
    try:
        yield counted
    finally:
        sqlite3.connect = connect
