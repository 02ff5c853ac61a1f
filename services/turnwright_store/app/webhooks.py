"""Webhooks: what they are told is written with what happened, and sent by executors until it has arrived.

Source: ADR 76; the contract is webhook_service.proto.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from google.protobuf.json_format import MessageToJson
from sqlalchemy import Connection
from turnwright.webhooks.v1 import webhook_service_pb2 as pb
from turnwright_values.store import Durability
from turnwright_values.types import Loop

from turnwright_core.checks import check_count, check_words, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_core.wire.runs import loop_to_pb
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain import webhooks as rules
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.locks import WEBHOOKS_LOCK
from turnwright_store.domain.pages import PLACE_MAX, decode_page_token, page_of
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import webhooks as rows
from turnwright_store.sql.leases import read_now
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.webhooks import DeliveryRow, DueRow, WebhookRow

OF_ONE_MAX: Final = 2
"""Deliveries of one webhook that are sent at once."""
OF_PROJECT_MAX: Final = 4
"""Those of all webhooks of a project, so that slow servers keep no other project waiting."""

CLEANUP_EVERY_S: Final = 3600.0
CLEANUP_ROWS_MAX: Final = 1000
CLAIMS_MAX: Final = 100
_ERROR_CHARS_MAX: Final = 300
_DAY_MS: Final = 24 * 3600 * 1000
LOOP_ENDED: Final = pb.WEBHOOK_EVENT_LOOP_ENDED
LOOP_WAITING: Final = pb.WEBHOOK_EVENT_LOOP_WAITING
_EVENTS: Final = (LOOP_ENDED, LOOP_WAITING)


def set_webhook(tx: Transaction, caller: Caller, project: str, wanted: pb.Webhook) -> pb.Webhook:
    """Set a webhook. Raises PROJECT_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED."""
    project_id = get_project(tx.connection, project).id
    rules.check_name(wanted.name)
    rules.check_url(wanted.url)
    check_words("webhook.run", wanted.run, NAME_CHARS_MAX)
    events = set(wanted.events) or {LOOP_ENDED}
    if not events <= set(_EVENTS):
        raise invalid("webhook.events", "A webhook is told of LOOP_ENDED, LOOP_WAITING or both.")
    if not rows.put_webhook(tx.connection, project_id, wanted.name, wanted.url, events, wanted.run, caller.name):
        check_count("webhooks", rows.count_webhooks(tx.connection, project_id), rules.WEBHOOKS_MAX)
    # Not its URL, which may hold a secret.
    tx.detail.update(webhook=wanted.name)
    return _webhook_to_pb(_found(tx.connection, project_id, wanted.name))


def delete_webhook(tx: Transaction, project: str, name: str) -> None:
    """Delete a webhook with its deliveries. Raises PROJECT_NOT_FOUND, ENTRY_NOT_FOUND."""
    rows.drop_webhook(tx.connection, _found(tx.connection, get_project(tx.connection, project).id, name).id)
    tx.detail.update(webhook=name)


def list_webhooks(connection: Connection, project: str) -> list[pb.Webhook]:
    return list(map(_webhook_to_pb, rows.list_webhooks(connection, get_project(connection, project).id)))


def salt_of(connection: Connection, project: str, name: str) -> str:
    """What the secret of a webhook follows from; empty: there is none of that name."""
    found = rows.find_webhook(connection, get_project(connection, project).id, name)
    return found.salt if found else ""


def _found(connection: Connection, project_id: int, name: str) -> WebhookRow:
    if (found := rows.find_webhook(connection, project_id, name)) is None:
        raise fault(Reason.ENTRY_NOT_FOUND, f"There is no webhook {name!r} here: list them.", path=name)
    return found


# What they are told ---------------------------------------------------------------------------------------------------


def notify(tx: Transaction, run: RunHead, event: pb.WebhookEvent.ValueType, loop: Loop) -> bool:
    """Tell the webhooks of a run's project what has become of a loop, once this is committed; whether there are any."""
    if not run.has_webhooks:
        return False
    hooks = [
        one
        for one in rows.list_webhooks(tx.connection, run.project_id)
        if event in one.events and one.run in ("", run.alias)
    ]
    if not hooks:
        return False
    body = _body(run, event, loop, tx.now_ms)
    is_full = rows.count_pending(tx.connection, run.project_id) + len(hooks) > rules.PENDING_MAX
    refused = f"{rules.PENDING_MAX} deliveries of the project were pending: no room." if is_full else ""
    for hook in hooks:
        delivery_id = f"msg_{secrets.token_hex(16)}"
        rows.add_delivery(tx.connection, hook.id, delivery_id, run.alias, event, body, tx.now_ms, refused)
    return True


def _body(run: RunHead, event: pb.WebhookEvent.ValueType, loop: Loop, now_ms: int) -> str:
    message = pb.WebhookMessage(
        type=pb.WebhookEvent.Name(event).removeprefix("WEBHOOK_EVENT_").lower(),
        data=pb.LoopNews(
            project=run.project,
            run=run.alias,
            loop=loop.sequence,
            status=loop.status,
            reason=loop.reason,
            summary=loop.summary,
            turns=loop.turns,
            usage=loop_to_pb(loop).usage,
        ),
    )
    message.timestamp.FromMilliseconds(now_ms)
    return MessageToJson(message, preserving_proto_field_name=True, indent=None)


def list_deliveries(
    connection: Connection, project: str, webhook: str, state: int, size: int, token: str
) -> tuple[list[pb.Delivery], str]:
    """A page of deliveries, the latest first. Raises PROJECT_NOT_FOUND."""
    project_id, wanted = get_project(connection, project).id, page_size(size)
    (before,) = decode_page_token(token, int) or (PLACE_MAX,)
    found = rows.list_deliveries(connection, project_id, webhook, state, int(before), wanted + 1)
    page, following = page_of(found, wanted, lambda one: (one.id,), lambda one: len(one.body) * 4 + 4 * 1024)
    return list(map(_delivery_to_pb, page)), following


def retry_delivery(tx: Transaction, project: str, delivery_id: str) -> pb.Delivery:
    """Make a delivery due, with all attempts. Raises PROJECT_NOT_FOUND, ENTRY_NOT_FOUND."""
    project_id = get_project(tx.connection, project).id
    if (found := rows.find_delivery(tx.connection, project_id, delivery_id)) is None:
        raise _unknown_delivery(delivery_id)
    rows.retry(tx.connection, found.id, tx.now_ms)
    tx.detail.update(webhook=found.webhook, delivery=delivery_id)
    again = rows.find_delivery(tx.connection, project_id, delivery_id)
    assert again, "it was found"
    return _delivery_to_pb(again)


def _unknown_delivery(delivery_id: str) -> TurnwrightError:
    return fault(Reason.ENTRY_NOT_FOUND, f"There is no delivery {delivery_id!r} here: list them.", path=delivery_id)


# Sending --------------------------------------------------------------------------------------------------------------


def deliveries_due(connection: Connection) -> bool:
    return rows.are_due(connection, read_now(connection))


def list_due(connection: Connection, limit: int) -> list[DueRow]:
    """What may be claimed now. Raises LIMIT_EXCEEDED."""
    check_count("limit", limit, CLAIMS_MAX)
    now_ms = read_now(connection)
    return rows.list_due(connection, now_ms, rules.LEASE_MS, OF_ONE_MAX, OF_PROJECT_MAX, limit)


def claim_due(tx: Transaction, due: Sequence[DueRow]) -> list[DueRow]:
    """Claim what nobody else has claimed since it was listed."""
    return [one for one in due if rows.claim(tx.connection, one, tx.now_ms, tx.now_ms + rules.LEASE_MS)]


def end_attempt(tx: Transaction, delivery_id: str, attempt: int, http_status: int, error: str) -> None:
    """Note how an attempt went, unless it was given up as lost, and another one has begun since."""
    found = rows.find_attempt(tx.connection, delivery_id)
    if found is None or found[1] != attempt:
        return
    key, _, before = found
    error = error[:_ERROR_CHARS_MAX]
    if rules.is_delivered(http_status):
        rows.end_attempt(tx.connection, key, rows.DELIVERED, 0, tx.now_ms, http_status, "")
    elif http_status == rules.GONE or (wait_s := rules.next_wait_s(max(1, attempt - before))) is None:
        rows.end_attempt(tx.connection, key, rows.DEAD, 0, tx.now_ms, http_status, error)
    else:
        rows.end_attempt(tx.connection, key, rows.PENDING, tx.now_ms + wait_s * 1000, 0, http_status, error)


def webhooks_cleanup(database: Database) -> Chore:
    """The chore that deletes what was delivered or given up long ago."""

    def work(tx: Transaction) -> bool:
        delivered_ms = tx.now_ms - rules.DELIVERED_DAYS * _DAY_MS
        dead_ms = tx.now_ms - rules.DEAD_DAYS * _DAY_MS
        return rows.delete_old(tx.connection, delivered_ms, dead_ms, CLEANUP_ROWS_MAX) == CLEANUP_ROWS_MAX

    return Chore("webhooks_cleanup", CLEANUP_EVERY_S, partial(database.write, work, Durability.NORMAL, {WEBHOOKS_LOCK}))


# Messages -------------------------------------------------------------------------------------------------------------


def _webhook_to_pb(row: WebhookRow) -> pb.Webhook:
    return pb.Webhook(name=row.name, url=row.url, events=_numbers(row.events), run=row.run, set_by=row.set_by)


def _numbers(events: Collection[int]) -> list[pb.WebhookEvent.ValueType]:
    return [one for one in _EVENTS if one in events]


def _delivery_to_pb(row: DeliveryRow) -> pb.Delivery:
    message = pb.Delivery(
        delivery_id=row.delivery_id,
        webhook=row.webhook,
        run=row.run,
        event=pb.WebhookEvent.ValueType(row.event),
        state=pb.DeliveryState.ValueType(row.state),
        attempts=row.attempts,
        http_status=row.http_status,
        error=row.error,
        body=row.body,
    )
    message.create_time.FromMilliseconds(row.create_ms)
    if row.next_ms:
        message.next_time.FromMilliseconds(row.next_ms)
    return message
