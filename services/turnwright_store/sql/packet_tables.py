"""The tables of packets: their layouts, and the long texts that the packets of a project share."""

from __future__ import annotations

from sqlalchemy import Column, LargeBinary, PrimaryKeyConstraint, Table, UniqueConstraint

from turnwright_store.sql.columns import compressed_column, foreign_key, metadata, number_column, primary_key
from turnwright_store.sql.dialect import Digest

blocks = Table(
    "blocks",
    metadata,
    primary_key(),
    foreign_key("project_id", "projects.id"),
    Column("digest", Digest, nullable=False),
    compressed_column("text"),
    UniqueConstraint("project_id", "digest"),
)

packets = Table(
    "packets",
    metadata,
    foreign_key("run_id", "runs.id"),
    number_column("turn", None),
    # The turn that `layout` is a difference to; 0: it stands for itself.
    number_column("base_turn"),
    # How many layouts there are from this one to the one that stands for itself.
    number_column("depth"),
    # Pieces of the packet, one that stands in it twice counted twice.
    number_column("length"),
    compressed_column("layout"),
    # What the owner wants to know of it when it is sent again: JSON that the store does not read.
    compressed_column("note", ""),
    # Model calls that were made with it, or were about to be.
    number_column("calls"),
    # The texts that no earlier packet of the run has, but for long ones, which are blocks (see sql.packets).
    Column("pieces", LargeBinary),
    PrimaryKeyConstraint("run_id", "turn"),
)
