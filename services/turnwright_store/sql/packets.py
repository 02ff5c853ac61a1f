"""Rows of packets: blocks, each stored once in a project, and the layout of each turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select

from turnwright_store.sql.entries import parts
from turnwright_store.sql.tables import blocks, packets

_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_ADD_BLOCKS: Final = insert(blocks).returning(blocks.c.digest, blocks.c.id)
_TEXTS: Final = select(blocks.c.id, blocks.c.text).where(blocks.c.id.in_(bindparam("ids", expanding=True)))
_ROW: Final = (packets.c.turn, packets.c.base_turn, packets.c.depth, packets.c.length, packets.c.layout)
_LATEST: Final = (
    select(*_ROW)
    .where(packets.c.run_id == bindparam("run"), packets.c.turn <= bindparam("up_to"))
    .order_by(packets.c.turn.desc())
    .limit(bindparam("page"))
)
_NOTE: Final = select(packets.c.note).where(
    packets.c.run_id == bindparam("run"), packets.c.turn == bindparam("turn_is")
)
_ADD: Final = insert(packets)
_REMOVE: Final = delete(packets).where(packets.c.run_id == bindparam("run"), packets.c.turn == bindparam("turn_is"))


@dataclass(frozen=True, slots=True)
class PacketRow:
    """A stored layout."""

    turn: int
    base_turn: int
    """The turn that the layout is a difference to; 0: it stands for itself."""
    depth: int
    """Layouts from this one to the one that stands for itself."""
    length: int
    """Blocks of the packet."""
    layout: str


def known_blocks(connection: Connection, project_id: int, digests: Iterable[str]) -> dict[str, int]:
    """The ids of those blocks that a project has, by digest."""
    found: dict[str, int] = {}
    for part in parts(digests):
        found |= _pairs(connection.execute(_KNOWN, {"project": project_id, "digests": part}))
    return found


def add_blocks(connection: Connection, project_id: int, texts: Iterable[tuple[str, str]]) -> dict[str, int]:
    """The ids of new blocks, by digest."""
    values = [{"project_id": project_id, "digest": digest, "text": text} for digest, text in texts]
    if not values:
        return {}
    return _pairs(connection.execute(_ADD_BLOCKS, values))


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    """The texts of blocks, by id."""
    return _pairs(connection.execute(_TEXTS, {"ids": list(ids)}))


def _pairs(rows: Any) -> dict[Any, Any]:
    return dict(rows.all())


def latest_packets(connection: Connection, run_id: int, up_to: int, page: int) -> list[PacketRow]:
    """Layouts of a run, latest first, those of turns up to a number."""
    return [PacketRow(*row) for row in connection.execute(_LATEST, {"run": run_id, "up_to": up_to, "page": page})]


def packet_note(connection: Connection, run_id: int, turn: int) -> str:
    """What the owner noted of a packet that is stored."""
    return str(connection.execute(_NOTE, {"run": run_id, "turn_is": turn}).scalar_one())


def add_packet(connection: Connection, run_id: int, row: PacketRow, note: str) -> None:
    """Store the layout of a turn, and what its owner noted of it."""
    connection.execute(_ADD, {"run_id": run_id, **asdict(row), "note": note})


def remove_packet(connection: Connection, run_id: int, turn: int) -> None:
    """Drop the layout of a turn that none is based on."""
    connection.execute(_REMOVE, {"run": run_id, "turn_is": turn})
