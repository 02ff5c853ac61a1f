"""Opening a database before the first call: its identity, its schemes, models from the environment.

Source: architecture 3; rows RU084, RU099.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.errors import Reason, fault
from turnwright_core.kit.settings import SettingsError
from turnwright_core.models import Model
from turnwright_core.schemes import BUILTIN, Scheme
from turnwright_store.ports import Connection, Transaction
from turnwright_store.sql import registry
from turnwright_store.sql.scopes import GLOBAL, find_meta, find_scope, read_meta, write_meta

INCARNATION = "incarnation"
"""Key of the history's identity in `meta`."""


def check_identity(connection: Connection) -> None:
    """Read the minimum that every store has. Raises DATABASE_UNAVAILABLE if it is missing."""
    if find_meta(connection, INCARNATION) is None:
        raise fault(Reason.DATABASE_UNAVAILABLE, "The database has lost the identity of its history.")


class Opened(Struct, frozen=True):
    """The state of an opened database."""

    incarnation: str
    schemes: Mapping[str, Scheme]
    global_scope: int


def open_store(
    tx: Transaction,
    new_incarnation: Callable[[], str],
    vendor_models: Mapping[str, str],
    context_lengths: Mapping[str, int],
    context_prefix: str,
) -> Opened:
    """Prepare a database. Raises SettingsError for a context length of an unknown model."""
    incarnation = read_meta(tx, INCARNATION)
    if incarnation is None:
        incarnation = new_incarnation()
        write_meta(tx, INCARNATION, incarnation)
    registry.put_schemes(tx.connection, BUILTIN)
    _seed_models(tx, vendor_models, context_lengths, context_prefix)
    schemes = {scheme.name: scheme for scheme in registry.list_schemes(tx.connection)}
    return Opened(incarnation, schemes, find_scope(tx, GLOBAL))


def _seed_models(
    tx: Transaction, vendor_models: Mapping[str, str], context_lengths: Mapping[str, int], context_prefix: str
) -> None:
    """The environment overrides what it sets; other stored values stay."""
    seeds = []
    for alias in sorted({*vendor_models, *context_lengths}):
        known = registry.find_model(tx.connection, alias)
        vendor_model = vendor_models.get(alias) or (known.vendor_model if known else "")
        if not vendor_model:
            raise SettingsError(f"{context_prefix}{alias}: there is no model {alias!r} to give a context length")
        is_same = known is not None and known.vendor_model == vendor_model
        model = known if known and is_same else Model(alias, vendor_model)
        seeds.append(replace(model, context_length=context_lengths.get(alias, model.context_length)))
    registry.put_models(tx.connection, seeds)
