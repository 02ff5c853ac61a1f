"""`audit`, `quota` and `webhook`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.audits.v1 import audit_service_pb2
from turnwright.quotas.v1 import quota_service_pb2
from turnwright.types.v1 import error_pb2
from turnwright.webhooks.v1 import webhook_service_pb2 as pb

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, enum_word, show_list, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project

_DAYS: Final = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0}


async def show_audit(call: Invocation, *, deployment: bool, refused: bool, since: str, most: int) -> int:
    begin = datetime.now(UTC) - time_span("--since", since) if since else None
    async with open_project(call, reads=True) as (client, project):
        where = "" if deployment else project
        rows = await client.list_audit(where, since=begin, refused=refused, most=most)
    return show_list(call, rows, _REFUSED if refused else _CHANGES, empty="There is nothing yet.")


def time_span(option: str, text: str) -> timedelta:
    """A time such as 30m, 12h or 7d. Raises FailureError."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    if found is None:
        raise usage(f"{option} takes a whole number with m, h or d, such as 7d, not {safe_line(text)!r}.")
    return timedelta(days=int(found[1]) * _DAYS[found[2]])


def utc_time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _who(row: audit_service_pb2.AuditRow) -> str:
    name = row.principal or row.peer or "unknown"
    return f"{name} by {row.by}" if row.by else name


_COMMON: Final[Sequence[Column[audit_service_pb2.AuditRow]]] = (
    Column("time (UTC)", lambda one: utc_time(one.time)),
    Column("who", _who),
    Column("what", lambda one: one.method),
    Column("run", lambda one: one.run),
)
_CHANGES: Final = (*_COMMON, Column("shown by", lambda one: one.proof), Column("detail", lambda one: one.detail_json))
_REFUSED: Final = (
    *_COMMON,
    Column("times", lambda one: str(one.count)),
    Column("why", lambda one: enum_word(error_pb2.ErrorReason.DESCRIPTOR, one.refusal)),
)


async def list_quotas(call: Invocation, *, deployment: bool) -> int:
    async with open_project(call, reads=True) as (client, project):
        found = await client.list_quotas("" if deployment else project)
    return show_list(
        call, found, _QUOTAS, empty="No quotas. Set one with `turnwright quota set tokens-day 1000000`."
    )  # fmt: skip


async def set_quota(call: Invocation, *, metric: str, limit: float, subject: str, deployment: bool) -> int:
    wanted = quota_service_pb2.Quota(metric=_metric(metric), limit=limit, subject=subject)
    async with open_project(call) as (client, project):
        made = await client.set_quota("" if deployment else project, wanted)
    return answer(call, [made], f"{_whose(made)}: {made.limit:g} {metric}, of which {made.used:g} are used")


async def remove_quota(call: Invocation, *, metric: str, subject: str, deployment: bool) -> int:
    async with open_project(call) as (client, project):
        where = "" if deployment else project
        await client.delete_quota(where, subject, _metric(metric))
        left = await client.list_quotas(where) if call.as_json else ()
    return answer(call, left, f"{metric}: removed")


def _metric(word: str) -> quota_service_pb2.QuotaMetric.ValueType:
    return quota_service_pb2.QuotaMetric.Value(f"QUOTA_METRIC_{word.replace('-', '_').upper()}")


def _word(quota: quota_service_pb2.Quota) -> str:
    return enum_word(quota_service_pb2.QuotaMetric.DESCRIPTOR, quota.metric).replace("_", "-")


def _whose(quota: quota_service_pb2.Quota) -> str:
    return safe_line(quota.subject) or "all together"


_QUOTAS: Final[Sequence[Column[quota_service_pb2.Quota]]] = (
    Column("of", _whose),
    Column("what", _word),
    Column("limit", lambda one: f"{one.limit:g}"),
    Column("used", lambda one: f"{one.used:g}"),
    Column("reserved", lambda one: f"{one.reserved:g}"),
    Column("renewed (UTC)", lambda one: utc_time(one.renew_time) if one.HasField("renew_time") else ""),
    Column("set by", lambda one: one.set_by),
)


async def list_webhooks(call: Invocation) -> int:
    async with open_project(call, reads=True) as (client, project):
        found = await client.list_webhooks(project)
    return show_list(call, found, _WEBHOOKS, empty="No webhooks. Set one with `turnwright webhook set NAME URL`.")


async def set_webhook(call: Invocation, *, name: str, url: str, events: Collection[str], run: str) -> int:
    numbers = [pb.WebhookEvent.Value(f"WEBHOOK_EVENT_LOOP_{event.upper()}") for event in events]
    async with open_project(call) as (client, project):
        made, secret = await client.set_webhook(project, pb.Webhook(name=name, url=url, events=numbers, run=run))
    if call.as_json:
        return answer(call, [pb.SetWebhookResponse(webhook=made, secret=secret)], "")
    write_line(f"{made.name}: set. Its server verifies what it is sent with this secret, which is shown here alone:")
    write_line(secret)
    return 0


async def remove_webhook(call: Invocation, *, name: str) -> int:
    async with open_project(call) as (client, project):
        await client.delete_webhook(project, name)
        left = await client.list_webhooks(project) if call.as_json else ()
    return answer(call, left, f"{safe_line(name)}: removed")


async def list_deliveries(call: Invocation, *, webhook: str, state: str | None, most: int) -> int:
    wanted = pb.DeliveryState.Value(f"DELIVERY_STATE_{(state or 'unspecified').upper()}")
    async with open_project(call, reads=True) as (client, project):
        found = await client.list_deliveries(project, webhook=webhook, state=wanted, most=most)
    return show_list(call, found, _DELIVERIES, empty="Nothing.")


async def retry_delivery(call: Invocation, *, delivery: str) -> int:
    async with open_project(call) as (client, project):
        made = await client.retry_delivery(project, delivery)
    return answer(call, [made], f"{safe_line(delivery)}: due again")


_WEBHOOKS: Final[Sequence[Column[pb.Webhook]]] = (
    Column("name", lambda one: one.name),
    Column("url", lambda one: one.url),
    Column("is told", lambda one: ", ".join(enum_word(pb.WebhookEvent.DESCRIPTOR, event) for event in one.events)),
    Column("run", lambda one: one.run or "all"),
    Column("set by", lambda one: one.set_by),
)
_DELIVERIES: Final[Sequence[Column[pb.Delivery]]] = (
    Column("id", lambda one: one.delivery_id),
    Column("time (UTC)", lambda one: utc_time(one.create_time)),
    Column("webhook", lambda one: one.webhook),
    Column("run", lambda one: one.run),
    Column("event", lambda one: enum_word(pb.WebhookEvent.DESCRIPTOR, one.event)),
    Column("state", lambda one: enum_word(pb.DeliveryState.DESCRIPTOR, one.state)),
    Column("attempts", lambda one: str(one.attempts)),
    Column("why not", lambda one: one.error),
)
