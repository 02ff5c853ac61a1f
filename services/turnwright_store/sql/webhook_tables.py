"""The tables of webhooks, and of what they are told."""

from __future__ import annotations

from sqlalchemy import Column, Index, Table, UniqueConstraint

from turnwright_store.sql.columns import (
    compressed_column,
    foreign_key,
    metadata,
    number_column,
    primary_key,
    text_column,
)
from turnwright_store.sql.dialect import Key

webhooks = Table(
    "webhooks",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    text_column("name"),
    text_column("url"),
    # JSON: the numbers of the events that it is told.
    text_column("events"),
    # The only run that it is told about; empty: all of the project.
    text_column("run"),
    text_column("set_by"),
    # Random; its secret follows from it and from the deployment's.
    text_column("salt"),
    UniqueConstraint("project_id", "name"),
)

# The outbox: what webhooks are told, written with what happened.
deliveries = Table(
    "deliveries",
    metadata,
    primary_key(),
    # No foreign key: the end of a loop must not fail because a webhook is deleted at that moment.
    Column("webhook_id", Key, nullable=False),
    text_column("delivery_id"),
    text_column("run"),
    number_column("event"),
    number_column("state"),
    number_column("attempts"),
    # How many of them were made before somebody had it sent again: the waits are counted from there.
    number_column("attempts_before"),
    # 1 while an attempt has not ended: it is lost once its time has passed.
    number_column("sending"),
    number_column("create_ms"),
    # When it is sent next: while it is being sent, when it is given up as lost; 0: never.
    number_column("next_ms"),
    # When it was delivered or given up; 0: it has not been.
    number_column("end_ms"),
    number_column("http_status"),
    text_column("error"),
    compressed_column("body"),
    UniqueConstraint("delivery_id"),
)
Index("ix_deliveries_webhook", deliveries.c.webhook_id)
Index("ix_deliveries_due", deliveries.c.next_ms)
Index("ix_deliveries_end", deliveries.c.end_ms)
