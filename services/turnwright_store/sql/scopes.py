"""Scopes and their revisions: raised once by each moment of a transaction that touches them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from msgspec import Struct
from sqlalchemy import BigInteger, bindparam, case, insert, select, update

from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql.tables import meta, scopes

GLOBAL: Final = "global"

_BUMP: Final = (
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(revision=scopes.c.revision + bindparam("step"), positions=scopes.c.positions + bindparam("places"))
    .returning(scopes.c.revision, scopes.c.positions)
)
_BUMP_IF_UNCHANGED: Final = (
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    # What was not read under its lock would be lost: NULL is refused.
    .values(
        revision=case((scopes.c.revision == bindparam("read_revision"), bindparam("new_revision", type_=BigInteger))),
        positions=scopes.c.positions + bindparam("places"),
    )
)
_ADD: Final = insert(scopes).returning(scopes.c.id)
_FIND: Final = select(scopes.c.id).where(scopes.c.key == bindparam("key"))
_META: Final = select(meta.c.value).where(meta.c.key == bindparam("key"))


def bump_scope(tx: Transaction, scope: int, places: int = 0) -> tuple[int, int]:
    """The scope's revision in this transaction, and the last of so many new places in its timeline.

    The first call of a transaction's moment raises the revision by one; later ones keep it.
    """
    step = 0 if scope in tx.bumped else 1
    revision, last_place = tx.connection.execute(_BUMP, {"scope": scope, "step": step, "places": places}).one()
    tx.bumped[scope], tx.places[scope] = revision, last_place
    return revision, last_place


class ScopePosition(Struct, frozen=True):
    """How far a scope has come: its revision, and the last place that was given in its timeline."""

    revision: int
    places: int


def bump_if_unchanged(tx: Transaction, scope: int, before: ScopePosition, places: int) -> ScopePosition:
    """Raise a scope that was read in this transaction, and take so many new places; no answer is waited for.

    The first call of a transaction's moment raises the revision by one; later ones keep it.
    """
    now = ScopePosition(tx.bumped.get(scope, before.revision), tx.places.get(scope, before.places))
    after = ScopePosition(now.revision if scope in tx.bumped else now.revision + 1, now.places + places)
    tx.bumped[scope], tx.places[scope] = after.revision, after.places
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
        "places": after.places - read.places,
    }
    tx.connection.execute(_BUMP_IF_UNCHANGED, values)


@contextmanager
def coalesced_bumps(tx: Transaction) -> Iterator[None]:
    """Scopes that are raised by several moments of the block are written once, at its end; nobody reads them in it."""
    held = tx.deferred_bumps = {}
    yield
    tx.deferred_bumps = None
    for scope, (read, after) in held.items():
        _write_bump(tx, scope, read, after)


def add_scope(tx: Transaction, key: str) -> int:
    return int(tx.connection.execute(_ADD, {"key": key}).scalar_one())


def find_scope(tx: Transaction, key: str) -> int:
    return int(tx.connection.execute(_FIND, {"key": key}).scalar_one())


def read_meta(tx: Transaction, key: str) -> str | None:
    return find_meta(tx.connection, key)


def find_meta(connection: Connection, key: str) -> str | None:
    """As read_meta, outside of a write."""
    value: str | None = connection.execute(_META, {"key": key}).scalar_one_or_none()
    return value


def write_meta(tx: Transaction, key: str, value: str) -> None:
    tx.connection.execute(insert(meta), {"key": key, "value": value})
