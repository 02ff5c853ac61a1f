"""The table of agents: runs that runs have started."""

from __future__ import annotations

from sqlalchemy import Column, Table, UniqueConstraint, literal_column

from turnwright_store.sql.columns import metadata, number_column, partial_index, primary_key, text_column
from turnwright_store.sql.dialect import Key

agents = Table(
    "agents",
    metadata,
    primary_key(),
    # The run that started it, and its own. No foreign keys: a row outlives the rows of either.
    Column("run_id", Key, nullable=False),
    Column("agent_id", Key, nullable=False),
    # Of the run that started it: the loop, and the record of the command.
    number_column("loop"),
    text_column("path"),
    text_column("name"),
    number_column("background"),
    # What is reserved for it: a JSON object of the limits of Budget.
    text_column("reserved"),
    # What it has spent, a JSON object of Spend, once it has ended and its own agents have.
    text_column("spent"),
    number_column("status"),
    number_column("end_ms"),
    # The record of the command that waits for it; empty: none does.
    text_column("waiter"),
    # The latest row of its proposals that the runs above were told of.
    number_column("announced"),
    # 0: there is something to look at; 1: its end was told, and who waited for it was woken.
    number_column("settled"),
    number_column("create_ms"),
    UniqueConstraint("run_id", "path"),
    UniqueConstraint("run_id", "name"),
    UniqueConstraint("agent_id"),
)
partial_index("ix_agents_open", agents.c.id, where=agents.c.settled == literal_column("0"))
