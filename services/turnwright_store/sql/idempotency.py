"""Rows of requests that were answered."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, select, tuple_

from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.tables import idempotency, projects, runs


class RequestKey(NamedTuple):
    """The key of a request: caller, method, and request id."""

    project: str
    principal: str
    method: str
    request_id: str


_FIND: Final = select(idempotency.c.digest, idempotency.c.response).where(
    idempotency.c.project == bindparam("project"),
    idempotency.c.principal == bindparam("principal"),
    idempotency.c.method == bindparam("method"),
    idempotency.c.request_id == bindparam("request_id"),
)
_ADD: Final = insertion(idempotency)
_KEY: Final = (idempotency.c.project, idempotency.c.principal, idempotency.c.method, idempotency.c.request_id)
_WORK_CONTINUES: Final = exists(
    select(runs.c.id)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(
        projects.c.name == idempotency.c.project,
        runs.c.alias == idempotency.c.run,
        (runs.c.loop_active > 0) | (runs.c.loops_queued > 0),
    )
)
_OLDEST: Final = (
    select(*_KEY)
    .where(idempotency.c.create_ms < bindparam("before_ms"), ~_WORK_CONTINUES)
    .order_by(idempotency.c.create_ms)
    .limit(bindparam("rows_max"))
)
_FORGET: Final = delete(idempotency).where(tuple_(*_KEY).in_(_OLDEST))


def find(connection: Connection, key: RequestKey) -> tuple[str, bytes] | None:
    """Digest of the request and the response, where there is one."""
    row = connection.execute(_FIND, key._asdict()).one_or_none()
    return (row[0], row[1]) if row else None


def add(connection: Connection, key: RequestKey, digest: str, response: bytes, run: str, now_ms: int) -> None:
    """Keep a response; `run` is the alias of the run whose work the request started, empty for none."""
    values = {**key._asdict(), "digest": digest, "response": response, "run": run, "create_ms": now_ms}
    connection.execute(_ADD, values)


def delete_old_answers(connection: Connection, before_ms: int, rows_max: int) -> int:
    """Delete the oldest expired answers, except of runs with unfinished loops; returns the number of deleted ones."""
    return connection.execute(_FORGET, {"before_ms": before_ms, "rows_max": rows_max}).rowcount
