"""Rows of packets: the layout of each turn, and blocks, the long texts that show no entry.

A block is stored once in a project: system messages and descriptions of tools are the same in most of its runs. Source:
architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, delete, insert, select, update

from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.entries import batched
from turnwright_store.sql.tables import blocks, packets

_ROW: Final = (
    packets.c.turn, packets.c.base_turn, packets.c.depth, packets.c.length, packets.c.layout, packets.c.calls
)  # fmt: skip
_LATEST: Final = (
    select(*_ROW)
    .where(packets.c.run_id == bindparam("run"), packets.c.turn <= bindparam("up_to"))
    .order_by(packets.c.turn.desc())
    .limit(bindparam("page"))
)
_OF_TURN: Final = (packets.c.run_id == bindparam("run"), packets.c.turn == bindparam("turn_is"))
_CALLS: Final = select(packets.c.calls).where(*_OF_TURN)
_CALL_AGAIN: Final = update(packets).where(*_OF_TURN).values(calls=packets.c.calls + 1)
_ADD: Final = insertion(packets)
_REMOVE: Final = delete(packets).where(*_OF_TURN)
_NOTE: Final = select(packets.c.note).where(*_OF_TURN)
_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_BLOCKS_ADD: Final = insert(blocks).returning(blocks.c.digest, blocks.c.id)
_TEXTS: Final = select(blocks.c.id, blocks.c.text).where(blocks.c.id.in_(bindparam("ids", expanding=True)))


class PacketRow(Struct, frozen=True):
    """A stored layout."""

    turn: int
    base_turn: int
    """The turn that the layout is a difference to; 0: it stands for itself."""
    depth: int
    """Layouts from this one to the one that stands for itself."""
    length: int
    """Pieces of the packet."""
    layout: str
    calls: int = 0
    """Model calls that were made with it, or were about to be."""


def latest_packets(connection: Connection, run_id: int, up_to: int, page: int) -> list[PacketRow]:
    return [PacketRow(*row) for row in connection.execute(_LATEST, {"run": run_id, "up_to": up_to, "page": page})]


def packet_note(connection: Connection, run_id: int, turn: int) -> str:
    return str(connection.execute(_NOTE, {"run": run_id, "turn_is": turn}).scalar_one())


def add_packet(connection: Connection, run_id: int, row: PacketRow, note: str, pieces: bytes | None) -> None:
    """Add the packet of the open turn, which is the run's latest one."""
    connection.execute(_ADD, {"run_id": run_id, **asdict(row), "note": note, "pieces": pieces})


def call_again(connection: Connection, run_id: int, turn: int) -> bool:
    """Count another call with the packet of a turn; False where there is none."""
    return bool(connection.execute(_CALL_AGAIN, {"run": run_id, "turn_is": turn}).rowcount)


def count_calls(connection: Connection, run_id: int, turn: int) -> int:
    """The calls that were made in a turn, or were about to be."""
    return int(connection.execute(_CALLS, {"run": run_id, "turn_is": turn}).scalar() or 0)


def remove_packet(connection: Connection, run_id: int, turn: int) -> None:
    connection.execute(_REMOVE, {"run": run_id, "turn_is": turn})


def stored_blocks(connection: Connection, project_id: int, texts: Mapping[str, str]) -> dict[str, int]:
    """Ids of some texts by digest; those that the project does not have are added."""
    ids: dict[str, int] = {}
    for part in batched(texts):
        ids |= dict(connection.execute(_KNOWN, {"project": project_id, "digests": part}).all())
    missing = [{"project_id": project_id, "digest": digest, "text": texts[digest]} for digest in texts.keys() - ids]
    for some in batched(missing):
        ids |= dict(connection.execute(_BLOCKS_ADD, some).all())
    return ids


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    return dict(connection.execute(_TEXTS, {"ids": list(ids)}).all()) if ids else {}
