"""`webhook`: HTTP servers that are told what becomes of runs, and what they were told."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from turnwright.webhooks.v1 import webhook_service_pb2 as pb

from turnwright_cli.administration import utc_time
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, enum_word, show_list, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project


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
