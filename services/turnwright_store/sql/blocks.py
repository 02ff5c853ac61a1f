"""Rows of blocks: the long texts of packets that show no entry, each stored once in a project.

System messages and descriptions of tools are the same in most runs of a project. Source: architecture 3 (what the model
was sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnwright_store.ports import Connection
from turnwright_store.sql.clauses import parameters
from turnwright_store.sql.core import bindparam, insert, select
from turnwright_store.sql.entries import batched
from turnwright_store.sql.lazy_tables import blocks

_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_BLOCK: Final = ("project_id", "digest", "text")
_ADD: Final = insert(blocks).values(parameters(*_BLOCK)).returning(blocks.c.digest, blocks.c.id)
_TEXTS: Final = select(blocks.c.id, blocks.c.text).where(blocks.c.id.in_(bindparam("ids", expanding=True)))


def prefetch_known(connection: Connection, project_id: int, texts: Mapping[str, str]) -> list[Any]:
    """Query which of some texts, by digest, a project has."""
    return [connection.prefetch(_KNOWN, {"project": project_id, "digests": part}) for part in batched(texts)]


def stored_blocks(
    connection: Connection, project_id: int, texts: Mapping[str, str], asked: list[Any]
) -> dict[str, int]:
    """Ids of some texts by digest; those that the project does not have are added."""
    ids = {digest: block for rows in asked for digest, block in rows}
    for part in batched([(project_id, digest, text) for digest, text in texts.items() if digest not in ids]):
        ids |= dict(connection.insert(_ADD, _BLOCK, part).all())
    return ids


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    return dict(connection.execute(_TEXTS, {"ids": list(ids)}).all()) if ids else {}
