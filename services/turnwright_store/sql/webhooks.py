"""Rows of webhooks, and of what they are told: the outbox.

Theory of operation. A delivery is due at its `next_ms`. A claim moves that on by the time of a lease and counts an
attempt, so that two executors never send the same one at once, and one that is lost with its executor is due again. Who
ends an attempt names it: a claim that came after has another number, also where it is sent again by hand.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Connection, Select, bindparam, case, delete, func, insert, literal_column, or_, select, update

from turnwright_store.sql.clauses import insertion, number, parameters
from turnwright_store.sql.registry import counting
from turnwright_store.sql.tables import deliveries, webhooks

PENDING, DELIVERED, DEAD = 1, 2, 3
"""States of a delivery; the numbers of the contract."""

_HOOK: Final = (
    webhooks.c.id,
    webhooks.c.name,
    webhooks.c.url,
    webhooks.c.events,
    webhooks.c.run,
    webhooks.c.set_by,
    webhooks.c.salt,
)
_IN_PROJECT: Final = webhooks.c.project_id == bindparam("project")
_OF_PROJECT: Final = select(*_HOOK).where(_IN_PROJECT).order_by(webhooks.c.name)
_NAMED: Final = _OF_PROJECT.where(webhooks.c.name == bindparam("wanted"))
count_webhooks: Final = counting(webhooks)
_ADD: Final = insert(webhooks).inline()
_BY_ID: Final = webhooks.c.id == bindparam("hook")
_CHANGE: Final = update(webhooks).where(_BY_ID).values(**parameters("url", "events", "run", "set_by"))
_REMOVE: Final = delete(webhooks).where(_BY_ID)
_FORGET: Final = delete(deliveries).where(deliveries.c.webhook_id == bindparam("hook"))

_DELIVERY: Final = (
    deliveries.c.id,
    deliveries.c.delivery_id,
    webhooks.c.name,
    deliveries.c.run,
    deliveries.c.event,
    deliveries.c.state,
    deliveries.c.attempts,
    deliveries.c.create_ms,
    deliveries.c.next_ms,
    deliveries.c.http_status,
    deliveries.c.error,
    deliveries.c.body,
)
_DELIVERIES: Final[Select[Any]] = (
    select(*_DELIVERY).join_from(deliveries, webhooks, deliveries.c.webhook_id == webhooks.c.id).where(_IN_PROJECT)
)
_PAGE: Final = (
    _DELIVERIES.where(
        deliveries.c.id < bindparam("before"),
        or_(bindparam("of") == literal_column("''"), webhooks.c.name == bindparam("of")),
        or_(number("state") == literal_column("0"), deliveries.c.state == number("state")),
    )
    .order_by(deliveries.c.id.desc())
    .limit(bindparam("page"))
)
_ONE: Final = _DELIVERIES.where(deliveries.c.delivery_id == bindparam("wanted"))
_ADD_DELIVERY: Final = insertion(deliveries)
_PENDING_IN: Final = (
    select(func.count())
    .select_from(deliveries)
    .join(webhooks, deliveries.c.webhook_id == webhooks.c.id)
    .where(_IN_PROJECT, deliveries.c.next_ms != literal_column("0"))
)
_IS_DUE: Final = (deliveries.c.next_ms != literal_column("0")) & (deliveries.c.next_ms <= number("now_ms"))
_ANY_DUE: Final = select(select(deliveries.c.id).where(_IS_DUE).exists())
_IS_SENT: Final = (deliveries.c.sending == literal_column("1")) & (deliveries.c.next_ms > number("now_ms"))
_BY_AGE: Final = (deliveries.c.sending.desc(), deliveries.c.next_ms, deliveries.c.id)
# Those that are being sent come first, so that they take the places of their webhook and their project.
_turns: Final = (
    select(
        deliveries.c.id,
        func.row_number().over(partition_by=deliveries.c.webhook_id, order_by=_BY_AGE).label("of_webhook"),
        func.row_number().over(partition_by=webhooks.c.project_id, order_by=_BY_AGE).label("of_project"),
    )
    .join(webhooks, deliveries.c.webhook_id == webhooks.c.id)
    .where(
        deliveries.c.next_ms != literal_column("0"),
        deliveries.c.next_ms <= number("lease_ms"),
        or_(_IS_DUE, _IS_SENT),
    )
    .subquery()
)
_DUE: Final = (
    select(
        deliveries.c.id,
        deliveries.c.delivery_id,
        deliveries.c.attempts,
        webhooks.c.url,
        deliveries.c.body,
        webhooks.c.salt,
    )
    .join(_turns, _turns.c.id == deliveries.c.id)
    .join(webhooks, deliveries.c.webhook_id == webhooks.c.id)
    .where(_IS_DUE, _turns.c.of_webhook <= bindparam("of_one"), _turns.c.of_project <= bindparam("of_all"))
    .order_by(_turns.c.of_project, deliveries.c.next_ms, deliveries.c.id)
    .limit(bindparam("page"))
)
_CLAIM: Final = (
    update(deliveries)
    .where(
        deliveries.c.id == bindparam("delivery"),
        deliveries.c.attempts == number("known"),
        _IS_DUE,
    )
    .values(attempts=deliveries.c.attempts + literal_column("1"), sending=literal_column("1"), **parameters("next_ms"))
)
_CURRENT: Final = select(deliveries.c.id, deliveries.c.attempts, deliveries.c.attempts_before).where(
    deliveries.c.delivery_id == bindparam("wanted"), deliveries.c.state == literal_column(str(PENDING))
)
_END: Final = (
    update(deliveries)
    .where(deliveries.c.id == bindparam("delivery"))
    .values(sending=literal_column("0"), **parameters("state", "next_ms", "end_ms", "http_status", "error"))
)
# One that is being sent is not sent once more at the same time: how that ends says what comes next.
_RETRY: Final = (
    update(deliveries)
    .where(deliveries.c.id == bindparam("delivery"))
    .values(
        attempts_before=deliveries.c.attempts,
        state=literal_column(str(PENDING)),
        end_ms=literal_column("0"),
        next_ms=case((_IS_SENT, deliveries.c.next_ms), else_=number("now_ms")),
    )
)
_old: Final = (
    select(deliveries.c.id)
    .where(
        deliveries.c.end_ms != literal_column("0"),
        or_(
            (deliveries.c.state == literal_column(str(DELIVERED))) & (deliveries.c.end_ms < number("delivered_ms")),
            deliveries.c.end_ms < number("dead_ms"),
        ),
    )
    .limit(bindparam("page"))
)
_CLEAN: Final = delete(deliveries).where(deliveries.c.id.in_(_old))
_ORPHANS: Final = delete(deliveries).where(deliveries.c.webhook_id.not_in(select(webhooks.c.id)))
"""A webhook may be deleted while something is told to it."""


class WebhookRow(Struct, frozen=True):
    """A webhook; `events` are the numbers of the contract, and an empty `run` is all of the project."""

    id: int
    name: str
    url: str
    events: frozenset[int]
    run: str
    set_by: str
    salt: str


class DeliveryRow(Struct, frozen=True):
    """One thing that one webhook is told."""

    id: int
    delivery_id: str
    webhook: str
    run: str
    event: int
    state: int
    attempts: int
    create_ms: int
    next_ms: int
    http_status: int
    error: str
    body: str


class DueRow(Struct, frozen=True):
    """What is to be sent, and the salt of the secret that signs it."""

    id: int
    delivery_id: str
    attempts: int
    url: str
    body: str
    salt: str


def _webhook(row: Sequence[Any]) -> WebhookRow:
    key, name, url, events, *more = row
    return WebhookRow(key, name, url, frozenset(json.loads(events)), *more)


def list_webhooks(connection: Connection, project_id: int) -> list[WebhookRow]:
    return [_webhook(row) for row in connection.execute(_OF_PROJECT, {"project": project_id})]


def find_webhook(connection: Connection, project_id: int, name: str) -> WebhookRow | None:
    row = connection.execute(_NAMED, {"project": project_id, "wanted": name}).one_or_none()
    return _webhook(row) if row else None


def put_webhook(
    connection: Connection, project_id: int, name: str, url: str, events: Collection[int], run: str, by: str
) -> bool:
    """Add a webhook, or change the one of that name; returns whether there was one."""
    values = {"url": url, "events": json.dumps(sorted(events)), "run": run, "set_by": by}
    if found := find_webhook(connection, project_id, name):
        connection.execute(_CHANGE, {"hook": found.id, **{f"new_{key}": value for key, value in values.items()}})
        return True
    connection.execute(_ADD, {"project_id": project_id, "name": name, "salt": secrets.token_hex(16), **values})
    return False


def drop_webhook(connection: Connection, webhook: int) -> None:
    """Delete a webhook with its deliveries."""
    for statement in (_FORGET, _REMOVE):
        connection.execute(statement, {"hook": webhook})


def count_pending(connection: Connection, project_id: int) -> int:
    return int(connection.execute(_PENDING_IN, {"project": project_id}).scalar_one())


def add_delivery(
    connection: Connection, webhook: int, delivery_id: str, run: str, event: int, body: str, now_ms: int, refused: str
) -> None:
    """Tell a webhook something at once; `refused`: why it is given up instead."""
    connection.execute(
        _ADD_DELIVERY,
        {
            "webhook_id": webhook,
            "delivery_id": delivery_id,
            "run": run,
            "event": event,
            "state": DEAD if refused else PENDING,
            "create_ms": now_ms,
            "next_ms": 0 if refused else now_ms,
            "end_ms": now_ms if refused else 0,
            "error": refused,
            "body": body,
        },
    )


def list_deliveries(
    connection: Connection, project_id: int, webhook: str, state: int, before: int, page: int
) -> list[DeliveryRow]:
    values = {"project": project_id, "of": webhook, "state": state, "before": before, "page": page}
    return [DeliveryRow(*row) for row in connection.execute(_PAGE, values)]


def find_delivery(connection: Connection, project_id: int, delivery_id: str) -> DeliveryRow | None:
    row = connection.execute(_ONE, {"project": project_id, "wanted": delivery_id}).one_or_none()
    return DeliveryRow(*row) if row else None


def are_due(connection: Connection, now_ms: int) -> bool:
    return bool(connection.execute(_ANY_DUE, {"now_ms": now_ms}).scalar_one())


def list_due(connection: Connection, now_ms: int, lease_ms: int, of_one: int, of_all: int, page: int) -> list[DueRow]:
    """What is due, the projects in turns, in each the longest due first.

    At most so many `of_one` webhook and `of_all` webhooks of a project are sent at a time: those that were claimed
    less than `lease_ms` ago count.
    """
    values = {"now_ms": now_ms, "lease_ms": now_ms + lease_ms, "of_one": of_one, "of_all": of_all, "page": page}
    return [DueRow(*row) for row in connection.execute(_DUE, values)]


def claim(connection: Connection, due: DueRow, now_ms: int, until_ms: int) -> bool:
    """Begin the next attempt of a delivery; False: somebody else has."""
    values = {"delivery": due.id, "known": due.attempts, "now_ms": now_ms, "new_next_ms": until_ms}
    return connection.execute(_CLAIM, values).rowcount > 0


def find_attempt(connection: Connection, delivery_id: str) -> tuple[int, int, int] | None:
    """The key of a pending delivery, the number of its latest attempt, and how many came before it was sent again."""
    row = connection.execute(_CURRENT, {"wanted": delivery_id}).one_or_none()
    return (row[0], row[1], row[2]) if row else None


def end_attempt(
    connection: Connection, key: int, state: int, next_ms: int, end_ms: int, http_status: int, error: str
) -> None:
    connection.execute(
        _END,
        {
            "delivery": key,
            "new_state": state,
            "new_next_ms": next_ms,
            "new_end_ms": end_ms,
            "new_http_status": http_status,
            "new_error": error,
        },
    )


def retry(connection: Connection, key: int, now_ms: int) -> None:
    """Make a delivery due; one that is being sent stays so."""
    connection.execute(_RETRY, {"delivery": key, "now_ms": now_ms})


def delete_old(connection: Connection, delivered_ms: int, dead_ms: int, page: int) -> int:
    """Delete deliveries that ended before these times; returns how many."""
    connection.execute(_ORPHANS)
    values = {"delivered_ms": delivered_ms, "dead_ms": dead_ms, "page": page}
    return connection.execute(_CLEAN, values).rowcount
