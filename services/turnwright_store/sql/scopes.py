"""Scopes and their revisions: bumped once by each moment of a transaction that touches them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import BigInteger, Connection, bindparam, case, insert, select, text, update

from turnwright_store.ports import Transaction
from turnwright_store.sql.clauses import unanswered
from turnwright_store.sql.tables import meta, scopes

GLOBAL: Final = "global"

_BUMP: Final = (
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(revision=scopes.c.revision + bindparam("step"), positions=scopes.c.positions + bindparam("more_positions"))
    .returning(scopes.c.revision, scopes.c.positions)
)
_BUMP_IF_UNCHANGED: Final = unanswered(
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    # What was not read under its lock would be lost: NULL is refused.
    .values(
        revision=case((scopes.c.revision == bindparam("read_revision"), bindparam("new_revision", type_=BigInteger))),
        positions=scopes.c.positions + bindparam("more_positions"),
    )
)
_ADD: Final = insert(scopes).returning(scopes.c.id)
_FIND: Final = select(scopes.c.id).where(scopes.c.key == bindparam("key"))
_META: Final = select(meta.c.value).where(meta.c.key == bindparam("key"))
_META_PUT: Final = text(
    "INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = :value"
)


def bump_scope(tx: Transaction, scope: int, positions: int = 0) -> tuple[int, int]:
    """Bump a scope; returns its revision, and its last position after this many new ones.

    The first call of a transaction's moment increments the revision; later ones keep it.
    """
    step = 0 if scope in tx.bumped else 1
    revision, last_position = tx.connection.execute(
        _BUMP, {"scope": scope, "step": step, "more_positions": positions}
    ).one()
    tx.revisions_before.setdefault(scope, revision - step)
    tx.bumped[scope], tx.positions[scope] = revision, last_position
    return revision, last_position


class ScopePosition(Struct, frozen=True):
    """The revision of a scope, and the last position that was assigned in its timeline."""

    revision: int
    positions: int


def bump_if_unchanged(tx: Transaction, scope: int, before: ScopePosition, positions: int) -> ScopePosition:
    """Bump a scope that was read in this transaction (compare-and-set), and assign this many new positions.

    No answer is awaited: if its revision is another one by now, the statement fails. The first call of a transaction's
    moment increments the revision; later ones keep it.
    """
    now = ScopePosition(tx.bumped.get(scope, before.revision), tx.positions.get(scope, before.positions))
    after = ScopePosition(now.revision if scope in tx.bumped else now.revision + 1, now.positions + positions)
    tx.revisions_before.setdefault(scope, now.revision)
    tx.bumped[scope], tx.positions[scope] = after.revision, after.positions
    if tx.deferred_bumps is None:
        _write_bump(tx, scope, now, after)
    else:
        tx.deferred_bumps[scope] = (*tx.deferred_bumps.get(scope, (now, after))[:1], after)
    return after


def _write_bump(tx: Transaction, scope: int, read: ScopePosition, after: ScopePosition) -> None:
    values = {
        "scope": scope,
        "read_revision": read.revision,
        "new_revision": after.revision,
        "more_positions": after.positions - read.positions,
    }
    tx.connection.execute(_BUMP_IF_UNCHANGED, values)


def write_deferred_bumps(tx: Transaction) -> None:
    """Write the bumps that were deferred: those of several moments as one."""
    for scope, (read, after) in (tx.deferred_bumps or {}).items():
        _write_bump(tx, scope, read, after)
    tx.deferred_bumps = None


def add_scope(tx: Transaction, key: str) -> int:
    return int(tx.connection.execute(_ADD, {"key": key, "revision": 0}).scalar_one())


def add_bumped_scope(tx: Transaction, key: str) -> tuple[int, int]:
    """Add a scope that this moment changes first; returns its id and revision."""
    scope = int(tx.connection.execute(_ADD, {"key": key, "revision": 1}).scalar_one())
    tx.bumped[scope], tx.positions[scope], tx.revisions_before[scope] = 1, 0, 0
    return scope, 1


def find_scope(connection: Connection, key: str) -> int:
    return int(connection.execute(_FIND, {"key": key}).scalar_one())


def find_meta(connection: Connection, key: str) -> str | None:
    value: str | None = connection.execute(_META, {"key": key}).scalar_one_or_none()
    return value


def put_meta(connection: Connection, key: str, value: str) -> None:
    """Write a value, whether there was one or not."""
    connection.execute(_META_PUT, {"key": key, "value": value})
