"""Counts what SQLAlchemy executes in this process, by its own event: every statement of a store passes through it."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import Engine, event

BORDERS = ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA")
"""What begins, ends and divides transactions, or sets a connection up."""


@contextlib.contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    """The first word of each statement, BEGIN and COMMIT among them; one for many rows is one."""
    counted: Counter[str] = Counter()

    def count(_connection: Any, statement: str) -> None:
        counted[statement.split(None, 1)[0].upper()] += 1

    with _listening(count):
        yield counted


def sent(counted: Counter[str]) -> int:
    """Statements without those that begin and end transactions."""
    return counted.total() - sum(counted[word] for word in BORDERS)


@contextlib.contextmanager
def seen_transactions() -> Iterator[list[list[str]]]:
    """The statements of each transaction that was committed, from BEGIN to COMMIT, as far as they are done by now."""
    committed: list[list[str]] = []
    under_way: defaultdict[Any, list[str]] = defaultdict(list)

    def see(connection: Any, statement: str) -> None:
        if statement.startswith("BEGIN"):
            under_way[connection].clear()
        under_way[connection].append(statement)
        if statement == "COMMIT":
            committed.append(under_way[connection].copy())

    with _listening(see):
        yield committed


@contextlib.contextmanager
def _listening(see: Callable[[Any, str], None]) -> Iterator[None]:
    def before(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        see(connection.engine, statement)

    event.listen(Engine, "before_cursor_execute", before)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", before)
