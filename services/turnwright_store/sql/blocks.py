"""Rows of blocks: the long texts of packets that show no entry, each stored once in a project.

System messages and descriptions of tools are the same in most runs of a project. Source: architecture 3 (what the model
was sent).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnwright_store.ports import Connection
from turnwright_store.sql.core import bindparam, insert, select
from turnwright_store.sql.entries import batched
from turnwright_store.sql.lazy_tables import blocks

_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_ADD: Final = insert(blocks).returning(blocks.c.digest, blocks.c.id)
_TEXTS: Final = select(blocks.c.id, blocks.c.text).where(blocks.c.id.in_(bindparam("ids", expanding=True)))


def prefetch_known(connection: Connection, project_id: int, texts: Mapping[str, str]) -> list[Any]:
    """Query which of some texts, by digest, a project has."""
    return [connection.prefetch(_KNOWN, {"project": project_id, "digests": part}) for part in batched(texts)]


def stored_blocks(
    connection: Connection, project_id: int, texts: Mapping[str, str], asked: list[Any]
) -> dict[str, int]:
    """Ids of some texts by digest; those that the project does not have are added."""
    ids = {digest: block for rows in asked for digest, block in rows}
    new = [{"project_id": project_id, "digest": one, "text": texts[one]} for one in texts if one not in ids]
    return ids | dict(connection.execute(_ADD, new).all()) if new else ids


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    return dict(connection.execute(_TEXTS, {"ids": list(ids)}).all()) if ids else {}
