"""Counts what SQLite carries out in this process, whoever sends it and through whichever library."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    """The first word of each statement on connections that are opened from here on, BEGIN and COMMIT among them."""
    counted: Counter[str] = Counter()

    def count(statement: str) -> None:
        counted[statement.split(None, 1)[0].upper()] += 1

    with _traced(lambda: count):
        yield counted


@contextlib.contextmanager
def seen_transactions() -> Iterator[list[list[str]]]:
    """The statements of each transaction that was committed, from BEGIN to COMMIT, as far as they are done by now."""
    committed: list[list[str]] = []

    def of_connection() -> Callable[[str], None]:
        under_way: list[str] = []

        def see(statement: str) -> None:
            if statement.startswith("BEGIN"):
                under_way.clear()
            under_way.append(statement)
            if statement == "COMMIT":
                committed.append(under_way.copy())

        return see

    with _traced(of_connection):
        yield committed


@contextlib.contextmanager
def _traced(of_connection: Callable[[], Callable[[str], None]]) -> Iterator[None]:
    connect = sqlite3.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **options)
        see = of_connection()
        # What a trigger or the full text index carries out within a statement comes as a comment.
        connection.set_trace_callback(lambda statement: None if statement.startswith("--") else see(statement))
        return connection

    sqlite3.connect = traced
    try:
        yield
    finally:
        sqlite3.connect = connect
