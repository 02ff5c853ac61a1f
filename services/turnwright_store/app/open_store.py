"""Opening a database before the first call: its identity, its schemes, models from the environment.

Source: architecture 3; rows RU084, RU099.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Assembly, Model

from turnwright_core.errors import Reason, fault
from turnwright_core.rules_file import RulesFile, RulesFileError, read_rules
from turnwright_core.schemes import BUILTIN, Scheme
from turnwright_core.wire.schemes import registry_to_pb
from turnwright_kit.settings import PREFIX, SettingsError
from turnwright_store.config import CONTEXT_PREFIX, ModelSeeds, StoreSettings
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Transaction
from turnwright_store.sql import registry
from turnwright_store.sql.scopes import GLOBAL, find_meta, find_scope, put_meta

INCARNATION = "incarnation"
"""Key of the history's identity in `meta`."""

DEPLOYMENT = "deployment"
"""Key of the deployment's identity in `meta`: that of the first history, which a restored backup keeps."""


def check_identity(connection: Connection) -> None:
    """Read the minimum that every store has. Raises DATABASE_UNAVAILABLE if it is missing."""
    if find_meta(connection, INCARNATION) is None:
        raise fault(Reason.DATABASE_UNAVAILABLE, "The database has lost the identity of its history.")


class OpenedStore(Struct, frozen=True):
    """The state of an opened database."""

    incarnation: str
    schemes: Mapping[str, Scheme]
    global_scope: int


def open_store(tx: Transaction, new_incarnation: Callable[[], str], seeds: ModelSeeds) -> OpenedStore:
    """Prepare a database. Raises SettingsError for a context length of an unknown model."""
    incarnation = find_meta(tx.connection, INCARNATION)
    if incarnation is None:
        incarnation = new_incarnation()
        put_meta(tx.connection, INCARNATION, incarnation)
    if find_meta(tx.connection, DEPLOYMENT) is None:
        put_meta(tx.connection, DEPLOYMENT, incarnation)
    registry.put_schemes(tx.connection, BUILTIN)
    registry.put_models(tx.connection, _models_to_seed(tx.connection, seeds))
    schemes = {scheme.name: scheme for scheme in registry.list_schemes(tx.connection)}
    return OpenedStore(incarnation, schemes, find_scope(tx.connection, GLOBAL))


def read_opened_store(connection: Connection, seeds: ModelSeeds) -> OpenedStore | None:
    """What `open_store` would return for a database in which it had nothing to write; None if it had.

    Raises SettingsError as `open_store`.
    """
    incarnation = find_meta(connection, INCARNATION)
    schemes = {scheme.name: scheme for scheme in registry.list_schemes(connection)}
    models = all(registry.find_model(connection, one.alias) == one for one in _models_to_seed(connection, seeds))
    if incarnation is None or find_meta(connection, DEPLOYMENT) is None:
        return None
    if not models or any(schemes.get(one.name) != one for one in BUILTIN):
        return None
    return OpenedStore(incarnation, schemes, find_scope(connection, GLOBAL))


def _models_to_seed(connection: Connection, seeds: ModelSeeds) -> list[Model]:
    """The environment overrides what it sets; other stored values stay."""
    models = []
    for alias in sorted({*seeds.vendor_models, *seeds.context_lengths}):
        known = registry.find_model(connection, alias)
        vendor_model = seeds.vendor_models.get(alias) or (known.vendor_model if known else "")
        if not vendor_model:
            raise SettingsError(f"{CONTEXT_PREFIX}{alias}: there is no model {alias!r} to give a context length")
        is_same = known is not None and known.vendor_model == vendor_model
        model = known if known and is_same else Model(alias, vendor_model)
        models.append(replace(model, context_length=seeds.context_lengths.get(alias, model.context_length)))
    return models


def rules_of(opened: OpenedStore, settings: StoreSettings) -> StoreRules:
    """The rules of a store with these settings, for its database. Raises SettingsError for a file."""
    file = settings.rules_file
    try:
        approval = read_rules(file) if file else RulesFile()
    except RulesFileError as error:
        raise SettingsError(f"{PREFIX}RULES: {error}") from None
    return StoreRules(
        approval_rules=approval.rules,
        approval_version=approval.version,
        incarnation=opened.incarnation,
        schemes=opened.schemes,
        schemes_version=registry_to_pb(opened.schemes.values()).version,
        global_scope=opened.global_scope,
        loops_queued_max=settings.loops_queued_max,
        heartbeat_s=settings.heartbeat_s,
        pattern_s_max=settings.pattern_s_max,
        token_divisor=settings.token_divisor,
        assembly=Assembly[settings.assembly.upper()],
        limits=settings.write_limits,
        lease_ms=round(settings.lease_s * 1000),
        lease_grace_ms=round(settings.lease_grace_s * 1000),
    )
