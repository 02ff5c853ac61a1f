"""Rows of requests that were answered."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, insert, select

from turnwright_store.sql.tables import idempotency, projects, runs

Key = tuple[str, str, str, str]
"""Project, principal, method, request id."""

_FIND: Final = select(idempotency.c.digest, idempotency.c.response).where(
    idempotency.c.project == bindparam("project"),
    idempotency.c.principal == bindparam("principal"),
    idempotency.c.method == bindparam("method"),
    idempotency.c.request_id == bindparam("request_id"),
)
_ADD: Final = insert(idempotency)
_FORGET: Final = delete(idempotency).where(
    idempotency.c.create_ms < bindparam("before_ms"),
    ~exists(
        select(runs.c.id)
        .join(projects, projects.c.id == runs.c.project_id)
        .where(projects.c.name == idempotency.c.project, (runs.c.loop_active > 0) | (runs.c.loops_queued > 0))
    ),
)


def find(connection: Connection, key: Key) -> tuple[str, bytes] | None:
    """Digest of the request and the response, where there is one."""
    row = connection.execute(_FIND, _values(key)).one_or_none()
    return (row[0], row[1]) if row else None


def add(connection: Connection, key: Key, digest: str, response: bytes, now_ms: int) -> None:
    """Keep a response."""
    connection.execute(_ADD, {**_values(key), "digest": digest, "response": response, "create_ms": now_ms})


def _values(key: Key) -> dict[str, object]:
    return dict(zip(("project", "principal", "method", "request_id"), key, strict=True))


def forget(connection: Connection, before_ms: int) -> None:
    """Drop what is older, except in projects whose work has not ended."""
    connection.execute(_FORGET, {"before_ms": before_ms})
