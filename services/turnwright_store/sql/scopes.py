"""Scopes and their revisions: raised once by each moment of a transaction that touches them."""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from sqlalchemy import BigInteger, bindparam, case, insert, select, update

from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql.tables import meta, scopes

GLOBAL: Final = "global"

_RAISE: Final = (
    update(scopes)
    .where(scopes.c.id == bindparam("scope"))
    .values(revision=scopes.c.revision + bindparam("step"), positions=scopes.c.positions + bindparam("places"))
    .returning(scopes.c.revision, scopes.c.positions)
)
_RAISE_KNOWN: Final = (
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


def raise_revision(tx: Transaction, scope: int, places: int = 0) -> tuple[int, int]:
    """The scope's revision in this transaction, and the last of so many new places in its timeline.

    The first call of a transaction's moment raises the revision by one; later ones keep it.
    """
    step = 0 if scope in tx.raised else 1
    revision, last_place = tx.connection.execute(_RAISE, {"scope": scope, "step": step, "places": places}).one()
    tx.raised[scope], tx.places[scope] = revision, last_place
    return revision, last_place


class Reached(Struct, frozen=True):
    """How far a scope has come: its revision, and the last place that was given in its timeline."""

    revision: int
    places: int


def raise_known(tx: Transaction, scope: int, before: Reached, places: int) -> Reached:
    """Raise a scope that was read in this transaction, and take so many new places; no answer is waited for.

    The first call of a transaction's moment raises the revision by one; later ones keep it.
    """
    now = Reached(tx.raised.get(scope, before.revision), tx.places.get(scope, before.places))
    after = Reached(now.revision if scope in tx.raised else now.revision + 1, now.places + places)
    values = {
        "scope": scope,
        "read_revision": now.revision,
        "new_revision": after.revision,
        "places": places,
    }
    tx.connection.execute(_RAISE_KNOWN, values)
    tx.raised[scope], tx.places[scope] = after.revision, after.places
    return after


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
